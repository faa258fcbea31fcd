"""Every public function says what it does, takes, returns and raises."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator

import pytest

import sottovoce as sv
from sottovoce import audit, errors, market
from sottovoce.estimator import Estimator
from sottovoce.market import prior

#: What is public, under the name by which it is used.
MODULES = {"sv": sv, "sv.audit": audit, "sv.market": market}
LAWS = ("uniform", "normal", "exponential", "lognormal", "empirical", "given")
#: Methods of estimators that are described where their contract is.
CONTRACT = {name for name in vars(Estimator) if not name.startswith("_")}
SECTION = re.compile(r"\n(\w+)\n-{3,}\n(.*?)(?=\n\n\w+\n-{3,}\n|\Z)", re.DOTALL)
IMPERATIVE = re.compile(r"[A-Z][a-z]+")
#: First words that are not imperatives of a verb.
NOT_IMPERATIVE = re.compile(r"(?:The|A|An|What|Whether|One|Who|Why|That)\b|[A-Z][a-z]+s\b")
VERBS_IN_S = ("Express", "Address", "Pass", "Process", "Discuss")


def list_methods(name: str, kind: type) -> Iterator[tuple[str, Callable]]:
    for base in kind.__mro__:
        if not base.__module__.startswith("sottovoce"):
            continue
        for method, value in vars(base).items():
            function = getattr(value, "__func__", getattr(value, "fn", value))
            if method.startswith("_") or method in CONTRACT or not inspect.isfunction(function):
                continue
            yield f"{name}.{method}", function


def list_public() -> dict[str, Callable]:
    found: dict[str, Callable] = {f"sv.market.prior.{name}": getattr(prior, name) for name in LAWS}
    for prefix, module in MODULES.items():
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value):
                found |= dict(list_methods(f"{prefix}.{name}", value))
            elif inspect.isfunction(value):
                found[f"{prefix}.{name}"] = value
    return found


PUBLIC = list_public()


def read_sections(text: str) -> dict[str, str]:
    return dict(SECTION.findall(f"\n{text}\n"))


def list_documented(section: str) -> list[str]:
    """Returns the names that a section explains, in their order."""
    lines = [line for line in section.splitlines() if line and not line.startswith(" ")]
    return [name.lstrip("*") for line in lines for name in line.split(" :")[0].split(", ") if name]


def list_raised(function: Callable) -> set[str]:
    """Returns the errors that a function raises itself, by the names of their classes."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    raised = {
        node.exc.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise)
        and isinstance(node.exc, ast.Call)
        and isinstance(node.exc.func, ast.Name)
    }
    return {name for name in raised if hasattr(errors, name)}


def is_explained(name: str, documented: list[str]) -> bool:
    kinds = {kind.__name__ for kind in getattr(errors, name).__mro__}
    return bool(kinds & set(documented))


def find_faults(function: Callable) -> list[str]:
    """Returns what is missing in what a function says of itself."""
    text = inspect.getdoc(function) or ""
    first, *more = text.split("\n")
    faults = []
    if not first.endswith(".") or (more and more[0]):
        faults.append("the first line is not one sentence")
    word = first.split(" ")[0].rstrip(":")
    if not IMPERATIVE.fullmatch(word) or (NOT_IMPERATIVE.match(first) and word not in VERBS_IN_S):
        faults.append("it does not begin with an imperative")
    sections = read_sections(text)
    signature = inspect.signature(function)
    parameters = [name for name in signature.parameters if name not in ("self", "cls")]
    if list_documented(sections.get("Parameters", "")) != parameters:
        faults.append("Parameters are not those of the signature")
    returns = signature.return_annotation not in ("None", "NoReturn", None)
    if returns != ("Returns" in sections):
        faults.append("Returns is missing, or is there for nothing")
    documented = list_documented(sections.get("Raises", ""))
    faults += [
        f"Raises lacks {name}"
        for name in sorted(list_raised(function))
        if not is_explained(name, documented)
    ]
    return faults


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_function_explains_itself(name):
    assert find_faults(PUBLIC[name]) == []


def test_there_are_many():
    assert len(PUBLIC) > 120
    assert {"sv.Mean.fit", "sv.Session.release", "sv.audit.mine", "sv.Budgets.of"} <= set(PUBLIC)


GOOD = """Return x.

Parameters
----------
x : int
    A number.

Returns
-------
int
    The number.
"""


@pytest.mark.parametrize(
    ("doc", "fault"),
    [
        (GOOD.replace("Return x.", "Return x"), "sentence"),
        (GOOD.replace("Return x.", "Return x, which\nis a number."), "sentence"),
        (GOOD.replace("Return x.", "Returns x."), "imperative"),
        (GOOD.replace("Return x.", "The number x."), "imperative"),
        (GOOD.replace("x : int", "y : int"), "Parameters"),
        (GOOD.split("Parameters")[0], "Parameters"),
        (GOOD.replace("Returns\n", "Yields\n"), "Returns"),
        ("", "sentence"),
    ],
)
def test_a_fault_is_found(doc, fault):
    def planted(x: int) -> int:
        return x

    planted.__doc__ = GOOD
    assert find_faults(planted) == []
    planted.__doc__ = doc
    assert fault in " ".join(find_faults(planted))


def test_an_error_that_is_not_explained_is_found():
    from sottovoce.errors import InvalidParameter

    def planted(x: int) -> int:
        raise InvalidParameter("found")

    planted.__doc__ = GOOD
    assert find_faults(planted) == ["Raises lacks InvalidParameter"]
    planted.__doc__ = GOOD + "\nRaises\n------\nInvalidInput\n    Always.\n"
    assert find_faults(planted) == []
