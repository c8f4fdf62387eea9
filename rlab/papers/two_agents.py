"""Two cooperating agents for video, after Robustness Evaluation for Video Models with Reinforcement Learning,
https://arxiv.org/abs/2506.05431. Read from top to bottom: options, what the agents see, networks, PPO, policy, training.

From the paper: a temporal agent (an LSTM over the features of frames) keeps or drops each frame; a spatial agent (with an LSTM too)
chooses a coarse cell of each kept frame (L1), then a fine patch in it (L2), and distorts it by blur, dead pixels or noise. Both
learn by PPO from the drop of the true class's confidence. The temporal agent also pays for frames beyond a limit L and for frames
that do not represent the clip; the spatial agent earns objectness and motion. An attack lasts until the clip is misclassified or
its queries are spent; then distortions are removed again, from the least sensitive regions first.

Our choices, where the summary of the paper that we worked from says nothing or a part is not available:
- Frame features come from a small CNN, trained with the agents on frames of two cells along each side of a patch. The paper uses
  MobileNet-V2; `encoder: lite0` adds features of a pretrained EfficientNet-Lite0.
- The agents also see the attack so far: distorted patches, tries, and how much the last try lowered the margin.
- L1 has about as many cells along a side as a cell has patches: 3 x 3 for 9 x 12 patches. An L2 patch is a patch of the attack
  (5, 8 or 13 pixels in the paper). A distorted patch may get another filter; only the removal restores it.
- Regions stay consistent by a further choice on each kept frame: stay with the region and filter of the kept frame before, or
  choose new ones. Independent draws on 16 frames would scatter. The filter is the spatial agent's last choice.
- Confidence is the margin, log p(true) - log p(best other), in units of the clip's first margin, as a sure model's probability
  hardly moves before the flip (`confidence: probability` counts that instead). A flip earns `success` more, and a unit of added MAP
  (mean absolute change, of 255) costs `distortion`; the summary names neither.
- A step that does not lower the margin is undone unless the attack has `accept=always`; its drop still counts as reward.
- Representing a clip, objectness and motion are measured as in `rlab.papers.saliency`. L, weights and PPO's settings are the
  defaults of `TwoAgentsConfig`; L is half of the frames.
- Removal goes by the search's feedback: L1 cells over all frames first, then over fewer, then single patches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from rlab.core.batched import Rows
from rlab.core.distances import mean_absolute
from rlab.core.env import Accept, AttackEnv, Proposal, State, StepOutcome, Task, propose
from rlab.core.feedback import Feedback
from rlab.core.rng import uniform
from rlab.data.batch import Batch
from rlab.errors import DataError, OptionError
from rlab.papers import common, saliency
from rlab.papers.scene import PATCH_MAPS, SCALARS, Clip, Encoder, Scene, look, see
from rlab.policies.base import Policy
from rlab.priors.file import read_network
from rlab.storage.config import check, check_options
from rlab.training.episodes import EpisodeSampler
from rlab.training.loop import Learner, TrainingLoop, reseed
from rlab.training.trainer import AGENT, Figures, Patch, Tell, hold_out, open_folder, samplers_for, validate
from rlab.victims.base import Victim

KIND = "two_agents"  # in configurations and in the header of files
FORBIDDEN = -1e9  # logit of an option that is not open; finite, so that no gradient becomes NaN


class TwoAgentsShape(common.NetworkShape):
    """The shape of the two networks, stored in their file."""

    encoder: Encoder = "small"
    temporal: bool = True  # without it the spatial agent is alone, on every frame
    levels: int = Field(2, ge=1, le=2)  # 1 distorts whole L1 cells


class TwoAgentsConfig(common.PaperOptions):
    """The training of the two agents. A patch given as one number is a square on a single frame."""

    kind: Literal["two_agents"] = "two_agents"
    patches: tuple[Patch, ...] = Field(min_length=1, max_length=1)
    network: TwoAgentsShape = TwoAgentsShape()
    entries: int = Field(3, ge=1)
    validation_samples: int = Field(32, ge=1)
    budget: int = Field(300, ge=3)
    confidence: Literal["margin", "probability"] = "margin"
    success: float = Field(0.5, ge=0)
    distortion: float = Field(0.05, ge=0)  # cost of one unit of MAP
    limit: float = Field(0.5, ge=0, le=1)  # L, as a share of the frames
    sparsity: float = Field(0.1, ge=0)  # weight of frames beyond L
    representative: float = Field(0.02, ge=0)
    objectness: float = Field(0.02, ge=0)
    motion: float = Field(0.02, ge=0)
    saliency: str | None = None  # file to keep objectness and motion in
    rollout: int = Field(8, ge=1)  # steps between updates
    epochs: int = Field(4, ge=1)
    minibatches: int = Field(8, ge=1)  # of a pass over a rollout
    smoothing: float = Field(0.9, ge=0, le=1)  # GAE's lambda
    clip: float = Field(0.2, gt=0)
    entropy: float = Field(0.005, ge=0)


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


def head(inputs: int, outputs: int, bias: float = 0.0) -> nn.Linear:
    """Small weights: an untrained agent chooses nearly at random."""
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, 0.01 if outputs == 1 else 1.0)
    nn.init.constant_(layer.bias, bias)
    return layer


class FrameReader(nn.Module):
    """A CNN over each frame's patches, an LSTM from frame to frame, and a critic."""

    def __init__(self, config: TwoAgentsShape) -> None:
        super().__init__()
        w, more = config.width, saliency.LITE0_DEPTH if config.encoder == "lite0" else 0
        first, second = nn.Conv2d(PATCH_MAPS, w, 3, padding=1), nn.Conv2d(w, w, 3, padding=1)
        self.cnn = nn.Sequential(first, nn.SiLU(), second, nn.SiLU())
        self.lstm = nn.LSTM(2 * w + SCALARS + more, w, batch_first=True)
        self.critic = nn.Sequential(nn.Linear(w, w), nn.SiLU(), nn.Linear(w, 1))
        self.pretrained = bool(more)

    def forward(self, view: Scene) -> tuple[Tensor, Tensor, Tensor]:
        """Patches (n, t, q, w), frames as read (n, t, w), value (n,)."""
        n, t, _, rows, columns = (pixels := view.clip.pixels).shape
        attack = [view.gain.amax(1), view.gain.mean(1), view.tried.mean(1), view.clip.strength.mean(1), view.held == 0]
        maps = torch.stack([m.to(pixels.dtype) for m in attack], 2).unflatten(3, (rows, columns))
        patches = self.cnn(torch.cat([pixels, maps], 2).flatten(0, 1)).flatten(2).transpose(1, 2).unflatten(0, (n, t))
        frames = [patches.mean(2), patches.amax(2), view.scalars[:, None].expand(n, t, SCALARS)]
        read, _ = self.lstm(torch.cat([*frames, view.clip.frames] if self.pretrained else frames, 2))
        return patches, read, self.critic(read.mean(1)).squeeze(1)


