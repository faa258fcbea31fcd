# SPDX-License-Identifier: Apache-2.0
"""Every table, figure, theorem, lemma, claim, example and algorithm of the four papers, and what
became of it.

The list below says what an item is and where it is shown; what became of it is read off the
finished experiments (`judge_items`). An experiment that is called like an item, such as
ridge/theorem-2.5, or that names one in its title, shows that item without being named here. The
page docs/reproduction.md is made of this by tools/make_reproduction_page.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sottovoce.papers.plots import DEVIATION_LIMIT, Outcome, ResultTable
from sottovoce.papers.report import EXPERIMENTS, PAPERS, Experiment

#: What can become of an item, from the best on.
CLOSE = "within 5 %"
NEAR = "within 10 %"
SHAPE = "shape"
HOLDS = "holds"
LOOSE = "loose"
WRONG = "wrong as printed"
ABSENT = "not reproducible"
NOT_RUN = "not run"
STATUSES = (CLOSE, NEAR, SHAPE, HOLDS, LOOSE, WRONG, ABSENT, NOT_RUN)
#: An identity holds if its two sides differ by no more, and a bound if it is exceeded by no more.
ROUNDING = 1e-9


@dataclass(frozen=True)
class SeedItem:
    """An item of a paper: ``shown`` are experiments, besides the one that is called like it.

    ``as_found`` decides where runs cannot: what is cited, is a picture of boxes and arrows, or
    holds as stated although a step of its proof does not. ``why`` says so. ``places`` are lines of
    the errata that speak about it under another name.
    """

    paper: str
    label: str
    what: str
    shown: tuple[str, ...] = ()
    as_found: str = ""
    why: str = ""
    places: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What an experiment about this item alone is called."""
        return f"{self.paper}/{re.sub(r'[() ]+', '-', self.label.lower()).strip('-')}".replace(
            "figure-2-", "figure-2"
        )

    @property
    def experiments(self) -> tuple[str, ...]:
        """The experiments that show it: called like it, named above, or with it in their title."""
        own = tuple(e.name for e in EXPERIMENTS if e.name == self.name)
        titled = tuple(e.name for e in EXPERIMENTS if self._is_named_by(e))
        return tuple(dict.fromkeys((*own, *self.shown, *titled)))

    def _is_named_by(self, experiment: Experiment) -> bool:
        # Titles such as "What Table 1 tells" are about a table, and do not reproduce it.
        if experiment.paper.key != self.paper or self.label.startswith(("Table", "Figure")):
            return False
        return re.search(rf"(?<!\w){re.escape(self.label)}(?![\w.])", experiment.title) is not None


@dataclass(frozen=True)
class JudgedItem:
    """An item, what became of it, and in which words."""

    item: SeedItem
    status: str
    words: str


@dataclass(frozen=True)
class RunSummary:
    """What a finished experiment says about items: cells, statements, errata and its time."""

    cells: int = 0
    close: int = 0
    near: int = 0
    reasons: tuple[str, ...] = ()
    bounds: Mapping[str, float] | None = None
    identities: Mapping[str, float] | None = None
    errata: tuple[str, ...] = ()
    missing: str = ""
    invented: bool = False
    processor_seconds: float = 0.0

    @classmethod
    def of(cls, outcome: Outcome) -> RunSummary:
        """Gathers what an outcome says."""
        cells, close, near = outcome.count_close()
        tables = outcome.tables
        return cls(
            cells,
            close,
            near,
            _gather_reasons(tables) if cells > near else (),
            _gather_statements(outcome, 0),
            _gather_statements(outcome, 1),
            _gather_errata(outcome),
            "",
            any("invented" in table.title for table in tables),
            outcome.processor_seconds,
        )


def _gather_reasons(tables: Sequence[ResultTable]) -> tuple[str, ...]:
    """Return the sentences that stand beside cells that are off, each once."""
    found = []
    for table in tables:
        off = {(column, line) for column, line, _ in table.find_deviations(DEVIATION_LIMIT)}
        for reason in table.reasons:
            lines = reason.lines or table.lines
            if any((reason.column, line) in off for line in lines):
                found.append(_shorten(reason.sentence))
    return tuple(dict.fromkeys(found))


def _shorten(sentence: str) -> str:
    """Return the first sentence of several."""
    return sentence.partition(". ")[0].rstrip(".") + "."


def _gather_statements(outcome: Outcome, place: int) -> dict[str, float] | None:
    if not outcome.experiment.endswith("/statements"):
        return None
    table = outcome.tables[0]
    values = zip(table.lines, table.columns[place].ours, strict=True)
    return {line: value for line, value in values if value is not None}


