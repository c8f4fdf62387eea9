"""`rlab report A B`: what changed between runs, as tables and as a page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import rlab
from rlab.errors import OptionError
from rlab.folders.records import changes_page, figure_changes, figures_table, read_record, read_runs, settings_table
from rlab.present.table import Cell
from rlab.results.result import Status
from tests.command import rlab_command
from tests.present.browser import Links
from tests.results.plots.fixtures import Recipe, make_result

RECIPE = Recipe((16, 16), (4, 4), 3, n=16, status=(Status.SUCCEEDED,))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The second run has another budget, a sample that held, and one that took half the distance."""
    folder, result = tmp_path_factory.mktemp("runs"), make_result(RECIPE)
    l2 = torch.cat([result.final["l2"][:1], result.final["l2"][1:2] / 2, result.final["l2"][2:]])
    other = replace(
        result,
        setting=replace(result.setting, budget=500),
        status=(Status.SPENT, *result.status[1:]),
        final={**result.final, "l2": l2},
        improvements=((), (result.improvements[1][0], (30, float(l2[1]))), *result.improvements[2:]),
    )
    return result.save(folder / "a"), other.save(folder / "b")


def test_only_settings_that_differ_are_told(runs: tuple[Path, Path]) -> None:
    table = settings_table(read_runs(runs))
    assert [list(row) for row in table.rows] == [["budget", "1000", "500"]]
    unchanged = len(read_record(runs[0]).settings) - 1
    assert f"{unchanged} are the same" in table.title


def test_every_figure_stands_beside_its_own(runs: tuple[Path, Path]) -> None:
    records = read_runs(runs)
    table = figures_table(records)
    assert list(table.head) == ["figure", "a", "b"]
    rows = {str(row[0]): row for row in table.rows}
    assert records["a"].values["flipped, verified"] == 1
    assert records["b"].values["flipped, verified"] == pytest.approx(15 / 16)
    assert [name for name in rows if "within" in name] == [f"L2 within {q} queries" for q in (20, 5, 50, 200)]
    second = rows["flipped, verified"][2]
    assert isinstance(second, Cell)
    assert second.tone == ""  # the intervals meet


def test_intervals_that_do_not_meet_are_told_apart(tmp_path: Path) -> None:
    won = make_result(replace(RECIPE, n=40))
    lost = replace(won, status=(Status.SPENT,) * 40)
    table = figures_table(read_runs([won.save(tmp_path / "won"), lost.save(tmp_path / "lost")]))
    (row,) = [row for row in table.rows if row[0] == "flipped, verified"]
    assert isinstance(row[2], Cell)
    assert row[2].tone == "warn"


def test_the_page_lists_samples_that_changed(runs: tuple[Path, Path], tmp_path: Path) -> None:
    (section,) = [section for section in changes_page(read_runs(runs)).sections if section.title == "Samples"]
    table = section.blocks[1]
    assert [row[0] for row in table.rows] == ["sample 0", "sample 1"]  # type: ignore[union-attr]
    said = rlab_command("report", *runs, "--out", tmp_path / "changes.html", "--json")
    assert said.code == 0, said.err
    told = json.loads(said.out)
    assert told["settings"] == {"budget": ["1000", "500"]}
    assert told["figures"]["samples"] == [16, 16]
    page = Links.of(tmp_path / "changes.html")
    assert (page.external, page.charts) == ([], 2)


def test_runs_under_corruptions_are_compared(tmp_path: Path) -> None:
    quiet: dict[str, Any] = {"progress": False, "announce": lambda understood: None, "kinds": "fog", "levels": [1]}
    for name, limit in (("a", 4), ("b", 6)):
        rlab.corrupt("demo:digits", "demo:digits", limit=limit, out=tmp_path / name, **quiet)
    runs = read_runs([tmp_path / "a", tmp_path / "b"])
    figures = figure_changes(runs)
    assert figures["queries"] == [8.0, 12.0]
    assert {"clean accuracy", "accuracy under corruptions", "calibration error", "fog"} < set(figures)
    said = rlab_command("report", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "page.html")
    assert (said.code, "fog" in said.out) == (0, True)


def test_runs_of_different_commands_or_the_same_run_twice_are_refused(runs: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"loss": 0.5}\n')
    for other, words in ((tmp_path, "runs of one command"), (runs[0], "more than once")):
        with pytest.raises(OptionError, match=words):
            read_runs([runs[0], other])
    assert read_record(tmp_path).values == {"loss": 0.5}
    for arguments in (("report", *runs, "--figures", tmp_path / "f"), ("report", runs[0], tmp_path / "nowhere")):
        said = rlab_command(*arguments)
        assert (said.code, said.err.count("\n")) == (2, 1)


@pytest.mark.slow
def test_figures_for_a_paper(runs: tuple[Path, Path], tmp_path: Path) -> None:
    said = rlab_command(
        "report", runs[0], "--samples", 1, "--out", tmp_path / "p.html", "--figures", tmp_path / "figures"
    )
    assert said.code == 0, said.err
    names = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert len(names) == 4
    assert {"overview.svg", "overview.pdf"} < set(names)
    assert "<text" in (tmp_path / "figures" / "overview.svg").read_text()
    assert (tmp_path / "figures" / "overview.pdf").read_bytes().startswith(b"%PDF")