class SpatialAgent(nn.Module):
    def __init__(self, config: TwoAgentsShape) -> None:
        super().__init__()
        w, self.reader = config.width, FrameReader(config)
        self.stay = head(w, 1, bias=2.0)
        self.want = nn.ModuleList([head(w, w), head(w, w)])  # L1, L2: what to look for, given the frames so far
        self.like = nn.ModuleList([head(w, 1), head(w, 1)])
        self.filter = nn.Sequential(nn.Linear(2 * w + 4, w), nn.SiLU(), head(w, 1))

    def where(self, level: int, places: Tensor, read: Tensor, free: Tensor) -> Tensor:
        """Logits (n, t, m) of places (n, t, m, w)."""
        match = (places @ self.want[level](read)[..., None]).squeeze(3) / places.shape[3] ** 0.5
        return self.like[level](places).squeeze(3) + match + FORBIDDEN * ~free

    def which(self, view: Scene, patches: Tensor, read: Tensor, region: Tensor) -> Tensor:
        """Logits (n, t, f) of the filters on the region (n, t, q)."""
        even = region / region.sum(2, keepdim=True)
        here = [torch.einsum("ntq,nftq->ntf", even, m) for m in (view.gain, view.tried, view.clip.strength)]
        same = torch.stack([(even * (view.held == 1 + i)).sum(2) for i in range(here[0].shape[2])], 2) > 1 - 1e-4
        known = torch.stack([*here, view.gain.mean((2, 3))[:, None].expand_as(here[0])], 3)
        place = torch.cat([torch.einsum("ntq,ntqw->ntw", even, patches), read], 2)
        logits: Tensor = self.filter(torch.cat([place[:, :, None].expand(*known.shape[:3], -1), known], 3)).squeeze(3)
        return logits + FORBIDDEN * same