def _gather_errata(outcome: Outcome) -> tuple[str, ...]:
    """Return the places of errata, without the letters that tell several of one place apart."""
    if not outcome.experiment.endswith("/errata"):
        return ()
    return tuple(re.sub(r" [a-z]$", "", line) for table in outcome.tables for line in table.lines)


def judge_items(runs: Mapping[str, RunSummary]) -> list[JudgedItem]:
    """Return every item with what became of it in these runs."""
    return [_judge(item, runs) for item in ITEMS]


def _judge(item: SeedItem, runs: Mapping[str, RunSummary]) -> JudgedItem:
    found = _judge_by_runs(item, runs)
    lines = _count_errata(item, runs)
    words = found.words
    if lines:
        words = _join(f"errata: {_count(lines, 'line')}", words)
    if item.as_found:
        status = item.as_found
    elif lines and not item.label.startswith(("Table", "Figure")):
        status = WRONG
    else:
        status = found.status
    return JudgedItem(item, status, _join(words, item.why))


def _judge_by_runs(item: SeedItem, runs: Mapping[str, RunSummary]) -> JudgedItem:
    """Return what the runs say: a statement held against drawn cases, or cells beside print."""
    statement = _judge_statement(item, runs)
    if statement is not None:
        return statement
    found = {name: runs[name] for name in item.experiments if name in runs}
    absent = [run.missing for run in found.values() if run.missing]
    if absent and len(absent) == len(found):
        return JudgedItem(item, ABSENT, absent[0])
    if found:
        return _judge_cells(item, [run for run in found.values() if not run.missing])
    if item.as_found or _count_errata(item, runs):
        return JudgedItem(item, item.as_found, "")
    return JudgedItem(item, NOT_RUN, "no finished run")


def _judge_cells(item: SeedItem, runs: Sequence[RunSummary]) -> JudgedItem:
    cells, close, near = (
        sum(getattr(run, part) for run in runs) for part in ("cells", "close", "near")
    )
    if not cells:
        return JudgedItem(item, SHAPE, _describe_shape(item, runs))
    counted = f"{close} of {cells} cells within 5 %, {near} within 10 %"
    if close == cells:
        return JudgedItem(item, CLOSE, counted)
    if near == cells:
        return JudgedItem(item, NEAR, counted)
    if item.why:
        return JudgedItem(item, SHAPE, counted)
    reasons = dict.fromkeys(reason for run in runs for reason in run.reasons[:1])
    return JudgedItem(item, SHAPE, _join(counted, " ".join(reasons)))


def _describe_shape(item: SeedItem, runs: Sequence[RunSummary]) -> str:
    if any(run.invented for run in runs):
        return "on invented data, not held against print"
    if item.why:
        return ""
    return "print has no numbers"


def _judge_statement(item: SeedItem, runs: Mapping[str, RunSummary]) -> JudgedItem | None:
    """Return the judgement of a theorem or a lemma that was held against drawn cases."""
    run = runs.get(f"{item.paper}/statements", RunSummary())
    if item.label in (run.bounds or {}):
        most = (run.bounds or {})[item.label]
        held = most <= 1 + ROUNDING
        words = f"reaches {most:.3g} of its bound in drawn cases"
    elif item.label in (run.identities or {}):
        most = (run.identities or {})[item.label]
        held = most <= ROUNDING
        words = f"its two sides differ by {most:.0e} in drawn cases"
    else:
        return None
    if held:
        return JudgedItem(item, HOLDS, words)
    return JudgedItem(item, WRONG, words)


def _count_errata(item: SeedItem, runs: Mapping[str, RunSummary]) -> int:
    """Return how many lines of errata have this item as their place."""
    places = runs.get(f"{item.paper}/errata", RunSummary()).errata
    labels = "|".join(re.escape(label) for label in (item.label, *item.places))
    own = re.compile(rf"(?:{labels})(?![\w.])")
    return sum(bool(own.match(place)) for place in places)


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + "s" * (number != 1)


def _join(first: str, second: str) -> str:
    return "; ".join(part.rstrip(".") for part in (first, second) if part)


def count_statuses(judged: Iterable[JudgedItem]) -> str:
    """Return in one sentence what became of all items.

    >>> count_statuses([])
    'Of 0 items of the papers: nothing.'
    """
    found = list(judged)
    counts = {status: sum(one.status == status for one in found) for status in STATUSES}
    told = ", ".join(f"{number} {status}" for status, number in counts.items() if number)
    return f"Of {len(found)} items of the papers: {told or 'nothing'}."


