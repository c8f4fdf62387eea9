"""`rlab attack --keep` and what reads such folders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from rlab.data.load import load
from rlab.results.result import AttackResult
from tests.command import rlab_command
from tests.helpers import assert_same

ATTACK = ("--budget", 20, "--policy", "square", "--patch", 2, "--palette", "dead_pixel", "--pictures", 0)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keep") / "digits.npz"
    digits = load("demo:digits", limit=12, order="first")
    np.savez(path, x=digits.x.numpy(), y=digits.y.numpy())
    return path


def test_what_is_not_kept_is_shown_once_the_data_are_named(data: Path, tmp_path: Path) -> None:
    sizes, results = [], []
    for keep in ("everything", "flips", "assignments"):
        folder = tmp_path / keep
        more = ("-D", "stream=true") if keep == "assignments" else ()
        said = rlab_command("attack", "demo:digits", data, *ATTACK, "--keep", keep, "--out", folder, *more)
        assert said.code == 0, said.err
        sizes.append(sum(path.stat().st_size for path in folder.rglob("*.safetensors")))
        results.append(AttackResult.load(folder, load(data)))
        for command in ("show", "report"):
            bare, named = rlab_command(command, folder), rlab_command(command, folder, "--data", data)
            assert (bare.code, named.code) == (0, 0), bare.err + named.err
    assert results[0].succeeded.any()
    assert_same(results[1], results[0])
    assert_same(results[2], results[0])
    assert sizes[0] > sizes[1] > sizes[2]
    other = rlab_command("show", tmp_path / "assignments", "--pictures", 1, "--data", tmp_path / "none.npz")
    assert (other.code, other.err.count("\n")) == (2, 1)


def test_what_an_attack_keeps_and_accepts_are_two_options(data: Path, tmp_path: Path) -> None:
    more = ("--accept", "always", "--limit", 2, "--out", tmp_path / "a")
    said = rlab_command("attack", "demo:digits", data, *ATTACK, *more)
    assert said.code == 0, said.err
    assert "accept: always" in (tmp_path / "a" / "config.yaml").read_text()
    assert "keep: everything" in (tmp_path / "a" / "config.yaml").read_text()
    for wrong in ("nothing", "always"):
        assert rlab_command("attack", "demo:digits", data, "--keep", wrong, "--out", tmp_path / "b").code == 2
    assert not (tmp_path / "b").exists()
    assert torch.equal(AttackResult.load(tmp_path / "a").labels, load(data, limit=2).y)
