"""A simulator's file: the same students after reading, and one sentence for anything else."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save

from rlab.errors import InputError, ModelError
from rlab.learning.distil import distil
from rlab.learning.simulator import FILE, Simulator, read_simulator, with_students
from tests.learning.toys import CPU, answers_about, bright_batch, linear_victim, small_students


@cache
def simulator() -> Simulator:
    with small_students(steps=2):
        return distil(
            answers_about(linear_victim(), bright_batch(1, 40)), (0.0, 1.0), multilabel=False, seed=3, device=CPU
        )


def written(folder: Path, **change: Any) -> Path:
    """The file, with fields of its header or card changed."""
    content = simulator().content()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["rlab"])
    for name, value in change.items():
        (header if name in header else header["card"])[name] = value
    (folder / FILE).write_bytes(save(load(content), {"rlab": json.dumps(header)}))
    return folder / FILE


def test_a_file_holds_the_whole_simulator(tmp_path: Path) -> None:
    simulator().save(tmp_path / FILE)
    for path in (tmp_path, tmp_path / FILE):
        read = read_simulator(path)
        assert read.card == simulator().card
        assert read.digest == simulator().digest
    x = bright_batch(1, 5, seed=4).x
    assert torch.equal(read.mean_scores(x), simulator().mean_scores(x))
    card = read.card
    assert (card.shape, card.classes, card.clean, card.distorted, card.seed) == ((2, 24), 3, 40, 0, 3)


WRONG: dict[str, dict[str, Any]] = {
    "kind": {"kind": "prior"},
    "version": {"version": 99},
    "architecture": {"students": [{"architecture": "eval", "width": 8}] * 3},
    "a huge student": {"students": [{"architecture": "resnet", "width": 10**9}] * 3},
    "other students": {"students": [{"architecture": "resnet", "width": 8}] * 3},
    "no students": {"students": []},
    "too many students": {"students": [{"architecture": "resnet", "width": 8}] * 4},
    "shape": {"shape": [2]},
    "a huge shape": {"shape": [2, 10**12]},
    "classes": {"classes": 4},
    "agreement": {"agreement": 2.0},
    "agreements": {"agreements": [0.5]},
    "bounds": {"bounds": [1.0, 0.0]},
    "an unknown field": {"card": {}},
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_a_file_that_does_not_fit_together(change: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        read_simulator(written(tmp_path, **change))
    assert "\n" not in str(caught.value)


def test_weights_that_are_not_numbers(tmp_path: Path) -> None:
    tensors = load(simulator().content())
    broken = {name: value * float("nan") if value.is_floating_point() else value for name, value in tensors.items()}
    (tmp_path / FILE).write_bytes(save(broken, {"rlab": json.dumps({})}))
    with pytest.raises(ModelError, match="NaN"):
        read_simulator(tmp_path)


@pytest.mark.parametrize("content", [b"", b"nothing", None], ids=["empty", "text", "missing"])
def test_no_simulator(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / FILE).write_bytes(content)
    with pytest.raises(InputError):
        read_simulator(tmp_path)


def test_students_stand_behind_surrogates_and_must_fit_the_data() -> None:
    batch = bright_batch(1, 4)
    prior = with_students(None, simulator(), batch)
    both = with_students(prior, simulator(), batch)
    assert len(both.surrogates) == len(both.names) == 2 * len(simulator().students)
    with pytest.raises(ModelError, match="shape"):
        with_students(None, simulator(), bright_batch(2, 4))
    with pytest.raises(ModelError, match="values in"):
        with_students(None, simulator(), type(batch)(x=batch.x, y=batch.y, bounds=(0.0, 2.0)))
    with pytest.raises(ModelError, match="classes"):
        with_students(None, simulator(), type(batch)(x=batch.x, y=batch.y + 3))
