"""The leaderboard from raw files, and the example entries on it."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

import rlab
from benchmarks import leaderboard
from benchmarks.anytime.cases import CASES
from benchmarks.leaderboard import DOCUMENT, EXAMPLE, Row, document, page, read_rows, submit
from benchmarks.raw import Origin, Raw, Store, from_curves
from rlab.present.page import render
from rlab.present.table import Table

NEAR, FAR = (((2, 4.0), (30, 1.0)), ((3, 3.0),)), (((9, 8.0),), ())


def test_rows_are_medians_within_their_budget_and_the_nearest_comes_first(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == "demo digits")
    for policy, curves in (("square", FAR), ("auto", NEAR)):
        origin = Origin("0.3.1", settings={"budget": case.budget})
        Store(tmp_path / "anytime").write(case.file(policy), Raw(from_curves(curves)), origin)
    settings = {"task": "demo digits", "method": "mine", "budget": 20}
    Store(tmp_path / "submitted").write("x", Raw(from_curves(NEAR)), Origin("0.3.2", settings=settings))
    tasks = read_rows(tmp_path)
    rows = tasks["demo digits"]
    assert [(row.method, row.version) for row in rows] == [("auto", "0.3.1"), ("mine", "0.3.2"), ("square", "0.3.1")]
    assert [rows[0].median(q) for q in (1, 5, 100)] == [math.inf, 3.5, 2.0]
    assert math.isnan(rows[1].median(50))  # beyond its budget
    assert (rows[0].first(), rows[2].median(5), rows[2].median(100)) == (2.5, math.inf, math.inf)
    text = document(tasks)
    assert "| auto | 2.5 | 3.5 | 3.5 | 2 | 0.3.1 |" in text
    html = render(page(tasks))
    assert "Share of samples flipped" in html
    assert "Submit yours" in html


def test_the_table_on_the_site_has_every_task_of_the_raw_files() -> None:
    titles = re.findall(r"^## (.+)$", DOCUMENT.read_text(encoding="utf-8"), re.M)
    assert {"Submit yours", "Demo digits"} <= set(titles)
    assert EXAMPLE.read_text(encoding="utf-8") in DOCUMENT.read_text(encoding="utf-8"), (
        "write it again: python -m benchmarks --leaderboard"
    )


@pytest.mark.parametrize("name", ["Sweep", "growing_noise"])
def test_the_example_gets_a_row(
    name: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(root / "examples"))
    few = [replace(case, samples=6, budget=40) for case in CASES if case.name == "demo digits"]
    monkeypatch.setattr(leaderboard, "TASKS", few)
    words = ["--submit", f"leaderboard_entries:{name}", "--task", "demo digits"]
    assert submit([*words, "--samples", "2"], tmp_path) == 0
    assert "within 20" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    assert submit(words, tmp_path) == 0
    (row,) = read_rows(tmp_path)["demo digits"]
    assert isinstance(row, Row)
    assert (row.method, row.version, len(row.seeds[0])) == (name, rlab.__version__, 6)
    assert math.isfinite(row.median(40))
    assert max(q for flips in row.seeds[0] for q, _ in flips) <= 41
    assert isinstance(leaderboard.table_of([row]), Table)


def test_each_example_has_at_most_thirty_lines() -> None:
    _, *parts = re.split(r"^(?=@dataclass|def )", EXAMPLE.read_text(encoding="utf-8"), flags=re.M)
    assert [len(part.strip().splitlines()) <= 30 for part in parts] == [True, True]


@pytest.mark.parametrize("name", ["nowhere:thing", "leaderboard_entries:nothing", ""])
def test_what_cannot_be_imported_is_refused(name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(root / "examples"))
    with pytest.raises(SystemExit) as stopped:
        submit(["--submit", name, "--task", "demo digits"])
    assert stopped.value.code == 2
