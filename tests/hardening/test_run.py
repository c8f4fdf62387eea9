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

from rlab.data.batch import Batch
from rlab.errors import DataError, FolderError, InputError, ModelError, OptionError
from rlab.hardening.run import Hardened, harden
from rlab.hardening.trainable import Epoch
from rlab.progress import quiet
from rlab.victims import OnnxVictim, TorchVictim, Victim
from rlab.victims.zoo import small_cnn
from tests.hardening.toys import Toy, accuracy, options, shortcut
from tests.helpers import RANKS, make_batch
from tests.victims.makers import ALL_VICTIMS, inputs, linear

QUICK: dict[str, Any] = {
    "rounds": 1,
    "epochs": 2,
    "adversary_budget": 4,
    "adversary": "random",
    "validation_attacked": 32,
}


def same(weights: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return weights.keys() == other.keys() and all(torch.equal(weights[k], other[k]) for k in weights)


@pytest.mark.parametrize(
    ("rank", "more"),
    [(r, {}) for r in RANKS] + [(2, {"mode": "rounds", "rounds": 2, "epochs": 3}), (2, {"adversary": "gradient"})],
)
def test_a_planted_shortcut_is_unlearned_and_accuracy_stays(rank: int, more: dict[str, Any]) -> None:
    toy = shortcut(rank, n=96)
    if more.get("adversary") == "gradient":
        more = more | {"radius_range": (0.05, 0.4)}
    assert accuracy(toy.victim, toy.test) == 1.0
    assert accuracy(toy.victim, toy.swapped()) == 0.0  # the shortcut alone decides
    hardened = harden(toy.victim, toy.batch, validation=toy.test, progress=quiet, **options(rank, **more))
    assert accuracy(hardened.victim, toy.test) >= 0.98
    assert accuracy(hardened.victim, toy.swapped()) >= 0.9
    assert hardened.best.robust > hardened.history[0].robust
    assert accuracy(toy.victim, toy.swapped()) == 0.0  # the original did not change


def test_an_unattacked_shortcut_stays() -> None:
    """Without harder samples, nothing is unlearned."""
    toy = shortcut(1, n=64)
    weak = options(1, palettes=[["illuminate+@0.001"]])
    hardened = harden(toy.victim, toy.batch, validation=toy.test, progress=quiet, **weak)
    assert accuracy(hardened.victim, toy.swapped()) <= 0.1


def test_every_row_that_reaches_the_model_is_counted() -> None:
    toy = shortcut(1, n=64)
    Toy.seen.clear()
    hardened = harden(toy.victim, toy.batch, progress=quiet, **options(1, **QUICK))
    assert sum(Toy.seen) == hardened.rows == hardened.history[-1].rows > 0
    assert sum(toy.victim.rows.values()) == 0  # only copies were queried


def test_the_same_seed_gives_the_same_weights_and_another_does_not() -> None:
    toy = shortcut(1, n=64)
    first, again, other = (
        harden(toy.victim, toy.batch, validation=toy.test, progress=quiet, **options(1, **QUICK, seed=seed))
        for seed in (3, 3, 4)
    )
    assert same(first.model.state_dict(), again.model.state_dict())
    assert not same(first.model.state_dict(), other.model.state_dict())


class Killed(Exception):
    pass


def killed_after(epoch: int) -> Any:
    def progress(part: Epoch) -> None:
        if part.number == epoch:
            raise Killed

    return progress


@pytest.mark.parametrize(("mode", "epoch"), [("live", 3), ("rounds", 1), ("rounds", 3)])
def test_a_killed_hardening_ends_like_an_uninterrupted_one(tmp_path: Path, mode: str, epoch: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 2))
    toy = shortcut(1, n=40)
    chosen = options(1, **(QUICK | {"rounds": 2, "epochs": 2, "mode": mode}), max_clean_drop=1.0)
    whole = harden(model, toy.batch, progress=quiet, **chosen)
    with pytest.raises(Killed):
        harden(model, toy.batch, progress=killed_after(epoch), out=tmp_path, **chosen)
    resumed = harden(model, toy.batch, progress=quiet, out=tmp_path, **chosen)
    assert same(whole.model.state_dict(), resumed.model.state_dict())
    assert [repr(epoch) for epoch in whole.history] == [repr(epoch) for epoch in resumed.history]
    assert torch.equal(whole.flipped, resumed.flipped)