@dataclass(frozen=True)
class Decision(Rows):
    """A step of both agents. The last axis of the figures is the agent: temporal, spatial."""

    taken: Tensor  # (n, 5, t) what was drawn on each frame: keep, stay, cell, patch, filter
    kept: Tensor  # (n, t) bool, at least one frame
    assignment: Tensor  # (n, t, q) to query
    log_prob: Tensor  # (n, 2)
    entropy: Tensor  # (n, 2) per frame, and per choice of a region
    value: Tensor  # (n, 2)


class AgentPair(nn.Module):
    def __init__(self, config: TwoAgentsShape) -> None:
        super().__init__()
        self.config, self.spatial = config, SpatialAgent(config)
        self.temporal = nn.ModuleDict({"reader": FrameReader(config), "keep": head(config.width, 1)})

    def decide(self, view: Scene, draw: Tensor | None, taken: Tensor | None = None, heat: float = 1.0) -> Decision:
        """Draws (n, 5 t) in [0, 1) decide, or what was `taken` before is judged again; `heat` divides logits."""
        t, open_ = view.held.shape[1], (view.held == 0) | (view.gain.shape[1] > 1)  # where some filter is not held yet
        draws = [None] * 5 if draw is None else list(draw.unflatten(1, (5, t)).unbind(1))
        past = [None] * 5 if taken is None else list(taken.unbind(1))
        _, read, value = self.temporal["reader"](view)
        logits = self.temporal["keep"](read) / heat
        keep, keep_log, keep_entropy = choose(F.pad(logits, (1, 0)), draws[0], past[0])  # to drop has logit 0
        kept = (keep > 0) | (F.one_hot(logits.squeeze(2).argmax(1), t).bool() & ~keep.any(1, keepdim=True))
        if not self.config.temporal:
            kept, keep_log, keep_entropy = torch.ones_like(kept), 0 * keep_log, 0 * keep_entropy
        patches, read, spatial_value = self.spatial.reader(view)
        stay, stay_log, stay_entropy = choose(F.pad(self.spatial.stay(read) / heat, (1, 0)), draws[1], past[1])
        cells = coarse_cells(*view.clip.pixels.shape[3:]).to(kept.device)
        inside = F.one_hot(cells).to(patches.dtype)  # (q, cells)
        means = torch.einsum("ntqw,qc->ntcw", patches, inside / inside.sum(0))
        logits = self.spatial.where(0, means, read, open_.to(inside) @ inside > 0)
        cell, log, entropy = choose(logits / heat, draws[2], past[2])
        region, patch = cells == cell[..., None], torch.zeros_like(cell)
        if self.config.levels == 2:
            logits = self.spatial.where(1, patches, read, open_ & region) / heat
            patch, patch_log, patch_entropy = choose(logits, draws[3], past[3])
            region, log, entropy = F.one_hot(patch, len(cells)).bool(), log + patch_log, entropy + patch_entropy
        logits = self.spatial.which(view, patches, read, region) / heat
        which, filter_log, filter_entropy = choose(logits, draws[4], past[4])
        first = kept & (kept.cumsum(1) == 1)
        fresh = first | (kept & (stay == 0))  # frames with a new region; others have that of the last fresh frame
        source = torch.where(fresh, torch.arange(t, device=kept.device), 0).cummax(1).values
        region = region.gather(1, source[..., None].expand_as(region)) & kept[..., None]
        log_prob = (stay_log * (kept & ~first) + (log + filter_log) * fresh).sum(1)
        entropy = ((entropy + filter_entropy + stay_entropy) * fresh).sum(1) / fresh.sum(1)
        return Decision(
            torch.stack([keep, stay, cell, patch, which], 1), kept,
            torch.where(region, 1 + which.gather(1, source)[..., None], view.held), torch.stack([keep_log.sum(1), log_prob], 1),
            torch.stack([keep_entropy.mean(1), entropy], 1), torch.stack([value, spatial_value], 1),
        )  # fmt: skip


