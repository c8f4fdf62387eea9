"""Pages of stored runs, for every kind of folder and data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import rlab
from rlab.core.result import AttackResult
from rlab.errors import InputError
from rlab.present.attack import easiest
from rlab.present.page import Page, Section, Text, render
from rlab.present.table import Cell, Table
from rlab.reports import report_run
from tests.command import rlab_command
from tests.present.browser import Links


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A stored attack for each kind of data."""
    folders = {}
    for name, patch in (("digits", 2), ("ecg", 16), ("clips", (2, 8, 8))):
        batch = rlab.load(f"demo:{name}", limit=2)
        if name == "clips":
            batch = replace(batch, x=batch.x[:, :, :6], masks=None)  # a frame is a drawing
        result = rlab.attack(rlab.demo_victim(name), batch, patch=patch, budget=150)
        folders[name] = result.save(tmp_path_factory.mktemp("runs") / name)
    return folders


@pytest.mark.parametrize("name", ["digits", "ecg", "clips"])
def test_a_page_of_an_attack_holds_everything(runs: dict[str, Path], name: str, tmp_path: Path) -> None:
    page = Links.of(report_run(runs[name], tmp_path / "page.html", samples=1))
    result = AttackResult.load(runs[name])
    shown = min(1, int(result.succeeded.sum()))
    assert shown > 0
    assert page.external == []
    assert page.unnamed == 0
    assert page.pictures == 1 + shown * (2 if name == "clips" else 1)
    assert page.ids >= {"attack", "easiest-flips", "what-was-asked"}
    assert f"{int(result.succeeded.sum())} of {int(result.attacked.sum())} (" in page.text
    assert "image/gif" in (tmp_path / "page.html").read_text() or name != "clips"


def test_the_easiest_flips_come_first(runs: dict[str, Path]) -> None:
    result = AttackResult.load(runs["digits"])
    l2 = result.final["l2"][easiest(result, 3)]
    assert torch.equal(l2, result.final["l2"][result.succeeded].sort().values[: len(l2)])


def test_a_run_without_flips_has_a_page(tmp_path: Path) -> None:
    batch = rlab.load("demo:digits", limit=2)
    rlab.attack(rlab.demo_victim("digits"), batch, palette=["gaussian_noise@0.001"], budget=3).save(tmp_path / "run")
    assert "No sample was flipped" in Links.of(report_run(tmp_path / "run")).text


def test_users_text_is_escaped() -> None:
    text = render(
        Page(
            "<b>x</b>",
            [Section("A", [Text("<script>alert(1)</script>"), Table(["<i>"], [["&", Cell("<u>", "fail")]])])],
        )
    )
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "<b>x" not in text
    assert "<i>" not in text
    assert "<u>" not in text


def test_other_folders_have_pages_too(tmp_path: Path) -> None:
    digits = ("demo:digits", "demo:digits", "--limit", "2")
    bench = ("--patch", "2", "--ladder", "times:1.5", "--steps", "5", "--budget", "100")
    commands = {
        "bench": ("benchmark", "make", *digits, *bench),
        "compared": ("compare", *digits, "--budget", "60", "--policies", "random,square"),
        "explained": ("explain", *digits, "--compare", "--method", "middle,occlusion", "--steps", "4", "--no-checks"),
    }
    expected = {"bench": "benchmark", "compared": "attacks", "explained": "scores"}
    for name, command in commands.items():
        assert rlab_command(*command, "--out", tmp_path / name).code == 0
        run = rlab_command("report", tmp_path / name)
        assert run.code == 0, run.err
        page = Links.of(tmp_path / name / "report.html")
        assert expected[name] in page.ids
        assert page.external == []


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no folder"):
        report_run(tmp_path / "nowhere")
    with pytest.raises(InputError, match="holds no run that can be reported: expected a folder of rlab attack"):
        report_run(tmp_path)
    (tmp_path / "ledger.sqlite").write_bytes(b"")
    with pytest.raises(InputError, match="is not finished"):
        report_run(tmp_path)
    run = rlab_command("report", tmp_path / "nowhere")
    assert (run.code, run.err.count("\n")) == (2, 1)
