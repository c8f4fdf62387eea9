"""Measuring and comparing: figures against what is known of a planted model, intervals by hand, files, page, command."""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rlab
from rlab.core.goals import Untargeted
from rlab.errors import InputError
from rlab.filters.palette import Palette
from rlab.hardening import HardeningComparison, Trial, compare_hardening, harden, measure, write_page
from rlab.hardening.compare import parse_method
from rlab.hardening.config import HardenConfig
from rlab.hardening.estimates import over_seeds, ratio_over_seeds
from rlab.hardening.measure import all_filters, distort
from rlab.hardening.page import choose
from rlab.hardening.table import comparison_table
from rlab.victims import TorchVictim
from tests.command import rlab_command
from tests.hardening.test_hardening import options, quiet
from tests.hardening.toys import PALETTE, shortcut
from tests.helpers import PATCHES, RANKS

TRIAL = {"policy": "random", "budget": 80, "square_budget": 20, "pgd_steps": 3, "chunk": 64}


def trial(rank: int, **more: Any) -> Trial:
    return Trial(**{"palette": PALETTE, "patch": PATCHES[rank], **TRIAL, **more})


@pytest.mark.parametrize("rank", RANKS)
def test_a_hardened_model_is_farther_from_flipping_on_the_same_samples(rank: int) -> None:
    toy = shortcut(rank, n=64)
    found = harden(toy.victim, toy.batch, validation=toy.test, progress=quiet, **options(rank, together=16))
    test = toy.test[:8]
    before = measure(found.original, test, trial(rank))
    after = measure(found.victim, test, trial(rank), before.attack)
    assert before.figures["clean"].mean() == 1
    assert np.nanmedian(after.figures["agent_l2"]) > np.nanmedian(before.figures["agent_l2"])
    assert before.figures["transfer"][before.attack.succeeded.numpy()].max() == 0  # type: ignore[union-attr]
    assert np.nanmean(after.figures["transfer"]) > 0.5
    for one in (before, after):
        assert set(one.figures) >= {"square", "pgd", "corruptions", "held_out", "agent", "agent_queries"}
        assert one.curves["held_out"].shape == (5, 8)


def test_rows_of_a_measurement_are_counted() -> None:
    toy = shortcut(1, n=32)
    found = measure(toy.victim, toy.test[:6], trial(1))
    assert found.attack is not None
    filters = len(all_filters(1, 2))
    fixed = 6 + 6 * 5 * filters + 6 + 6 + 6 * 3 + 6  # clean, corruptions, transfer, pgd: clean, steps, end
    square = sum(toy.victim.rows.values()) - fixed - int(found.attack.queries.sum())
    assert 6 <= square <= 6 * 20


def test_a_whole_distortion_is_the_filter_itself() -> None:
    batch = shortcut(2, n=4).batch
    whole = distort(Palette.of(["illuminate+@0.2"], 2, 3), batch, 0, torch.device("cpu"))
    torch.testing.assert_close(whole, (batch.x + 0.2).clamp(0, 1))


