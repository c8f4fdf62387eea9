"""Training a prior by models whose gradient is known: it learns to point there, and heads share out what differs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from rlab.core.env import Task
from rlab.core.goals import Untargeted
from rlab.core.grid import PatchGrid
from rlab.core.vectors import unit
from rlab.data.batch import UNBOUNDED
from rlab.errors import InputError
from rlab.priors.trained import DirectionPrior, projection
from rlab.training.directions import PriorConfig, PriorLearner, _lengths, _loss, _varied, soft_choice
from rlab.training.episodes import EpisodeSampler
from rlab.victims import CallableVictim, TorchVictim

SIDE = 24
LEFT, RIGHT = slice(4, 8), slice(15, 19)
FINE, COARSE = PatchGrid((SIDE,), (1,)), PatchGrid((SIDE,), (4,))


class Region(nn.Module):
    """Linear in the values of one region: class 0 while they are high. The gradient is known, and the same everywhere."""

    def __init__(self, region: slice, weight: float = 3.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((region.stop - region.start,), weight))
        self.region = region

    def forward(self, x: Tensor) -> Tensor:
        lead = ((x[:, 0, self.region] - 0.5) * self.weight).sum(1)
        return torch.stack([lead, torch.zeros_like(lead)], 1)

    def downhill(self) -> Tensor:
        """(1, SIDE) of unit length: where the margin falls fastest."""
        direction = torch.zeros(1, SIDE)
        direction[0, self.region] = -self.weight.detach()
        return direction / direction.norm()


def bumps(n: int, seed: int = 0) -> Tensor:
    """Noise with a high bump at LEFT and a spiky one at RIGHT, to be told apart by their shape: (n, 1, SIDE)."""
    x = 0.2 * torch.rand(n, 1, SIDE, generator=torch.Generator().manual_seed(seed))
    x[..., LEFT] += 0.7
    x[..., RIGHT] += torch.tensor([0.8, 0.5, 0.8, 0.5])
    return x


def sampler(module: nn.Module, grid: PatchGrid = FINE, n: int = 64) -> EpisodeSampler:
    task, palettes = Task(grid, 2, Untargeted(), 10), [["dead_pixel@1.0", "gaussian_noise@0.1..0.3"]]
    victim, y = TorchVictim(module, outputs="logits"), torch.zeros(n, dtype=torch.int64)
    return EpisodeSampler(victim, bumps(n), y, (0.0, 1.0), task, palettes, rng=random.Random(0))


def train_prior(
    prior: DirectionPrior, samplers: Sequence[EpisodeSampler], config: PriorConfig, updates: int
) -> list[float]:
    """The loss of each update."""
    learner = PriorLearner(prior.train(), samplers, config)
    losses = [learner.update(number / updates)["prior_loss"] for number in range(updates)]
    prior.eval()
    return losses


def made(heads: int, seed: int = 0) -> DirectionPrior:
    torch.manual_seed(seed)
    return DirectionPrior(1, 1, 8, heads, levels=1)


def cosines(prior: DirectionPrior, module: Region) -> Tensor:
    """(n, heads): of the directions for inputs it was not trained on."""
    with torch.no_grad():
        return (prior(bumps(16, seed=9)) * module.downhill()).flatten(2).sum(2)


CONFIG = PriorConfig(batch=16, learning_rate=1e-2, lengths=(0.2, 0.8), through=0.0)  # every step is free


@pytest.mark.parametrize("region", [LEFT, pytest.param(RIGHT, marks=pytest.mark.slow)], ids=["left", "right"])
def test_it_learns_to_point_where_the_model_is_weak(region: slice) -> None:
    prior, module = made(1), Region(region)
    before = cosines(prior, module).abs().mean()
    train_prior(prior, [sampler(module)], CONFIG, 80)
    after = cosines(prior, module)
    assert before < 0.5
    assert after.min() > 0.85
    assert not prior.training


def test_a_step_along_it_lowers_the_margin_more_than_one_by_chance() -> None:
    prior, module = made(1), Region(LEFT)
    train_prior(prior, [sampler(module), sampler(module, COARSE)], CONFIG, 60)
    x, victim = bumps(16, seed=9), TorchVictim(module, outputs="logits")
    with torch.no_grad():
        along = prior(x)[:, 0]
    chance = unit(torch.randn(16, 1, 1, SIDE), 2)[:, 0]
    label = torch.zeros(16, dtype=torch.int64)
    fell, fell_by_chance = (
        Untargeted().margin(victim(x), label) - Untargeted().margin(victim((x + 0.4 * way).clamp(0, 1)), label)
        for way in (along, chance)
    )
    assert fell.min() > 4 * fell_by_chance.abs().mean()


@pytest.mark.slow
def test_heads_specialise_where_models_differ() -> None:
    """Two models, two heads: one each. A single head can only stand between them, at a cosine of about 0.7."""
    modules = [Region(LEFT), Region(RIGHT)]
    samplers = [sampler(module) for module in modules]
    prior = made(2)
    train_prior(prior, samplers, CONFIG, 160)
    told = torch.stack([cosines(prior, module).mean(0) for module in modules])  # (models, heads)
    assert told.argmax(1).unique().numel() == 2
    assert told.amax(1).min() > 0.85
    alone = made(1)
    train_prior(alone, samplers, CONFIG, 80)
    single = torch.stack([cosines(alone, module).mean() for module in modules])
    assert single.min() < 0.8


def test_the_loss_falls() -> None:
    losses = train_prior(made(1), [sampler(Region(LEFT))], CONFIG, 20)
    assert sum(losses[-5:]) < sum(losses[:5])


def test_the_model_is_left_alone_and_its_rows_are_counted() -> None:
    module, prior = Region(LEFT), made(3)
    one = sampler(module)
    train_prior(prior, [one], CONFIG, 2)
    assert module.weight.grad is None
    assert module.weight.tolist() == [3.0] * 4
    assert one.victim.rows == {"train": 2 * 16 * 3}


def test_data_without_bounds_are_stepped_in_their_own_amplitude() -> None:
    """The same signals a thousand times as large, with a model made for them, teach the same."""
    directions = []
    for factor in (1.0, 1000.0):
        module = Region(LEFT)
        module.weight.data /= factor
        shifted = TorchVictim(_Centred(module), outputs="logits", bounds=(-1e9, 1e9))
        prior = made(1)
        one = replace(sampler(module), victim=shifted, x=(bumps(64) - 0.5) * factor, bounds=UNBOUNDED)
        train_prior(prior, [one], CONFIG, 5)
        with torch.no_grad():
            directions.append(prior(bumps(4)))
    assert torch.allclose(directions[0], directions[1], atol=1e-3)


class _Centred(nn.Module):
    """The region's model for values around zero."""

    def __init__(self, inner: Region) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        lead = (x[:, 0, self.inner.region] * self.inner.weight).sum(1)
        return torch.stack([lead, torch.zeros_like(lead)], 1)