def test_a_folder_of_another_hardening_is_refused(tmp_path: Path) -> None:
    toy = shortcut(1, n=32)
    harden(toy.victim, toy.batch, progress=quiet, out=tmp_path, **options(1, **QUICK))
    with pytest.raises(FolderError):
        harden(toy.victim, toy.batch, progress=quiet, out=tmp_path, **options(1, **QUICK, seed=1))


def test_a_custom_step_replaces_ours() -> None:
    toy = shortcut(1, n=64)
    called = []

    def step(model: nn.Module, x: Tensor, y: Tensor, optimizer: torch.optim.Optimizer) -> Tensor:
        called.append(len(x))
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    hardened = harden(toy.victim, toy.batch, validation=toy.test, progress=quiet, step=step, **options(1, epochs=8))
    assert sum(called) == 8 * (64 + 64)  # each sample, and a harder version of it
    assert accuracy(hardened.victim, toy.swapped()) > 0.5


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_nan_loss_stops_with_the_last_good_weights(tmp_path: Path, epoch: int) -> None:
    toy = shortcut(1, n=64)
    steps = 0

    def step(model: nn.Module, x: Tensor, y: Tensor, optimizer: torch.optim.Optimizer) -> Tensor:
        nonlocal steps
        steps += 1
        loss = F.cross_entropy(model(x), y) * (math.nan if steps > 2 * (epoch - 1) else 1.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    chosen = options(1, **(QUICK | {"epochs": 4}), max_clean_drop=1.0)
    hardened = harden(toy.victim, toy.batch, validation=toy.test, progress=quiet, step=step, out=tmp_path, **chosen)
    assert f"the loss became NaN in epoch {epoch}" in hardened.stopped
    assert "lower the learning rate" in hardened.stopped
    assert hardened.best.number < epoch
    assert all(torch.isfinite(value).all() for value in hardened.model.state_dict().values())
    assert len(hardened.history) == epoch  # no further epoch started
    saved = load_file(hardened.save(tmp_path) / "hardened.safetensors")
    assert same(saved, hardened.model.state_dict())
    again = harden(toy.victim, toy.batch, validation=toy.test, progress=quiet, out=tmp_path, **chosen)
    assert again.stopped == hardened.stopped


def test_training_stops_without_improvement() -> None:
    toy = shortcut(1, n=32)
    frozen = harden(
        toy.victim, toy.batch, progress=quiet, step=lambda model, x, y, optimizer: torch.tensor(1.0),
        **options(1, **(QUICK | {"rounds": 5}), patience=2),
    )  # fmt: skip
    assert len(frozen.history) <= 11
    worse = harden(
        toy.victim, toy.batch, validation=toy.test, progress=quiet,
        **options(1, **(QUICK | {"rounds": 5}), learning_rate=1e-9, patience=2),
    )  # fmt: skip
    assert len(worse.history) <= 11


def test_a_round_without_a_flip_stops_training() -> None:
    toy = shortcut(1, n=32)
    hardened = harden(
        toy.victim, toy.batch, progress=quiet, **options(1, mode="rounds", palettes=[["illuminate+@0.001"]])
    )
    assert "flipped no sample in round 1" in hardened.stopped
    assert same(hardened.model.state_dict(), toy.victim.model.state_dict())


def test_clean_accuracy_is_preserved_on_validation_data() -> None:
    """A step that ruins the model does not reach the weights that are kept."""
    toy = shortcut(1, n=64)

    def ruin(model: nn.Module, x: Tensor, y: Tensor, optimizer: torch.optim.Optimizer) -> Tensor:
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(-1.0)
        return torch.tensor(1.0)

    hardened = harden(
        toy.victim, toy.batch, validation=toy.test, progress=quiet, step=ruin, **options(1, **QUICK, ema_decay=0.0)
    )
    assert all(epoch.clean >= hardened.history[0].clean - 0.02 for epoch in hardened.history)


def test_a_model_that_forgets_in_the_first_epoch_is_rolled_back_with_the_reason(tmp_path: Path) -> None:
    toy = shortcut(1, n=64)

    def ruin(model: nn.Module, x: Tensor, y: Tensor, optimizer: torch.optim.Optimizer) -> Tensor:
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(-p.abs())
        return torch.tensor(1.0)

    chosen = options(1, **QUICK, ema_decay=0.0)
    hardened = harden(toy.victim, toy.batch, validation=toy.test, progress=quiet, step=ruin, out=tmp_path, **chosen)
    assert "in the first epoch" in hardened.stopped
    assert "lower the learning rate" in hardened.stopped
    assert len(hardened.history) == 1
    assert same(hardened.model.state_dict(), toy.victim.model.state_dict())
    again = harden(toy.victim, toy.batch, validation=toy.test, progress=quiet, step=ruin, out=tmp_path, **chosen)
    assert again.stopped == hardened.stopped


def test_batchnorm_keeps_its_statistics_when_frozen_and_moves_when_not() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.Flatten(), nn.Linear(88, 2))
    toy = shortcut(1, n=64)
    for norm, moves in (("frozen", False), ("train", True)):
        hardened = harden(
            model, toy.batch, progress=quiet, **options(1, **QUICK, batch_norm=norm, max_clean_drop=1.0, ema_decay=0.0)
        )
        assert hardened.best.number > 0
        mean = hardened.model.state_dict()["1.running_mean"]
        assert bool((mean != model.state_dict()["1.running_mean"]).any()) is moves