def _make_items(paper: str, *lines: tuple[str, ...] | SeedItem) -> list[SeedItem]:
    made = []
    for line in lines:
        if isinstance(line, SeedItem):
            made.append(line)
        else:
            label, what, *shown = line
            made.append(SeedItem(paper, label, what, tuple(shown)))
    return made


def _make_cited(paper: str, label: str, what: str, why: str) -> SeedItem:
    return SeedItem(paper, label, what, (), HOLDS, why)


_RIDGE = _make_items(
    "ridge",
    ("Algorithm 1", 'PDP-OP, which is `sv.Ridge(method="output")`', "ridge/table-12"),
    ("Remark .1", "how its noise is drawn"),
    ("Theorem 2.1", "it is private for each"),
    ("Theorem 2.3", "the same with a promise about the solution"),
    SeedItem(
        "ridge",
        "Theorem 2.5",
        "how accurate it is",
        as_found=HOLDS,
        why="1.4 to 1.9 times the 95 % quantile of the error",
    ),
    ("Lemma C.1", "the solution is at most 1/√λ long"),
    ("Lemma C.2", "the solution is at most √d/λ long"),
    ("Lemma C.3", "how far two minimisers are apart"),
    ("Theorem C.4", "how far a record moves the solution"),
    ("Lemma C.5", "what that costs"),
    *((f"Table {n}", "") for n in range(1, 15)),
    *((f"Figure {n}", "") for n in range(1, 20)),
)
_MARKET = _make_items(
    "market",
    SeedItem(
        "market",
        "Algorithm 0",
        "logistic regression with weights, as `sv.LogisticRegression` has it",
        ("market/figure-5",),
        why="its privacy is Proposition 1; print is a picture",
    ),
    SeedItem(
        "market",
        "Proposition 1",
        "it is private, with a term that is dropped later",
        as_found=LOOSE,
        why="it charges nearly seven times what is lost in a line of the errata",
    ),
    ("Remark after Algorithm 0", "the term is small"),
    ("Theorem 2.1", "a bound on the error (A.1 is the same)"),
    SeedItem(
        "market",
        "Theorem A.1",
        "the bound with its constants",
        as_found=LOOSE,
        why="slips in its last display, which make it larger than its steps for δ < 1/e",
    ),
    ("Theorem 3.2", "payments in an expectation (A.3)"),
    ("Theorem A.3", "payments to each, the last line of its proof"),
    ("Theorem 3.3", "the best weights (A.4)"),
    SeedItem(
        "market",
        "Theorem 3.4",
        "the limit for many sellers (A.5)",
        as_found=HOLDS,
        why="(12) is right; (29), a step of its proof, drops a 2",
        places=("(29)",),
    ),
    SeedItem(
        "market",
        "Theorem 4.1",
        "convexity (A.6)",
        as_found=WRONG,
        why="with twice the λ of (30); the algorithm's set is not convex",
        places=("(30)", "4.2, the set S"),
    ),
    SeedItem(
        "market",
        "Algorithm of 4.2",
        "descent with a projection",
        ("market/figure-2a", "market/figure-3"),
        why="not private as published, and does not end at the minimum",
        places=("(10)",),
    ),
    SeedItem("market", "Figure 1", "boxes and arrows", as_found=SHAPE, why="nothing to compute"),
    ("Figure 2(a)", "error and payments by γ"),
    ("Figure 2(b)", "error + γ·payments"),
    SeedItem(
        "market",
        "Figure 3",
        "errors and loss by μ",
        why="errors fall with μ as in print, and do not rise again up to μ = 1,000",
    ),
    ("Figure 4", "weights by the variance of costs"),
    ("Figure 5", "errors by ε"),
    SeedItem(
        "market",
        "Example of Appendix C",
        "two sellers",
        ("market/appendix-c", "market/audit"),
        why="(34) has no λ, and no minimum",
        places=("(34)",),
    ),
)
_VALUE = "print is a bound and ours the value, on its right side"
_QUANTILE = "with the constants of its proof 2.6 to 9.9 times what is seen"
_NO_CONSTANT = "a bound O(·) without constants: there is no number to compare"
_USERS = _make_items(
    "users",
    ("Algorithm 1", "weighted averages, which are `sv.Mean`", "users/theorem-2"),
    SeedItem(
        "users",
        "Algorithm 2",
        "weighted ERM, which is `sv.ERM`",
        ("users/table-2", "users/table-2-law"),
    ),
    ("Algorithm 3", "GWA, which is `sv.LabelPrivateRegression`", "users/table-1", "users/figure-1"),
    ("Algorithm 4", "weighted ranks, which are `sv.Quantile`", "users/quantile"),
    _make_cited("users", "Theorem 1", "the Laplace mechanism", "cited; docs/theory/noise.md"),
    ("Lemma 1", "Algorithm 1 is private"),
    ("Lemma 2", "its variance"),
    ("Lemma 3", "the best weights (Lemma 4 is the same)"),
    ("Claim 1", "the best weights by one number h", "users/theorem-2"),
    ("Claim 2", "the variance of sample limiting"),
    SeedItem(
        "users",
        "Theorem 2",
        "a family whose ratio tends to 3/2 (Theorem 7 is the same)",
        why="*less than* should be *equal to*",
    ),
    ("Theorem 3", "never more than 4 times as much (Theorem 8 is the same)"),
    SeedItem(
        "users",
        "Theorem 4",
        "the error of Algorithm 2 (Corollaries 2 and 3)",
        as_found=SHAPE,
        why=_NO_CONSTANT + "; its privacy rests on noise that is proved for small ε",
    ),
    SeedItem(
        "users",
        "Theorem 5",
        "uniform convergence with weights (Theorem 10 is the same)",
        as_found=SHAPE,
        why=_NO_CONSTANT,
    ),
    SeedItem(
        "users",
        "Theorem 6",
        "Algorithm 3 is private, and convex (Theorem 12 is the same)",
        as_found=LOOSE,
        why="its noise is enough; the exact one has a 1.4 times smaller error (`users/exact`)",
    ),
    SeedItem(
        "users",
        "Claim 3",
        "the gap of Example 1 (Claim 8 is the same)",
        ("users/example-1",),
        HOLDS,
        _VALUE,
    ),
    SeedItem("users", "Example 1", "two directions", (), HOLDS, _VALUE),
    ("Example 2", "one row or g rows", "users/theorem-2"),
    SeedItem("users", "Example 3", "features of length one", (), HOLDS, _VALUE),
    ("Claim 4", "Algorithm 4 is private"),
    SeedItem("users", "Claim 5", "ranks are near the law", why="its proof lacks a max c_i"),
    *(
        SeedItem("users", label, what, ("users/quantile",), HOLDS, _QUANTILE)
        for label, what in (
            ("Claim 6", "the answer's rank is near q"),
            ("Theorem 9", "the answer is near the quantile"),
            ("Corollary 1", "the same"),
        )
    ),
    SeedItem(
        "users",
        "Corollary 2",
        "the empirical error of Algorithm 2",
        as_found=SHAPE,
        why=_NO_CONSTANT,
    ),
    SeedItem("users", "Corollary 3", "its population loss", as_found=SHAPE, why=_NO_CONSTANT),
    ("Fact 1", "CX = I is to be without bias"),
    SeedItem(
        "users",
        "Claim 7",
        "every map is a generalised least squares",
        as_found=HOLDS,
        why="after the repair of its proof",
    ),
    SeedItem("users", "Claim 9", "the gap of Example 3", ("users/example-3",), HOLDS, _VALUE),
    ("Theorem 11", "Gauss and Markov"),
    ("Figure 1", "errors by rows"),
    ("Figure 2", "errors by α"),
    ("Figure 3", "errors by rows at other ε"),
    SeedItem(
        "users",
        "Table 1",
        "regressions on reviews and news",
        why="needs your copy of the reviews; print agrees with its own law",
    ),
    SeedItem(
        "users",
        "Table 2",
        "logistic regression on reviews",
        why="needs your copy of the reviews; steps of print found by users/table-2-law",
    ),
)
_INSTANCE = _make_items(
    "instance",
    SeedItem(
        "instance",
        "Table 1",
        "definitions side by side",
        as_found=SHAPE,
        why="has no numbers",
    ),
    ("Lemma 4", "Gaussian noise"),
    ("Fact 5", "protection against identification"),
    ("Fact 6.1", "simple composition"),
    SeedItem(
        "instance",
        "Fact 6.2",
        "advanced composition",
        as_found=WRONG,
        why="a bound O(·) without constants; leaves out k·ε(e^ε − 1)",
    ),
    _make_cited("instance", "Fact 6.3", "post-processing", "cited; docs/theory/composition.md"),
    ("Fact 6.4", "groups"),
    SeedItem(
        "instance",
        "Proposition 9",
        "generalisation",
        as_found=HOLDS,
        why="its statement has e^ε·δ where its proof has ε·δ; tests/experiments/test_errata.py",
    ),
    ("Proposition 11", "generalisation to another law"),
    SeedItem(
        "instance",
        "Corollary 12",
        "the same, shorter",
        as_found=WRONG,
        why="assumes E e^(2ε) ≤ 1, which leaves ε = 0 only",
    ),
    SeedItem(
        "instance",
        "Lemma 13",
        "how far a record moves the solution of a smooth problem",
        why="the sign of its second line",
    ),
    ("(3)", "what Gaussian noise then costs", "instance/errata"),
    ("Theorem 14", "one posterior sample"),
    ("Remark 15", "the same, shorter"),
    ("Proposition 16", "privacy and efficiency of one sample", "instance/efficiency"),
    SeedItem("instance", "Algorithm 1", "AdaOPS", ("instance/errata",), places=("AdaOPS",)),
    ("Proposition 17", "privacy and efficiency of AdaOPS", "instance/efficiency"),
    ("Lemma 18", "a norm"),
    ("Lemma 19", "a perturbed solution"),
    SeedItem("instance", "Lemma 20", "Woodbury's formula", why="with the V that print lacks"),
    ("Lemma 21", "a determinant"),
    ("Lemma 22", "Weyl's bound"),
    ("Lemma 23", "a normal tail"),
    ("Lemma 24", "from tails to (ε, δ)"),
    ("Lemma 25", "Hoeffding's inequality for matrices"),
    ("Figure 1", "losses to noise on the solution"),
    ("Figure 2", "losses by rows, and to one sample"),
)
#: Every item, by paper and in the order of print.
ITEMS = (*_RIDGE, *_MARKET, *_USERS, *_INSTANCE)


