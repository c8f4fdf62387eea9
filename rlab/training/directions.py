"""Train a direction prior, from a configuration file, with the gradients of models: a step along a direction must lower the margin.

Half the steps are free and of a given length; the others go through a palette, as an attack does: the most promising entries
of the most promising patches are applied, and the gradient reaches the directions through a soft version of that choice
(straight-through: Bengio et al. 2013, https://arxiv.org/abs/1308.3432).

Heads may specialise: the loss of a sample is that of its best head, plus a small share of all heads so that none is left behind
(multiple choice learning, Guzman-Rivera et al. 2012).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from rlab.core.grid import PatchGrid
from rlab.core.vectors import unit
from rlab.data.batch import Batch
from rlab.data.kinds import Kind, kind_of
from rlab.errors import ModelError
from rlab.filters.palette import unit_scale
from rlab.policies.belief import Belief
from rlab.priors.file import PRIOR as KIND
from rlab.priors.file import read_prior, shape_of
from rlab.priors.trained import DirectionPrior, TrainedPrior, projection
from rlab.storage.config import Options
from rlab.training import trainer
from rlab.training.episodes import EpisodeSampler
from rlab.training.loop import Learner, TrainingLoop, reseed
from rlab.training.trainer import PRIOR, Figures, Tell, TrainingOptions
from rlab.victims.base import Victim
from rlab.victims.torch_module import TorchVictim

_MODES: dict[Kind, str] = {"signal": "linear", "image": "bilinear", "video": "trilinear"}  # of interpolation


class PriorConfig(Options):
    """How to learn; lengths are L2 in the data's units of one."""

    batch: int = 128
    learning_rate: float = 1e-3
    lengths: tuple[float, float] = (0.4, 2.0)  # of a step at single points; times v ** 0.25 for patches of v points
    shared: float = 0.2  # weight of the mean over all heads, besides the best one
    mirror: bool = False  # reverse the last axis in half the batches
    zoom: float = 1.0  # the smallest share of each side that a random crop keeps before it is resized
    cuts: int = 8  # different crops in a batch
    through: float = 0.5  # share of the steps that go through a palette
    shares: tuple[float, float] = (0.01, 0.4)  # of the patches that such a step changes


class PriorLearner(Learner):
    """Trains a prior in place, on the samplers whose victims have gradients."""

    network: DirectionPrior

    def __init__(self, network: DirectionPrior, samplers: Sequence[EpisodeSampler], config: PriorConfig) -> None:
        self.network, self.config, self.steps = network, config, 0
        self.samplers = [sampler for sampler in samplers if isinstance(sampler.victim, TorchVictim)]
        if not self.samplers:
            raise ModelError("a prior needs a training model with gradients: add a torch module to the training models")
        self.optimizer = torch.optim.AdamW(network.parameters(), lr=config.learning_rate, weight_decay=1e-4)

    def begin(self, seed: int) -> None:
        reseed(self.samplers, seed)

    def update(self, progress: float) -> Figures:
        config = self.config
        for group in self.optimizer.param_groups:
            group["lr"] = config.learning_rate * min(1.0, self.steps / 100 + 0.01, 2 * (1 - progress) + 0.02)
        written = float(torch.rand(())) < config.through
        sampler, other = (self.samplers[int(torch.randint(len(self.samplers), ()))] for _ in range(2))
        if written:
            moved, y = _written(self.network, sampler, config)
        else:
            moved, y = _freely(self.network, sampler, other.task.grid, config)
        loss = _loss(sampler, moved, y, config.shared)
        self.descend(loss, 1.0)
        self.steps += 1
        return {"prior_loss": float(loss.detach())}

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"steps": self.steps}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        super().load_state_dict(saved)
        self.steps = saved["steps"]


def _freely(
    prior: DirectionPrior, sampler: EpisodeSampler, grid: PatchGrid, config: PriorConfig
) -> tuple[Tensor, Tensor]:
    """Inputs moved along each direction, (n, heads, c, *size), and their labels."""
    rows = torch.randint(len(sampler.x), (config.batch,), device=sampler.x.device)
    x, y = _varied(sampler.x[rows], config), sampler.y[rows]
    if config.zoom < 1:  # a crop may show another class than the whole: use the model's own prediction
        y = sampler.victim(x, "train").argmax(1)
    scale = unit_scale(x, sampler.bounds)[1]
    length = _lengths(config.batch, grid, config).to(x.device).view(-1, 1, *(1,) * (x.dim() - 1))
    steps = unit(grid.expand(grid.reduce(_directions(prior, x / scale))), 2) * length  # averaged over patches
    return (x[:, None] + steps * scale[:, None]).clamp(*sampler.bounds), y


def _written(prior: DirectionPrior, sampler: EpisodeSampler, config: PriorConfig) -> tuple[Tensor, Tensor]:
    """The same through a palette: a share of the patches changed to entries that lead along each direction."""
    state, grid = sampler.fresh(config.batch), sampler.task.grid
    x, change = state.x0, state.bank[:, 1:] - state.bank[:, :1]
    scale = state.scale.view(-1, *(1,) * (x.dim() - 1))
    unit_change = change / scale[:, None]
    cost = grid.collect(unit_change.square()).sqrt()[:, :, None]
    lead = projection(_directions(prior, x / scale), unit_change, grid)  # (n, f, k, p)
    merit = lead / (cost + 0.01 * cost.mean())
    low, high = config.shares
    share = low * (high / low) ** torch.rand(config.batch, device=x.device)
    weight = soft_choice(merit, share)
    moved = [x + (grid.spread(weight[:, :, k]) * change).sum(1) for k in range(weight.shape[2])]
    return torch.stack(moved, 1).clamp(*sampler.bounds), state.y


