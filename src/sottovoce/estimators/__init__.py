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
        ``least`` to ``most``), "choice" (one of ``choices``; the first is the default), "text",
        "texts" (one or several), or "table" (public rows; at the command line alone).
    label, help :
        what a form calls it, and what is said about it everywhere.
    choices :
        of a choice: each value, and what a form calls it.
    least, most :
        the limits of numbers.
    closed :
        whether a "number" may be ``least`` itself.
    default :
        the value that is passed if none is given; None passes nothing.
    words :
        of "numbers": words that may stand in place of them.
    """

    name: str
    kind: Literal["number", "whole", "numbers", "choice", "text", "texts", "table"]
    label: str
    help: str
    choices: tuple[tuple[str, str], ...] = ()
    least: float = 0.0
    most: float = math.inf
    default: Any = None
    closed: bool = False
    words: tuple[str, ...] = ()

    @property
    def may_be_least(self) -> bool:
        """Whether a number may be ``least`` itself."""
        return self.closed or self.kind in ("whole", "numbers")

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

    @property
    def form_help(self) -> str:
        """What a form says about it: there, several texts stand in one field."""
        if self.kind == "texts":
            return f"{self.help} With semicolons between several."
        return self.help

    def describe_limits(self) -> str:
        """Return what a value must be, as a sentence."""
        if self.kind == "text":
            return "Write text."
        if self.kind == "texts":
            return "Write text. Several are a list."
        if self.kind == "choice":
            return f"Choose one of: {', '.join(self.values)}."
        if self.may_be_least:
            limits = f"at least {self.least:g}"
        else:
            limits = f"more than {self.least:g}"
        if math.isfinite(self.most):
            limits += f" and at most {self.most:g}"
        if self.kind == "whole":
            return f"Write a whole number that is {limits}."
        if self.kind == "numbers":
            instead = "".join(f' Or write "{word}".' for word in self.words)
            return f"Write a number that is {limits}. Several are a list.{instead}"
        return f"Write a number that is {limits}."

    def accepts(self, value: Any) -> bool:
        """Whether a value that a program sent is of the right kind and within the limits."""
        if self.kind == "choice":
            return isinstance(value, str) and value in self.values
        if self.kind == "text":
            return _is_text(value)
        if self.kind == "texts":
            several = value if isinstance(value, list) else [value]
            return bool(several) and all(map(_is_text, several))
        if isinstance(value, str) and value in self.words:
            return True
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
        return self.may_be_least or value > self.least


def _is_text(value: Any) -> bool:
    """Whether a value is text that can be written; JSON can hold halves of signs."""
    return isinstance(value, str) and not any("\ud800" <= sign <= "\udfff" for sign in value)


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
    also_recorded_as :
        the same where it is asked by groups, if that is another word.
    title, summary, hint :
        its name in a list, a sentence of help, and a line beneath its field in a form.
    reads :
        "column" (one column of numbers), "table" (columns that its own parameters name),
        "regression" (a label that is a number, and features), "classes" (a label with levels, and
        features), or "report" (what several other questions read).
    parameters :
        what can be set besides bounds, budgets and missing values.
    fixed :
        arguments that are passed whatever was given.
    audited :
        the values of parameters at which the law of everybody's loss is known exactly; {} at all
        values, None at none.
    replay :
        module and name of what finds the stages of a release again, so that everybody's loss to
        it is known (sottovoce.audit.replays.ReplayMethod); None where there is none.
    compared :
        whether its plans say how it fares against a private mean and no answer at all.
    shared :
        whether it promises pure ε by replacement, as the questions of a report do.
    offered :
        whether it is offered outside Python. Releases of the others can be loaded too.
    core :
        module and class that plans and answers as the estimator does, without scikit-learn; None
        where the estimator does without.
    """

    name: str
    estimator: str
    recorded_as: str
    title: str
    summary: str
    hint: str
    reads: Literal["column", "table", "regression", "classes", "report"]
    parameters: tuple[Parameter, ...] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    audited: Mapping[str, tuple[str | None, ...]] | None = None
    replay: str | None = None
    compared: bool = False
    shared: bool = True
    offered: bool = True
    also_recorded_as: str | None = None
    core: str | None = None

    @property
    def predicts(self) -> bool:
        """Whether its releases are models of a label."""
        return self.reads in ("regression", "classes")

    @property
    def form_parameters(self) -> tuple[Parameter, ...]:
        """The parameters that a form and JSON offer: all but tables."""
        return tuple(one for one in self.parameters if one.kind != "table")

    def load_class(self) -> Any:
        """Load the class of the estimator."""
        module, _, name = self.estimator.partition(":")
        return getattr(import_module(module), name)

    def load_core(self) -> Any:
        """Load the class that plans and answers as the estimator does, but need not predict."""
        module, _, name = (self.core or self.estimator).partition(":")
        return getattr(import_module(module), name)

    def load_replay(self) -> Any:
        """Load what finds the stages of a release again."""
        module, _, name = str(self.replay).partition(":")
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
        if self.reads == "table":
            return options.for_table()
        if self.reads == "classes":
            return options.for_classification()
        if self.reads == "report":
            return options.for_report()
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
_INTERVAL_SHARE = Parameter(
    "interval_share",
    "number",
    "Share that buys the interval",
    "A share of everybody's ε that buys the interval; if not given, chosen from the budgets. 0 "
    "buys nothing.",
    most=0.9,
    closed=True,
)
_BY = Parameter(
    "by",
    "texts",
    "By groups of",
    "A column that the schema describes with levels, edges or a period, or such as age:0,18,65 or "
    "visited:month. Several make a table of several directions, for one charge.",
)
_WHERE = Parameter(
    "where",
    "text",
    "Of rows where",
    "A filter on described columns, such as: age > 40 and smoker == 'yes'.",
)
_SHARES = Parameter(
    "shares",
    "texts",
    "Shares of groups (a guess)",
    'A public guess of the share of the rows that a group has, such as "north = 0.3", or '
    '"region:north = 0.3" where there are several columns; equal if not given. For the expected '
    "errors alone.",
)
_TABLE_ASSOCIATION = Parameter(
    "association",
    "number",
    "How far budgets may go along with values (a guess)",
    "How far people with one budget may differ from everybody, on average; a fifth of the spread "
    "if not given. 0 trusts that they do not.",
    closed=True,
)
_CLASS_ASSOCIATION = Parameter(
    "association",
    "number",
    "Association of budgets and classes",
    "How far the odds of people with one budget may lie from everybody's, as a share of how "
    "log-odds spread; 0 if not given. The larger, the less of a large ε is spent.",
    closed=True,
)
_SPREAD = Parameter(
    "spread",
    "number",
    "Spread (a guess)",
    "A public guess of the standard deviation; a tenth of the range if not given.",
)
_BUILT_IN = (
    Question(
        "mean",
        "sottovoce.estimators.mean:Mean",
        recorded_as="mean",
        also_recorded_as="mean by group",
        title="Mean of a column",
        summary="The mean of a column.",
        hint="What everybody has on average.",
        reads="column",
        replay="sottovoce.audit.table_replays:MEAN",
        parameters=(
            _BY,
            _WHERE,
            _SHARES,
            _SPREAD,
            Parameter(
                "association",
                "number",
                "How far budgets may go along with values (a guess)",
                "How far the mean of people with one budget may lie from everybody's, in units of "
                "the column; a fifth of the spread if not given, less where noise would hide it. 0 "
                "trusts that it does not.",
                closed=True,
            ),
            _INTERVAL_SHARE,
            Parameter(
                "scale",
                "choice",
                "Noise in proportion to",
                "The bounds, or a window in which nearly all values lie, bought with a share of "
                "everybody's ε: for columns that are far narrower than their bounds and have no "
                "values far away.",
                choices=(("bounds", "the bounds"), ("bought", "a window that is bought")),
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
        replay="sottovoce.audit.rank_replays:QUANTILE",
        parameters=(
            Parameter(
                "q",
                "numbers",
                "Shares",
                "A share of the rows, 0 to 1 (if not given: 0.5). Several are chosen together; "
                '"all" stands for the whole distribution.',
                most=1.0,
                default=[0.5],
                words=("all",),
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
                "How answers are chosen. Together: several at one price, and one by permute and "
                "flip. Else one after another, each with its part of the budget.",
                choices=(
                    ("joint", "several together"),
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
            Parameter(
                "step",
                "number",
                "Step of the column",
                "The public step of the column, such as 1 for whole numbers; instead of steps of "
                "the grid. If not given, that of the schema.",
            ),
            Parameter(
                "association",
                "number",
                "How far budgets may go along with ranks (a guess)",
                "How far the ranks of people with one budget may lie from everybody's, as a share "
                "of the rows; 0.08 at the median if not given. 0 trusts that they do not.",
                most=1.0,
                closed=True,
            ),
            _INTERVAL_SHARE,
        ),
    ),
    Question(
        "count",
        "sottovoce.estimators.count:Count",
        recorded_as="count",
        title="Number of rows, by groups",
        summary="How many rows there are, by groups, or that satisfy a filter.",
        hint="A bar chart, a table of two or more directions, a share.",
        reads="table",
        replay="sottovoce.audit.table_replays:TABLE",
        parameters=(_BY, _WHERE, _SHARES, _TABLE_ASSOCIATION),
    ),
    Question(
        "sum",
        "sottovoce.estimators.table_sums:Sum",
        recorded_as="sum",
        title="Sum of a column",
        summary="The sum of a column, of all rows or by groups.",
        hint="What everybody has together.",
        reads="column",
        replay="sottovoce.audit.table_replays:TABLE",
        parameters=(_BY, _WHERE, _SHARES, _SPREAD, _TABLE_ASSOCIATION),
    ),
    Question(
        "variance",
        "sottovoce.estimators.variance:Variance",
        recorded_as="variance",
        title="Variance of a column",
        summary="The variance of a column, of all rows or by groups.",
        hint="How far values lie from their mean.",
        reads="column",
        replay="sottovoce.audit.table_replays:TABLE",
        parameters=(_BY, _WHERE, _SHARES, _SPREAD, _TABLE_ASSOCIATION),
    ),
    Question(
        "covariance",
        "sottovoce.estimators.covariance:Covariance",
        recorded_as="covariance",
        title="Covariances and correlations",
        summary="Means, covariances and correlations of the columns of numbers that the schema "
        "describes.",
        hint="How two or more columns of numbers vary together.",
        reads="table",
        replay="sottovoce.audit.table_replays:PRODUCTS",
        parameters=(
            Parameter(
                "columns",
                "texts",
                "Columns",
                "A column of numbers that the schema describes; all of them if none is named.",
            ),
            _TABLE_ASSOCIATION,
        ),
    ),
    Question(
        "ridge",
        "sottovoce.estimators.ridge:Ridge",
        core="sottovoce.estimators.ridge_core:RidgeCore",
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
                "Where the noise is added; by default in the objective or, with a δ, where the "
                "plan expects the smaller error.",
                choices=(
                    ("auto", "chosen by the plan (the default)"),
                    ("objective", "noise in the objective"),
                    ("objective-gaussian", "Gaussian noise in the objective, for a δ above 0"),
                    ("adassp", "noisy statistics in stages, for a δ above 0"),
                    ("descent", "noisy gradient descent, for a δ above 0"),
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
                closed=True,
            ),
            _INTERVAL_SHARE,
            Parameter(
                "delta",
                "number",
                "δ of every promise",
                "The δ of every promise, if ε at a δ will do; if not given, promises are pure ε.",
                most=0.1,
            ),
        ),
        replay="sottovoce.audit.model_replays:RIDGE",
        audited={"method": ("output", "output-tight")},
        compared=True,
    ),
    Question(
        "logistic",
        "sottovoce.estimators.logistic:LogisticRegression",
        core="sottovoce.estimators.logistic_core:LogisticCore",
        recorded_as="logistic regression",
        title="Classifier: the odds of its levels",
        summary="A classifier: the odds of the label's classes, given the features that the "
        "schema describes.",
        hint="From all other columns that are described.",
        reads="classes",
        replay="sottovoce.audit.model_replays:LOGISTIC",
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
            _CLASS_ASSOCIATION,
            _INTERVAL_SHARE,
            Parameter(
                "delta",
                "number",
                "δ of every promise",
                "The δ of every promise; if not given, promises are pure ε. With it the plan may "
                "choose noisy gradient descent, which does better where features are many.",
                most=0.1,
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
        shared=False,
    ),
    Question(
        "adaptive-posterior",
        "sottovoce.estimators.posterior:AdaptivePosteriorSample",
        recorded_as="adaptive posterior sample",
        title="Linear model that can be audited, adapted to the rows",
        summary="One sample from a posterior whose concentration follows the rows.",
        hint="One sample from a posterior whose concentration follows the rows.",
        reads="regression",
        parameters=(
            Parameter(
                "condition",
                "number",
                "Condition",
                "How many times smaller than the mean the least curvature is expected to be (if "
                "not given: 2).",
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
        shared=False,
    ),
    Question(
        "labels",
        "sottovoce.estimators.label_private:LabelPrivateRegression",
        recorded_as="label-private regression",
        title="Linear model of a private label on public features",
        summary="A linear model of a private label on public features: labels alone are protected, "
        "and a plan reads the features.",
        hint="Features are public numbers, which the plan reads; the label alone is protected.",
        reads="regression",
        replay="sottovoce.audit.replays:LABELS",
        shared=False,
        parameters=(
            Parameter(
                "noise_variance",
                "number",
                "Variance around the model (a guess)",
                "A public guess of the label's variance around the model; a quarter of the squared "
                "range if not given. It never changes the promise.",
                closed=True,
            ),
            Parameter(
                "sensitivity",
                "choice",
                "Sensitivity",
                "How far one person's labels reach.",
                choices=(("exact", "exact"), ("entrywise", "entry by entry, as published")),
            ),
            _INTERVAL_SHARE,
        ),
    ),
    Question(
        "erm",
        "sottovoce.estimators.erm:ERM",
        recorded_as="risk minimisation",
        title="Classifier by gradient descent, in ε at a δ",
        summary="A classifier with a logistic or a hinge loss, by noisy gradient descent.",
        hint="The logistic loss or the hinge, minimised in noisy steps.",
        reads="classes",
        replay="sottovoce.audit.replays:DESCENT",
        shared=False,
        parameters=(
            Parameter(
                "loss",
                "choice",
                "Loss",
                "What is minimised: the logistic loss, whose model tells odds, or the hinge.",
                choices=(("logistic", "logistic: odds"), ("hinge", "hinge: a margin")),
            ),
            Parameter(
                "delta",
                "number",
                "δ of every promise",
                "The δ of every promise (if not given: 1e-6).",
                most=0.1,
                default=1e-6,
            ),
            Parameter(
                "steps",
                "whole",
                "Steps",
                "How many steps are taken; if not given, chosen from the budgets.",
                least=1,
            ),
            Parameter(
                "constraint",
                "choice",
                "Constraint",
                "Where the coefficients of the recoded features stay.",
                choices=(("ball", "in a ball"), ("box", "in a box")),
            ),
            Parameter(
                "radius",
                "number",
                "Radius",
                "Of the ball, or half the side of the box, a public number; if not given, chosen.",
            ),
            _CLASS_ASSOCIATION,
        ),
    ),
    Question(
        "report",
        "sottovoce.estimators.report:Report",
        recorded_as="report",
        title="Several questions on one budget",
        summary="Several questions about one table, one plan, one charge, one release.",
        hint="Several questions on one budget.",
        reads="report",
        shared=False,
        replay="sottovoce.audit.report_replays:REPORT",
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


def list_shared_questions() -> dict[str, Question]:
    """Return the questions that are offered as parts of a report, by name."""
    return {name: question for name, question in list_questions().items() if question.shared}


def find_recorded(recorded_as: Any) -> Question | None:
    """Return the question whose plans and releases have this name, or None."""
    matches = (
        one
        for one in _REGISTRY.values()
        if recorded_as is not None and recorded_as in (one.recorded_as, one.also_recorded_as)
    )
    return next(matches, None)


def find_question(kind: type) -> Question | None:
    """Return the question that a class answers, or the nearest of those that it inherits from."""
    by_class = {question.estimator: question for question in _REGISTRY.values()}
    names = (f"{one.__module__}:{one.__qualname__}" for one in kind.__mro__)
    return next((by_class[name] for name in names if name in by_class), None)


def is_audited(release: Release) -> bool:
    """Whether everybody's loss to this release is known: its law, or what it was."""
    question = find_recorded(release.question)
    if question is None or "sampled" in release.parameters or "limited" in release.parameters:
        return False
    return question.replay is not None or question.is_audited(release.parameters)


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
    from sottovoce.estimators import column

    return column.load(release)