def make_items_page(runs: Mapping[str, RunSummary]) -> str:
    """Return the page of all items as Markdown."""
    judged = judge_items(runs)
    total = sum(run.processor_seconds for run in runs.values())
    parts = [
        _HEADING.format(
            counted=count_statuses(judged), minutes=f"{total / 60:.1f}", experiments=len(runs)
        )
    ]
    for key, paper in PAPERS.items():
        rows = [_make_row(one) for one in judged if one.item.paper == key]
        parts.append(f"## {paper.title}\n\n{_TABLE}\n" + "\n".join(rows) + "\n")
    named = {name for item in ITEMS for name in item.experiments}
    others = [e for e in EXPERIMENTS if e.name not in named]
    parts.append(
        "## Beyond the items\n\n| `sottovoce reproduce` | what it shows |\n|---|---|\n"
        + "\n".join(f"| `{e.name}` | {e.title} |" for e in others)
        + "\n"
    )
    return "\n".join(parts)


def _make_row(one: JudgedItem) -> str:
    titles = {experiment.name: experiment.title for experiment in EXPERIMENTS}
    what = one.item.what or titles.get(one.item.name, "")
    shown = ", ".join(f"`{name}`" for name in _name_evidence(one.item))
    cells = (one.item.label, what, one.status, one.words.replace("|", r"\|"), shown)
    return f"| {' | '.join(cells)} |"


