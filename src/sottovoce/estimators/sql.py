# SPDX-License-Identifier: Apache-2.0
"""A small part of SQL as a report (docs/guide/sql.md).

    SELECT [columns and date_trunc(...) of GROUP BY,] aggregates [AS name]
    FROM one table
    [WHERE comparisons of a column with a constant, IN, BETWEEN, IS [NOT] NULL, AND, OR, NOT]
    [GROUP BY columns, date_trunc('month', column)]

    COUNT(*)  COUNT(column)  SUM(column)  AVG(column)  VARIANCE(column)  VAR_SAMP(column)
    MEDIAN(column)  QUANTILE(column, q)         the last two without WHERE and GROUP BY

The text is parsed by sqlglot and never run by any database. What is listed here is allowed, and
everything else is refused with the name of its clause; all of it before a table is opened.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sottovoce.data.predicate import write_name, write_value
from sottovoce.errors import InvalidParameter
from sottovoce.estimators import list_questions
from sottovoce.estimators.report import Report
from sottovoce.schema import PERIODS, Schema

#: A node of the tree that sqlglot makes of a statement.
Node = Any
#: No statement is longer.
MOST_SIGNS = 5_000
#: Aggregates by the name of what sqlglot reads them as, and the question that answers each.
AGGREGATES = {
    "Count": "count",
    "Sum": "sum",
    "Avg": "mean",
    "Variance": "variance",
    "VariancePop": "variance",
    "Median": "quantile",
    "Quantile": "quantile",
}
#: What SQL calls those whose class has another name.
CALLED = {"VariancePop": "VAR_POP"}
#: How comparisons are written in a filter, and if their sides are exchanged.
COMPARISONS = {
    "EQ": ("==", "=="),
    "NEQ": ("!=", "!="),
    "LT": ("<", ">"),
    "LTE": ("<=", ">="),
    "GT": (">", "<"),
    "GTE": (">=", "<="),
}
#: Clauses of a SELECT that are refused by name; those that have no name here are called a clause.
CLAUSES = {
    "with": "WITH",
    "with_": "WITH",
    "distinct": "DISTINCT",
    "joins": "JOIN",
    "laterals": "LATERAL",
    "having": "HAVING",
    "qualify": "QUALIFY",
    "windows": "WINDOW",
    "order": "ORDER BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "sample": "SAMPLE",
    "into": "INTO",
    "hint": "a hint",
    "locks": "FOR UPDATE",
    "pivots": "PIVOT",
    "match": "MATCH_RECOGNIZE",
}
#: Clauses of a SELECT that are read.
READ = ("expressions", "from", "from_", "where", "group")


def read_statement(text: str, schema: Schema | None, table: str | None = None) -> Report:
    """Return the questions of one SELECT as a report.

    Parameters
    ----------
    text :
        the statement.
    schema :
        describes the columns; levels, edges and ranges of what is grouped by come from it.
    table :
        what the table is called; FROM must name it. None: any name will do.

    Returns
    -------
    Report
        a question for each aggregate, by its alias or as it is written.

    Raises
    ------
    InvalidParameter
        if the statement has anything that is not in the part of SQL that is read.
    """
    select = _parse(text)
    _refuse_clauses(select)
    named = _find_table(select)
    if table is not None and named.casefold() != table.casefold():
        raise _refusal(
            "FROM", f"it names {named!r}, and the table is called {table!r}.", "Name that table."
        )
    return _Translation(select, schema or Schema()).make_report(schema)


def name_table(text: str, table: str) -> str:
    """Returns the table: of a DuckDB file that names none, the one after FROM."""
    if table.endswith(".duckdb"):
        return f"{table}#{_find_table(_parse(text))}"
    return table


class _Translation:
    """One SELECT on its way to questions."""

    def __init__(self, select: Node, schema: Schema) -> None:
        self._select = select
        self._schema = schema
        self._aliases = {one.alias: one.this for one in select.expressions if _kind(one) == "Alias"}
        self._groups = [self._read_group(self._resolve(one)) for one in self._list_groups()]
        if len(set(self._groups)) < len(self._groups):
            raise _refusal("GROUP BY", "it names a column twice.", "Name it once.")
        where = select.args.get("where")
        self._where = None if where is None else self._write_filter(where.this)

    def make_report(self, schema: Schema | None) -> Report:
        """Returns a question for each aggregate."""
        questions: dict[str, Any] = {}
        for item in self._select.expressions:
            inner = item.this if _kind(item) == "Alias" else item
            if _kind(inner) not in AGGREGATES and _kind(inner) != "WithinGroup":
                self._refuse_other_columns(inner)
                continue
            name = item.alias if _kind(item) == "Alias" else inner.sql()
            if name in questions:
                raise _refusal("SELECT", "two answers have one name.", "Name one with AS.")
            questions[name] = self._read_aggregate(inner)
        if not questions:
            raise _refusal(
                "SELECT", "it has no aggregate.", "Ask for COUNT(*), AVG(column) and the like."
            )
        return Report(questions, schema)

    def _list_groups(self) -> list[Node]:
        group = self._select.args.get("group")
        if group is None:
            return []
        others = [name for name, value in group.args.items() if value and name != "expressions"]
        if others or not group.expressions:
            raise _refusal(
                "GROUP BY", "it is more than a list of columns.", "Name columns, one by one."
            )
        return list(group.expressions)

    def _resolve(self, node: Node) -> Node:
        """Returns what a name that SELECT gives stands for; columns of the table come first."""
        if _kind(node) != "Column" or len(node.parts) != 1:
            return node
        known = {column.casefold() for column in self._schema.columns}
        alias = str(node.name)
        if alias.casefold() in known:
            return node
        return self._aliases.get(alias, node)

    def _read_group(self, node: Node) -> str:
        """Returns a column that is grouped by, with its period, as questions take it."""
        if _kind(node) in ("TimestampTrunc", "DateTrunc"):
            _refuse_extras(node, "this", "unit", "input_type_preserved")
            period = str(node.args["unit"].name).lower()
            column = self._read_column(node.this, "date_trunc")
            if period not in PERIODS:
                raise _refusal(
                    "date_trunc",
                    "its period is none that is known.",
                    f"Write one of: {', '.join(PERIODS)}.",
                )
            return f"{column}:{period}"
        return self._read_column(node, "GROUP BY")

    def _read_column(self, node: Node, clause: str) -> str:
        """Returns the name of a described column."""
        if _kind(node) != "Column" or len(node.parts) != 1 or _kind(node.this) != "Identifier":
            raise _refusal(
                clause,
                "it holds something else than the name of a column.",
                "Name columns of the table alone; describe bins as edges in the schema.",
            )
        name = str(node.name)
        known = list(self._schema.columns)
        if name in known:
            return name
        alike = [column for column in known if column.casefold() == name.casefold()]
        if len(alike) == 1 and not node.this.args.get("quoted"):
            return alike[0]
        raise _refusal(
            clause,
            f"it names a column, {name!r}, that the schema does not describe.",
            "Describe it in the schema, or name another.",
        )

    def _refuse_other_columns(self, node: Node) -> None:
        """Refuses what stands in SELECT, is no aggregate, and is not grouped by."""
        if _kind(node) in ("Column", "TimestampTrunc", "DateTrunc"):
            if _kind(node) == "Column" and _kind(node.this) == "Star":
                raise _refusal("SELECT *", "rows themselves are never shown.", "Name aggregates.")
            if self._read_group(node) in self._groups:
                return
            raise _refusal(
                "SELECT", "it has a column that is not grouped by.", "Add it to GROUP BY."
            )
        if _kind(node) == "Star":
            raise _refusal("SELECT *", "rows themselves are never shown.", "Name aggregates.")
        raise _refusal(
            "SELECT",
            f"it has something that is no aggregate of a column ({_name_node(node)}).",
            "Aggregates: COUNT, SUM, AVG, VARIANCE, MEDIAN, QUANTILE.",
        )

    def _read_aggregate(self, node: Node) -> Any:
        """Returns the estimator of an aggregate, with its column where it has one."""
        if _kind(node) == "WithinGroup":
            return self._read_percentile(node)
        kind = _kind(node)
        _refuse_extras(node, "this", "quantile", "big_int", "expressions")
        question = AGGREGATES[kind]
        if question == "quantile":
            share = 0.5 if kind == "Median" else _read_number(node.args.get("quantile"))
            return self._make_quantile(node.this, share)
        if kind == "Count":
            return self._make_count(node)
        clause = f"{CALLED.get(kind, kind.upper())}(…)"
        if node.expressions:
            raise _refusal(clause, "it has several arguments.", "Name one column.")
        column = self._read_column(node.this, clause)
        return (self._make(question, self._where), column)

    def _make_count(self, node: Node) -> Any:
        inner = node.this
        if node.expressions or inner is None:
            raise _refusal("COUNT(…)", "it has several arguments, or none.", "Write COUNT(*).")
        if _kind(inner) in ("Star", "Literal"):  # COUNT(1) counts rows too
            return self._make("count", self._where)
        if _kind(inner) == "Distinct":
            raise _refusal(
                "COUNT(DISTINCT …)", "different values are not counted.", "Write COUNT(*)."
            )
        there = f"{write_name(self._read_column(inner, 'COUNT(…)'))} is not missing"
        if self._where is not None:
            there = f"({self._where}) and {there}"
        return self._make("count", there)

    def _read_percentile(self, node: Node) -> Any:
        """PERCENTILE_CONT(q) WITHIN GROUP (ORDER BY column)."""
        order = node.args.get("expression")
        inner = node.this
        for one in (node, inner, order, *getattr(order, "expressions", ())):
            _refuse_extras(one, "this", "expression", "expressions", "desc", "nulls_first")
        if _kind(inner) not in ("PercentileCont", "PercentileDisc") or _kind(order) != "Order":
            raise _refusal(
                "WITHIN GROUP", "it is not of a percentile.", "Write QUANTILE(column, 0.9)."
            )
        if len(order.expressions) != 1 or order.expressions[0].args.get("desc"):
            raise _refusal("WITHIN GROUP", "it orders in another way.", "Order by one column.")
        return self._make_quantile(order.expressions[0].this, _read_number(inner.this))

    def _make_quantile(self, node: Node, share: float | None) -> Any:
        if share is None or not 0 <= share <= 1:
            raise _refusal(
                "QUANTILE(…)", "its share is no number from 0 to 1.", "Write such as 0.9."
            )
        if self._groups or self._where is not None:
            raise _refusal(
                "QUANTILE(…)",
                "quantiles are of all rows.",
                "Ask for it without WHERE and GROUP BY, in a statement of its own.",
            )
        column = self._read_column(node, "QUANTILE(…)")
        return (list_questions()["quantile"].load_class()(q=share), column)

    def _make(self, question: str, where: str | None) -> Any:
        given: dict[str, Any] = {}
        if self._groups:
            given["by"] = list(self._groups)
        if where is not None:
            given["where"] = where
        return list_questions()[question].load_class()(**given)

    def _write_filter(self, node: Node) -> str:
        """Returns a condition of WHERE as the filter of a question."""
        kind = _kind(node)
        _refuse_extras(node, "this", "expression", "expressions", "low", "high")
        if kind in ("And", "Or"):
            sides = (self._write_filter(node.this), self._write_filter(node.expression))
            return f"({sides[0]}) {kind.lower()} ({sides[1]})"
        if kind == "Paren":
            return self._write_filter(node.this)
        if kind == "Not":
            return f"not ({self._write_filter(node.this)})"
        if kind in COMPARISONS:
            return self._write_comparison(node)
        if kind == "Between":
            column = self._read_column(node.this, "BETWEEN")
            low = self._write_constant(column, node.args["low"])
            high = self._write_constant(column, node.args["high"])
            name = write_name(column)
            return f"({name} >= {low} and {name} <= {high})"
        if kind == "In" and node.expressions:
            column = self._read_column(node.this, "IN")
            values = ", ".join(self._write_constant(column, one) for one in node.expressions)
            return f"{write_name(column)} in [{values}]"
        if kind == "Is" and _kind(node.expression) == "Null":
            return f"{write_name(self._read_column(node.this, 'IS NULL'))} is missing"
        raise _refusal(
            "WHERE",
            f"it has something else than comparisons with constants ({_name_node(node)}).",
            "Compare columns with numbers, text or dates.",
        )

    def _write_comparison(self, node: Node) -> str:
        forward, backward = COMPARISONS[_kind(node)]
        left, right = node.this, node.expression
        sign = forward
        if _kind(left) != "Column":
            left, right = right, left
            sign = backward
        column = self._read_column(left, "WHERE")
        return f"{write_name(column)} {sign} {self._write_constant(column, right)}"

    def _write_constant(self, column: str, node: Node) -> str:
        """Returns a number, text or date as a filter has it."""
        number = _read_number(node)
        if number is not None:
            return write_value(number)
        if _kind(node) == "Cast" and _kind(node.this) == "Literal":
            if str(node.to.this.value).upper() != "DATE":
                raise _refusal("CAST", "it is not of a date.", "Write DATE '2024-01-31'.")
            node = node.this
        if _kind(node) != "Literal" or not node.is_string:
            raise _refusal(
                "WHERE",
                f"a column is not compared with a constant ({_name_node(node)}).",
                "Write numbers, 'text', or DATE '2024-01-31'.",
            )
        described = self._schema.columns[column]
        if described.kind == "date":
            day = _read_day(str(node.this))
            if day is not None:
                return day
        return write_value(str(node.this))


def _read_day(text: str) -> str | None:
    """Returns a date as a filter has it; None where the text is none."""
    if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return text
    return None


def _read_number(node: Any) -> float | None:
    """Returns a number that is written out, with its sign; None for anything else."""
    sign = 1.0
    if node is not None and _kind(node) == "Neg":
        sign = -1.0
        node = node.this
    if node is None or _kind(node) != "Literal" or node.is_string:
        return None
    try:
        number = sign * float(str(node.this))
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _refuse_extras(node: Node, *read: str) -> None:
    """Refuses a node with parts that are not read: nothing of a statement is left out silently."""
    for name, value in getattr(node, "args", {}).items():
        if value and name not in read:
            told = name.replace("_", " ")
            raise _refusal(
                _name_node(node), f"it has a part that is not read ({told}).", "Leave it out."
            )


def _kind(node: Any) -> str:
    """Returns the name of the class of a node."""
    return type(node).__name__


def _name_node(node: Any) -> str:
    """Returns what SQL calls a node, as far as its class tells."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", _kind(node)).upper()


