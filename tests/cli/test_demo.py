"""The demonstration: it writes its files, says only what is so, and its commands work as printed."""

from __future__ import annotations

import re
import shlex
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest

from sottovoce.cli import demo as demo_module
from sottovoce.cli.study import TIERS, Study, tier_of
from sottovoce.release import Release

VOID = {"meta"}


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    from typer.testing import CliRunner

    from sottovoce.cli.main import app

    out = tmp_path_factory.mktemp("demo") / "my patients"
    result = CliRunner().invoke(app, ["demo", "--out", str(out)])
    assert result.exit_code == 0
    return out, result.stdout


def test_it_writes_the_files_it_names(shown):
    out, told = shown
    assert {file.name for file in out.iterdir()} == set(demo_module.WRITTEN)
    for name in demo_module.WRITTEN:
        assert f"{out / name}: " in told


def test_its_releases_keep_everybodys_promise_together(shown):
    out, _ = shown
    mean, quartiles = (Release.load(out / f"{name}.json") for name in ("mean", "quartiles"))
    spent = [[e["epsilon"] for e in r.guarantee["epsilon"]["distribution"]] for r in (mean, quartiles)]
    for tier, *costs in zip(TIERS, *spent, strict=True):
        assert sum(costs) <= tier.epsilon + 1e-12
        assert sum(costs) == pytest.approx(tier.epsilon, abs=1e-6)
    assert len(quartiles.value) == 3


def test_one_set_of_books_is_kept_over_both_questions(shown):
    _, told = shown
    books = [line.split() for line in told.split("4. The books")[1].splitlines()[2:5]]
    assert books == [
        ["careful", "0.1", "0.05", "0.05", "0"],
        ["middle", "0.5", "0.25", "0.25", "0"],
        ["open", "2", "1", "1", "0"],
    ]


def test_the_commands_it_prints_work(shown, run):
    _, told = shown
    commands = [shlex.split(line)[2:] for line in told.splitlines() if line.startswith("$ sottovoce")]
    assert len(commands) == 7
    for command in commands:
        assert run(*command).exit_code == 0


def test_tiers_follow_the_row_number_and_keep_their_percentages():
    hundred = [tier_of(row).name for row in range(100)]
    assert [hundred.count(tier.name) for tier in TIERS] == [34, 43, 23]
    assert [tier_of(row) for row in range(100, 200)] == [tier_of(row) for row in range(100)]


def test_personal_budgets_are_compared_with_the_classical_error_of_one_epsilon():
    study = Study()
    strictest = study.ways[1]
    noise = 50 / (442 * 0.05)
    assert strictest.people == 442
    assert strictest.mean_error == pytest.approx(np.sqrt(5**2 / 442 + 2 * noise**2), rel=1e-3)
    own = study.ways[0]
    assert all(own.mean_error < way.mean_error for way in study.ways[1:])
    assert all(own.quartile_error < way.quartile_error for way in study.ways[1:])
    assert own.mean_error < study.without_careful.mean_error


class Balanced(HTMLParser):
    """Refuses tags that are not closed in order, and anything fetched from elsewhere."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], set()

    def handle_starttag(self, tag, attrs):
        assert not {"src", "href", "srcset", "action"} & {name for name, _ in attrs}
        self.seen.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_report_is_one_whole_page_that_needs_nothing_else(shown):
    out, told = shown
    text = (out / "report.html").read_text(encoding="utf-8")
    parser = Balanced()
    parser.feed(text)
    assert parser.open == []
    assert {"table", "svg", "rect"} <= parser.seen
    assert "script" not in parser.seen
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"url\(|@import|https?:", text)
    for picture in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        assert len(ET.fromstring(picture).findall("rect")) == len(Study().ways)
    for sentence in Study().lessons():
        assert sentence in told


def test_a_folder_that_cannot_be_made_is_refused(run, tmp_path):
    (tmp_path / "file").write_text("")
    refused = run("demo", "--out", tmp_path / "file")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith("InvalidParameter: The folder cannot be made")
