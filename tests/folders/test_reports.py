"""Pages of stored runs, for every kind of folder and data."""

from __future__ import annotations

import base64
import hashlib
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

import rlab
from benchmarks.serve.run import report
from rlab.errors import FolderError
from rlab.folders.records import read_record
from rlab.folders.reports import report_run
from rlab.present.page import Page, Section, Text, render
from rlab.priors.file import save_prior
from rlab.priors.trained import DirectionPrior
from rlab.results.page import easiest
from rlab.results.result import AttackResult
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
def test_the_page_of_an_attack_is_complete(runs: dict[str, Path], name: str, tmp_path: Path) -> None:
    page = Links.of(report_run(runs[name], tmp_path / "page.html", samples=1))
    result = AttackResult.load(runs[name])
    shown = min(1, int(result.succeeded.sum()))
    assert shown > 0
    assert page.external == []
    assert page.unnamed == 0
    assert (page.stages, page.charts) == (shown, 2 if name == "digits" else 3)
    assert page.ids >= {"attack", "easiest-flips", "samples", "settings"}
    assert f"{int(result.succeeded.sum())} of {int(result.attacked.sum())} (" in page.text
    assert ("data-frames=" in (tmp_path / "page.html").read_text()) == (name == "clips")


def test_the_easiest_flips_come_first(runs: dict[str, Path]) -> None:
    result = AttackResult.load(runs["digits"])
    l2 = result.final["l2"][easiest(result, 3)]
    assert torch.equal(l2, result.final["l2"][result.succeeded].sort().values[: len(l2)])


def test_a_run_without_flips_has_a_page(tmp_path: Path) -> None:
    batch = rlab.load("demo:digits", limit=2)
    rlab.attack(rlab.demo_victim("digits"), batch, palette=["gaussian_noise@0.001"], budget=3).save(tmp_path / "run")
    assert "No sample was flipped" in Links.of(report_run(tmp_path / "run")).text


def test_only_the_pages_script_may_run() -> None:
    text = render(Page("A", [Section("A", [Text("<script>alert(1)</script>")])]))
    (script,) = re.findall("<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text


@pytest.mark.slow
def test_a_report_of_500_samples_is_small_and_fast(tmp_path: Path) -> None:
    megabytes, seconds, samples = report("images", tmp_path, time.process_time)
    assert samples == 500
    assert megabytes < 20
    assert seconds < 10
    assert (tmp_path / "images.html").read_text().count('class="viewer"') == 500


def test_every_command_has_a_page(tmp_path: Path) -> None:
    digits = ("demo:digits", "demo:digits", "--limit", "2")
    bench = ("--patch", "2", "--ladder", "times:1.5", "--steps", "5", "--budget", "100")
    commands = {
        "bench": ("benchmark", "make", *digits, *bench),
        "graded": ("benchmark", "run", tmp_path / "bench", "--model", "net=demo:digits"),
        "compared": ("compare", *digits, "--budget", "60", "--policies", "random,square"),
        "explained": ("explain", *digits, "--compare", "--method", "middle,occlusion", "--steps", "4", "--no-checks"),
        "mapped": ("explain", *digits, "--method", "middle", "--pictures", "1"),
    }
    sections = ("benchmark", "benchmark", "attacks", "methods", "methods")
    for (name, command), section in zip(commands.items(), sections, strict=True):
        assert rlab_command(*command, "--out", tmp_path / name).code == 0
        run = rlab_command("report", tmp_path / name)
        assert run.code == 0, run.err
        page = Links.of(tmp_path / name / "report.html")
        assert section in page.ids
        assert page.external == []
        assert page.pictures + page.charts > 0 or name == "explained"
        shown = rlab_command("show", tmp_path / name)
        assert shown.code == 0, shown.err
        assert section in shown.out.lower()
    for table in ("Ranking", "Transfer at flip", "main distortion"):
        assert table in rlab_command("show", tmp_path / "graded").out


def test_a_training_has_a_page_with_its_curves_and_its_card(tmp_path: Path) -> None:
    lines = ['{"prior": 0.5, "prior_loss": 0.9}', '{"prior": 1.0, "prior_loss": 0.4}']
    (tmp_path / "log.jsonl").write_text("\n".join([*lines, '{"success": 0.75, "median_l2": NaN}']))
    trained = tmp_path / "prior.safetensors"
    save_prior(DirectionPrior(2, 1, 8, 1, 1, 1), trained, {"trained on": "my scans", "models": ["a", "b"]})
    page = Links.of(report_run(tmp_path))
    assert page.ids >= {"training", "prior-safetensors"}
    assert (page.charts, page.external) == (2, [])
    for words in ("0.75", "0.4", "my scans", "a, b"):
        assert words in page.text
    for said in (rlab_command("show", tmp_path), rlab_command("agents", trained)):
        assert said.code == 0, said.err
        assert "my scans" in said.out
    (tmp_path / "other.safetensors").write_bytes(save({"weight": torch.zeros(2)}))
    said = rlab_command("agents", tmp_path / "other.safetensors")
    assert (said.code, said.err.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    ("file", "sentence"),
    [("", "there is no folder"), ("notes.txt", "holds no run"), ("run.json", "is not finished")],
)
def test_a_folder_without_a_finished_run_is_refused(file: str, sentence: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    if file:
        folder.mkdir()
        (folder / file).write_bytes(b"")
    for read in (report_run, read_record):
        with pytest.raises(FolderError, match=sentence):
            read(folder)
    for command in ("report", "show"):
        run = rlab_command(command, folder)
        assert (run.code, run.err.count("\n")) == (2, 1)
