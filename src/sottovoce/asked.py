# SPDX-License-Identifier: Apache-2.0
"""A question as it was asked, and the way from there to a plan or a release: for the command line
and the page alike.

Said holds the words of a question, completed from the schema; what is said outright wins. Whatever
is missing or contradictory is refused before a table is opened. A plan reads the columns of people
and budgets; the columns in question are looked for in the header and not read. A release goes on
from there, through a session where there are books, in the order of steps that every answer
follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sottovoce.audit import PerInstance
    from sottovoce.budgets import Budgets
    from sottovoce.data.engine import Dataset, Engine, TextFormat, Watch
    from sottovoce.data.kernels import GroupLookup
    from sottovoce.data.readers import ClassLabel, Label
    from sottovoce.estimator import Estimator
    from sottovoce.plan import Plan
    from sottovoce.release import Release
    from sottovoce.schema import Classes, Column, Schema, Subject
    from sottovoce.session import Session


@dataclass(frozen=True)
class TableOptions:
    """One question about one column of one table, as far as it has been said."""

    table: str
    column: str | None = None
    bounds: tuple[float, float] | None = None
    budget: str | None = None
    epsilon: float | None = None
    person: str | None = None
    schema: Path | Schema | None = None  # in a file, or as it is
    missing: float | None = None
    key: str | None = None
    out: Path | None = None
    force: bool = False  # whether a file that is there already may be replaced
    tiers: Mapping[str, float] = field(default_factory=dict)
    features: Schema | None = (
        None  # for a model: the schema with its label and features, and nothing else
    )
    public: str | None = None  # for a classifier: a table of rows that need no protection
    share: float = 1.0  # how much of what everybody grants may be spent
    budgets: str | None = None  # a table of its own with everybody's budget
    engine: str | None = None  # what reads the table; None: what suits it
    text: TextFormat | None = None  # how text files are written; None: as their headers tell
    # whether each row was asked for as a person of its own, although the schema names people
    by_row: bool = False
    name: str | None = None  # what the table is called in a release; None: the name of its file
    units: Mapping[str, str] = field(default_factory=dict)  # declared units, by column

    @property
    def private_columns(self) -> tuple[str, ...]:
        """The private columns: the one in question, if there is one yet, or a label and its
        features.
        """
        if self.features is not None:
            return tuple(self.features.columns)
        if self.column is None:
            return ()
        return (self.column,)

    @property
    def private_numbers(self) -> tuple[str, ...]:
        """Those of them that hold numbers; factors are text."""
        if self.features is None:
            return self.private_columns
        return tuple(
            name for name, column in self.features.columns.items() if column.kind == "number"
        )

    @property
    def subject(self) -> Subject:
        """What the question is about, in public words."""
        from sottovoce.data.engine import get_table_label
        from sottovoce.schema import Subject

        return Subject(self.column, self.name or get_table_label(self.table), self.units)

    @property
    def classes(self) -> Classes | None:
        """The declared classes, where the label is a factor."""
        from sottovoce.schema import Classes

        if self.features is None:
            label = None
        else:
            label = self.features.columns.get(str(self.features.label))
        if label is not None and label.kind == "factor":
            return Classes(label.levels)
        return None

    @property
    def inputs(self) -> tuple[str | Path, ...]:
        """The files that are read, so that none is written over."""
        read = (self.table, self.schema, self.public, self.budgets)
        return tuple(path for path in read if isinstance(path, str | Path))

    def for_regression(self) -> TableOptions:
        """Returns the same question, completed, about the label that the schema names and all
        features it describes.
        """
        schema = self._require_schema()
        return self._complete_names(schema)._complete_bounds(schema)._select_features(schema)

    def for_classification(self) -> TableOptions:
        """Returns the same for a label that is a factor, whose levels are the classes."""
        schema = self._require_schema()
        _refuse_no_classes(str(schema.label), schema.columns.get(str(schema.label)))
        return self._complete_names(schema)._select_features(schema)

    def complete(self) -> TableOptions:
        """Returns the same question with what the schema adds; refuses it if something is still
        missing.
        """
        from sottovoce.schema import Schema

        schema = self._load_schema() or Schema()
        return self._complete_names(schema)._complete_bounds(schema)

    def _load_schema(self) -> Schema | None:
        from sottovoce.schema import Schema

        if isinstance(self.schema, Path):
            return Schema.load(self.schema)
        return self.schema

    def _require_schema(self) -> Schema:
        schema = self._load_schema()
        if schema is None or schema.label is None:
            raise _no_label_error()
        return schema

    def _complete_names(self, schema: Schema) -> TableOptions:
        from sottovoce.data.source import is_rows_marker

        by_row = self.by_row or is_rows_marker(self.person)
        whole = replace(
            self,
            person=None if by_row else self.person or schema.person,
            by_row=by_row,
            column=self.column or schema.label,
            name=self.name or schema.name,
            units=schema.units,
        )
        whole = whole._complete_budget(schema)
        whole._refuse_one_column_twice()
        return whole

    def _select_features(self, schema: Schema) -> TableOptions:
        from sottovoce.schema import Schema

        # What names people or budgets, here or in the schema, is no feature; neither is text.
        others = {self.person, self.budget, schema.person, schema.budget}
        kept = {n: c for n, c in schema.columns.items() if n not in others and c.kind != "text"}
        return replace(self, features=Schema(columns=kept, label=schema.label))

    def _complete_budget(self, schema: Schema) -> TableOptions:
        from sottovoce.errors import InvalidParameter

        budget = self.budget or (schema.budget if self.epsilon is None else None)
        if (budget is None and self.budgets is None) == (self.epsilon is None):
            raise InvalidParameter(
                "Budgets are given twice, or not at all.",
                "Either a column with everybody's own ε or one ε for everybody is needed.",
                "Name the column of budgets (here or in the schema), name a table of budgets, or "
                "give one ε; one of them.",
                parameter="epsilon",
            )
        # Tiers are the price list of the schema's own budget column, not of another named on the
        # line.
        listed = budget is not None and schema.budget in (None, budget)
        return replace(self, budget=budget, tiers=schema.tiers if listed else {})

    def _complete_bounds(self, schema: Schema) -> TableOptions:
        from sottovoce.errors import InvalidBounds, InvalidParameter

        if self.column is None:
            raise InvalidParameter(
                "No column is named.",
                "A question is about one column of numbers.",
                "Name the column, here or as label in the schema.",
                parameter="column",
            )
        if self.bounds is None and self.schema is None:
            raise InvalidBounds(
                "No bounds are given.",
                "A lowest and a highest possible value must be declared from public knowledge.",
                "Give the lowest and the highest value, or a schema that has them; never take "
                "them from the data.",
                parameter="bounds",
            )
        described = schema.columns.get(self.column)
        if self.missing is None and described is not None:
            missing = described.missing
        else:
            missing = self.missing
        return replace(self, bounds=self.bounds or schema.interval(self.column), missing=missing)

    def _refuse_one_column_twice(self) -> None:
        from sottovoce.errors import InvalidParameter

        if self.budgets is None:
            here = self.budget
        else:
            here = None
        names = [name for name in (self.column, here, self.person) if name is not None]
        if len(set(names)) < len(names):
            raise InvalidParameter(
                "One column is named for two purposes.",
                "Values, budgets and people are in columns of their own.",
                "Name different columns.",
                parameter="column",
            )


def make_estimator(name: str, said: TableOptions, **parameters: Any) -> Estimator:
    """Returns the question by its public name; its parameters are refused now if they are wrong."""
    import sottovoce as sv

    given = {word: value for word, value in parameters.items() if value is not None}
    if said.features is None:
        given |= {"bounds": said.bounds, "missing": said.missing}
    else:
        given |= {"bounds": said.features}  # which declares its own constants for missing values
    asked: Estimator = getattr(sv, name)(**given)
    with suppress(
        sv.errors.WeakRegularisation
    ):  # a λ that is too weak for two people may be right for many
        asked.plan_for(
            sv.Budgets.of(1.0, rows=2)
        )  # a plan for nobody: better to stumble here than after a long census
    return asked


def plan_from_table(
    said: TableOptions, asked: Estimator, watch: Watch | None = None, session: Session | None = None
) -> Plan:
    """Returns the plan, from the columns of people and budgets alone, and from what the session's
    people have left.
    """
    _, budgets, _ = count_people(said, watch, values=False)
    if session is None:
        plan = asked.plan_for(budgets)
    else:
        plan = session.plan_rows(asked, budgets)
    return replace(plan, subject=said.subject)


def release_from_table(
    said: TableOptions,
    asked: Estimator,
    watch: Watch | None = None,
    session: Session | None = None,
    agreed: str | None = None,
) -> Release:
    """Returns the release, made through this session, or without books if everybody grants what the
    table says.

    With ``agreed``, the digest of a plan, the session charges nobody for another plan than that.
    """
    from sottovoce.estimator import refuse_invalid_rows, run_release

    engine, budgets, owner = count_people(said, watch, values=True)
    about = make_dataset(said, engine, owner)
    if session is not None:
        return session.release_rows(asked, budgets, about, str(said.key), agreed)
    # Books that end with the process need no accounts: people are counted and protected, but not
    # named.
    plan = asked.plan_for(replace(budgets, people=None), about)
    refuse_invalid_rows(asked, plan, about)
    return run_release(asked, plan, about)


def make_dataset(said: TableOptions, engine: Engine, owner: GroupLookup) -> Dataset:
    """Returns the rows in question: of one column, or of a label and its features."""
    from sottovoce.data.encoding import Recoding
    from sottovoce.data.engine import Dataset
    from sottovoce.data.readers import ColumnReader

    column = str(said.column)
    if said.features is None:
        return Dataset(engine, column, owner, subject=said.subject)
    reader = ColumnReader(Recoding.of_schema(said.features))
    return Dataset(engine, column, owner, reader, make_label(said, said.features), said.subject)


def make_label(said: TableOptions, schema: Schema) -> Label | ClassLabel:
    """Returns how the label is read: a factor as classes, else as a number."""
    from sottovoce.data.readers import ClassLabel, Label

    column = str(said.column)
    if said.classes is not None:
        return ClassLabel(column, said.classes)
    low, high = schema.interval(column)
    return Label(column, low, high, said.missing)


def count_people(
    said: TableOptions, watch: Watch | None, *, values: bool
) -> tuple[Engine, Budgets, GroupLookup]:
    """Opens the table and counts who takes part; only a release declares the values to be
    numbers.
    """
    from sottovoce.data.budget_table import Grants
    from sottovoce.data.census import take_census
    from sottovoce.data.engine import DEFAULT_TEXT_FORMAT, open_engine, require_columns
    from sottovoce.data.source import ROWS_MARKER, find_owner_column
    from sottovoce.schema import Schema

    if said.budgets is None:
        here = said.budget
    else:
        here = None
    if said.tiers or here is None:
        numbers: tuple[str, ...] = ()
    else:
        numbers = (here,)
    text = said.text or DEFAULT_TEXT_FORMAT
    engine = open_engine(
        said.table, said.engine, (*numbers, *(said.private_numbers if values else ())), watch, text
    )
    if said.by_row:
        find_owner_column(
            Schema(), engine.columns(), ROWS_MARKER
        )  # refuses a table in which that could be a column
    require_columns(engine, *said.private_columns, budget=here, person=said.person)
    grants = None
    if said.budgets is not None:
        grants = Grants.from_source(
            said.budgets, said.person, said.budget, said.tiers or None, said.engine, text
        )
    budgets, owner = take_census(
        engine,
        epsilon=said.epsilon,
        budget=here,
        person=said.person,
        tiers=said.tiers or None,
        grants=grants,
    )
    return engine, *scale_budgets(budgets, owner, said.share)


def scale_budgets(
    budgets: Budgets, owner: GroupLookup, share: float
) -> tuple[Budgets, GroupLookup]:
    """Returns the budgets of a release that may spend this share of them, rounded down."""
    from sottovoce.errors import InvalidParameter

    if not 0 < share <= 1:
        raise InvalidParameter(
            "The share is not above 0 and up to 1.",
            "It is a part of what everybody grants.",
            "",
            parameter="share",
        )
    if share == 1:
        return budgets, owner
    granted = budgets.by_person(budgets.kinds.epsilon)
    lowered = budgets.with_grants((granted * share).astype(granted.dtype))
    return lowered, replace(owner, codes=lowered.codes)


def audit_from_table(
    release: Release, said: TableOptions, delta: float, watch: Any = None
) -> PerInstance:
    """Returns the audit of a release from the table it was made from, with the budgets that it was
    made with.
    """
    from sottovoce.accounting.profiles import check_delta
    from sottovoce.audit import inputs, rebuilding
    from sottovoce.audit.instance_losses import PerInstance

    level = float(check_delta(delta))
    (_, asked) = rebuilding.find_release(release)
    if inputs.has_equal_weights(
        release
    ):  # it was made without budgets, and any number stands for them
        said = replace(said, epsilon=1.0, budget=None)
    said = said.for_regression()
    engine, budgets, owner = count_people(said, watch, values=True)
    return PerInstance(
        inputs.read_rows_input(release, asked, budgets, make_dataset(said, engine, owner)), level
    )


def _no_label_error() -> Exception:
    from sottovoce.errors import InvalidSchema

    return InvalidSchema(
        "There is no schema, or it does not say which column is the label.",
        "A model needs a label and features with their ranges or levels, from public knowledge.",
        'Write one with `sottovoce schema draft`, fill it in, and add label = "..." to it.',
        parameter="schema.label",
    )


def _refuse_no_classes(label: str, described: Column | None) -> None:
    from sottovoce.errors import InvalidSchema
    from sottovoce.schema import format_class

    if described is None or described.kind != "factor":
        levels: tuple[str, ...] = ()
    else:
        levels = described.levels
    if len(set(map(format_class, levels))) < max(len(levels), 2):
        raise InvalidSchema(
            f"The schema does not give {label!r} two or more levels, all different.",
            "A label to classify is a factor, and its levels are the classes that can occur, "
            "from public knowledge.",
            f'Write kind = "factor" and levels = ["...", "..."] under [columns.{label}].',
            parameter="schema.columns",
        )
