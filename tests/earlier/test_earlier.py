"""What version 0.1.0 wrote before its modules were moved and renamed opens, verifies and predicts.

The files of this folder were written by that version (questions.py says what was asked); nothing
here may ever be written again by a newer one.
"""

from __future__ import annotations

import json
import pickle
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import sottovoce as sv
from earlier import questions
from earlier.questions import ASKED, COST, FEATURES, FITTED, ILL, PEOPLE, PICKLED, TABLE
from sottovoce.cli.main import app
from sottovoce.errors import InvalidParameter, InvalidRelease, KeyReused, LedgerBroken
from sottovoce.web import access_codes
from sottovoce.web.access_codes import AccessCodes

HERE = Path(__file__).parent
FACTS = json.loads((HERE / "facts.json").read_text(encoding="utf-8"))
#: A question that is not the one asked under the key.
OTHERS = {
    "mean": (sv.Mean(bounds=(0, 10001)), COST),
    "mean of numbers": (sv.Mean(bounds=(0, 10000)), COST),
    "median": (sv.Quantile(0.25, bounds=(0, 10000)), COST),
    "ridge": (sv.Ridge(bounds=questions.SCHEMA, method="statistics"), FEATURES, COST),
    "ridge from statistics": (sv.Ridge(bounds=questions.SCHEMA), FEATURES, COST),
    "ridge with output noise": (
        sv.Ridge(bounds=questions.SCHEMA, method="output-tight", alpha=2.0),
        FEATURES,
        COST,
    ),
    "logistic": (sv.LogisticRegression(bounds=ILL, alpha=3.0), FEATURES, TABLE["ill"]),
}
#: Releases of models that predict from new rows, and what they are read into.
PREDICTING = {
    "ridge": sv.Ridge,
    "ridge-from-statistics": sv.Ridge,
    "ridge-with-output-noise": sv.Ridge,
    "logistic": sv.LogisticRegression,
    "risk": sv.ERM,
    "posterior": sv.PosteriorSample,
}


def read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def read_release(key: str) -> sv.Release:
    return sv.Release.from_json(read(f"releases/{key.replace(' ', '-')}.json"))


def predict(model, features=FEATURES) -> np.ndarray:
    """What a model says of the first four rows, as a probability where it has classes."""
    if hasattr(model, "predict_proba"):
        return model.predict_proba(features)[:4, 1]
    return model.predict(features)[:4]


@pytest.fixture
def books(tmp_path):
    """The books, with what stood beside them."""
    path = tmp_path / "books.db"
    database = sqlite3.connect(path)
    database.executescript(read("books.sql"))
    database.close()
    (tmp_path / "books.db.key").write_bytes(bytes.fromhex(FACTS["key"]))
    (tmp_path / "books.db.heads").write_bytes((HERE / "books.heads").read_bytes())
    (tmp_path / "books.db.codes").write_bytes((HERE / "books.codes").read_bytes())
    for file in tmp_path.iterdir():
        file.chmod(0o600)
    return path


@pytest.fixture
def session(books):
    return sv.Session(ledger=f"sqlite:///{books}")


@pytest.fixture
def run():
    def command(*words: object):
        return CliRunner().invoke(app, [str(word) for word in words])

    return command


def balances(session: sv.Session) -> dict[str, float]:
    return {person: session.balance(person) for person in PEOPLE}


def test_the_books_open_verify_and_hold_what_people_had_left(session):
    session.verify()
    assert balances(session) == FACTS["balances"]
    assert session.ledger.public_key == FACTS["public_key"]
    assert len(list(session.ledger.entries())) == 17


def test_a_sale_is_added_to_books_that_knew_none(session):
    market = sv.market.Market(
        dict.fromkeys(PEOPLE, 1.5), cost_range=(1, 2), trade_off=0.1, mu=1.0, sigma=2.0
    )
    deal = market.allocate()
    session.record_sale(deal, key="first")
    session.record_sale(deal, key="second")
    session.verify()
    bought = deal.by_person()
    assert balances(session) == {
        name: pytest.approx(left + 2 * bought[name], abs=1e-9)
        for name, left in FACTS["balances"].items()
    }


def test_books_in_which_one_amount_was_changed_are_noticed(books):
    database = sqlite3.connect(books)
    database.execute("UPDATE lines SET amount = amount - 1 WHERE number = 2")
    database.commit()
    database.close()
    with pytest.raises(LedgerBroken):
        sv.Session(ledger=f"sqlite:///{books}").verify()


@pytest.mark.parametrize("key", ASKED)
def test_the_same_question_returns_the_stored_bytes_and_costs_nothing(session, key):
    stored = session.ledger.find(key).release
    assert questions.ask(session, key).to_json() == stored
    assert stored == read(f"releases/{key.replace(' ', '-')}.json")
    assert balances(session) == FACTS["balances"]


@pytest.mark.parametrize("key", ASKED)
def test_another_question_under_its_key_is_refused(session, key):
    with pytest.raises(KeyReused):
        session.release(*OTHERS[key], groups=PEOPLE, epsilon=0.75, key=key)
    assert balances(session) == FACTS["balances"]


def test_a_charge_from_outside_is_recognised(session):
    session.charge({PEOPLE[1]: 0.125, PEOPLE[0]: 0.25}, key="survey")
    assert balances(session) == FACTS["balances"]
    with pytest.raises(KeyReused):
        session.charge({PEOPLE[0]: 0.25}, key="survey")


