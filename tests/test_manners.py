"""scikit-learn's manners, the frozen public names, and the contracts of the house.

Of scikit-learn's own estimator checks those about construction, cloning, parameters, repr and
pickling apply. The rest feed a two-dimensional X without budgets to fit: a mean of one column has
no X, and no release happens without an ε, so they are not run (docs/limits.md).
"""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from sklearn.base import clone

import sottovoce as sv
from seams import silent
from sklearn_checks import every_check

ROOT = Path(__file__).parents[1]
questions = pytest.mark.parametrize(
    "question", [sv.Mean(bounds=(0, 1)), sv.Quantile(q=[0.1, 0.9], bounds=(0, 1))]
)


@questions
@every_check
def test_scikit_learns_checks(question, check):
    check(type(question).__name__, question)


@questions
def test_clone_pickle_and_refit(question):
    fitted = question.fit(np.linspace(0, 1, 50), epsilon=1.0)
    copy = clone(fitted)
    assert not hasattr(copy, "value_")
    assert copy.get_params() == question.get_params()
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).value_, fitted.value_)


@questions
def test_metadata_routing_knows_epsilon_and_groups(question):
    with sklearn.config_context(enable_metadata_routing=True):
        routed = clone(question).set_fit_request(epsilon=True, groups=True)
        assert routed.get_metadata_routing().fit.requests == {
            "epsilon": True,
            "groups": True,
            "column": None,
        }


@pytest.mark.parametrize(
    "column",
    [
        list,
        np.array,
        pd.Series,
        pl.Series,
        pa.array,
        lambda x: pa.chunked_array([x]),
        lambda x: np.array(x)[:, None],
        lambda x: pd.DataFrame({"y": x}),
        lambda x: np.array(x, dtype=object),
    ],
)
def test_every_kind_of_column_gives_the_same_answer(column):
    values = [0.25, 0.5, 0.75, 1.0]
    with silent():
        assert sv.Mean(bounds=(0, 1)).fit(column(values), epsilon=1e5).value_ == pytest.approx(
            0.625, abs=1e-4
        )


def test_the_limit_of_large_budgets_is_the_plain_answer():
    values = np.random.default_rng(0).random(1000)
    assert sv.Mean(bounds=(0, 1)).fit(values, epsilon=1e6).value_ == pytest.approx(
        values.mean(), abs=1e-6
    )
    median = sv.Quantile(bounds=(0, 1), cells=2**20).fit(values, epsilon=1e6).value_
    assert median == pytest.approx(np.median(values), abs=2e-3)


def test_public_names_are_frozen():
    assert sv.__all__ == [
        "__version__",
        "audit",
        "errors",
        "market",
        "AdaptivePosteriorSample",
        "Bounds",
        "Budgets",
        "Certificate",
        "Count",
        "Covariance",
        "ERM",
        "Guarantee",
        "LabelPrivateRegression",
        "Limited",
        "LogisticRegression",
        "Mean",
        "Plan",
        "PosteriorSample",
        "Quantile",
        "Release",
        "Report",
        "Ridge",
        "Sampled",
        "Schema",
        "Session",
        "Sum",
        "Threshold",
        "Uniform",
        "Variance",
        "Weights",
        "load",
        "optimal_weights",
    ]
    assert all(getattr(sv, name) is not None for name in dir(sv))
    with pytest.raises(AttributeError):
        sv.nothing  # noqa: B018


def test_importing_the_house_loads_no_room():
    code = (
        "import sys, sottovoce; print(any(m in sys.modules for m in ('numpy', 'sklearn', "
        "'opendp', 'pyarrow')))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


def lint_imports(source: Path) -> subprocess.CompletedProcess[str]:
    command = [
        str(Path(sys.executable).with_name("lint-imports")),
        "--config",
        str(ROOT / "pyproject.toml"),
        "--no-cache",
    ]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=source, env=environment, check=False
    )


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("noise/source.py", "import sottovoce.budgets"),
        ("estimators/mean.py", "import sottovoce.data.engines.arrow"),
        ("estimators/mean.py", "import sottovoce.ledgers.sqlite"),
        ("units.py", "import sottovoce.plan"),
        ("data/engines/arrow.py", "import sottovoce.noise.source"),
        ("newroom.py", "import sottovoce.errors"),
        ("session.py", "import sottovoce.audit.instance_losses"),
        ("release.py", "import sottovoce.audit"),
    ],
)
def test_a_bad_import_breaks_the_contract(file, line, tmp_path):
    shutil.copytree(ROOT / "src" / "sottovoce", tmp_path / "sottovoce")
    with open(tmp_path / "sottovoce" / file, "a") as module:
        module.write(f"\n{line}\n")
    assert lint_imports(tmp_path).returncode != 0


def test_the_house_keeps_its_contracts():
    result = lint_imports(ROOT / "src")
    assert result.returncode == 0, result.stdout


def test_randomness_is_drawn_in_one_place():
    noise = ROOT / "src" / "sottovoce" / "noise"
    for path in (ROOT / "src").rglob("*.py"):
        # simulations of invented people, with fixed seeds: nothing there is a release
        if "papers" in path.parts:
            continue
        text = path.read_text()
        assert not any(word in text for word in ("np.random", "numpy.random", "import random")), (
            path.name
        )
        assert "urandom" not in text or path == noise / "source.py", path
        assert "opendp.prelude" not in text, f"{path}: it loads scikit-learn, pandas and Polars"
        assert "from opendp" not in text or path == noise / "source.py", path


def test_a_mean_is_released_without_packages_that_it_does_not_use():
    """What OpenDP's prelude loads takes longer than a release; nothing is timed here."""
    release = (
        "import sys, sottovoce as sv; sv.Mean(bounds=(0, 1)).fit([0.0, 1.0] * 50, epsilon=1.0); "
        "print(sorted({'opendp.prelude', 'polars', 'duckdb', 'fastapi', 'jinja2'} & "
        "set(sys.modules)))"
    )
    told = subprocess.run(
        [sys.executable, "-c", release], capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == "[]"


@questions
def test_what_was_said_about_routing_is_cloned(question):
    with sklearn.config_context(enable_metadata_routing=True):
        copy = clone(clone(question).set_fit_request(epsilon=True))
        assert copy.get_metadata_routing().fit.requests["epsilon"] is True
        assert copy.get_params() == question.get_params()
