"""The recipe in docs/start-here.md makes a command that every tool for run folders knows."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

from rlab.cli import app
from rlab.folders import finished
from rlab.folders.verbs import VERBS, Verb
from tests.command import rlab_command
from tests.test_readme import blocks_of

PAGE = Path(__file__).parents[2] / "docs" / "start-here.md"
ABOUT = "Measure the accuracy of a classifier on darker inputs."


def test_a_report_a_function_and_a_row_are_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = [each for each in blocks_of(PAGE.read_text(encoding="utf-8")) if each.title == "my_dim.py"]
    assert sum(bool(line.strip()) for line in block.lines) < 40
    (tmp_path / "my_dim.py").write_text("\n".join(block.lines), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    made_here = importlib.import_module("my_dim")
    for name in ("my_dim", "rlab.cli.dim"):  # both are forgotten afterwards
        monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.setitem(sys.modules, name, made_here)
    monkeypatch.setattr(finished, "VERBS", (*VERBS, Verb("dim", ABOUT, "my_dim:Dimmed")))
    monkeypatch.setitem(app.COMMANDS, "dim", ABOUT)
    folder = tmp_path / "run"

    made = rlab_command("dim", "demo:digits", "demo:digits", "--limit", 8, "--out", folder, "--json")
    assert made.code == 0, made.err
    figures = json.loads((folder / "report.json").read_text())["metrics"]
    assert figures["accuracy at 1"] == 1.0
    assert {path.name for path in folder.iterdir()} >= {"report.json", "results.csv", "report.html", "run.json"}
    again = rlab_command(
        "dim", "demo:digits", "demo:digits", "--limit", 8, "--out", tmp_path / "few", "--max-queries", 9
    )
    assert again.code == 2
    assert "accuracy by brightness" in rlab_command("report", folder, "--out", tmp_path / "page.html").out + (
        tmp_path / "page.html"
    ).read_text(encoding="utf-8")
    shown = rlab_command("show", folder, "--json")
    assert json.loads(shown.out)["title"] == "Accuracy in the dark"
