"""Training from scratch: its recipe, weights drawn anew, and the augmentation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from rlab.data.batch import Batch
from rlab.errors import ModelError
from rlab.hardening.batches import jittered
from rlab.hardening.options import RECIPE, HardenOptions
from rlab.hardening.report import Hardened
from rlab.hardening.run import harden
from rlab.hardening.trainable import draw_weights
from rlab.progress import quiet
from rlab.runs.understood import say_nothing
from rlab.storage.config import check
from rlab.victims.zoo import small_cnn

RNG = torch.Generator().manual_seed(0)
SIDE = torch.rand(96, 1, 1, 8, generator=RNG)
Y = (torch.arange(96) % 2).long()
# class 0 is dark, class 1 is bright
DATA = Batch((0.2 + 0.5 * Y.view(-1, 1, 1, 1) + 0.1 * SIDE).expand(-1, 1, 8, 8).contiguous(), Y)


def trained(model: nn.Module, **more: Any) -> Hardened:
    values = {"from_scratch": True, "epochs": 3, "palettes": [["dead_pixel@0.5"]], "patches": [4], "training_batch": 16}
    return harden(model, DATA[:64], values | more, validation=DATA[64:], progress=quiet, announce=say_nothing)


@pytest.mark.slow
def test_the_weights_of_the_model_passed_do_not_matter():
    """Two networks of one shape give the same result, which learned the classes; neither changed."""
    first, second = (nn.Sequential(nn.Flatten(), nn.Linear(64, 2)) for _ in range(2))
    before = [p.clone() for p in first.parameters()]
    one, other = trained(first, epochs=12), trained(second, epochs=12)
    assert all(torch.equal(a, b) for a, b in zip(one.model.parameters(), other.model.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(before, first.parameters(), strict=True))
    assert one.best.clean > 0.9


@pytest.mark.parametrize(("adversary", "views"), [("gradient", 0), ("augmix", 1), ("augmix+gradient", 2)])
def test_sources_of_samples(adversary: str, views: int):
    run = trained(small_cnn(2, 1, 2), adversary=adversary, views=views, epochs=1, mirror=True)
    assert len(run.history) == 2
    assert (run.history[-1].flipped == 0) or views


def test_the_recipe_replaces_defaults_and_nothing_else():
    plain = check(HardenOptions, {})
    scratch = plain.updated({"from_scratch": True, "epochs": 7})
    assert scratch.epochs == 7
    assert scratch.learning_rate == RECIPE["learning_rate"] != plain.learning_rate
    assert {name for name in HardenOptions.model_fields if getattr(scratch, name) != getattr(plain, name)} <= {
        *RECIPE, "from_scratch",
    }  # fmt: skip


def test_a_layer_that_cannot_draw_its_weights_is_named():
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shift = nn.Parameter(torch.ones(1))

    with pytest.raises(ModelError, match="inner"):
        draw_weights(nn.ModuleDict({"inner": Own()}), 0)
    attention = nn.MultiheadAttention(4, 2)
    draw_weights(attention, 0)
    drawn = attention.in_proj_weight.clone()
    draw_weights(attention, 1)
    assert not torch.equal(drawn, attention.in_proj_weight)


@pytest.mark.parametrize("size", [(12,), (6, 8), (4, 6, 8)])
def test_jitter_moves_by_at_most_the_share_and_repeats_edges(size: tuple[int, ...]):
    """Values that encode their own place show where each came from."""
    places = torch.meshgrid(*(torch.arange(k) for k in size), indexing="ij")
    x = torch.stack(places).float()[None].repeat(16, 1, *(1,) * len(size))
    moved = jittered(x, 0.25, mirror=False, seed=3)
    for axis, length in enumerate(size):
        shifts = (moved[:, axis] - x[:, axis]).flatten(1)
        assert shifts.abs().max() <= round(0.25 * length)
        assert len(set(shifts.amax(1).tolist())) > 1
        assert moved[:, axis].min() >= 0
        assert moved[:, axis].max() <= length - 1
    assert torch.equal(jittered(x, 0.0, mirror=False, seed=3), x)
    flips = jittered(x, 0.0, mirror=True, seed=3)
    straight = (flips == x).flatten(1).all(1)
    assert 0 < int(straight.sum()) < 16
    assert torch.equal(flips[~straight], x[~straight].flip(-1))
