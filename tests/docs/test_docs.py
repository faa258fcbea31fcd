"""The documentation is whole: names, errors, estimators and commands have their place, and links
lead somewhere.
"""

from __future__ import annotations

import inspect
import re
import shlex
from functools import cache
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

import sottovoce as sv
from sottovoce import _HOMES
from sottovoce.cli import demo_comparison
from sottovoce.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))

ERRORS = [
    name
    for name, kind in inspect.getmembers(sv.errors, inspect.isclass)
    if issubclass(kind, sv.errors.SottovoceError)
]
ESTIMATORS = [name for name, home in _HOMES.items() if home.startswith("estimators.")]
BOX = sv.Bounds(features=(0, 1), label=(0, 1))
#: How to ask for a plan where bounds=(0, 1) and five rows are not enough to say.
PLANS = {
    "Ridge": [
        lambda method=method: sv.Ridge(bounds=BOX, method=method).plan(
            epsilon=1.0, rows=5, n_features=2
        )
        for method in ("objective", "statistics", "output-tight", "output")
    ],
    "LogisticRegression": [
        lambda neighbours=neighbours: sv.LogisticRegression(bounds=BOX, neighbours=neighbours).plan(
            epsilon=1.0, rows=5, n_features=2
        )
        for neighbours in ("replace", "labels")
    ],
    "ERM": [lambda: sv.ERM(bounds=BOX, delta=1e-6).plan(epsilon=1.0, rows=5, n_features=2)],
    "PosteriorSample": [
        lambda: sv.PosteriorSample(bounds=BOX).plan(epsilon=1.0, rows=5, n_features=2)
    ],
    "AdaptivePosteriorSample": [
        lambda: sv.AdaptivePosteriorSample(bounds=BOX).plan(rows=5, n_features=2)
    ],
    "LabelPrivateRegression": [],  # planned from the design, on its own page
    "Report": [
        lambda: sv.Report({"mean": (sv.Mean(bounds=(0, 1)), "x")}).plan(epsilon=1.0, rows=5)
    ],
    "Limited": [],  # these four take any estimator, whose own theorem is checked here
    "Sampled": [],
    "Threshold": [],
    "Uniform": [],
}


@cache
def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def headings(text: str) -> list[str]:
    return [
        title.replace("`", "")
        for title in re.findall(r"^#+ (.+?)\s*$", without_blocks(text), re.MULTILINE)
    ]


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """The anchors that Python-Markdown makes of headings."""
    plain = (
        re.sub(r"[^\w\s-]", "", title.encode("ascii", "ignore").decode())
        for title in headings(text)
    )
    return {re.sub(r"[-\s]+", "-", title.strip().lower()) for title in plain}


