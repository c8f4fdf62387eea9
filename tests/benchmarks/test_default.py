"""The table of the default command: written between its marks, with the command that makes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.data import root
from benchmarks.default import cases
from benchmarks.default import run as default
from rlab.comparison import outcome_of
from rlab.present.table import text
from rlab.results.result import AttackResult
from tests.command import rlab_command


def table_of(page: str) -> dict[str, list[str]]:
    """Cells by the first one of their row."""
    lines = page.partition(default.BEGIN)[2].partition(default.END)[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert rows[0] == default.HEAD
    return {row[0]: row[1:] for row in rows[2:]}


def test_the_page_shows_the_command_of_its_rows() -> None:
    page = default.PAGE.read_text(encoding="utf-8")
    assert cases.shell(cases.command("vgg")) in page
    assert {name.partition(":")[0] for name in table_of(page)} >= {label for label, _ in cases.NETS.values()}


def test_only_what_is_between_the_marks_is_written_anew() -> None:
    page = default.PAGE.read_text(encoding="utf-8")
    once = default.written(page, default.shown([["net: `auto`", "100%", *"123456"]]))
    assert table_of(once) == {"net: `auto`": ["100%", *"123456"]}
    assert default.written(once, page.partition(default.BEGIN)[2].partition(default.END)[0]) == page
    with pytest.raises(SystemExit):
        default.written("no marks", "")


@pytest.mark.slow
@pytest.mark.real
def test_the_default_attack_gives_the_pages_row(real: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLAB_REAL", str((real / "cifar10").parent))
    words = [word.replace("$RLAB_REAL", str(root())) for word in cases.command("resnet20")[2:]]
    said = rlab_command("attack", *words, "--pictures", 0, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    result = AttackResult.load(tmp_path / "run")
    given = default.row("", default.measured(outcome_of(result, int(result.queries.sum()))))[1:]
    told = table_of(default.PAGE.read_text(encoding="utf-8"))[f"{cases.NETS['resnet20'][0]}: `auto`"]
    pairs = [(figure(now), figure(then)) for now, then in zip(map(text, given), told, strict=True)]
    assert [now for now, _ in pairs] == pytest.approx([then for _, then in pairs], rel=0.05)  # rounding of machines


def figure(cell: str) -> float:
    return float(cell.split()[0].rstrip("%"))
