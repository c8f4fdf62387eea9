"""`rlab harden`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import yaml

import rlab
from rlab.hardening.run import harden
from rlab.progress import quiet
from tests.command import rlab_command
from tests.hardening.toys import options, shortcut

QUICK = {"evaluation": {"square_budget": 10, "pgd_steps": 2}}


def test_the_command_hardens_and_writes_a_page(tmp_path: Path) -> None:
    (tmp_path / "quick.yaml").write_text(yaml.safe_dump(QUICK))
    words = (
        f"harden --config {tmp_path}/quick.yaml demo:digits demo:digits -D split=train --limit 60 --test demo:digits"
    )
    words += (
        f" -T limit=1 --rounds 1 --epochs 1 --queries 4 --budget 40 --policy random --maker random --out {tmp_path}/run"
    )
    result = rlab_command(*words.split(), "--onnx")
    assert result.code == 0, result.err
    assert "accuracy on clean test samples" in result.out
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"hardened.safetensors", "hardened.onnx", "before-after.html", "log.json", "ledger.sqlite"} <= names
    exported = rlab.load_victim(str(tmp_path / "run" / "hardened.onnx"))
    assert exported(rlab.load("demo:digits", limit=2).x).shape == (2, 10)


def test_the_command_compares_the_methods_of_a_file(tmp_path: Path) -> None:
    declared = QUICK | {
        "model": "demo:digits", "data": {"path": "demo:digits", "split": "train", "limit": 40}, "policy": "random", "budget": 12,
        "test": {"path": "demo:digits", "limit": 2},
        "harden": {"learning_rate": 0.01, "adversary": "random", "adversary_budget": 3},
    }  # fmt: skip
    (tmp_path / "harden.yaml").write_text(yaml.safe_dump(declared))
    words = ["--compare", "--methods", "unchanged,fgsm@0.01", "--seeds", 1, "--rounds", 1, "--epochs", 1]
    result = rlab_command("harden", "--config", tmp_path / "harden.yaml", *words, "--out", tmp_path / "run")
    assert result.code == 0, result.err
    assert "fgsm@0.01" in result.out
    assert {"comparison.csv", "comparison.json", "fgsm-0.01-0"} <= {path.name for path in (tmp_path / "run").iterdir()}


def test_test_data_with_training_samples_are_refused(tmp_path: Path) -> None:
    result = rlab_command(
        "harden", "demo:digits", "demo:digits", "--limit", 20, "--test", "demo:digits", "--out", tmp_path / "r"
    )
    assert result.code == 2
    assert "20 of the" in result.err
    assert result.err.count("\n") == 1
    assert not (tmp_path / "r").exists()


def test_the_command_refuses_a_model_that_cannot_be_trained(tmp_path: Path) -> None:
    toy = shortcut(2, n=32)
    hardened = harden(toy.victim, toy.batch, progress=quiet, **options(2, epochs=1))
    path = hardened.export_onnx(tmp_path / "model.onnx", (3, 8, 8))
    np.savez(tmp_path / "data.npz", x=toy.batch.x.numpy(), y=toy.batch.y.numpy())
    result = rlab_command("harden", path, tmp_path / "data.npz", "--out", tmp_path / "run")
    assert result.code == 2
    assert "OnnxVictim cannot be hardened" in result.err
    assert result.err.count("\n") == 1
    assert not (tmp_path / "run").exists()