def broken_links(text: str, where: Path) -> list[str]:
    """Relative links in a page that lead nowhere, to a missing file or to a missing heading."""
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_blocks(text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        if not path:
            file = where
        else:
            file = (where.parent / path).resolve()
        found = file.is_file() and (
            not anchor or anchor in anchors(text if not path else file.read_text("utf-8"))
        )
        if not found:
            broken.append(target)
    return broken


def missing_sources(text: str) -> list[str]:
    """Paths of code and tests that a page names and that do not exist."""
    paths = re.findall(r"(?:src/sottovoce|tests)/[\w/.-]+", text)
    return [path for path in paths if not (ROOT / path.rstrip(".")).exists()]


def missing_pages(source: str) -> list[str]:
    """Pages that a source file names and that do not exist."""
    return [
        path for path in re.findall(r"docs/[\w/.-]+\.md", source) if not (ROOT / path).is_file()
    ]


@cache
def commands() -> dict[str, list[str]]:
    """Every command with its options, from the command line itself."""
    found: dict[str, list[str]] = {}

    def visit(command: object, words: list[str]) -> None:
        found[" ".join(words)] = [
            option for parameter in command.params for option in parameter.opts
        ]  # type: ignore[attr-defined]
        if hasattr(command, "list_commands"):
            context = typer.Context(command)
            for name in command.list_commands(context):
                visit(command.get_command(context, name), [*words, name])

    visit(typer.main.get_command(app), ["sottovoce"])
    return found


def shown_commands(text: str) -> list[str]:
    """What a page tells people to type."""
    blocks = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


@pytest.mark.parametrize("name", sv.__all__)
def test_every_public_name_is_in_the_glossary_and_in_the_reference(name):
    assert f"`sv.{name}`" in page("names.md")
    assert f"sv.{name}" in page("reference.md")


def test_the_glossary_has_no_name_that_does_not_exist():
    assert set(re.findall(r"`sv\.(\w+)`", page("names.md"))) == set(sv.__all__)


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_has_its_section_with_a_way_out(name):
    section = re.search(
        rf"^### `{name}`\n(.*?)(?=^##|\Z)", page("guide/errors.md"), re.MULTILINE | re.DOTALL
    )
    assert section is not None
    assert re.search(r"\*\*Way\s+out:\*\*", section.group(1))


def test_the_page_of_errors_has_no_error_that_does_not_exist():
    assert set(re.findall(r"^### `(\w+)`", page("guide/errors.md"), re.MULTILINE)) == set(ERRORS)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_has_reference_guide_and_theory(name):
    assert name in headings(page("reference.md"))
    assert any(f"sv.{name}(" in file.read_text("utf-8") for file in (DOCS / "guide").glob("*.md"))
    source = inspect.getsource(inspect.getmodule(getattr(sv, name)))
    theory = re.search(r"docs/theory/[\w-]+\.md", source)
    assert theory is not None
    assert (ROOT / theory.group()).is_file()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_parameter_of_an_estimator_is_in_the_reference(name):
    section = re.search(
        rf"^### {name}\n(.*?)(?=^##)", page("reference.md"), re.MULTILINE | re.DOTALL
    ).group(1)
    for parameter in inspect.signature(getattr(sv, name)).parameters:
        assert f"| `{parameter}` |" in section


@pytest.mark.parametrize("command", commands())
def test_every_command_and_option_is_in_the_reference(command):
    reference = page("reference.md")
    assert command in headings(reference)
    for option in commands()[command]:
        if option.startswith("--"):
            assert f"`{option}" in reference or f" {option}`" in reference, option


def test_the_reference_has_no_command_that_does_not_exist():
    assert {
        title for title in headings(page("reference.md")) if title.startswith("sottovoce")
    } == set(commands())


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    """A folder with the table and the schema that the pages speak of."""
    rows = [
        f"p{i % 200:03d},{30_000 + 137 * i % 60_000},{(0.1, 0.5, 2.0)[i % 200 % 3]}"
        for i in range(300)
    ]
    (tmp_path / "salaries.csv").write_text(
        "\n".join(["id,salary,epsilon", *rows]) + "\n", encoding="utf-8"
    )
    budgets = [f"p{i:03d},{(0.1, 0.5, 2.0)[i % 3]}" for i in range(200)]
    (tmp_path / "consents.csv").write_text(
        "\n".join(["id,epsilon", *budgets]) + "\n", encoding="utf-8"
    )
    (tmp_path / "schema-filled.toml").write_text(
        'person = "id"\nbudget = "epsilon"\nlabel = "salary"\n'
        '[columns.salary]\nkind = "number"\nlow = 0\nhigh = 200_000\n',
        encoding="utf-8",
    )
    patients = [
        (
            f"p{i % 200:03d}",
            20 + 7 * i % 70,
            ("no", "yes")[i % 3 == 0],
            5_000 + 131 * i % 15_000,
            (0.1, 0.5, 2.0)[i % 200 % 3],
        )
        for i in range(300)
    ]
    _csv(tmp_path / "patients.csv", "id,age,smoker,cost,epsilon", patients)
    (tmp_path / "questions.toml").write_text(
        '[questions."mean cost"]\nask = "mean"\ncolumn = "cost"\n'
        '[questions.smokers]\nask = "count"\nby = ["smoker"]\n'
    )
    _csv(tmp_path / "new-patients.csv", "id,age,smoker", [row[:3] for row in patients[:20]])
    _csv(
        tmp_path / "sellers.csv",
        "seller,cost",
        [(f"seller-{i}", 1e-4 + 1e-5 * (7 * i % 41)) for i in range(60)],
    )
    _csv(tmp_path / "volunteers.csv", "age,smoker", [row[1:3] for row in patients[:60]])
    for guide, name in (("regression", "patients.toml"), ("classification", "smokers.toml")):
        (schema,) = re.findall(
            r"^```toml\n(.*?)^```", page(f"guide/{guide}.md"), re.MULTILINE | re.DOTALL
        )
        (tmp_path / name).write_text(schema, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _csv(path, header, rows):
    path.write_text(
        "\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n", encoding="utf-8"
    )


@pytest.mark.parametrize(
    "file",
    [file for file in PAGES if shown_commands(file.read_text("utf-8"))],
    ids=lambda file: file.name,
)
def test_commands_shown_in_a_page_run_in_their_order(file, workspace, monkeypatch):
    # What the demonstration compares is run with fewer repetitions, as tests/cli/test_demo.py does.
    monkeypatch.setattr(demo_comparison, "REPEATS", 2)
    monkeypatch.setattr(demo_comparison, "ALPHAS", (1.0, 10.0))
    monkeypatch.setattr(demo_comparison, "THRESHOLDS", ("mean",))
    for command in shown_commands(file.read_text("utf-8")):
        words = shlex.split(command)
        assert words[0] == "sottovoce"
        result = CliRunner().invoke(app, words[1:])
        assert result.exit_code == 0, (command, result.output)


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(DOCS)))
def test_links_of_a_page_lead_somewhere(file):
    assert broken_links(file.read_text("utf-8"), file) == []


def test_the_checks_can_fail():
    here = DOCS / "index.md"
    assert broken_links(
        "[a](start.md) [b](nowhere.md) [c](start.md#no-such-heading) [d](#nor-this)", here
    ) == [
        "nowhere.md",
        "start.md#no-such-heading",
        "#nor-this",
    ]
    assert missing_sources("`src/sottovoce/plan.py` and `src/sottovoce/plans.py`") == [
        "src/sottovoce/plans.py"
    ]
    assert missing_sources("`tests/no_such_test.py`") == ["tests/no_such_test.py"]
    assert missing_pages("docs/theory/mean.md and docs/theory/mode.md") == ["docs/theory/mode.md"]
    assert shown_commands("```console\n$ sottovoce mode x.csv\n```\n") == ["sottovoce mode x.csv"]
    assert CliRunner().invoke(app, ["mode", "x.csv"]).exit_code != 0
