"""`rlab harden`, and the pages of a hardening."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

import rlab
from rlab.errors import FolderError
from rlab.folders.reports import report_run
from rlab.hardening.before_after import spread_samples
from rlab.hardening.options import HardenOptions
from rlab.hardening.report import Hardened
from rlab.hardening.run import Splits, run_hardening
from rlab.present.page import write_page
from rlab.progress import quiet
from rlab.storage.config import check
from tests.command import rlab_command
from tests.hardening.toys import Toy, evaluation, hardened, measured_toy, options, shortcut

QUICK = {"evaluation": {"square_budget": 10, "pgd_steps": 2}}


def test_the_command_hardens_and_writes_a_page(tmp_path: Path) -> None:
    (tmp_path / "quick.yaml").write_text(yaml.safe_dump(QUICK))
    words = f"--config {tmp_path}/quick.yaml demo:digits demo:digits -D split=train --limit 60 --test demo:digits -T limit=1"
    words += " --epochs 1 --adversary-budget 4 --budget 40 --policy random --adversary random --onnx"
    result = rlab_command("harden", *words.split(), "--out", tmp_path / "run")
    assert result.code == 0, result.err
    assert "before" in result.out
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {
        "hardened.safetensors",
        "hardened.onnx",
        "report.html",
        "report.json",
        "results.csv",
        "before",
        "after",
    } <= names
    exported = rlab.load_victim(str(tmp_path / "run" / "hardened.onnx"))
    assert exported(rlab.load("demo:digits", limit=2).x).shape == (2, 10)


def test_every_row_of_training_and_measuring_is_told(tmp_path: Path) -> None:
    toy = shortcut(1, n=32)
    Toy.seen.clear()
    train = check(HardenOptions, options(1) | {"epochs": 1})
    run = run_hardening(toy.victim, Splits(toy.batch, toy.test[:6]), train, evaluation(1), tmp_path / "run", quiet)
    before, after = (run.measured[when].rows for when in ("before", "after"))
    assert sum(Toy.seen) == run.queries == run.rows + before + after
    parts = f"{run.rows:,} inputs were sent to the model to make samples, train and validate, "
    parts += f"{before:,} to measure it before, {after:,} to measure it after: {run.queries:,} in all"
    assert parts in str(run)
    assert parts in report_run(tmp_path / "run").read_text()
    numbers = {each.name: each.value for each in Hardened.load(tmp_path / "run").view(0, tmp_path / "run").numbers}
    assert numbers["inputs to make samples, train and validate"] == run.rows
    assert (numbers["inputs to measure before"], numbers["inputs to measure after"]) == (before, after)


def test_runs_with_two_methods_are_put_side_by_side(tmp_path: Path) -> None:
    declared = QUICK | {
        "model": "demo:digits", "data": {"path": "demo:digits", "split": "train", "limit": 40}, "policy": "random", "budget": 12,
        "test": {"path": "demo:digits", "limit": 2}, "harden": {"learning_rate": 0.01, "epochs": 1},
    }  # fmt: skip
    (tmp_path / "harden.yaml").write_text(yaml.safe_dump(declared))
    for method in ("fgsm@0.01", "augment"):
        words = ["--config", tmp_path / "harden.yaml", "--method", method, "--out", tmp_path / method]
        assert rlab_command("harden", *words).code == 0
    result = rlab_command("report", tmp_path / "fgsm@0.01", tmp_path / "augment", "--out", tmp_path / "both.html")
    assert result.code == 0, result.err
    assert "clean after" in (tmp_path / "both.html").read_text()


def test_what_is_refused_is_one_sentence_and_leaves_no_folder(tmp_path: Path) -> None:
    toy = shortcut(2, n=32)
    hardened(toy, 2, epochs=1).export_onnx(tmp_path / "model.onnx", (3, 8, 8))
    np.savez(tmp_path / "data.npz", x=toy.batch.x.numpy(), y=toy.batch.y.numpy())
    shared = ["demo:digits", "demo:digits", "--limit", 20, "--test", "demo:digits"]
    onnx = [tmp_path / "model.onnx", tmp_path / "data.npz"]
    for words, sentence in ((shared, "20 of the"), (onnx, "OnnxVictim cannot be hardened")):
        result = rlab_command("harden", *words, "--out", tmp_path / "run")
        assert result.code == 2
        assert sentence in result.err
        assert result.err.count("\n") == 1
        assert not (tmp_path / "run").exists()


def test_the_page_is_self_contained(tmp_path: Path) -> None:
    result = measured_toy(2)
    text = write_page(result.view(samples=1), tmp_path / "page.html").read_text()
    assert not re.search(r'(src|href)="(?!data:|#)', text)
    assert result.attacks is not None
    before, after = result.attacks["before"], result.attacks["after"]
    still = min(1, int(after.succeeded.sum()))  # remaining failures
    pairs = len(spread_samples(before, after, 1))
    assert text.count("data:image/png;base64,") == 4 * pairs + 2 * still  # original and change, twice
    assert text.count("<svg") >= 3  # the curves
    assert "Remaining failures" in text
    for word in ("clean accuracy", "L2 to flip", "attacked", "flips of the original", "held-out", "its ratio to"):
        assert word in text
    assert "agent" not in re.sub(r"<(script|style).*?</\1>", "", text, flags=re.S)


def test_the_page_of_a_folder_lists_its_epochs(tmp_path: Path) -> None:
    folder = hardened(shortcut(1, n=32), epochs=1).save(tmp_path / "saved")
    stored = Hardened.load(folder)
    assert math.isnan(stored.history[0].loss)  # the original was not trained
    table = stored.view(folder=folder).sections[0].blocks[-1]
    assert len(table.rows) == 2  # type: ignore[union-attr]
    with pytest.raises(FolderError, match=r"hardened\.safetensors"):
        _ = stored.model