def test_a_new_release_is_charged_and_signed_in_the_same_chain(session):
    release = session.release(
        sv.Mean(bounds=(0, 10000)), COST, groups=PEOPLE, epsilon=0.5, key="new"
    )
    assert balances(session) == {
        person: pytest.approx(left - 0.5, abs=1e-12) for person, left in FACTS["balances"].items()
    }
    session.verify(release, *map(read_release, ASKED))
    assert release.certificate.ledger["key"] == FACTS["public_key"]


def test_releases_verify_in_the_books_and_changed_ones_do_not(session):
    session.verify(*map(read_release, ASKED))
    made = read_release("mean")
    with pytest.raises(InvalidRelease):
        session.verify(replace(made, value=made.value + 0.25))


def test_the_statement_checks_with_the_public_key(run, tmp_path):
    page = HERE / "statement.html"
    checked = run("ledger", "check", page, "--key", FACTS["public_key"])
    assert "This statement holds: the ledger has signed entry 16" in checked.stdout
    assert run("ledger", "check", page, "--key", "00" * 32).exit_code == 2
    text = read("statement.html")
    granted = f"{40 * 10**9:x}"
    assert text.count(f'{granted}"') == 1
    changed = tmp_path / "changed.html"
    changed.write_text(text.replace(f'{granted}"', f'{40 * 10**9 + 1:x}"'), encoding="utf-8")
    assert run("ledger", "check", changed, "--key", FACTS["public_key"]).exit_code == 2


@pytest.mark.parametrize("key", ASKED)
def test_the_signature_of_a_release_checks_with_the_public_key(run, tmp_path, key):
    path = HERE / "releases" / f"{key.replace(' ', '-')}.json"
    checked = run("ledger", "check-release", path, "--key", FACTS["public_key"])
    assert "This release is as it was signed" in checked.stdout
    changed = tmp_path / "changed.json"
    changed.write_text(path.read_text().replace('"people": 60', '"people": 61'))
    assert run("ledger", "check-release", changed, "--key", FACTS["public_key"]).exit_code == 2


@pytest.mark.parametrize("key", [*ASKED, *FITTED])
def test_a_release_is_read_and_written_as_it_was_and_explained(run, key):
    name = f"releases/{key.replace(' ', '-')}.json"
    assert read_release(key).to_json() == read(name)
    explained = run("explain", HERE / name)
    assert explained.exit_code == 0
    assert explained.stdout.startswith("Answer: ")
    assert read_release(key).certificate.plan_digest[:16] in explained.stdout


@pytest.mark.parametrize("name", PREDICTING)
def test_a_model_is_read_from_its_release_and_predicts(name):
    release = read_release(name)
    model = PREDICTING[name].from_release(release)
    before = hold_in_range(model, FACTS["predictions"][name])
    np.testing.assert_allclose(predict(model), before, rtol=1e-9)
    assert model.release_ == release


@pytest.mark.parametrize("name", PREDICTING)
def test_a_model_says_that_its_version_did_not_tell_what_intervals_need(name):
    model = PREDICTING[name].from_release(read_release(name))
    for asked in ((0.9,), (0.9, FEATURES)):
        with pytest.raises(InvalidParameter, match="earlier version"):
            model.interval(*asked)


@pytest.mark.parametrize("name", ["ridge", "logistic", "posterior"])
def test_a_release_predicts_at_the_terminal_as_in_python(run, tmp_path, name):
    table = tmp_path / "table.csv"
    TABLE.to_csv(table, index=False)
    out = tmp_path / "predicted.csv"
    done = run("predict", HERE / "releases" / f"{name}.json", table, "--out", out)
    assert done.exit_code == 0, done.output
    expected = PREDICTING[name].from_release(read_release(name)).predict(FEATURES)
    written = [line.split(",")[0].strip('"') for line in out.read_text().splitlines()[1:]]
    if name == "logistic":
        assert written == list(expected)
    else:
        np.testing.assert_allclose(np.array(written, dtype=float), expected, rtol=1e-9)


def test_the_access_code_signs_its_person_in(session, books):
    codes = AccessCodes.for_ledger(session.ledger, f"sqlite:///{books}")
    token = codes.sign_in(FACTS["code"])
    assert codes.find_visit(token).person == PEOPLE[0]
    other = FACTS["code"][:-1] + next(
        letter for letter in access_codes.ALPHABET if letter != FACTS["code"][-1]
    )
    assert codes.sign_in(other) is None


def hold_in_range(model, predicted):
    """Predictions of a number are clipped to the label's range, which earlier versions did not."""
    if "label" not in model.release_.parameters:
        return predicted
    return np.clip(predicted, *model.release_.parameters["label"])


@pytest.mark.filterwarnings("ignore:sottovoce.* was moved:DeprecationWarning")
@pytest.mark.parametrize("key", PICKLED)
def test_a_pickled_model_loads_and_answers_as_before(key):
    name = key.replace(" ", "-")
    model = pickle.loads((HERE / "models" / f"{name}.pickle").read_bytes())
    assert type(model) is type(PICKLED[key][0])
    assert model.release_.to_json() == sv.Release.from_json(model.release_.to_json()).to_json()
    assert model.guarantee_.epsilon.max() > 0
    if hasattr(model, "predict"):
        features = TABLE[list(model.feature_names_in_)]
        before = hold_in_range(model, FACTS["models"][name])
        np.testing.assert_allclose(predict(model, features), before, rtol=1e-9)
    else:
        assert model.value_ == FACTS["models"][name]
