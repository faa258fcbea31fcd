# SPDX-License-Identifier: Apache-2.0
"""What can be reproduced: every table and figure by name, the paper it is from, and the function
that computes it.

Listing costs nothing: a function is imported when it is called. To add an experiment, add one line
to EXPERIMENTS; its function takes a `Task` and returns an `Outcome`. Seeds are fixed by name, since
nothing here is a release.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sottovoce import __version__
from sottovoce.errors import InvalidParameter
from sottovoce.papers.plots import Outcome

if TYPE_CHECKING:
    from numpy.random import Generator  # noqa: TID251  (experiments draw with fixed seeds and release nothing)

Size = Literal["full", "small"]
#: The word that stands for every experiment, or after a slash for every one of a paper.
ALL = "all"


@dataclass(frozen=True)
class Paper:
    """A paper, by the name under which its experiments are called."""

    key: str
    title: str


@dataclass(frozen=True)
class Task:
    """One experiment to be done: which, how thoroughly, where data lie, and whom to tell how far it
    is (0 to 1).
    """

    name: str
    size: Size = "full"
    data: Path | None = None
    progress: Callable[[float], None] = lambda share: None

    def choose(self, full: int, small: int) -> int:
        """Return the number for this size."""
        if self.size == "full":
            return full
        return small


@dataclass(frozen=True)
class Experiment:
    """One table or figure; ``home`` is the module in this folder and the function in it."""

    name: str
    title: str
    home: str

    @property
    def paper(self) -> Paper:
        """The paper that it is from."""
        return PAPERS[self.name.partition("/")[0]]

    def run(self, task: Task) -> Outcome:
        """Computes it, and notes how long that took and which version did it."""
        from threadpoolctl import threadpool_limits

        module, _, function = self.home.partition(":")
        compute: Callable[[Task], Outcome] = getattr(
            import_module(f"sottovoce.papers.{module}"), function
        )
        began = time.perf_counter()
        with threadpool_limits(
            limits=1
        ):  # matrices here are small, and threads would wait for each other
            outcome = compute(task)
        return replace(outcome, seconds=round(time.perf_counter() - began, 3), made_by=__version__)


PAPERS = {
    paper.key: paper
    for paper in (
        Paper("ridge", "Personalized Differential Privacy for Ridge Regression"),
        Paper("market", "Striking a Balance: a data market for logistic regression"),
        Paper("users", "Smoothly Bounding User Contributions in Differential Privacy"),
        Paper("instance", "Per-instance Differential Privacy"),
    )
}

EXPERIMENTS = (
    Experiment(
        "ridge/table-1",
        "Personalised against one ε for all, synthetic, by λ",
        "ridge_tables:table_1",
    ),
    Experiment(
        "ridge/table-2", "Personalised against one ε for all, medical, by λ", "ridge_tables:table_2"
    ),
    Experiment(
        "ridge/table-3",
        "Against one ε for all, synthetic, by ε of conservatives",
        "ridge_tables:by_line",
    ),
    Experiment(
        "ridge/table-4",
        "Against one ε for all, medical, by ε of conservatives",
        "ridge_tables:by_line",
    ),
    Experiment(
        "ridge/table-5", "Against one ε for all, synthetic, by ε of mediums", "ridge_tables:by_line"
    ),
    Experiment(
        "ridge/table-6", "Against one ε for all, medical, by ε of mediums", "ridge_tables:by_line"
    ),
    Experiment(
        "ridge/table-7",
        "Against one ε for all, synthetic, by share of conservatives",
        "ridge_tables:by_line",
    ),
    Experiment(
        "ridge/table-8",
        "Against one ε for all, medical, by share of conservatives",
        "ridge_tables:by_line",
    ),
    Experiment(
        "ridge/table-9", "Against one ε for all, synthetic, by rows", "ridge_tables:by_line"
    ),
    Experiment("ridge/table-10", "Against one ε for all, medical, by rows", "ridge_tables:by_line"),
    Experiment("ridge/table-11", "Against sampling, synthetic, by λ", "ridge_tables:by_lambda"),
    Experiment("ridge/table-12", "Against sampling, medical, by λ", "ridge_tables:by_lambda"),
    Experiment("ridge/table-13", "Standard deviations, synthetic, by λ", "ridge_tables:by_lambda"),
    Experiment("ridge/table-14", "Standard deviations, medical, by λ", "ridge_tables:by_lambda"),
    Experiment(
        "ridge/figure-1",
        "Loss and its deviation, medical, by share of conservatives",
        "ridge_figures:figure",
    ),
    Experiment(
        "ridge/figure-2",
        "Against sampling, synthetic, by ε of conservatives",
        "ridge_figures:figure",
    ),
    Experiment(
        "ridge/figure-3", "Against sampling, medical, by ε of conservatives", "ridge_figures:figure"
    ),
    Experiment(
        "ridge/figure-4", "Against sampling, synthetic, by ε of mediums", "ridge_figures:figure"
    ),
    Experiment(
        "ridge/figure-5", "Against sampling, medical, by ε of mediums", "ridge_figures:figure"
    ),
    Experiment(
        "ridge/figure-6",
        "Against sampling, synthetic, by share of conservatives",
        "ridge_figures:figure",
    ),
    Experiment(
        "ridge/figure-7",
        "Against sampling, medical, by share of conservatives",
        "ridge_figures:figure",
    ),
    Experiment("ridge/figure-8", "Against sampling, synthetic, by rows", "ridge_figures:figure"),
    Experiment("ridge/figure-9", "Against sampling, medical, by rows", "ridge_figures:figure"),
    Experiment("ridge/figure-10", "Standard deviation, synthetic, by λ", "ridge_figures:figure"),
    Experiment("ridge/figure-11", "Standard deviation, medical, by λ", "ridge_figures:figure"),
    Experiment(
        "ridge/figure-12",
        "Standard deviation, synthetic, by ε of conservatives",
        "ridge_figures:figure",
    ),
    Experiment(
        "ridge/figure-13",
        "Standard deviation, medical, by ε of conservatives",
        "ridge_figures:figure",
    ),
    Experiment(
        "ridge/figure-14", "Standard deviation, synthetic, by ε of mediums", "ridge_figures:figure"
    ),
    Experiment(
        "ridge/figure-15", "Standard deviation, medical, by ε of mediums", "ridge_figures:figure"
    ),
    Experiment(
        "ridge/figure-16",
        "Standard deviation, synthetic, by share of conservatives",
        "ridge_figures:figure",
    ),
    Experiment(
        "ridge/figure-17",
        "Standard deviation, medical, by share of conservatives",
        "ridge_figures:figure",
    ),
    Experiment("ridge/figure-18", "Standard deviation, synthetic, by rows", "ridge_figures:figure"),
    Experiment("ridge/figure-19", "Standard deviation, medical, by rows", "ridge_figures:figure"),
    Experiment(
        "ridge/theorem-2.5", "The bound on the error against the error", "ridge_figures:accuracy"
    ),
    Experiment("ridge/speed", "All runs at once against a loop over runs", "ridge_tables:speed"),
    Experiment("ridge/errata", "What the paper got wrong", "errata:outcome"),
    Experiment("market/figure-2a", "Error and payments by trade-off", "market_figures:figure_2a"),
    Experiment(
        "market/figure-2b",
        "Error + γ·payment, costs apart and correlated",
        "market_figures:figure_2b",
    ),
    Experiment("market/figure-3", "Errors and loss by μ", "market_figures:figure_3"),
    Experiment(
        "market/figure-4", "Variance of weights by variance of costs", "market_figures:figure_4"
    ),
    Experiment("market/figure-5", "Errors by average ε", "market_figures:figure_5"),
    Experiment(
        "market/certified",
        "The certified market beside the published one",
        "market_figures:compare_certified",
    ),
    Experiment(
        "market/appendix-c", "Two sellers: the minimum for every noise", "market_claims:appendix_c"
    ),
    Experiment("market/audit", "The claim of privacy, audited; ours too", "market_claims:audit"),
    Experiment("market/lies", "Who gains by a lie", "market_claims:lies"),
    Experiment("market/theorem-3.4", "The limit for many sellers", "market_claims:theorem_3_4"),
    Experiment("market/errata", "What the paper got wrong", "errata:outcome"),
    Experiment(
        "users/theorem-2",
        "Weights against sample limiting, the ratio that tends to 3/2",
        "users_claims:theorem_2",
    ),
    Experiment(
        "users/counterexample",
        "Weights against sample limiting, more than 3/2",
        "users_claims:counterexample",
    ),
    Experiment(
        "users/example-1", "The gap without a bound, by the solver", "users_claims:example_1"
    ),
    Experiment("users/example-3", "The same with features of length one", "users_claims:example_3"),
    Experiment(
        "users/quantile",
        "The median with weights and with sample limiting, and Theorem 9",
        "users_claims:quantile",
    ),
    Experiment(
        "users/figure-1", "Regression on synthetic data, by rows, ε = 1", "users_regression:figure"
    ),
    Experiment(
        "users/figure-2", "Regression on synthetic data, by α, ε = 1", "users_regression:figure"
    ),
    Experiment(
        "users/figure-3",
        "Regression on synthetic data, by rows, ε = 2 and 3",
        "users_regression:figure",
    ),
    Experiment(
        "users/exact", "The exact sensitivity against the published one", "users_regression:exact"
    ),
    Experiment("users/table-1", "Regression on drug reviews and news", "users_tables:table_1"),
    Experiment("users/table-2", "Logistic regression on drug reviews", "users_tables:table_2"),
    Experiment(
        "users/table-1-law", "What Table 1 tells about its noise", "users_claims:table_1_law"
    ),
    Experiment(
        "users/table-2-noise", "Which ε the noise of Table 2 keeps", "users_claims:table_2_noise"
    ),
    Experiment("users/errata", "What the paper got wrong, or left loose", "errata:outcome"),
    Experiment("instance/figure-1", "Losses to noise on the solution", "instance_figures:figure_1"),
    Experiment(
        "instance/figure-2",
        "Losses by rows, and to one sample by risk",
        "instance_figures:figure_2",
    ),
    Experiment(
        "instance/efficiency",
        "How efficient a posterior sample is",
        "instance_efficiency:efficiency",
    ),
    Experiment("instance/errata", "What the paper got wrong", "errata:outcome"),
)


def choose_experiments(names: Sequence[str]) -> list[Experiment]:
    """Return the experiments that are named, each once, in the order of the list.

    `all` and `ridge/all` are names.
    """
    wanted = {experiment.name for name in names for experiment in _find_experiments(name)}
    return [experiment for experiment in EXPERIMENTS if experiment.name in wanted]


def make_named_generator(name: str) -> Generator:
    """Return a generator whose draws follow from the name alone."""
    import numpy as np

    return np.random.default_rng(list(name.encode()))  # noqa: TID251


def _find_experiments(name: str) -> list[Experiment]:
    paper, _, which = name.partition("/")
    found = [
        e for e in EXPERIMENTS if name in (ALL, e.name) or (which == ALL and e.paper.key == paper)
    ]
    if not found:
        names = [ALL, *(f"{key}/{ALL}" for key in PAPERS), *(e.name for e in EXPERIMENTS)]
        near = get_close_matches(name, names, n=3)
        raise InvalidParameter(
            "There is no experiment of this name.",
            f"Names that are close: {', '.join(near)}."
            if near
            else f"Names are like {EXPERIMENTS[0].name} or {ALL}.",
            "Ask `sottovoce reproduce --list` for all names.",
            parameter="names",
        )
    return found
