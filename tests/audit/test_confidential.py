"""Exact losses are not written down by accident, and what cannot be audited is refused by name."""

from __future__ import annotations

import copy
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.linear_model import Ridge as PlainRidge

import sottovoce as sv
from sottovoce.errors import (
    Confidential,
    InvalidBounds,
    InvalidParameter,
    InvalidRelease,
    MissingValues,
)

ROOT = Path(__file__).parents[2]
BALL = sv.Bounds(norm=1.0, label=(-1, 1))
BOX = sv.Bounds(features=(-1, 1), label=(-1, 1))


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    X = rng.uniform(-0.5, 0.5, (40, 3))
    return X, np.clip(X @ [0.5, 0.2, -0.3] + 0.1 * rng.normal(size=40), -1, 1)


@pytest.fixture(scope="module")
def model(rows):
    return sv.PosteriorSample(gamma=2.0, alpha=2.0, bounds=BALL).fit(*rows)


@pytest.fixture(scope="module")
def audit(model, rows):
    return sv.audit.per_instance(model, *rows)


WRITERS = {
    "pickle": pickle.dumps,
    "json": json.dumps,
    "json, indented": lambda value: json.dumps(value, indent=2),
    "json, inside": lambda value: json.dumps({"result": [value]}),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "to_json": lambda value: value.to_json(),
}
KINDS = {
    "audit": lambda audit: audit,
    "summary": lambda audit: audit.summary(),
    "worst": lambda audit: audit.for_all(),
    "composed": lambda audit: sv.audit.compose([audit, audit]),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("writer", WRITERS)
def test_nothing_confidential_is_written_down(kind, writer, audit):
    with pytest.raises(Confidential, match="depends on everybody's data"):
        WRITERS[writer](KINDS[kind](audit))


def test_arrays_of_losses_are_not_pickled_and_remember_what_they_are(audit):
    for losses in (
        audit.epsilon,
        audit.leverage,
        audit.residual,
        audit.epsilon[3:] * 2,
        np.sqrt(audit.epsilon),
    ):
        with pytest.raises(Confidential):
            pickle.dumps(losses)
        with pytest.raises(Confidential):
            sv.audit.histogram(losses, [0, 1], 1.0)
    with pytest.raises(TypeError):
        json.dumps(audit.epsilon)
    with pytest.raises(ValueError, match="read-only"):
        audit.epsilon[0] = 0.0
    assert type(audit.epsilon.max()) is np.float64


SAVERS = {
    "save": lambda losses, path: np.save(path, losses),
    "savez": lambda losses, path: np.savez(path, losses=losses),
    "savez_compressed": lambda losses, path: np.savez_compressed(path, losses),
    "savetxt": lambda losses, path: np.savetxt(path, losses),
    "tofile": lambda losses, path: losses.tofile(path),
    "dump": lambda losses, path: losses.dump(path),
}


@pytest.mark.parametrize("saver", SAVERS)
def test_arrays_of_losses_are_not_saved(saver, audit, tmp_path):
    for losses in (audit.epsilon, audit.epsilon[3:] * 2, copy.deepcopy(audit.epsilon)):
        with pytest.raises(Confidential):
            SAVERS[saver](losses, tmp_path / "losses")
    assert all(file.stat().st_size == 0 for file in tmp_path.iterdir())


def test_arrays_of_losses_are_not_shown_as_text(audit):
    """Whoever logs or prints them, says what they are and not what is in them."""
    for losses in (audit.epsilon, np.sort(audit.epsilon), audit.epsilon[:1]):
        for shown in (str(losses), f"{losses}", f"{losses:.3f}", "%s" % losses, repr([losses])):  # noqa: UP031
            assert "CONFIDENTIAL" in shown
            assert not re.search(r"[0-9]\.[0-9]", shown)
    for write in (np.array2string, np.array_str):
        with pytest.raises(Confidential):
            write(audit.epsilon)


@pytest.mark.parametrize("writer", WRITERS)
def test_realised_losses_are_not_written_down_either(writer):
    values = np.linspace(0, 1, 30)
    model = sv.Mean(bounds=(0, 1)).fit(values, epsilon=1.0)
    before = model.release_.to_json()
    looked = sv.audit.per_instance(model, values, epsilon=1.0)
    bound = looked.at_delta(0.3, draws=2)
    for one in (looked, looked.summary(), bound, looked.least_protected(1)[0]):
        with pytest.raises(Confidential):
            WRITERS[writer](one)
    assert model.release_.to_json() == before
    assert not any("audit" in name or "loss" in name for name in vars(model))
    pickle.dumps(model)  # nothing confidential hangs on what was audited


def test_a_release_does_not_carry_losses(audit, model):
    for value in ({"losses": audit}, {"summary": audit.summary()}):
        with pytest.raises(Confidential):
            replace(model.release_, value=value).to_json()
    with pytest.raises(TypeError):
        replace(model.release_, value={"losses": audit.epsilon}).to_json()


def test_nothing_about_one_person_is_in_a_repr(audit):
    for shown in (
        audit,
        audit.for_all(),
        sv.audit.compose([audit]),
        audit.epsilon,
        audit.leverage,
        audit.summary(),
    ):
        assert "CONFIDENTIAL" in repr(shown)
        assert not any(f"{value:.3g}" in repr(shown) for value in audit.epsilon)
        assert len(repr(shown)) < 120
    assert "CONFIDENTIAL" in str(audit.summary())
    assert "CONFIDENTIAL" in audit.picture()
    assert not any(f"{value:.6g}" in audit.picture() for value in audit.epsilon)


def test_the_summary_has_quantiles_moments_promise_and_worst_record(audit, model):
    summary = audit.summary()
    assert summary.median == np.quantile(audit.epsilon, 0.5, method="inverted_cdf")
    assert (summary.quantiles[0.0], summary.largest) == (audit.epsilon.min(), audit.epsilon.max())
    assert summary.mean_square == pytest.approx(np.mean(np.asarray(audit.epsilon) ** 2))
    assert summary.promised == (model.guarantee_.epsilon[0],) * 2
    assert summary.largest <= summary.for_all <= summary.promised[0]


@pytest.mark.parametrize("file", ["session.py", "ledger.py", "guarantee.py"])
def test_the_books_cannot_import_losses(file, tmp_path):
    shutil.copytree(ROOT / "src" / "sottovoce", tmp_path / "sottovoce")
    with open(tmp_path / "sottovoce" / file, "a") as module:
        module.write("\nfrom sottovoce.audit.confidential import Losses\n")
    command = [
        str(Path(sys.executable).with_name("lint-imports")),
        "--config",
        str(ROOT / "pyproject.toml"),
        "--no-cache",
    ]
    told = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=False,
    )
    assert re.search(r"Confidential losses never reach the books\s+BROKEN", told.stdout)