def _name_evidence(item: SeedItem) -> tuple[str, ...]:
    from sottovoce.papers.statements import CHECKS

    checked = (f"{item.paper}/statements",) * (item.label in CHECKS[item.paper])
    shown = (*item.experiments, *checked)
    if shown or item.as_found in (SHAPE, HOLDS):
        return shown
    return (f"{item.paper}/errata",)


_TABLE = "| item | what | status | in words | `sottovoce reproduce` |\n|---|---|---|---|---|"
_HEADING = f"""\
# Every item of the papers

What became of every table, figure, theorem, lemma, claim, example and algorithm of the four papers.
This page is made from the runs of `sottovoce reproduce all` by `tools/make_reproduction_page.py`;
how to read and repeat them is in the [guide](guide/reproduce.md), and what is wrong in print on the
[page of errata](theory/errata.md).

- *{CLOSE}*, *{NEAR}*: every cell for which print has a number.
- *{SHAPE}*: some cells are further off, for the reason that is named, or print has a picture, or a
  bound without constants.
- *{HOLDS}*: a theorem, lemma or claim that no drawn case refutes, or that is cited; *{LOOSE}*: it
  holds, and less is enough.
- *{WRONG}*: refuted, with numbers on the page of errata.
- *{ABSENT}*: needs what only the authors have, or data that are not here.

{{counted}} The {{experiments}} experiments took {{minutes}} minutes of one processor.
"""
