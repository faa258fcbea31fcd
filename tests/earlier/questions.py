"""What was asked when the files in this folder were written, in public names alone.

`python questions.py FOLDER` writes books, releases and fitted models; it was run by version 0.1.0
before its modules were moved and renamed. `sottovoce ledger statement` and `key` of that version
made the statement of person 0 and the public key, and its page gave out the access code.
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.base import clone

import sottovoce as sv

N = 60
PEOPLE = [f"person {i}" for i in range(N)]
_AGE = 20 + (np.arange(N) * 37 % 61)
_COST = 100 * (np.arange(N) * 17 % 83)
TABLE = pd.DataFrame(
    {
        "id": PEOPLE,
        "age": _AGE.astype(float),
        "smoker": np.where(np.arange(N) % 3, "no", "yes"),
        "cost": _COST.astype(float),
        "ill": np.where((_AGE + _COST / 400) > 60, "yes", "no"),
    }
)
GRANTS = {person: 40.0 + i % 3 for i, person in enumerate(PEOPLE)}
SCHEMA = sv.Schema.loads(
    'name = "claims"\nlabel = "cost"\nperson = "id"\n'
    '[columns.age]\nkind = "number"\nlow = 18\nhigh = 90\nunit = "year"\n'
    '[columns.smoker]\nkind = "factor"\nlevels = ["no", "yes"]\n'
    '[columns.cost]\nkind = "number"\nlow = 0\nhigh = 10000\nunit = "EUR"\n'
)
ILL = sv.Schema.loads(
    'label = "ill"\nperson = "id"\n'
    '[columns.age]\nkind = "number"\nlow = 18\nhigh = 90\n'
    '[columns.smoker]\nkind = "factor"\nlevels = ["no", "yes"]\n'
    '[columns.ill]\nkind = "factor"\nlevels = ["no", "yes"]\n'
)
FEATURES = TABLE[["age", "smoker"]]
COST = TABLE["cost"]

#: Questions to a session, by their keys: estimator and data.
ASKED = {
    "mean": (sv.Mean(bounds=(0, 10000)), COST),
    "mean of numbers": (sv.Mean(bounds=(0, 10000)), COST.tolist()),
    "median": (sv.Quantile(0.5, bounds=(0, 10000)), COST),
    "ridge": (sv.Ridge(bounds=SCHEMA), FEATURES, COST),
    "ridge from statistics": (sv.Ridge(bounds=SCHEMA, method="statistics"), FEATURES, COST),
    "ridge with output noise": (
        sv.Ridge(bounds=SCHEMA, method="output-tight", alpha=1.0),
        FEATURES,
        COST,
    ),
    "logistic": (sv.LogisticRegression(bounds=ILL), FEATURES, TABLE["ill"]),
}
#: Questions without a ledger: estimator and data.
FITTED = {
    "label-private": (sv.LabelPrivateRegression(label_bounds=(0, 10000)), TABLE[["age"]], COST),
    "risk": (sv.ERM(bounds=ILL, delta=1e-6, steps=20), FEATURES, TABLE["ill"]),
    "posterior": (sv.PosteriorSample(gamma=0.1, alpha=50.0, bounds=SCHEMA), FEATURES, COST),
    "uniform": (sv.Uniform(sv.Mean(bounds=(0, 10000))), COST),
}
#: Of these the fitted models were pickled, besides some of those above.
PICKLED = {
    **{key: ASKED[key] for key in ("mean", "median", "ridge", "logistic")},
    **FITTED,
    "limited": (sv.Limited(sv.Mean(bounds=(0, 10000))), COST),
    "sampled": (sv.Sampled(sv.Mean(bounds=(0, 10000))), COST),
    "adaptive posterior": (sv.AdaptivePosteriorSample(bounds=SCHEMA), FEATURES, COST),
}


def ask(session: sv.Session, key: str) -> sv.Release:
    """Ask a session the question of this key."""
    return session.release(*ASKED[key], groups=PEOPLE, epsilon=0.75, key=key)


def fit(asked: tuple) -> object:
    """Fit a copy of an estimator, without a ledger."""
    estimator = clone(asked[0])
    if isinstance(estimator, sv.PosteriorSample | sv.AdaptivePosteriorSample):  # has its own ε
        return estimator.fit(*asked[1:], groups=PEOPLE)
    return estimator.fit(*asked[1:], groups=PEOPLE, epsilon=0.75)


def write(folder: Path) -> None:
    """Write books, releases, models and balances into a folder."""
    books = folder / "books.db"
    session = sv.Session(ledger=f"sqlite:///{books}")
    session.grant(GRANTS)
    releases = {key: ask(session, key) for key in ASKED}
    session.charge({PEOPLE[0]: 0.25, PEOPLE[1]: 0.125}, key="survey")
    for key, asked in FITTED.items():
        releases[key] = fit(asked).release_
    for key, release in releases.items():
        (folder / f"{key.replace(' ', '-')}.json").write_text(release.to_json(), encoding="utf-8")
    for key, asked in PICKLED.items():
        (folder / f"{key.replace(' ', '-')}.pickle").write_bytes(pickle.dumps(fit(asked)))
    balances = {person: session.balance(person) for person in PEOPLE}
    (folder / "balances.json").write_text(json.dumps(balances), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