def test_models_whose_loss_is_not_known_are_refused(rows):
    X, y = rows
    sampled = sv.Sampled(sv.Mean(bounds=(-1, 1))).fit(y, epsilon=np.linspace(0.1, 1, len(y)))
    plain = (LinearRegression().fit(X, y), PlainRidge().fit(X, y), object(), None, "model")
    for est in (sampled, sampled.release_, *plain):
        with pytest.raises(InvalidParameter, match="is not known, or this library did not make it"):
            sv.audit.per_instance(est, X, y, epsilon=1.0)
    with pytest.raises(InvalidParameter, match="not been fitted"):
        sv.audit.per_instance(sv.PosteriorSample(bounds=BALL), X, y)


def test_a_release_that_was_tampered_with_is_refused(rows, model):
    broken = replace(model.release_, parameters={"weight_unit": 1.0, "gamma": 2.0})
    with pytest.raises(InvalidRelease):
        sv.audit.per_instance(broken, *rows)
    fitted = sv.Ridge(bounds=BOX, method="output").fit(*rows, epsilon=1.0)
    softer = replace(fitted.release_, parameters={**fitted.release_.parameters, "alpha": 9.0})
    with pytest.raises(InvalidParameter, match="not those that the release was planned with"):
        sv.audit.per_instance(softer, *rows, epsilon=1.0)