def soft_choice(merit: Tensor, share: Tensor) -> Tensor:
    """merit (n, f, k, p), share (n,) -> (n, f, k, p): 1 for the best entry of the best share of patches, else 0; its gradient
    is that of a softmax over entries times a sigmoid around the last patch taken."""
    p = merit.shape[3]
    best, entry = merit.max(1)
    last = ((share * p).round().long().clamp(1, p) - 1).view(-1, 1, 1).expand(-1, best.shape[1], 1)
    edge = best.detach().sort(2, descending=True).values.gather(2, last)
    spread = best.detach().std(2, keepdim=True, correction=0).clamp(min=1e-9)
    soft = (merit / spread[:, None]).softmax(1) * ((best - edge) / (0.3 * spread)).sigmoid()[:, None]
    hard = F.one_hot(entry, merit.shape[1]).movedim(-1, 1) * (best >= edge)[:, None]
    return hard + soft - soft.detach()


def _directions(prior: DirectionPrior, x: Tensor) -> Tensor:
    with torch.autocast(x.device.type, torch.bfloat16, enabled=x.device.type == "cuda"):
        return prior(x)


def _varied(x: Tensor, config: PriorConfig) -> Tensor:
    """Crop parts of the batch alike, and mirror all of it or nothing."""
    if config.zoom < 1:
        x = torch.cat([_cut(part, config.zoom) for part in x.chunk(config.cuts)])
    return x.flip(-1) if config.mirror and torch.rand(()) < 0.5 else x


def _cut(x: Tensor, zoom: float) -> Tensor:
    """The same random box of each input, resized to the input's size."""
    size = x.shape[2:]
    sides = [round(length * float(zoom + (1 - zoom) * torch.rand(()))) for length in size]
    starts = [int(torch.randint(length - side + 1, ())) for length, side in zip(size, sides, strict=True)]
    cut: Any = (..., *(slice(at, at + side) for at, side in zip(starts, sides, strict=True)))
    return F.interpolate(x[cut], size=size, mode=_MODES[kind_of(size)])


def _lengths(n: int, grid: PatchGrid, config: PriorConfig) -> Tensor:
    low, high = config.lengths
    points = float(torch.tensor(grid.patch).prod())
    return (low + (high - low) * torch.rand(n)) * points**0.25


def _loss(sampler: EpisodeSampler, moved: Tensor, y: Tensor, shared: float) -> Tensor:
    """moved (n, heads, c, *size) -> the best head's margin, softly bounded below, plus a share of all heads'."""
    assert isinstance(sampler.victim, TorchVictim)
    n, k = moved.shape[:2]
    scores = sampler.victim.scores_with_grad(moved.flatten(0, 1), "train")
    margin = sampler.task.goal.margin(scores, y.repeat_interleave(k)).view(n, k)
    left = F.softplus(margin + 1.0)
    return left.amin(1).mean() + shared * left.mean()


_STATE = "state"  # the step that holds where the training stands


class PriorOptions(TrainingOptions):
    """What to train a prior on and how long."""

    removed: ClassVar[Mapping[str, str]] = {"validation_interval": "use validations, which are spread evenly"}

    kind: Literal["prior"] = "prior"
    validations: int = Field(3, ge=1)
    heads: int = Field(2, ge=1)  # directions of the prior
    prior_width: int = Field(32, ge=8, multiple_of=8)  # channels are normalised in groups of eight
    prior_levels: int = Field(3, ge=1)
    shrink: int = Field(1, ge=1)  # factor by which the prior reduces the input's sides
    prior: PriorConfig = PriorConfig()


def train(
    victims: Sequence[Victim],
    batch: Batch,
    validation: Batch | None,
    options: PriorOptions,
    folder: Path,
    tell: Tell = lambda figures: None,
) -> Path:
    """Write FOLDER/prior.safetensors, or resume the training in FOLDER."""
    with trainer.open_folder(folder, options, victims, batch) as resume:
        torch.manual_seed(options.seed)
        batch, validation = trainer.hold_out(batch, validation, options)
        for victim in victims:
            victim.chunk = 8192
        samplers = trainer.samplers_for(options, victims, batch, options.patches, horizon=1)
        network = make_network(options, batch).to(options.device)
        learner, policy = PriorLearner(network, samplers, options.prior), Belief(prior=TrainedPrior(network))
        judge = partial(trainer.validate, policy, options.patches[0], victims, validation, options)
        return TrainingLoop(PRIOR, KIND, shape_of(network), options, learner, judge, resume, tell).run()


def make_network(options: PriorOptions, batch: Batch) -> DirectionPrior:
    """An untrained network, or the one in the file to start from."""
    shape = (options.prior_width, options.heads, options.prior_levels, options.shrink)
    network = DirectionPrior(batch.rank, batch.x.shape[1], *shape)
    if options.start is not None:
        try:
            network.load_state_dict(read_prior(Path(options.start))[0].network.state_dict())
        except RuntimeError as error:
            raise ModelError(f"the prior in {options.start} has other heads, prior_width or prior_levels") from error
    return network