def _find_table(select: Node) -> str:
    """Returns the one table after FROM."""
    source = select.args.get("from") or select.args.get("from_")
    table = None if source is None else source.this
    if table is None or _kind(table) != "Table" or _kind(table.this) != "Identifier":
        raise _refusal("FROM", "it does not name one table.", "Write FROM and its name.")
    others = [name for name, value in table.args.items() if value and name not in ("this", "alias")]
    if others:
        raise _refusal(
            "FROM", "it has more than the name of one table.", "Name the table alone, as it is."
        )
    return str(table.name)


def _refuse_clauses(select: Node) -> None:
    for name, value in select.args.items():
        if value and name not in READ:
            clause = CLAUSES.get(name, name.upper().replace("_", " "))
            raise _refusal(
                clause,
                "it is not in the part of SQL that is read.",
                "Leave it out; sorting and cutting can be done with the answer.",
            )


def _parse(text: str) -> Node:
    """Returns the one SELECT of a text."""
    if not isinstance(text, str) or not 0 < len(text) <= MOST_SIGNS:
        raise _refusal(
            "the statement", f"it is no text of 1 to {MOST_SIGNS:,} signs.", "Write one SELECT."
        )
    try:
        import sqlglot
    except ModuleNotFoundError:
        sqlglot = None  # type: ignore[assignment]
    if sqlglot is None:
        raise InvalidParameter(
            "SQL cannot be read here.",
            "It needs a package that is not part of the core.",
            "Install it with `pip install 'sottovoce[sql]'`.",
        )
    statements: list[Any] | None = None
    try:
        with _silence("sqlglot"):
            statements = sqlglot.parse(text, read="duckdb")
    except Exception:  # whatever the parser makes of it; RecursionError too
        pass  # raised below: the reason may be long, and quotes the statement
    if statements is None:
        raise _refusal("the statement", "it is not SQL that can be parsed.", "Write one SELECT.")
    statements = [one for one in statements if one is not None]
    if len(statements) != 1 or _kind(statements[0]) != "Select":
        raise _refusal("the statement", "it is not one SELECT.", "Write one SELECT, and no more.")
    return statements[0]


@contextmanager
def _silence(name: str) -> Iterator[None]:
    """Keeps a logger quiet: what a parser could not read is said here, once."""
    logger = logging.getLogger(name)
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before


def _refusal(clause: str, found: str, remedy: str) -> InvalidParameter:
    return InvalidParameter(
        f"In {clause}: {found}",
        "A small part of SQL is read (docs/guide/sql.md).",
        remedy,
        parameter="statement",
    )