@dataclass(frozen=True)
class Steps(Rows):
    """What PPO learns from, a row for each step."""

    view: Scene
    decision: Decision
    advantage: Tensor  # (n, 2)


class TwoAgentsLearner(Learner):
    """Both agents in training, on episodes of every victim that step together."""

    network: AgentPair

    def __init__(self, network: AgentPair, samplers: Sequence[EpisodeSampler], options: TwoAgentsConfig) -> None:
        self.network, self.samplers, self.options, self.task = network, samplers, options, samplers[0].task
        self.env = AttackEnv(self._query, self.task)
        self.optimizer = torch.optim.Adam(network.parameters(), lr=options.learning_rate, eps=1e-5)
        self.maps: Tensor | None = None  # (clips of all victims, 2, t, q)
        if options.objectness or options.motion:
            maps = [saliency.patch_maps(s.x, s.bounds, self.task.grid, options.saliency) for s in samplers]
            self.maps = torch.cat(maps).to(samplers[0].x.device)

    def _query(self, x: Tensor, phase: str, samples: Tensor, assignment: Tensor) -> Tensor:
        parts = zip(self.samplers, x.split(self.options.rows), strict=True)
        return torch.cat([sampler.victim(part, "train") for sampler, part in parts])

    def begin(self, seed: int) -> None:
        reseed(self.samplers, seed)
        self.state, self.clip = self._fresh([self.options.rows] * len(self.samplers))
        self.feedback = Feedback.begin(self.state)

    def _fresh(self, counts: Sequence[int]) -> tuple[State, Clip]:
        """New episodes of each victim; samples are numbered over all victims' clips."""
        first = [sum(len(sampler.x) for sampler in self.samplers[:i]) for i in range(len(counts))]
        made = [(s.fresh(count), at) for s, count, at in zip(self.samplers, counts, first, strict=True) if count]
        state = State.cat([replace(part, sample=part.sample + at) for part, at in made])
        return state, look(state, self.task.grid, self.network.config.encoder)

    def update(self, progress: float) -> Figures:
        """One rollout and PPO's passes over it; the learning rate falls with `progress`."""
        o = self.options
        self.optimizer.param_groups[0]["lr"] = o.learning_rate * max(0.05, 1 - progress)
        steps, figures = self._collect()
        order = torch.cat([torch.randperm(len(steps.advantage)) for _ in range(o.epochs)]).to(steps.advantage.device)
        losses = [self._learn(steps[rows]) for rows in order.chunk(o.epochs * o.minibatches)]
        return figures | {"loss": float(torch.stack(losses).mean())}

    @torch.no_grad()
    def _collect(self) -> tuple[Steps, Figures]:
        """`rollout` steps of every row; steps after the end of its episode do not count."""
        o, t = self.options, self.task.grid.shape[0]
        over = torch.zeros(len(self.state), dtype=torch.bool, device=self.state.x.device)
        views, decisions, rewards, parts, ends, counted = [], [], [], [], [], []
        for _ in range(o.rollout + 1):
            views.append(see(self.state, self.clip, self.feedback))
            decisions.append(self.network.decide(views[-1], uniform(self.state.seed, self.state.step, 5 * t)))
            if len(views) > o.rollout:  # only its value counts
                break
            after, outcome = self.env.step(self.state, propose(decisions[-1].assignment.flatten(1), Accept.IF_BETTER))
            reward, part = self._rewards(self.state, after, decisions[-1], outcome)
            counted.append(~over)
            over = over | outcome.done | outcome.failed | (after.step >= self.task.budget)
            ends.append(torch.stack([over, outcome.done], 1))
            rewards.append(reward)
            parts.append(part)
            self.state, self.feedback = after, self.feedback.after(after)
        value, end = torch.stack([d.value for d in decisions]), torch.stack(ends)[..., None]
        cut = end[:, :, 0] & ~end[:, :, 1]  # an episode that ends without a flip would have gone on
        reward = torch.stack(rewards) + o.gamma * torch.where(cut, value[1:], 0.0)
        advantage = common.generalized_advantages(reward, value[:-1], value[1:], end[:, :, 0], o.gamma, o.smoothing)
        steps = Steps(Scene.cat(views[:-1]), Decision.cat(decisions[:-1]), advantage.flatten(0, 1))
        if any(ended := over.view(len(self.samplers), -1).sum(1).tolist()):
            state, clip = self._fresh(ended)
            self.state, self.clip = self.state.put(over, state), self.clip.put(over, clip)
            self.feedback = self.feedback.put(over, Feedback.begin(state))
        names = ("reward", "drop", "sparsity", "representative", "objectness", "motion", "frames", "flips")
        means = torch.cat(parts)[counts := torch.cat(counted)].mean(0).tolist()
        return steps[counts], dict(zip(names, means, strict=True))

    def _rewards(self, before: State, after: State, made: Decision, outcome: StepOutcome) -> tuple[Tensor, Tensor]:
        """(n, 2) of the two agents, and what they are made of."""
        o = self.options
        drop = (after.drop / before.margin0).clamp(-1, 1)  # of the query, accepted or not
        if o.confidence == "probability":
            true, new = (part.gather(1, before.y[:, None]).squeeze(1).exp() for part in (before.scores, after.answer))
            drop = true - new
        few, typical = saliency.few_frames(made.kept, o.limit), saliency.representative(self.clip.frames, made.kept)
        region, objects, moves = made.assignment != before.assignment.view_as(made.assignment), 0 * drop, 0 * drop
        if self.maps is not None:
            objects, moves = (saliency.on_salient(m, region) for m in self.maps[before.sample].unbind(1))
        added = (mean_absolute(after.x0, after.x) - mean_absolute(before.x0, before.x)) * 255 / before.scale
        shared = drop + o.success * outcome.done - o.distortion * added
        temporal = shared + o.sparsity * few + o.representative * typical
        spatial = shared + o.objectness * objects + o.motion * moves
        parts = (shared, drop, few, typical, objects, moves, made.kept.sum(1), outcome.done)
        return torch.stack([temporal, spatial], 1), torch.stack([part.float() for part in parts], 1)

    def _learn(self, steps: Steps) -> Tensor:
        o, then, now = self.options, steps.decision, self.network.decide(steps.view, None, steps.decision.taken)
        advantage = (steps.advantage - steps.advantage.mean(0)) / (steps.advantage.std(0, correction=0) + 1e-6)
        loss = common.clipped_loss(now.log_prob, then.log_prob, advantage, o.clip) - o.entropy * now.entropy.mean()
        loss = loss + 0.5 * (now.value - then.value - steps.advantage).square().mean()
        self.descend(loss, 0.5)
        return loss.detach()