def test_figures_over_seeds_by_hand() -> None:
    values = np.array([[1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
    e = over_seeds("clean", values)
    assert e.value == 7 / 8
    assert e.low < e.value <= e.high <= 1
    far = np.array([[1.0, 2.0, math.inf, math.nan]])
    assert over_seeds("agent_l2", far).value == 2.0
    assert over_seeds("agent_l2", np.array([[math.inf, math.inf, 1.0]])).value == math.inf
    constant = np.full((3, 5), 2.0)
    times = ratio_over_seeds("agent_l2", 3 * constant, constant)
    assert (times.value, times.low, times.high) == (3.0, 3.0, 3.0)
    assert math.isnan(over_seeds("transfer", np.full((1, 3), math.nan)).value)


def comparison(folder: Path, attacked: int = 8, shift: float = 0.0) -> HardeningComparison:
    toy = shortcut(1, n=64)
    with torch.no_grad():
        next(toy.victim.model.parameters()).add_(shift)
    return compare_hardening(
        toy.victim, toy.batch, toy.test[:12], validation=toy.test, seeds=(0, 1), out=folder,
        methods=("unchanged", "augment", "fgsm", "ours"), trial=trial(1, attacked=attacked),
        config=options(1, together=16),
    )  # fmt: skip


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[HardeningComparison, Path]:
    folder = tmp_path_factory.mktemp("compared")
    found = comparison(folder)
    found.save(folder)
    return found, folder


def test_a_comparison_finds_that_looking_helps(compared: tuple[HardeningComparison, Path]) -> None:
    found, _ = compared
    assert found.methods["ours"]["clean"].shape == (2, 12)
    assert found.methods["ours"]["agent_l2"].shape == (2, 8)
    ours, unchanged, gradient = (found.estimate(name, "agent_l2").value for name in ("ours", "unchanged", "fgsm"))
    assert ours > gradient
    assert ours > unchanged
    assert found.l2_ratio("unchanged").value == 1.0
    assert found.estimate("ours", "clean").value >= found.estimate("unchanged", "clean").value - 0.07


def test_a_comparison_leaves_a_table_and_files(compared: tuple[HardeningComparison, Path]) -> None:
    found, folder = compared
    rows = list(csv.DictReader((folder / "comparison.csv").open()))
    assert {row["method"] for row in rows} == set(found.methods)
    held = json.loads((folder / "comparison.json").read_text())
    assert held["seeds"] == [0, 1]
    assert (folder / "ours-0" / "hardened.safetensors").exists()
    assert comparison_table(found).row_count == 4


def test_a_comparison_that_goes_on_measures_nothing_twice(
    compared: tuple[HardeningComparison, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, folder = compared

    def refuse(*given: Any, **options: Any) -> Any:
        raise AssertionError("measured again")

    monkeypatch.setattr("rlab.hardening.compare.measure", refuse)
    again = comparison(folder)
    assert json.dumps(again.rows()) == json.dumps(found.rows())
    with pytest.raises(AssertionError, match="measured again"):
        comparison(folder, attacked=7)
    with pytest.raises(AssertionError, match="measured again"):
        comparison(folder, shift=0.01)  # another model


def test_methods_by_name() -> None:
    toy = shortcut(1, n=8)
    config, goal = HardenConfig.model_validate({}).filled(toy.batch), Untargeted()
    made = parse_method("pgd_l2@0.5", config, toy.batch, goal)
    assert (made.radius, made.norm, made.steps) == (0.5, "l2", 10)  # type: ignore[union-attr]
    assert parse_method("unchanged", config, toy.batch, goal) is None
    with pytest.raises(InputError, match="unknown method 'magic'"):
        parse_method("magic", config, toy.batch, goal)
    with pytest.raises(InputError, match="expected 'unchanged' among the methods"):
        compare_hardening(toy.victim, toy.batch, toy.test, methods=("ours",))
    with pytest.raises(InputError, match="at least two test samples"):
        compare_hardening(toy.victim, toy.batch, toy.test[:1])


@pytest.mark.parametrize("rank", RANKS)
def test_the_page_holds_everything_itself(tmp_path: Path, rank: int) -> None:
    toy = shortcut(rank, n=32)
    found = harden(toy.victim, toy.batch, validation=toy.test, progress=quiet, **options(rank, epochs=2))
    before = measure(found.original, toy.test[:4], trial(rank))
    after = measure(found.victim, toy.test[:4], trial(rank), before.attack)
    text = write_page(tmp_path / "page.html", found, before, after, samples=1).read_text()
    assert not re.search(r'(src|href)="(?!data:)', text)
    assert text.count("data:image/png;base64,") == 1 + 2 * len(choose(before.attack, after.attack, 1))  # type: ignore[arg-type]
    assert "clean accuracy" in text


def test_the_command_hardens_and_writes_a_page(tmp_path: Path) -> None:
    asked = ["harden", "demo:digits", "demo:digits", "-D", "split=train", "--limit", 120, "--test", "demo:digits"]
    asked += ["-T", "limit=3", "--rounds", 1, "--epochs", 1, "--queries", 4, "--budget", 40, "--policy", "random"]
    asked += ["--maker", "random", "--out", tmp_path / "run", "--onnx"]
    said = rlab_command(*asked)
    assert said.code == 0, said.err
    assert "clean accuracy on test samples" in said.out
    there = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"hardened.safetensors", "hardened.onnx", "before-after.html", "log.json", "checkpoint.pt"} <= there
    model = rlab.demo_victim("digits")
    again = rlab.load_victim(str(tmp_path / "run" / "hardened.onnx"))
    assert isinstance(model, TorchVictim)
    assert again(rlab.load("demo:digits", limit=2).x).shape == (2, 10)


def test_the_command_refuses_what_cannot_be_trained(tmp_path: Path) -> None:
    toy = shortcut(2, n=32)
    found = harden(toy.victim, toy.batch, progress=quiet, **options(2, epochs=1))
    path = found.export_onnx(tmp_path / "model.onnx", (3, 8, 8))
    np.savez(tmp_path / "data.npz", x=toy.batch.x.numpy(), y=toy.batch.y.numpy())
    said = rlab_command("harden", path, tmp_path / "data.npz", "--out", tmp_path / "run")
    assert said.code == 2
    assert "OnnxVictim cannot be hardened: an ONNX file holds no training" in said.err
    assert said.err.count("\n") == 1
    assert not (tmp_path / "run").exists()
