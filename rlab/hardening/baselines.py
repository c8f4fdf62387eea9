"""Published methods of hardening: random distortions, AugMix, gradient steps within a ball (FGSM, PGD), and TRADES."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from rlab.core import defaults
from rlab.core.goals import Goal
from rlab.data.batch import Batch, Kind
from rlab.data.kinds import kind_of
from rlab.errors import OptionError
from rlab.filters.palette import unit_scale
from rlab.hardening.adversaries import Adversaries, AdversaryGenerator, Bounds, PerturbationSpace, mixed, random_weights
from rlab.victims.torch_module import TorchVictim

Norm = Literal["l2", "linf"]
RADII: dict[Kind, float] = {"signal": 0.02, "image": 2 / 255, "video": 2 / 255}
OURS = "ours"
_BALL = re.compile(r"(?P<name>fgsm|pgd)(_(?P<norm>l2|linf))?(@(?P<radius>[.0-9e-]+))?$")
_PGD_STEPS = 5  # during training
_ALONE = {"distorted_weight": 0.0}  # consistency without cross-entropy on harder samples
_PLAIN = {"views": 1, "distorted_weight": 1.0, "consistency_weight": 0.0}
# The options of each method by name. All share data, epochs, optimizer and the limit on clean accuracy.
METHODS: Mapping[str, Mapping[str, Any]] = {
    OURS: {},
    "belief": {"adversary": defaults.POLICY},
    "standard": {"views": 0},
    "augment": {**_PLAIN, "adversary": "augment"},
    "augmix": {**_ALONE, "views": 2, "consistency": "jsd", "consistency_weight": 12.0, "adversary": "augmix"},
    "trades": {**_ALONE, "views": 1, "consistency": "kl", "consistency_weight": 6.0, "adversary": "trades"},
}
_ZERO = torch.zeros(())


@dataclass(frozen=True)
class AugmentationGenerator(AdversaryGenerator):
    """Random mixtures of palette entries on random regions, independent of the model."""

    space: PerturbationSpace

    def make(self, victim: TorchVictim, x: Tensor, y: Tensor, seed: int) -> Tensor:
        grid, bank = self.space.draw(x, seed)
        change = bank[:, 1:] - x[:, None]
        shape = (len(x), change.shape[1], len(grid))
        return mixed(x, change, random_weights(shape, grid, seed, x.device), grid)


@dataclass(frozen=True)
class AugMix(AdversaryGenerator):
    """Chains of mild operations, mixed with each other and with the input (https://arxiv.org/abs/1912.02781).

    Images use the paper's nine operations, and all frames of a clip the same ones. Signals use shift, stretch, gain and
    coarser amplitude steps.
    """

    bounds: Bounds
    severity: float = 3.0  # out of 10
    width: int = 3

    def make(self, victim: TorchVictim, x: Tensor, y: Tensor, seed: int) -> Tensor:
        rng = torch.Generator(x.device).manual_seed(seed)

        def rand(*size: int) -> Tensor:
            return torch.rand(size, generator=rng, device=x.device)

        shift, scale = unit_scale(x, self.bounds)
        unit, signal = (x - shift) / scale, kind_of(x.shape[2:]) == "signal"
        picture = unit.reshape(len(x), -1, *((1, unit.shape[-1]) if signal else unit.shape[-2:]))
        share = rand(self.width, len(x)).log().neg()
        share = share / share.sum(0)  # Dirichlet(1)
        blend = torch.zeros_like(picture)
        for each in share:
            chain, depth = picture, 1 + (3 * rand(len(x))).long()
            for level in range(3):
                chain = torch.where(_rows(level < depth), self._operation(chain, rand, signal), chain)
            blend = blend + chain * _rows(each)
        skip = _rows(rand(len(x)))
        return (((1 - skip) * picture + skip * blend).reshape(unit.shape) * scale + shift).clamp(*self.bounds)

    def _operation(self, x: Tensor, rand: Callable[..., Tensor], signal: bool) -> Tensor:
        """Apply a random operation to each row of x (n, c, h, w)."""
        level = (0.1 + (self.severity - 0.1) * rand(len(x))) / 10
        signed = torch.where(rand(len(x)) < 0.5, -1.0, 1.0) * level
        kind = ((4 if signal else 9) * rand(len(x))).long()

        def only(number: int, values: Tensor) -> Tensor:
            return torch.where(kind == number, values, 0.0)

        if signal:
            out = moved(x, only(0, signed / 1.5), stretch=only(1, signed * 0.3))
            changed = {2: x * _rows(1 + 0.5 * signed), 3: coarser(x, _rows(4 - level * 4))}
        else:
            across, along = (only(number, signed * 2 / 3) for number in (0, 1))
            tilt_x, tilt_y = (only(number, signed * 0.3) for number in (2, 3))
            out = moved(x, across, along, tilt_x, tilt_y, only(4, signed * math.pi / 6))
            changed = {5: stretched(x), 6: equalised(x), 7: coarser(x, _rows(4 - (level * 4).floor()))}
            changed[8] = torch.where(x < _rows(1 - level), x, 1 - x)
        for number, new in changed.items():
            out = torch.where(_rows(kind == number), new, out)
        return out


@dataclass(frozen=True)
class InTurn(AdversaryGenerator):
    """The views of a sample by one generator after the other; whole batches are attacked by the first."""

    generators: tuple[AdversaryGenerator, ...]

    def make(self, victim: TorchVictim, x: Tensor, y: Tensor, seed: int) -> Tensor:
        return self.generators[seed % len(self.generators)].make(victim, x, y, seed)

    def over(self, victim: TorchVictim, batch: Batch, chunk: int, seed: int) -> Adversaries:
        return self.generators[0].over(victim, batch, chunk, seed)


def _rows(values: Tensor) -> Tensor:
    return values.view(-1, 1, 1, 1)


def moved(
    x: Tensor,
    across: Tensor,
    along: Tensor = _ZERO,
    tilt_x: Tensor = _ZERO,
    tilt_y: Tensor = _ZERO,
    turn: Tensor = _ZERO,
    stretch: Tensor = _ZERO,
) -> Tensor:
    """Shift, tilt, turn and stretch the rows of x (n, c, h, w) by values (n,); fill with 0."""
    theta = torch.zeros(len(x), 2, 3, device=x.device)
    theta[:, 0, 0], theta[:, 0, 1] = turn.cos() * (1 + stretch), tilt_x - turn.sin()
    theta[:, 1, 0], theta[:, 1, 1] = turn.sin() + tilt_y, turn.cos()
    theta[:, 0, 2], theta[:, 1, 2] = across, along
    grid = F.affine_grid(theta, list(x.shape), align_corners=False).to(x)
    return F.grid_sample(x, grid, align_corners=False)


def stretched(x: Tensor) -> Tensor:
    """Autocontrast: stretch every channel to [0, 1]."""
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    return torch.where(high > low, (x - low) / (high - low).clamp(min=1e-6), x)


def equalised(x: Tensor) -> Tensor:
    """Histogram equalisation of every channel in 256 steps."""
    flat = (x.clamp(0, 1) * 255).round().long().flatten(2)
    counts = torch.zeros(*flat.shape[:2], 256, device=x.device)
    counts = counts.scatter_add_(2, flat, torch.ones_like(flat, dtype=torch.float32))
    below = counts.cumsum(2) - counts
    return (below.gather(2, flat) / (flat.shape[2] - 1)).clamp(0, 1).view_as(x)


def coarser(x: Tensor, bits: Tensor) -> Tensor:
    """Round down to 2**bits levels."""
    steps = 2.0**bits
    return (x * steps).floor() / steps


@dataclass(frozen=True)
class ProjectedGradient(AdversaryGenerator):
    """Gradient steps within a ball (Goodfellow 2015, Madry 2018, https://arxiv.org/abs/1706.06083).

    `radius` is relative to the data's range, or to a sample's amplitude if the data have no bounds. One step of the whole
    radius without a random start is FGSM; several steps with a random start are PGD.
    """

    bounds: Bounds
    goal: Goal
    radius: float
    norm: Norm = "linf"
    steps: int = 1
    step_size: float | None = None  # default: the radius for one step, a quarter of it for several
    random_start: bool = False

    def __post_init__(self) -> None:
        if not self.radius > 0 or self.steps < 1 or self.norm not in ("l2", "linf"):
            options = f"radius {self.radius}, {self.steps} steps and norm {self.norm!r}"
            raise OptionError(f"expected a radius above 0, at least one step and norm l2 or linf, got {options}")

    def make(self, victim: TorchVictim, x: Tensor, y: Tensor, seed: int) -> Tensor:
        scale = unit_scale(x, self.bounds)[1]
        step_size = self.step_size or (self.radius if self.steps == 1 else self.radius / 4)
        delta = self._start(x, seed)
        for _ in range(self.steps):
            perturbed = (x + delta * scale).clamp(*self.bounds)
            gradient = victim.input_gradient(perturbed, lambda scores: _loss(scores, y, self.goal), "train") * scale
            delta = delta + step_size * self._steepest(gradient)
            delta = delta.clamp(-self.radius, self.radius) if self.norm == "linf" else delta.renorm(2, 0, self.radius)
            delta = ((x + delta * scale).clamp(*self.bounds) - x) / scale
        return (x + delta * scale).clamp(*self.bounds)

    def _start(self, x: Tensor, seed: int) -> Tensor:
        if not self.random_start:
            return torch.zeros_like(x)
        rng = torch.Generator(x.device).manual_seed(seed)
        if self.norm == "linf":
            return self.radius * (2 * torch.rand(x.shape, generator=rng, device=x.device) - 1)
        direction = self._steepest(torch.randn(x.shape, generator=rng, device=x.device))
        length = torch.rand((len(x), *(1,) * (x.dim() - 1)), generator=rng, device=x.device)
        return direction * self.radius * length

    def _steepest(self, gradient: Tensor) -> Tensor:
        along = F.normalize(gradient.flatten(1), dim=1).view_as(gradient)
        return gradient.sign() if self.norm == "linf" else along


def _loss(scores: Tensor, y: Tensor, goal: Goal) -> Tensor:
    """(n,): cross-entropy for single labels, the negative margin for multiple labels."""
    if goal.multilabel:
        return -goal.margin(scores, y)
    return -scores.gather(1, y[:, None]).squeeze(1)


def method_values(name: object) -> Mapping[str, Any]:
    """The options of a method by its name in METHODS, or fgsm or pgd, with norm and radius as in 'pgd_l2@0.5'."""
    if name in METHODS:
        return METHODS[str(name)]
    if _BALL.match(str(name)) is None:
        known = ", ".join((*METHODS, "fgsm", "pgd"))
        raise OptionError(f"unknown method {name!r}: expected {known}, or a radius as in pgd_l2@0.5")
    return {**_PLAIN, "adversary": name}


def baseline(adversary: str, space: PerturbationSpace, kind: Kind) -> AdversaryGenerator | None:
    """The generator of a published method that needs only a name: augment, or fgsm and pgd with an optional norm and radius."""
    if adversary == "augment":
        return AugmentationGenerator(space)
    match = _BALL.match(adversary)
    if match is None:
        return None
    norm: Norm = "l2" if match["norm"] == "l2" else "linf"
    radius = float(match["radius"]) if match["radius"] else 2 * RADII[kind]
    once = match["name"] == "fgsm"
    return ProjectedGradient(space.bounds, space.goal, radius, norm, 1 if once else _PGD_STEPS, random_start=not once)
