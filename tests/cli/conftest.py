"""A table of people with budgets, in every form that the command line takes, and a way to give
commands.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from typer.testing import CliRunner

from sottovoce.cli.main import app

TIERS = {"careful": 0.1, "middle": 0.5, "open": 2.0}

SCHEMA = """\
person = "id"
budget = "tier"
label = "salary"
[tiers]
careful = 0.1
middle = 0.5
open = 2
[columns.salary]
kind = "number"
low = 0
high = 200_000
missing = 50_000
"""


@pytest.fixture
def run():
    """Gives a command in this process; whatever it does, it never ends in a traceback."""

    def command(*words: object):
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exception is None or isinstance(result.exception, SystemExit)
        assert "Traceback" not in result.output
        return result

    return command


@pytest.fixture
def table() -> pa.Table:
    people = [i // 2 for i in range(1200)]
    tiers = [list(TIERS)[p % 3] for p in people]
    return pa.table(
        {
            "id": [f"u{p}" for p in people],
            "salary": [float(40_000 + 37 * i % 20_000) for i in range(1200)],
            "epsilon": [TIERS[tier] for tier in tiers],
            "tier": tiers,
        }
    )


@pytest.fixture
def folder(tmp_path: Path, table: pa.Table) -> Path:
    """salaries.csv, salaries.parquet, schema.toml, and parts/ with the same rows in three files."""
    csv.write_csv(table, tmp_path / "salaries.csv")
    pq.write_table(table, tmp_path / "salaries.parquet")
    (tmp_path / "schema.toml").write_text(SCHEMA)
    (tmp_path / "parts").mkdir()
    for part in range(3):
        pq.write_table(table.slice(part * 400, 400), tmp_path / "parts" / f"{part}.parquet")
    return tmp_path


#: What is said of salaries.csv when nothing is left to a schema.
WORDS = (
    "--column",
    "salary",
    "--bounds",
    0,
    200_000,
    "--budget-column",
    "epsilon",
    "--person-column",
    "id",
)


@pytest.fixture
def words() -> tuple[object, ...]:
    return WORDS


CLINIC_SCHEMA = """\
person = "id"
budget = "tier"
label = "cost"
[tiers]
careful = 0.1
middle = 0.5
open = 2
[columns.id]
kind = "text"
[columns.age]
kind = "number"
low = 18
high = 90
[columns.smoker]
kind = "factor"
levels = ["no", "yes"]
[columns.visits]
kind = "number"
low = 0
high = 30
[columns.cost]
kind = "number"
low = 0
high = 20_000
"""


@pytest.fixture(scope="session")
def visits() -> pa.Table:
    """Two rows a person; cost is 1000 + 50·age + 4000 for smokers + 100·visits, within bounds."""
    rows = range(3000)
    age = [18.0 + 31 * i % 73 for i in rows]
    number = [float(17 * i % 31) for i in rows]
    smoker = ["yes" if i * 7 % 11 < 4 else "no" for i in rows]
    tiers = [list(TIERS)[i // 2 % 3] for i in rows]
    return pa.table(
        {
            "id": [f"u{i // 2}" for i in rows],
            "tier": tiers,
            "epsilon": [TIERS[tier] for tier in tiers],
            "age": age,
            "smoker": smoker,
            "visits": number,
            "cost": [
                1000 + 50 * a + 4000 * (s == "yes") + 100 * v
                for a, s, v in zip(age, smoker, number, strict=True)
            ],
        }
    )


@pytest.fixture
def clinic(tmp_path: Path, visits: pa.Table) -> Path:
    """visits.csv, visits.parquet and clinic.toml."""
    csv.write_csv(visits, tmp_path / "visits.csv")
    pq.write_table(visits, tmp_path / "visits.parquet")
    (tmp_path / "clinic.toml").write_text(CLINIC_SCHEMA)
    return tmp_path


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory, visits: pa.Table) -> str:
    """A model of the visits, as JSON; released once for all tests."""
    folder = tmp_path_factory.mktemp("released")
    csv.write_csv(visits, folder / "visits.csv")
    (folder / "clinic.toml").write_text(CLINIC_SCHEMA)
    line = ("release", "ridge", str(folder / "visits.csv"), "--schema", str(folder / "clinic.toml"))
    made = CliRunner().invoke(app, line)
    assert made.exit_code == 0
    return made.stdout


@pytest.fixture
def model(clinic: Path, released: str) -> Path:
    """model.json, beside visits.csv, from which it was released."""
    path = clinic / "model.json"
    path.write_text(released)
    return path
