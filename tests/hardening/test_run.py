"""Hardening: a planted shortcut is unlearned, clean accuracy stays, and runs are reproducible and resumable."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

import rlab
from rlab.data.batch import Batch
from rlab.errors import DataError, FolderError, InputError, ModelError, OptionError
from rlab.hardening.adversaries import Adversaries, AdversaryGenerator
from rlab.hardening.run import harden
from rlab.hardening.trainable import Epoch
from rlab.victims import OnnxVictim, TorchVictim, Victim
from rlab.victims.zoo import small_cnn
from tests.hardening.toys import Toy, accuracy, hardened, shortcut
from tests.helpers import RANKS, make_batch
from tests.victims.makers import ALL_VICTIMS, inputs, linear

QUICK: dict[str, Any] = {"epochs": 2, "adversary_budget": 4, "validation_attacked": 32}


def same(weights: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return weights.keys() == other.keys() and all(torch.equal(weights[k], other[k]) for k in weights)


@pytest.mark.parametrize(
    ("rank", "more"),
    [
        *((rank, {}) for rank in RANKS),
        (2, {"adversary": "gradient", "radius_range": (0.05, 0.4)}),
    ],
)
def test_a_planted_shortcut_is_unlearned_and_accuracy_stays(rank: int, more: dict[str, Any]) -> None:
    toy = shortcut(rank, n=96)
    assert accuracy(toy.victim, toy.test) == 1.0
    assert accuracy(toy.victim, toy.swapped()) == 0.0  # the shortcut alone decides
    result = hardened(toy, rank, **more)
    assert accuracy(result.victim, toy.test) >= 0.98
    assert accuracy(result.victim, toy.swapped()) >= 0.9
    assert result.best.robust > result.history[0].robust
    assert accuracy(toy.victim, toy.swapped()) == 0.0  # the original did not change


def test_an_unattacked_shortcut_stays() -> None:
    """Without harder samples, nothing is unlearned."""
    toy = shortcut(1, n=64)
    assert accuracy(hardened(toy, palettes=[["illuminate+@0.001"]]).victim, toy.swapped()) <= 0.1


def test_every_row_that_reaches_the_model_is_counted() -> None:
    toy = shortcut(1, n=64)
    Toy.seen.clear()
    result = hardened(toy, **QUICK, validation=None)
    assert sum(Toy.seen) == result.rows == result.history[-1].rows > 0
    assert sum(toy.victim.rows.values()) == 0  # only copies were queried
    assert "inputs were sent to the model" in str(result)
    assert rlab.harden is harden


def test_the_same_seed_gives_the_same_weights_and_another_does_not() -> None:
    toy = shortcut(1, n=64)
    first, again, other = (hardened(toy, **QUICK, seed=seed).model.state_dict() for seed in (3, 3, 4))
    assert same(first, again)
    assert not same(first, other)


class Killed(Exception):
    pass


def killed_after(epoch: int) -> Any:
    def progress(part: Epoch) -> None:
        if part.number == epoch:
            raise Killed

    return progress


@pytest.mark.parametrize("epoch", [1, 3])
def test_a_killed_hardening_ends_like_an_uninterrupted_one(tmp_path: Path, epoch: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 2))
    toy = shortcut(1, n=40)
    chosen: dict[str, Any] = QUICK | {"model": model, "epochs": 4, "max_clean_drop": 1.0}
    chosen |= {"validation": None}
    whole = hardened(toy, **chosen)
    with pytest.raises(Killed):
        hardened(toy, **chosen, progress=killed_after(epoch), out=tmp_path)
    resumed = hardened(toy, **chosen, out=tmp_path)
    assert same(whole.model.state_dict(), resumed.model.state_dict())
    assert [repr(epoch) for epoch in whole.history] == [repr(epoch) for epoch in resumed.history]
    assert torch.equal(whole.flipped, resumed.flipped)
    with pytest.raises(FolderError):
        hardened(toy, **chosen, out=tmp_path, seed=1)  # another hardening


def test_a_custom_step_replaces_ours() -> None:
    toy = shortcut(1, n=64)
    called = []

    def step(model: nn.Module, x: Tensor, y: Tensor, optimizer: torch.optim.Optimizer) -> Tensor:
        called.append(len(x))
        return descend(model, x, y, optimizer)

    result = hardened(toy, step=step, epochs=8)
    assert len(called) == 8 * 2
    assert sum(called) == 8 * (64 + 64)  # each sample, and a harder version of it
    assert accuracy(result.victim, toy.swapped()) > 0.5


def descend(model: nn.Module, x: Tensor, y: Tensor, optimizer: torch.optim.Optimizer, factor: float = 1.0) -> Tensor:
    loss = F.cross_entropy(model(x), y) * factor
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_nan_loss_stops_with_the_last_good_weights(tmp_path: Path, epoch: int) -> None:
    toy = shortcut(1, n=64)
    steps = 0

    def step(model: nn.Module, x: Tensor, y: Tensor, optimizer: torch.optim.Optimizer) -> Tensor:
        nonlocal steps
        steps += 1
        return descend(model, x, y, optimizer, factor=math.nan if steps > 2 * (epoch - 1) else 1.0)

    chosen = QUICK | {"epochs": 4, "max_clean_drop": 1.0, "out": tmp_path}
    result = hardened(toy, step=step, **chosen)
    assert f"the loss became NaN in epoch {epoch}" in result.stopped
    assert result.best.number < epoch
    assert all(torch.isfinite(value).all() for value in result.model.state_dict().values())
    assert len(result.history) == epoch  # no further epoch started
    assert same(load_file(tmp_path / "hardened.safetensors"), result.model.state_dict())
    assert hardened(toy, step=step, **chosen).stopped == result.stopped


class Worsening(AdversaryGenerator):
    """Leaves samples as they are, and claims one more flip whenever it attacks a whole batch."""

    calls = 0

    def make(self, victim: TorchVictim, x: Tensor, y: Tensor, seed: int) -> Tensor:
        return x

    def over(self, victim: TorchVictim, batch: Batch, chunk: int, seed: int) -> Adversaries:
        self.calls += 1
        return Adversaries(batch.x, torch.arange(len(batch)) < self.calls)


def test_training_stops_without_improvement() -> None:
    result = hardened(shortcut(1, n=32), **QUICK | {"epochs": 10}, patience=2, adversary=Worsening())
    assert len(result.history) == 1 + 2
    assert "2 epochs did not improve on epoch 0" in result.stopped


def ruined(model: nn.Module, x: Tensor, y: Tensor, optimizer: torch.optim.Optimizer) -> Tensor:
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(-p.abs())
    return torch.tensor(1.0)


def negated(model: nn.Module, x: Tensor, y: Tensor, optimizer: torch.optim.Optimizer) -> Tensor:
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(-1.0)
    return torch.tensor(1.0)


def test_clean_accuracy_is_preserved_on_validation_data() -> None:
    """A step that ruins the model does not reach the weights that are kept."""
    result = hardened(shortcut(1, n=64), **QUICK, step=negated, ema_decay=0.0)
    assert all(epoch.clean >= result.history[0].clean - 0.02 for epoch in result.history)


def test_a_model_that_forgets_in_the_first_epoch_is_rolled_back_with_the_reason(tmp_path: Path) -> None:
    toy = shortcut(1, n=64)
    chosen = QUICK | {"ema_decay": 0.0, "step": ruined, "out": tmp_path}
    result = hardened(toy, **chosen)
    assert "in the first epoch" in result.stopped
    assert len(result.history) == 1
    assert same(result.model.state_dict(), toy.victim.model.state_dict())
    assert hardened(toy, **chosen).stopped == result.stopped


@pytest.mark.parametrize(("norm", "moves"), [("frozen", False), ("train", True)])
def test_batchnorm_keeps_its_statistics_when_frozen_and_moves_when_not(norm: str, moves: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.Flatten(), nn.Linear(88, 2))
    chosen: dict[str, Any] = {"batch_norm": norm, "max_clean_drop": 1.0, "ema_decay": 0.0, "validation": None}
    result = hardened(shortcut(1, n=64), **QUICK, **chosen, model=model)
    assert result.best.number > 0
    mean = result.model.state_dict()["1.running_mean"]
    assert bool((mean != model.state_dict()["1.running_mean"]).any()) is moves


def test_multiple_labels() -> None:
    toy = shortcut(2, n=64)
    both = Batch(toy.batch.x, F.one_hot(toy.batch.y, 2))
    victim = TorchVictim(toy.victim.model, multilabel=True, outputs="logits")
    result = hardened(toy, 2, **QUICK, model=victim, data=both, validation=None)
    assert result.history[0].clean == 1.0
    assert math.isfinite(result.history[1].loss)


def test_the_weights_and_the_onnx_file_agree_with_the_model(tmp_path: Path) -> None:
    def victim(model: nn.Module) -> TorchVictim:
        return TorchVictim(model, mean=[0.4] * 3, std=[0.2] * 3, outputs="logits")

    batch = Batch(make_batch(2, 40).x, torch.arange(40) % 3)
    given: dict[str, Any] = {"model": victim(small_cnn(2, 3, 3, width=4)), "data": batch, "validation": None}
    result = hardened(shortcut(2, n=2), 2, **QUICK, **given, max_clean_drop=1.0)
    fresh = small_cnn(2, 3, 3, width=4)
    fresh.load_state_dict(load_file(result.save(tmp_path / "new") / "hardened.safetensors"))
    expected = result.victim(batch.x)
    torch.testing.assert_close(victim(fresh)(batch.x), expected)
    path = result.export_onnx(tmp_path / "new.onnx", (3, 8, 8))
    torch.testing.assert_close(OnnxVictim(str(path), outputs="logits")(batch.x), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("onnx", "OnnxVictim cannot be hardened: an ONNX file"),
        ("http json", "HttpVictim cannot be hardened: a model behind an address"),
        ("sklearn", "SklearnVictim cannot be hardened: a scikit-learn model"),
        ("callable", "CallableVictim cannot be hardened: a function has no weights"),
    ],
)
def test_a_victim_that_cannot_be_trained_is_refused_by_name(kind: str, sentence: str) -> None:
    batch = Batch(inputs(2), torch.zeros(7, dtype=torch.int64))
    with ALL_VICTIMS[kind](linear(), 2) as make, pytest.raises(ModelError, match=sentence):
        harden(make(), batch)


class Other(Victim):
    def _predict(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :2]


TOY = shortcut(1, n=32)
SHARED = Batch(torch.cat([TOY.test.x[:2], TOY.batch.x[4:5]]), torch.cat([TOY.test.y[:2], TOY.batch.y[4:5]]))
FROZEN = nn.Sequential(nn.Flatten(), nn.Linear(48, 2)).requires_grad_(False)
REFUSED: list[tuple[dict[str, Any], type[InputError], str]] = [
    ({"model": Other()}, ModelError, "Other cannot be hardened: only torch modules"),
    ({"model": FROZEN}, ModelError, "none of its parameters requires a gradient"),
    ({"data": TOY.batch[:3], "validation": None}, DataError, "enough samples to hold out 10%"),
    ({"validation": Batch(TOY.test.x, 1 - TOY.test.y)}, ModelError, "wrong on all 32 validation samples"),
    ({"validation": make_batch(2, 4)}, DataError, "validation data like the training data"),
    ({"validation": SHARED}, DataError, "1 of the 3 validation samples are also training samples"),
    ({"validation": Batch(TOY.test.x, TOY.test.y * 5)}, InputError, "labels run from 0 to 5"),
    ({"adversarial_share": 0}, InputError, "'adversarial_share'"),
    ({"palettes": [["no_such_filter"]]}, InputError, "unknown filter"),
    ({"patches": [99]}, InputError, "larger than the input"),
    ({"adversary": "clever"}, InputError, "unknown policy"),
    ({"step": lambda *_: None}, OptionError, "to return the loss, got NoneType"),
]


@pytest.mark.parametrize(("wrong", "error", "sentence"), REFUSED, ids=[case[2] for case in REFUSED])
def test_invalid_input_is_refused(wrong: dict[str, Any], error: type[InputError], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        hardened(TOY, **QUICK, **wrong)
