# SPDX-License-Identifier: Apache-2.0
"""The registry: every question that can be asked, in one table.

The command line, the page, the JSON interface, the reference page and the laws are made from it,
and nothing else in the library lists the questions. To add one: write its estimator in a file of
its own, and add an entry to ``_BUILT_IN``.

An entry is made of plain values, so that a list of questions, and help, come without loading what
an estimator needs.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from sottovoce.moved import OLD_PATHS as _OLD_PATHS

if TYPE_CHECKING:
    from sottovoce.release import Release

__path__.append(_OLD_PATHS)

#: No number is larger: whole numbers in JSON may be.
LARGEST_DOUBLE = sys.float_info.max


@dataclass(frozen=True)
class Parameter:
    """Describe one public parameter of a question, as the command line, form and JSON offer it.

    Parameters
    ----------
    name :
        of the estimator's argument; with hyphens, of the option.
    kind :
        "number" (above ``least``), "whole" (at least ``least``), "numbers" (one or several, from
        ``least`` to ``most``), "choice" (one of ``choices``; the first is the default), or
        "table" (public rows; at the command line alone).
    label, help :
        what a form calls it, and what is said about it everywhere.
    choices :
        of a choice: each value, and what a form calls it.
    least, most :
        the limits of numbers.
    default :
        the value that is passed if none is given; None passes nothing.
    """

    name: str
    kind: Literal["number", "whole", "numbers", "choice", "table"]
    label: str
    help: str
    choices: tuple[tuple[str, str], ...] = ()
    least: float = 0.0
    most: float = math.inf
    default: Any = None

    @property
    def values(self) -> list[str]:
        """The values of a choice."""
        return [value for value, _ in self.choices]

    @property
    def option(self) -> str:
        """The name of the option at the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def default_text(self) -> str:
        """The default as it stands in a form: numbers with spaces between them."""
        if self.default is None:
            return ""
        if isinstance(self.default, list):
            return " ".join(f"{number:g}" for number in self.default)
        return f"{self.default:g}"

    def describe_limits(self) -> str:
        """Return what a value must be, as a sentence."""
        if self.kind == "choice":
            return f"Choose one of: {', '.join(self.values)}."
        if self.kind in ("whole", "numbers"):
            limits = f"at least {self.least:g}"
        else:
            limits = f"more than {self.least:g}"
        if math.isfinite(self.most):
            limits += f" and at most {self.most:g}"
        if self.kind == "whole":
            return f"Write a whole number that is {limits}."
        if self.kind == "numbers":
            return f"Write a number that is {limits}. Several are a list."
        return f"Write a number that is {limits}."

    def accepts(self, value: Any) -> bool:
        """Whether a value that a program sent is of the right kind and within the limits."""
        if self.kind == "choice":
            return isinstance(value, str) and value in self.values
        if self.kind == "numbers" and isinstance(value, list) and value:
            return all(self._accepts_number(number) for number in value)
        return self._accepts_number(value)

    def _accepts_number(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if not self.least <= value <= min(self.most, LARGEST_DOUBLE):  # nan is in no order
            return False
        if self.kind == "whole":
            return float(value).is_integer()
        return self.kind == "numbers" or value > self.least


@dataclass(frozen=True)
class Question:
    """Describe a question: its name, what it reads, what can be set, and which estimator answers.

    Parameters
    ----------
    name :
        the command, and the value of ``question`` in forms and in JSON.
    estimator :
        module and class, such as "sottovoce.estimators.mean:Mean"; loaded on first use.
    recorded_as :
        ``question`` in its plans and releases.
    title, summary, hint :
        its name in a list, a sentence of help, and a line beneath its field in a form.
    reads :
        "column" (one column of numbers), "regression" (a label that is a number, and features), or
        "classes" (a label with levels, and features).
    parameters :
        what can be set besides bounds, budgets and missing values.
    fixed :
        arguments that are passed whatever was given.
    audited :
        the values of parameters at which everybody's loss is known exactly; {} at all values, None
        at none.
    compared :
        whether its plans say how it fares against a private mean and no answer at all.
    offered :
        whether it is offered outside Python. Releases of the others can be loaded too.
    """

    name: str
    estimator: str
    recorded_as: str
    title: str
    summary: str
    hint: str
    reads: Literal["column", "regression", "classes"]
    parameters: tuple[Parameter, ...] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    audited: Mapping[str, tuple[str, ...]] | None = None
    compared: bool = False
    offered: bool = True

    @property
    def predicts(self) -> bool:
        """Whether its releases are models of a label."""
        return self.reads != "column"

    @property
    def form_parameters(self) -> tuple[Parameter, ...]:
        """The parameters that a form and JSON offer: all but tables."""
        return tuple(one for one in self.parameters if one.kind != "table")

    def load_class(self) -> Any:
        """Load the class of the estimator."""
        module, _, name = self.estimator.partition(":")
        return getattr(import_module(module), name)

    def complete_parameters(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of the estimator: what was given, and defaults for the rest."""
        defaults = {one.name: one.default for one in self.parameters}
        stated = {name: value for name, value in given.items() if value is not None}
        arguments = {**defaults, **self.fixed, **stated}
        return {name: value for name, value in arguments.items() if value is not None}

    def complete_options(self, options: Any) -> Any:
        """Return the options of a table, completed from its schema with what this question reads.

        Parameters
        ----------
        options :
            ``DataSource``, whose methods say what each kind of question reads.
        """
        if self.reads == "column":
            return options.complete()
        if self.reads == "classes":
            return options.for_classification()
        return options.for_regression()

    def is_audited(self, parameters: Mapping[str, Any]) -> bool:
        """Whether everybody's loss to a release with these parameters is known exactly."""
        if self.audited is None:
            return False
        return all(parameters.get(name) in values for name, values in self.audited.items())


_ALPHA = Parameter(
    "alpha",
    "number",
    "Regularisation λ",
    "Regularisation λ, a public number; if not given, chosen from the budgets.",
)
_BUILT_IN = (
    Question(
        "mean",
        "sottovoce.estimators.mean:Mean",
        recorded_as="mean",
        title="Mean of a column",
        summary="The mean of a column.",
        hint="What everybody has on average.",
        reads="column",
        parameters=(
            Parameter(
                "spread",
                "number",
                "Spread (a guess)",
                "A public guess of the standard deviation; half the range if not given.",
            ),
        ),
    ),
    Question(
        "quantile",
        "sottovoce.estimators.quantile:Quantile",
        recorded_as="quantile",
        title="Quantiles of a column",
        summary="Quantiles of a column: the median, quartiles, any share of the rows.",
        hint="The median, quartiles, or any share of the rows.",
        reads="column",
        parameters=(
            Parameter(
                "q",
                "numbers",
                "Shares",
                "A share of the rows, 0 to 1 (if not given: 0.5). Several split the budget evenly.",
                most=1.0,
                default=[0.5],
            ),
            Parameter(
                "spread",
                "number",
                "Share of the bounds that values fill (a guess)",
                "A public guess of the share of the bounds that values fill, for the expected "
                "error only.",
                most=1.0,
            ),
            Parameter(
                "method",
                "choice",
                "Method",
                "How an answer is chosen; the first is never worse.",
                choices=(
                    ("permute-and-flip", "permute and flip"),
                    ("exponential", "exponential mechanism"),
                ),
            ),
            Parameter(
                "cells",
                "whole",
                "Steps of the grid",
                "Steps of the grid of possible answers; if not given, as many as suit the budgets.",
                least=2,
            ),
        ),
    ),
    Question(
        "ridge",
        "sottovoce.estimators.ridge:Ridge",
        recorded_as="ridge",
        title="Linear model of a column",
        summary="A linear model of the label on the features that the schema describes.",
        hint="From all other columns that are described.",
        reads="regression",
        parameters=(
            Parameter(
                "method",
                "choice",
                "Method",
                "Where the noise is added; the first is the best known.",
                choices=(
                    ("objective", "objective (the default)"),
                    ("statistics", "noisy statistics"),
                    ("output-tight", "noise on the answer, tight"),
                    ("output", "noise on the answer, as published"),
                ),
            ),
            _ALPHA,
            Parameter(
                "loss",
                "choice",
                "Loss",
                "What the default method estimates: the mean of the label, as least squares does, "
                "or a centre between mean and median.",
                choices=(
                    ("squared", "squared: the mean"),
                    ("robust", "robust: between mean and median"),
                    ("huber", "robust, by Huber's loss"),
                ),
            ),
            Parameter(
                "label_scale",
                "number",
                "Spread of the label (a guess)",
                "A public guess of the label's standard deviation; saves the ε that would buy it.",
            ),
            Parameter(
                "association",
                "number",
                "Association of budgets and labels",
                "A public bound on how far the labels of people with one budget lie from what the "
                "model of everybody says, on average; the larger, the less of a large ε is spent.",
            ),
        ),
        audited={"method": ("output", "output-tight")},
        compared=True,
    ),
    Question(
        "logistic",
        "sottovoce.estimators.logistic:LogisticRegression",
        recorded_as="logistic regression",
        title="Classifier: the odds of its levels",
        summary="A classifier: the odds of the label's classes, given the features that the "
        "schema describes.",
        hint="From all other columns that are described.",
        reads="classes",
        parameters=(
            _ALPHA,
            Parameter(
                "neighbours",
                "choice",
                "What is protected",
                "What is protected; labels alone need half the noise.",
                choices=(("replace", "everything about a person"), ("labels", "labels alone")),
            ),
            Parameter(
                "public",
                "table",
                "Public rows",
                "A table with the same features and label, of people who need no protection: it "
                "helps to scale and to choose λ, and tells the error to expect.",
            ),
        ),
    ),
    Question(
        "posterior",
        "sottovoce.estimators.posterior:PosteriorSample",
        recorded_as="posterior sample",
        title="Linear model that can be audited",
        summary="A linear model as one sample from a posterior, whose losses can be audited "
        "exactly.",
        hint="One sample from a posterior, whose losses can be told exactly.",
        reads="regression",
        parameters=(
            Parameter(
                "gamma",
                "number",
                "Concentration γ",
                "How concentrated the sample is, a public number (if not given: 1).",
            ),
            Parameter(
                "alpha",
                "number",
                "Regularisation λ",
                "Regularisation λ, a public number (if not given: 1).",
            ),
            Parameter(
                "delta",
                "number",
                "δ of every promise",
                "The δ of every promise (if not given: 1e-6).",
                most=0.1,
            ),
        ),
        fixed={"fit_intercept": True},
        audited={},
    ),
    Question(
        "adaptive-posterior",
        "sottovoce.estimators.posterior:AdaptivePosteriorSample",
        recorded_as="adaptive posterior sample",
        title="Linear model that can be audited, adapted to the rows",
        summary="One sample from a posterior whose concentration follows the rows.",
        hint="One sample from a posterior whose concentration follows the rows.",
        reads="regression",
        fixed={"fit_intercept": True},
        audited={},
        offered=False,
    ),
    Question(
        "label-private",
        "sottovoce.estimators.label_private:LabelPrivateRegression",
        recorded_as="label-private regression",
        title="Linear model of a private label on public features",
        summary="A linear model whose labels alone are private.",
        hint="Features are public; labels are not.",
        reads="regression",
        offered=False,
    ),
    Question(
        "erm",
        "sottovoce.estimators.erm:ERM",
        recorded_as="risk minimisation",
        title="Model of any convex loss",
        summary="A model of any convex loss, by noisy gradient descent.",
        hint="Noisy gradient descent on a convex loss.",
        reads="classes",
        fixed={"delta": 1e-6},
        offered=False,
    ),
)
_REGISTRY = {question.name: question for question in _BUILT_IN}


def register(question: Question) -> None:
    """Add a question, so that it is offered everywhere.

    Parameters
    ----------
    question :
        the entry. Its name must be new.

    Raises
    ------
    InvalidParameter
        if the name, or what its releases are recorded as, is taken.
    """
    from sottovoce.errors import InvalidParameter

    taken = any(
        question.name == other.name or question.recorded_as == other.recorded_as
        for other in _REGISTRY.values()
    )
    if taken:
        raise InvalidParameter(
            "A question of this name is registered already.",
            "Questions and releases are found by name.",
            "Choose another name.",
        )
    _REGISTRY[question.name] = question


def unregister(name: str) -> None:
    """Take a question out of the registry.

    Parameters
    ----------
    name :
        of the question.
    """
    del _REGISTRY[name]


def list_questions() -> dict[str, Question]:
    """Return the questions that are offered, by name."""
    return {name: question for name, question in _REGISTRY.items() if question.offered}


def find_recorded(recorded_as: Any) -> Question | None:
    """Return the question whose plans and releases have this name, or None."""
    matches = (one for one in _REGISTRY.values() if one.recorded_as == recorded_as)
    return next(matches, None)


def find_question(kind: type) -> Question | None:
    """Return the question that a class answers, or the nearest of those that it inherits from."""
    by_class = {question.estimator: question for question in _REGISTRY.values()}
    names = (f"{one.__module__}:{one.__qualname__}" for one in kind.__mro__)
    return next((by_class[name] for name in names if name in by_class), None)


def is_audited(release: Release) -> bool:
    """Whether everybody's loss to this release is known exactly."""
    question = find_recorded(release.question)
    return question is not None and question.is_audited(release.parameters)


def load(release: Release) -> Any:
    """Return the fitted estimator that a release describes.

    Parameters
    ----------
    release :
        as it was made, or read back with ``Release.from_json``.

    Returns
    -------
    Any
        the estimator, with ``release_`` and what follows from the release alone: ``value_`` of a
        column; ``coef_``, ``intercept_`` and ``predict`` of a model.

    Raises
    ------
    InvalidRelease
        if no estimator makes such releases, or parts of it are missing or contradict each other.
    """
    from sottovoce.estimators import base

    return base.load(release)