def test_budgets_are_those_of_the_release(rows, model):
    X, y = rows
    fitted = sv.Ridge(bounds=BOX, method="output").fit(X, y, epsilon=np.linspace(0.1, 1, 40))
    with pytest.raises(InvalidParameter, match="Budgets are missing"):
        sv.audit.per_instance(fitted, X, y)
    with pytest.raises(InvalidParameter, match="not those that the release was planned with"):
        sv.audit.per_instance(fitted, X, y, epsilon=0.5)
    with pytest.raises(InvalidParameter, match="without budgets"):
        sv.audit.per_instance(model, X, y, epsilon=0.5)
    with pytest.raises(InvalidParameter, match="another number of rows"):
        sv.audit.per_instance(model, X[1:], y[1:])


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-6, float("nan"), 2.0])
def test_a_delta_that_is_no_probability_is_refused(delta, rows, model):
    with pytest.raises(InvalidParameter):
        sv.audit.per_instance(model, *rows, delta)


@pytest.mark.parametrize("kind", [sv.audit.GaussianOutput, sv.audit.GaussianObjective])
def test_a_fit_without_a_single_solution_is_refused(kind):
    X = np.column_stack([np.arange(6.0), np.arange(6.0)])
    with pytest.raises(InvalidParameter, match="singular"):
        sv.audit.per_instance(kind(1.0, 0.0), X, np.arange(6.0))
    needed = sv.audit.per_instance(
        kind(1.0, 0.0), [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [1.0, 0.5, 1.0]
    )
    assert needed.epsilon[2] == np.inf  # without its row there is no single solution
    assert np.isfinite(needed.epsilon[:2]).all()


@pytest.mark.parametrize("sigma", [0.0, -1.0, float("inf"), float("nan"), None, "much"])
def test_descriptions_without_noise_are_refused(sigma):
    for kind in (sv.audit.GaussianOutput, sv.audit.GaussianObjective):
        with pytest.raises(InvalidParameter):
            kind(sigma, 1.0)
    with pytest.raises(InvalidParameter):
        sv.audit.GaussianOutput(1.0, 1.0, metric="euclid")


def test_rows_beyond_the_norm_are_what_the_mechanism_makes_of_them(rows):
    X = rows[0].copy()
    y = rows[1].copy()
    X[0] = [30.0, 40.0, 0.0]
    y[0] = 7.0
    short = X.copy(), y.copy()
    short[0][0] = [0.6, 0.8, 0.0]
    short[1][0] = 1.0
    for mechanism in (
        sv.PosteriorSample(gamma=2.0, alpha=2.0, bounds=BALL).fit(X, y),
        sv.audit.GaussianOutput(1.0, 2.0, bounds=BALL),
    ):
        audit = sv.audit.per_instance(mechanism, X, y)
        assert audit.epsilon == pytest.approx(
            np.asarray(sv.audit.per_instance(mechanism, *short).epsilon), rel=1e-9
        )
        assert (audit.epsilon <= audit.for_all().bound).all()


def test_what_is_missing_is_refused(rows, model):
    X = rows[0].copy()
    y = rows[1].copy()
    X[3, 1] = np.nan
    for mechanism in (model, sv.audit.GaussianOutput(1.0, 1.0)):
        with pytest.raises(MissingValues):
            sv.audit.per_instance(mechanism, X, y)
    with pytest.raises(InvalidBounds, match="No domain"):
        sv.audit.per_instance(sv.audit.GaussianOutput(1.0, 1.0), *rows).for_all()
    with pytest.raises(InvalidParameter, match="worst record"):
        sv.audit.per_instance(sv.audit.GaussianObjective(1.0, 1.0, bounds=BALL), *rows).for_all()


def test_questions_without_an_answer_are_refused(audit, rows):
    with pytest.raises(InvalidParameter, match="no closed form"):
        audit.replaced(0, (rows[0][1], 0.0))
    noisy = sv.audit.per_instance(sv.audit.GaussianOutput(1.0, 1.0), *rows)
    for i in (-1, 40):
        with pytest.raises(InvalidParameter):
            noisy.replaced(i, (rows[0][1], 0.0))
    for group in ([], [1, 1], [99]):
        with pytest.raises(InvalidParameter):
            noisy.group(group)
    for z in (3.0, (1, 2, 3)):
        with pytest.raises(InvalidParameter):
            noisy.for_one(z, [rows])
    for audits in (
        [],
        [audit, 3],
        [audit, sv.audit.per_instance(sv.audit.GaussianOutput(1.0, 1.0), rows[0][1:], rows[1][1:])],
    ):
        with pytest.raises(InvalidParameter):
            sv.audit.compose(audits)
