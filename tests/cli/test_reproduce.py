"""`sottovoce reproduce`: it lists, computes, shows, resumes, and goes on where data are missing."""

from __future__ import annotations

import sys

import pytest
import typer
from typer.testing import CliRunner

from sottovoce import __version__
from sottovoce.cli.reproduce import load_outcome, reproduce
from sottovoce.errors import InvalidData
from sottovoce.papers.plots import Figure, Outcome, Panel, Reason, ResultColumn, ResultTable, Series
from sottovoce.papers.report import EXPERIMENTS, Experiment

QUICK = "ridge/table-1"
DRAWN = "ridge/figure-2"
ABSENT = "ridge/table-12"
PANEL = Panel("panel", "x", "loss", (Series("ours", "pdp_op", (1.0, 2.0), (0.1, 0.2)),))
TABLE = ResultTable(
    "Table 1",
    "λ",
    ("1",),
    (ResultColumn("loss, own", (2.0,), (1.0,), (0.3,)),),
    (Reason("loss, own", "Why."),),
)


@pytest.fixture
def computed(monkeypatch):
    """Stands in for the experiments: notes what was computed, and has no data for one of them."""
    noted = []

    def run(self, task):
        if self.name == ABSENT:
            raise InvalidData("The data are not there.", "They are needed.", "Get them.")
        noted.append((self.name, task.size))
        task.progress(0.5)
        if self.name == DRAWN:
            figures = (Figure("A figure", (PANEL,)),)
        else:
            figures = ()
        return Outcome(self.name, task.size, (TABLE,), figures, ("A sentence.",), 0.1, __version__)

    monkeypatch.setattr(Experiment, "run", run)
    return noted


@pytest.fixture
def reproduced(tmp_path):
    """Gives the command, with a folder to write to."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(reproduce)

    def command(*words):
        result = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "out")])
        assert result.exception is None or isinstance(result.exception, SystemExit)
        assert "Traceback" not in result.output
        return result

    return command


def test_the_list_names_every_experiment_and_computes_nothing(reproduced, computed):
    result = reproduced("--list")
    assert result.exit_code == 0
    assert all(experiment.name in result.stdout for experiment in EXPERIMENTS)
    assert computed == []


def test_ours_is_shown_beside_print_with_the_ratio_and_the_reason(reproduced, computed):
    told = reproduced(QUICK).stdout
    line = next(line for line in told.splitlines() if line.split()[:1] == ["1"])
    assert line.split() == ["1", "2", "1", "2", "30", "%"]
    assert "Why." in told
    assert "A sentence." in told


def test_every_table_has_its_title(reproduced, computed):
    told = reproduced(QUICK).stdout.splitlines()
    place = next(i for i, line in enumerate(told) if line.strip() == TABLE.title)
    assert "λ" in "".join(told[place + 1 : place + 5])


def test_a_figure_without_numbers_says_so_and_one_with_them_does_not(
    reproduced, computed, monkeypatch
):
    said = "Print is a picture without numbers"
    assert said not in reproduced(DRAWN).stdout
    bare = ResultTable("Bare", "λ", ("1",), (ResultColumn("loss", (2.0,)),))
    monkeypatch.setattr(
        Experiment, "run", lambda self, task: Outcome(self.name, task.size, (bare,))
    )
    assert said in reproduced("market/figure-4").stdout


def test_what_became_of_items_is_told_and_written(reproduced, computed, tmp_path):
    assert "items of the papers:" in reproduced(QUICK).stdout
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "What became of every item" in page


def test_files_are_written(reproduced, computed, tmp_path):
    assert reproduced(QUICK, DRAWN, "--small").exit_code == 0
    names = {
        path.relative_to(tmp_path / "out").as_posix()
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    }
    stems = {"ridge/figure-2.small.json", "ridge/figure-2.small.png", "ridge/figure-2.small.svg"}
    assert names == {"report.html", "ridge/table-1.small.json", *stems}
    assert "<svg" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_a_second_run_goes_on_where_the_first_stopped(reproduced, computed):
    reproduced(QUICK)
    again = reproduced(QUICK, DRAWN)
    assert computed == [(QUICK, "full"), (DRAWN, "full")]
    assert "all 2 that are done" in again.stdout
    reproduced(QUICK, "--fresh")
    assert computed[2:] == [(QUICK, "full")]


def test_small_and_full_are_kept_apart(reproduced, computed, tmp_path):
    reproduced(QUICK)
    reproduced(QUICK, "--small")
    assert computed == [(QUICK, "full"), (QUICK, "small")]
    assert load_outcome(tmp_path / "out", QUICK, "full").size == "full"


@pytest.mark.parametrize(
    "damage", [lambda text: text[:50], lambda text: text.replace(__version__, "0.0.0")]
)
def test_a_damaged_or_older_file_is_computed_again(reproduced, computed, tmp_path, damage):
    reproduced(QUICK)
    path = tmp_path / "out" / "ridge" / "table-1.json"
    path.write_text(damage(path.read_text(encoding="utf-8")), encoding="utf-8")
    reproduced(QUICK)
    assert len(computed) == 2


def test_a_figure_whose_file_is_gone_is_drawn_again_for_the_report(reproduced, computed, tmp_path):
    reproduced(DRAWN)
    (tmp_path / "out" / "ridge" / "figure-2.svg").unlink()
    assert reproduced(QUICK).exit_code == 0
    assert "<svg" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_missing_data_are_named_and_the_rest_goes_on(reproduced, computed, tmp_path):
    result = reproduced(ABSENT, QUICK)
    assert result.exit_code == 0
    assert computed == [(QUICK, "full")]
    assert "Get them." in result.output
    assert "Get them." in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_if_nothing_can_be_computed_it_is_an_error(reproduced, computed, tmp_path):
    result = reproduced(ABSENT)
    assert result.exit_code == 2
    assert not (tmp_path / "out" / "report.html").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "No experiment was named."),
        (("ridge/tabel-1",), "ridge/table-1"),
        ((QUICK, "--data", "/no/such/folder"), "--data is not a folder."),
    ],
)
def test_refusals_say_what_to_do(reproduced, computed, words, said):
    result = reproduced(*words)
    assert result.exit_code == 2
    assert said in result.output
    assert computed == []


def test_without_matplotlib_nothing_is_begun(reproduced, computed, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = reproduced(QUICK)
    assert result.exit_code == 2
    assert "sottovoce[reproduce]" in result.output
    assert computed == []