def test_lengths_grow_with_the_points_of_a_patch() -> None:
    config = PriorConfig(lengths=(0.4, 2.0))
    for patch, factor in (((1, 1), 1.0), ((4, 4), 2.0)):
        drawn = _lengths(4000, PatchGrid((16, 16), patch), config)
        assert drawn.min().item() == pytest.approx(0.4 * factor, rel=0.02)
        assert drawn.max().item() == pytest.approx(2.0 * factor, rel=0.02)


def test_the_loss_is_that_of_the_best_head_and_a_share_of_all() -> None:
    one = sampler(Region(LEFT, weight=1.0))
    moved = torch.full((1, 2, 1, SIDE), 0.5)
    moved[0, 1, 0, LEFT] = 0.0  # the first head leaves the margin at 0, the second brings it to -2
    found = _loss(one, moved, torch.zeros(1, dtype=torch.int64), shared=0.2)
    first, second = (torch.nn.functional.softplus(torch.tensor(margin + 1.0)) for margin in (0.0, -2.0))
    assert found.item() == pytest.approx(float(second + 0.2 * (first + second) / 2), rel=1e-5)


@pytest.mark.parametrize("size", [(12,), (9, 12), (4, 6, 8)])
def test_batches_may_be_mirrored_and_zoomed(size: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = torch.rand(3, 2, *size)
    assert torch.equal(_varied(x, PriorConfig()), x)
    seen = {bool(torch.equal(_varied(x, PriorConfig(mirror=True)), x.flip(-1))) for _ in range(20)}
    assert seen == {True, False}
    zoomed = _varied(x, PriorConfig(zoom=0.5))
    assert zoomed.shape == x.shape
    assert x.min() <= zoomed.min()
    assert zoomed.max() <= x.max()
    flat = torch.full_like(x, 0.3)
    assert torch.allclose(_varied(flat, PriorConfig(zoom=0.5)), flat)


def test_a_choice_takes_the_best_entries_of_the_best_patches_and_lets_a_gradient_through() -> None:
    merit = torch.tensor([[[[0.1, 0.9, 0.2, 0.3]], [[0.5, 0.4, 0.1, 0.2]]]], requires_grad=True)  # 2 entries, 4 patches
    weight = soft_choice(merit, torch.tensor([0.5]))
    assert torch.allclose(weight.detach(), torch.tensor([[[[0.0, 1.0, 0.0, 0.0]], [[1.0, 0.0, 0.0, 0.0]]]]))
    weight[0, 0, 0, 3].backward()
    assert merit.grad is not None
    assert merit.grad[0, 0, 0, 3] > 0
    assert torch.equal(soft_choice(merit.detach(), torch.tensor([0.0])).sum(), torch.tensor(1.0))


@pytest.mark.parametrize("through", [pytest.param(0.5, marks=pytest.mark.slow), 1.0])
def test_through_a_palette_it_learns_which_patches_to_write(through: float) -> None:
    prior, module = made(1), Region(LEFT)
    config = PriorConfig(batch=16, learning_rate=1e-2, lengths=(0.2, 0.8), through=through, shares=(0.15, 0.2))
    train_prior(prior, [sampler(module, COARSE)], config, 80)
    x = bumps(16, seed=9)
    with torch.no_grad():
        lead = projection(prior(x), -x[:, None], COARSE)[:, 0, 0]  # of putting each patch to 0
    assert (lead.argmax(1) == LEFT.start // 4).float().mean() > 0.9


def test_only_models_with_gradients_take_part() -> None:
    plain = replace(sampler(Region(LEFT)), victim=CallableVictim(lambda x: x[:, 0, :2], outputs="logits"))
    with pytest.raises(InputError, match="add a torch module"):
        train_prior(made(1), [plain], CONFIG, 1)
    train_prior(made(1), [plain, sampler(Region(LEFT))], CONFIG, 2)
    assert not plain.victim.rows
