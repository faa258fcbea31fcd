"""A few releases by Python and at the terminal with what is installed, and nothing of the tests'
own tools.

`make test-lowest` runs this with the oldest packages that pyproject.toml allows.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl

import sottovoce as sv

ROWS = 600
TERMINAL = Path(sys.executable).with_name("sottovoce")


def people() -> dict[str, list]:
    """A table of 200 people with three rows each: y is 2·x, and half of them say yes."""
    x = [i / ROWS for i in range(ROWS)]
    return {
        "id": [f"p{i % 200}" for i in range(ROWS)],
        "x": x,
        "y": [2 * value for value in x],
        "yes": [i % 2 for i in range(ROWS)],
    }


def in_python(table: dict[str, list]) -> None:
    """Estimators, data frames and engines give the answer of a large budget."""
    for column in (np.array(table["y"]), pd.Series(table["y"]), pl.Series(table["y"])):
        assert (
            abs(sv.Mean(bounds=(0, 2)).fit(column, epsilon=1e4, groups=table["id"]).value_ - 1)
            < 0.02
        )
    x = np.array(table["x"])[:, None]
    bounds = sv.Bounds(features=(0, 1), label=(0, 2))
    ridge = sv.Ridge(bounds=bounds).fit(x, table["y"], epsilon=1e4, groups=table["id"])
    assert abs(ridge.predict([[0.5]])[0] - 1) < 0.1
    classes = sv.LogisticRegression(bounds=sv.Bounds(features=(0, 1))).fit(
        x, table["yes"], epsilon=1e4
    )
    assert classes.predict([[0.5]])[0] in (0, 1)
    import dask.dataframe  # by itself, since pytest imports this file to look for examples

    frame = dask.dataframe.from_pandas(pd.DataFrame(table), npartitions=2)
    assert (
        abs(sv.Mean(bounds=(0, 2)).fit(frame, column="y", epsilon=1e4, groups="id").value_ - 1)
        < 0.02
    )


def at_the_terminal(table: dict[str, list], folder: Path) -> None:
    """Help, books, releases from a text file and through DuckDB, and `explain`."""
    pd.DataFrame(table).to_csv(folder / "people.csv", index=False)
    pd.DataFrame({"person": sorted(set(table["id"])), "epsilon": 2.0}).to_csv(
        folder / "grants.csv", index=False
    )

    def run(*words: str) -> str:
        done = subprocess.run(
            [TERMINAL, *words], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    mean = [
        "release",
        "mean",
        "people.csv",
        "--column",
        "y",
        "--bounds",
        "0",
        "2",
        "--person-column",
        "id",
    ]
    run("release", "mean", "--help")
    run("ledger", "init", "books.db")
    run("ledger", "grant", "grants.csv", "--ledger", "books.db")
    run(*mean, "--epsilon", "1", "--ledger", "books.db", "--key", "first", "--out", "booked.json")
    run("ledger", "verify", "--ledger", "books.db")
    run(*mean, "--epsilon", "1", "--engine", "duckdb", "--out", "duckdb.json")
    assert "y" in run("explain", "duckdb.json")
    (folder / "schema.toml").write_text(
        'person = "id"\n[columns.y]\nkind = "number"\nlow = 0\nhigh = 2\n'
    )
    asked = "SELECT COUNT(*) AS n, AVG(y) FROM people WHERE y > 1"
    sql = run("sql", asked, "people.csv", "--schema", "schema.toml", "--epsilon", "1")
    assert list(json.loads(sql)["value"]["answers"]) == ["n", "AVG(y)"]
    assert json.loads((folder / "booked.json").read_text())["format"].startswith(
        "sottovoce.release"
    )


if __name__ == "__main__":
    in_python(people())
    with tempfile.TemporaryDirectory() as place:
        at_the_terminal(people(), Path(place))
    import sottovoce.web.app

    print(
        "Works with "
        + ", ".join(
            f"{name} {version(name)}" for name in ("numpy", "scikit-learn", "opendp", "typer")
        )
    )