@dataclass(frozen=True)
class Watched(Rows):
    """What the policy remembers of each clip."""

    clip: Clip
    feedback: Feedback


@dataclass(frozen=True)
class TwoAgents(Policy[Watched]):
    """The two agents as a policy; `temperature` divides their logits."""

    needs: ClassVar[tuple[str, ...]] = ("two trained agents",)
    network: AgentPair = field(repr=False)
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise OptionError(f"expected temperature above 0, got {self.temperature!r}")

    def begin(self, state: State, task: Task) -> Watched:
        if (kind := task.grid.kind + " data" + " in groups of channels" * bool(task.grid.channels)) != "video data":
            raise DataError(f"the two agents are for video, but this is {kind}: use the policy auto")
        self.network.to(state.x.device)
        return Watched(look(state, task.grid, self.network.config.encoder), Feedback.begin(state))

    def observe(self, state: State, memory: Watched, task: Task) -> Watched:
        return replace(memory, feedback=memory.feedback.after(state))

    def contribution(self, state: State, memory: Watched, task: Task) -> Tensor:
        return memory.feedback.of(state.assignment)

    @torch.no_grad()
    def propose(self, state: State, memory: Watched, task: Task) -> Proposal[Watched]:
        draw = uniform(state.seed, state.step, 5 * task.grid.shape[0])
        decision = self.network.decide(see(state, memory.clip, memory.feedback), draw, None, self.temperature)
        return Proposal(decision.assignment.flatten(1), torch.full_like(state.sample, Accept.IF_BETTER), memory)

    def regions(self, task: Task) -> tuple[Tensor, ...]:
        """L1 cells over all frames, over halves and quarters of them, and on single frames."""
        t, rows, columns = task.grid.shape
        cells, frame = coarse_cells(rows, columns), torch.arange(t)[:, None]
        runs = dict.fromkeys(length for length in (t, t // 2, t // 4, 1) if length)
        return tuple((frame // length * (cells.max() + 1) + cells).flatten() for length in runs)


def load_policy(path: Path, **options: Any) -> TwoAgents:
    """The policy in a file; `temporal=False` keeps every frame, `levels=1` distorts whole L1 cells."""
    fewer = {name: options.pop(name) for name in ("temporal", "levels") if name in options}
    network, _, _ = read_network(path, KIND, TwoAgentsShape, AgentPair)
    check_options(TwoAgents, options, f"the policy {str(path)!r}")
    network.config = check(TwoAgentsShape, network.config.model_dump() | fewer, "the options of the policy")
    return TwoAgents(network, **options)


make_policy = partial(common.named_policy, KIND, load_policy)  # two_agents(agent=FILE, ...) of the command line


def train(
    victims: Sequence[Victim], batch: Batch, validation: Batch | None, options: TwoAgentsConfig, folder: Path,
    tell: Tell = lambda figures: None,
) -> Path:  # fmt: skip
    """Write FOLDER/agent.safetensors, or resume the training in FOLDER."""
    if batch.kind != "video":
        raise DataError(f"expected clips to train the two agents on, got {batch.kind} samples: use another kind")
    with open_folder(folder, options, victims, batch) as resume:
        torch.manual_seed(options.seed)
        batch, validation = hold_out(batch, validation, options)
        patch, network = options.patches[0], AgentPair(options.network)
        sides = (1, patch, patch) if isinstance(patch, int) else patch
        if options.start is not None:
            network, _, _ = read_network(Path(options.start), KIND, TwoAgentsShape, AgentPair)
            if network.config != options.network:
                raise OptionError(f"the networks in {options.start} have another shape than 'network' declares")
        for victim in victims:
            victim.chunk = max(victim.chunk, options.rows)
        samplers = samplers_for(options, victims, batch, [sides], options.horizon)
        learner = TwoAgentsLearner(network.to(options.device), samplers, options)
        judge = partial(validate, TwoAgents(network), sides, victims, validation, options)
        return TrainingLoop(AGENT, KIND, options.network, options, learner, judge, resume, tell).run()