def test_multiple_labels() -> None:
    toy = shortcut(2, n=64)
    both = Batch(toy.batch.x, F.one_hot(toy.batch.y, 2))
    victim = TorchVictim(toy.victim.model, multilabel=True, outputs="logits")
    hardened = harden(victim, both, progress=quiet, **options(2, **QUICK))
    assert hardened.history[0].clean == 1.0
    assert math.isfinite(hardened.history[1].loss)


def test_the_weights_and_the_onnx_file_agree_with_the_model(tmp_path: Path) -> None:
    model = small_cnn(2, 3, 3, width=4)
    batch = make_batch(2, 40)
    batch = Batch(batch.x, torch.arange(40) % 3)
    victim = TorchVictim(model, mean=[0.4] * 3, std=[0.2] * 3, outputs="logits")
    hardened = harden(victim, batch, progress=quiet, **options(2, **QUICK, max_clean_drop=1.0))
    folder = hardened.save(tmp_path / "new")
    fresh = small_cnn(2, 3, 3, width=4)
    fresh.load_state_dict(load_file(folder / "hardened.safetensors"))
    expected = hardened.victim(batch.x)
    again = TorchVictim(fresh, mean=[0.4] * 3, std=[0.2] * 3, outputs="logits")(batch.x)
    torch.testing.assert_close(again, expected)
    path = hardened.export_onnx(tmp_path / "new.onnx", (3, 8, 8))
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
        harden(make(), batch, progress=quiet)


class Other(Victim):
    def _predict(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :2]


TOY = shortcut(1, n=32)


def joined(*parts: Batch) -> Batch:
    return Batch(torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts]))


REFUSED: list[tuple[dict[str, Any], type[InputError], str]] = [
    ({"model": Other()}, ModelError, "Other cannot be hardened: only torch modules"),
    (
        {"model": nn.Sequential(nn.Flatten(), nn.Linear(48, 2)).requires_grad_(False)},
        ModelError,
        "none of its parameters requires a gradient",
    ),
    ({"data": TOY.batch[:3]}, DataError, "enough samples to hold out 10%"),
    ({"validation": Batch(TOY.test.x, 1 - TOY.test.y)}, ModelError, "wrong on all 32 validation samples"),
    ({"validation": make_batch(2, 4)}, DataError, "validation data like the training data"),
    (
        {"validation": joined(TOY.test[:2], TOY.batch[4:5])},
        DataError,
        "1 of the 3 validation samples are also training samples",
    ),
    ({"validation": Batch(TOY.test.x, TOY.test.y * 5)}, InputError, "labels run from 0 to 5"),
    ({"adversarial_share": 0}, InputError, "'adversarial_share'"),
    ({"palettes": [["no_such_filter"]]}, InputError, "unknown filter"),
    ({"patches": [99]}, InputError, "larger than the input"),
    ({"adversary": "clever"}, InputError, "unknown policy"),
    ({"step": lambda *_: None}, OptionError, "to return the loss, got NoneType"),
]


@pytest.mark.parametrize(("wrong", "error", "sentence"), REFUSED, ids=[case[2] for case in REFUSED])
def test_invalid_input_is_refused(wrong: dict[str, Any], error: type[InputError], sentence: str) -> None:
    values: dict[str, Any] = {"model": TOY.victim, "data": TOY.batch} | options(1, **QUICK) | wrong
    with pytest.raises(error, match=sentence):
        harden(values.pop("model"), values.pop("data"), progress=quiet, **values)


def test_the_public_name_is_a_plain_function() -> None:
    import rlab.hardening

    assert rlab.harden is harden
    toy = shortcut(1, n=32)
    hardened = rlab.harden(toy.victim, toy.batch, progress=quiet, **options(1, **QUICK))
    assert isinstance(hardened, Hardened)
    assert "inputs were sent to the model" in str(hardened)
