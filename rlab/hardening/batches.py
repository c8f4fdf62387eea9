"""Training batches: clean inputs and harder versions of them, with balanced classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from rlab.hardening.adversaries import AdversaryGenerator
from rlab.hardening.options import HardenOptions
from rlab.victims.torch_module import TorchVictim

_MOST = 4.0  # maximum ratio between the weight of a class and the median weight
_UNEVEN = 2.0  # ratio between the counts of two classes that counts as uneven


@dataclass(frozen=True)
class TrainingBatch:
    """Clean inputs, and harder versions of some of them."""

    x0: Tensor  # (b, c, *size)
    y: Tensor  # (b,) or (b, k)
    rows: Tensor  # (m,) inputs that have a harder version
    views: tuple[Tensor, ...]  # versions, each (m, c, *size)
    flipped: Tensor | None = None  # (m,) where the model errs on the first version, if known


def make_batch(
    x0: Tensor,
    y: Tensor,
    weights: Tensor,
    options: HardenOptions,
    attack: AdversaryGenerator,
    victim: TorchVictim,
    seed: int,
) -> TrainingBatch:
    """Harder versions of a share of x0; `weights` (k,) is the relative frequency of each class among these."""
    count, rng = max(1, round(options.adversarial_share * len(x0))), Generator().manual_seed(seed)
    x0 = x0 if options.augment is None else options.augment(x0)
    if options.shift or options.mirror:
        x0 = jittered(x0, options.shift, options.mirror, seed)
    drawn = draw(row_weights(y.cpu(), weights), count, rng) if count < len(x0) else torch.arange(len(x0))
    rows = drawn.to(x0.device)
    if options.step is not None:  # it does not show which samples fool the model
        adversaries = attack(victim, x0[rows], y[rows], seed)
        return TrainingBatch(x0, y, rows, (adversaries.x,), adversaries.flipped)
    views = tuple(attack.make(victim, x0[rows], y[rows], seed + view) for view in range(options.views))
    return TrainingBatch(x0, y, rows, views)


def jittered(x: Tensor, shift: float, mirror: bool, seed: int) -> Tensor:
    """Move each sample of x (n, c, *size) by up to `shift` of its length along every axis, repeating its edges, and mirror half of
    them along the last axis."""
    rng = Generator(x.device).manual_seed(seed)
    for axis in range(2, x.dim()):
        size = x.shape[axis]
        most = round(shift * size)
        at = torch.arange(size, device=x.device).repeat(len(x), 1)
        if mirror and axis == x.dim() - 1:
            flipped = torch.rand(len(x), 1, generator=rng, device=x.device) < 0.5
            at = torch.where(flipped, at.flip(1), at)
        at = (at + torch.randint(-most, most + 1, (len(x), 1), generator=rng, device=x.device)).clamp(0, size - 1)
        x = x.gather(axis, at.view(len(x), *(size if a == axis else 1 for a in range(1, x.dim()))).expand_as(x))
    return x


def class_counts(y: Tensor, classes: int) -> Tensor:
    """(k,): samples of each class; a sample with several labels counts for each."""
    return (y.sum(0) if y.dim() > 1 else torch.bincount(y, minlength=classes)).cpu().float()


def class_weights(counts: Tensor) -> Tensor:
    """(k,): weights that draw classes which seldom flip as often as the others."""
    if not counts.sum():
        return torch.ones_like(counts)
    usual = counts[counts > 0].median()
    return (usual / counts.clamp(min=1)).clamp(1 / _MOST, _MOST)


def row_weights(y: Tensor, weights: Tensor) -> Tensor:
    """(n,): the weight of each sample's label, or of the rarest of several labels."""
    weights = weights.to(y.device)
    if y.dim() > 1:
        return torch.where(y > 0, weights, 0.0).amax(1).clamp(min=float(weights.min()))
    return weights[y]


def draw(weights: Tensor, count: int, rng: Generator) -> Tensor:
    """Draw `count` different rows by weights (n,), or all if there are fewer."""
    return torch.multinomial(weights.cpu().double(), min(count, len(weights)), replacement=False, generator=rng)


def imbalance(counts: Tensor, names: Sequence[str]) -> str:
    """A sentence if the classes of the flipped samples are uneven, otherwise an empty string."""
    if not counts.sum():
        return ""
    most, least = int(counts.argmax()), int(counts.argmin())
    if counts[most] < _UNEVEN * counts[least].clamp(min=1):
        return ""
    ends = [f"{int(counts[i])} of class {names[i] if i < len(names) else i}" for i in (most, least)]
    return f"the flipped samples are unevenly distributed over the classes, from {ends[0]} down to {ends[1]}"
