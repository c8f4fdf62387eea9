"""The dual-action agent for images and signals: a dueling deep Q-network adds distortions to some patches and removes them from
others in each step (https://arxiv.org/abs/2310.18626, https://arxiv.org/abs/2403.18985).

As the papers say: the state is a one-level sensitivity analysis (for every patch and filter, how far the true class's probability
drops if the filter is added there; for every distorted patch, what its removal does), the class probabilities and the
distortions so far; each step chooses one filter and the patches to add it to, and the patches to restore; the reward is the
dilution of the true class's probability; patches are 8x8 on photos and 2x2 on small images. There is no gradient and no teacher.

Our choices, where they are silent:
- A step adds to at least one and up to `add` patches and restores up to `remove`; both kinds of patches have a "none" to choose.
- The value of a step is V(s) plus the centred advantages of the patches it chooses, so the best step is a top-k.
- Effects and the reward are drops of log-odds, as a sure model's probability hardly moves before the flip; the reward is a
  share of the first log-odds (`confidence: probability` counts the probability itself).
- The network shares its weights among patches, filters and axes: each cell sees itself, its neighbours along every axis of the
  grid, the other filters at its patch, and the whole. One agent thus fits any size, rank, palette and number of classes.
- It also sees the L2 of each change, which costs no query, and how long ago an effect was measured. With the reward
  dilution_l2 a step pays for the squared L2 it adds, as a share of that of distorting every patch.
- An analysis tries the smallest changes first, and ends the search if one of them flips the class.
- A step is kept whatever it did. A share `epsilon` of the steps is random in an attack too, so that no loop lasts.
- All other settings are the defaults of `DualActionConfig`.

An analysis costs one query per patch and filter. Cheaper ones: sweep='one_filter' (one filter in turn), or the share of the
patches that each step looks at; older effects stay visible. learner='ppo' or 'a2c' replaces the Q-network's learning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import silu, smooth_l1_loss

from rlab.core.batched import Rows
from rlab.core.env import Accept, Proposal, State, Task, edit, propose
from rlab.core.rng import uniform
from rlab.data.batch import Batch
from rlab.errors import OptionError
from rlab.papers import common, sensitivity
from rlab.papers.sensitivity import CELL, WHOLE, Analysis, Confidence, Sweep, View, dilution, log_odds, observe, plan
from rlab.policies.base import Policy
from rlab.priors.file import read_network
from rlab.storage.config import check_options
from rlab.training.episodes import EpisodeSampler
from rlab.training.loop import Learner, TrainingLoop, reseed
from rlab.training.trainer import AGENT, Figures, Tell, hold_out, open_folder, samplers_for, validate
from rlab.victims.base import Victim

KIND = "dual_action"
_BLOCK = 8192  # inputs of an analysis that a victim gets at once in training


class DualActionConfig(common.PaperOptions):
    """The options of a training; the policy takes `sweep`, `add`, `remove` and `restore` too."""

    kind: Literal["dual_action"] = "dual_action"
    entries: int = Field(4, ge=1)
    sweep: Literal["full", "one_filter"] | Annotated[float, Field(gt=0, le=1)] = "full"
    add: int = Field(2, ge=1)
    remove: int = Field(1, ge=1)
    restore: bool = True  # False adds only
    learner: Literal["dqn", "ppo", "a2c"] = "dqn"
    reward: Literal["dilution", "dilution_l2"] = "dilution"
    l2_penalty: float = Field(1.0, ge=0)  # of dilution_l2: the cost of distorting every patch
    confidence: Confidence = "log_odds"  # what is diluted
    width: int = Field(32, ge=4)
    blocks: int = Field(2, ge=0)
    replay: int = Field(4096, ge=1)  # steps per model
    batch: int = Field(256, ge=1)
    gradient_steps: int = Field(4, ge=1)  # after each step of the episodes, or passes over a rollout of PPO
    exploration: tuple[float, float] = (1.0, 0.05)  # share of random steps, falling over the first half
    target_rate: float = Field(0.02, gt=0, le=1)  # how far the target network follows after each gradient step
    rollout: int = Field(8, ge=1)  # of PPO and A2C
    smoothing: float = Field(0.9, ge=0, le=1)
    clip: float = Field(0.2, gt=0)
    entropy: float = Field(0.003, ge=0)


class Shape(common.NetworkShape):
    blocks: int = Field(2, ge=0, le=64)


class Block(nn.Module):
    """Residual: a cell, its neighbours on the grid, the other filters at its patch, and all cells."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.mix, self.out = nn.LayerNorm(width), nn.Linear(4 * width, width), nn.Linear(width, width)

    def forward(self, h: Tensor, grid: Sequence[int]) -> Tensor:
        x = self.norm(h)
        filters, everything = x.mean(1, keepdim=True).expand_as(x), x.mean((1, 2), keepdim=True).expand_as(x)
        out: Tensor = h + self.out(silu(self.mix(torch.cat([x, neighbours(x, grid), filters, everything], 3))))
        return out


def neighbours(h: Tensor, grid: Sequence[int]) -> Tensor:
    """(n, e, p, w): the mean over three patches along every axis; the edge counts twice."""
    x = h.unflatten(2, tuple(grid))
    for axis, count in enumerate(grid, 2):
        before = torch.cat([x.narrow(axis, 0, 1), x.narrow(axis, 0, count - 1)], axis)
        after = torch.cat([x.narrow(axis, 1, count - 1), x.narrow(axis, count - 1, 1)], axis)
        x = (before + x + after) / 3
    return x.flatten(2, 1 + len(grid))


@dataclass(frozen=True)
class Judgement(Rows):
    """The dueling network's answer; for PPO and A2C the advantages are logits."""

    value: Tensor  # (n,)
    advantage: Tensor  # (n, f + 1, p), -inf where a change is not legal
    none: Tensor  # (n, 2) advantage of adding nothing more, of restoring nothing more


class DualActionNetwork(nn.Module):
    """A dueling network (https://arxiv.org/abs/1511.06581) whose advantages are those of patches and filters."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.enter = nn.Linear(CELL + WHOLE, shape.width)
        self.blocks = nn.ModuleList(Block(shape.width) for _ in range(shape.blocks))
        self.advantage = nn.Linear(shape.width, 1)
        self.pool = nn.Linear(2 * shape.width + WHOLE, shape.width)
        self.value, self.none = nn.Linear(shape.width, 1), nn.Linear(shape.width, 2)

    def forward(self, view: View, grid: Sequence[int]) -> Judgement:
        whole = view.whole[:, None, None].expand(*view.cells.shape[:3], -1)
        h = self.enter(torch.cat([view.cells, whole], 3))
        for block in self.blocks:
            h = block(h, grid)
        pooled = silu(self.pool(torch.cat([h.mean((1, 2)), h.amax((1, 2)), view.whole], 1)))
        advantage = self.advantage(h).squeeze(3).masked_fill(~view.legal, -torch.inf)
        return Judgement(self.value(pooled).squeeze(1), advantage, self.none(pooled))


# Steps: `slots` (n, add + remove) hold entry * p + patch, -1 for none; the first `add` add, the rest restore.


def pick(scores: Tensor, none: Tensor, count: int, forced: bool) -> Tensor:
    """scores (n, e, p), none (n,) -> (n, count): the best patches of the entry with the best one, down to `none`."""
    patches = scores.shape[2]
    entry = scores.flatten(1).argmax(1) // patches
    best, patch = scores[torch.arange(len(scores), device=scores.device), entry].topk(min(count, patches), 1)
    taken = (best > none[:, None]) & (best > -torch.inf)
    if forced:
        taken[:, 0] = best[:, 0] > -torch.inf
    slots = torch.where(taken, entry[:, None] * patches + patch, -1)
    return nn.functional.pad(slots, (0, count - slots.shape[1]), value=-1)


def choose(judged: Judgement, add: int, remove: int) -> Tensor:
    """The best slots (n, add + remove)."""
    added = pick(judged.advantage[:, 1:], judged.none[:, 0], add, forced=True)
    restored = pick(judged.advantage[:, :1], judged.none[:, 1], remove, forced=False)
    return torch.cat([torch.where(added < 0, -1, added + judged.advantage.shape[2]), restored], 1)


def explore(slots: Tensor, judged: Judgement, add: int, share: float, draw: Tensor) -> Tensor:
    """Random slots in a share of the rows; draw (n, 2 + (f + 1) * p) in [0, 1)."""
    advantage = draw[:, 2:].view_as(judged.advantage).masked_fill(judged.advantage == -torch.inf, -torch.inf)
    blind = replace(judged, advantage=advantage, none=draw[:, 1:2].expand(-1, 2))
    return torch.where(draw[:, :1] < share, choose(blind, add, slots.shape[1] - add), slots)


def split(judged: Judgement, slots: Tensor, add: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """For adding and for restoring: advantages (n, m), of none (n, 1), and slots among them, -1 for none."""
    patches = judged.advantage.shape[2]
    added = torch.where(slots[:, :add] < 0, -1, slots[:, :add] - patches)
    yield judged.advantage[:, 1:].flatten(1), judged.none[:, :1], added
    yield judged.advantage[:, 0], judged.none[:, 1:], slots[:, add:]


def step_value(judged: Judgement, slots: Tensor, add: int) -> Tensor:
    """(n,): V(s) and the centred advantages of the slots."""
    total = judged.value
    for advantage, none, chosen in split(judged, slots, add):
        legal = advantage > -torch.inf
        known = torch.where(legal, advantage, 0.0)
        centre = (known.sum(1, keepdim=True) + none) / (legal.sum(1, keepdim=True) + 1)
        total = total + (torch.where(chosen < 0, none, known.gather(1, chosen.clamp(min=0))) - centre).sum(1)
    return total


def draw_slots(judged: Judgement, add: int, remove: int, slots: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """For PPO and A2C: a filter, patches for it and patches to restore, drawn with replacement from softmaxes of the advantages,
    or those given; their log-probability (n,) and entropy (n,)."""
    n, patches = len(judged.value), judged.advantage.shape[2]
    able = (judged.advantage[:, 1:] > -torch.inf).flatten(1).any(1)  # whether a patch is clean
    filters = torch.where(able[:, None], judged.advantage[:, 1:].logsumexp(2), 0.0).log_softmax(1)
    entry = filters.exp().multinomial(1) if slots is None else (slots[:, :1] // patches - 1).clamp(min=0)
    own = judged.advantage[:, 1:].gather(1, entry[:, :, None].expand(n, 1, patches)).squeeze(1)
    every = torch.cat([torch.stack([own, judged.advantage[:, 0]]), judged.none.T[:, :, None]], 2).log_softmax(2)
    first = torch.where(able[:, None], own, 0.0).log_softmax(1)  # at least one is added
    if slots is None:
        drawn = [part.exp().multinomial(count, True) for part, count in zip(every, (add, remove), strict=True)]
        drawn[0][:, :1] = first.exp().multinomial(1)
        shifted = [torch.where(drawn[0] < patches, drawn[0] + (entry + 1) * patches, -1), drawn[1] % patches]
        slots = torch.cat([shifted[0].where(able[:, None], -1), shifted[1].where(drawn[1] < patches, -1)], 1)
    at = torch.where(slots < 0, patches, slots % patches)
    added = [first.gather(1, at[:, :1] % patches), every[0].gather(1, at[:, 1:add])]
    chances = torch.cat([filters.gather(1, entry), *added], 1)
    entropy = -(every.exp() * every.clamp(min=-50)).sum((0, 2)) - (filters.exp() * filters.clamp(min=-50)).sum(1)
    return slots, torch.where(able, chances.sum(1), 0.0) + every[1].gather(1, at[:, add:]).sum(1), entropy


@dataclass(frozen=True)
class Step(Rows):
    """One step of n episodes, as the replay holds it."""

    view: View
    slots: Tensor  # (n, add + remove)
    reward: Tensor  # (n,)
    over: Tensor  # (n,) bool: the class has flipped
    late: Tensor  # (n,) bool: the horizon is reached
    after: View


@dataclass
class Episodes:
    """The rows that step together on one victim, and their recent steps."""

    sampler: EpisodeSampler
    state: State
    analysis: Analysis
    view: View
    replay: Step | None = None


class DualActionLearner(Learner):
    """Plays many episodes at once and learns from their steps."""

    network: DualActionNetwork
    saved = ("network", "target", "optimizer")

    def __init__(self, network: DualActionNetwork, samplers: list[EpisodeSampler], config: DualActionConfig) -> None:
        self.network, self.samplers, self.config = network, samplers, config
        self.target = deepcopy(network).requires_grad_(False)
        self.optimizer = torch.optim.Adam(network.parameters(), lr=config.learning_rate)
        self.episodes: list[Episodes] = []

    def begin(self, seed: int) -> None:
        reseed(self.samplers, seed)
        self.episodes = [Episodes(each, *self._fresh(each, self.config.rows)) for each in self.samplers]

    def update(self, progress: float) -> Figures:
        learn = self._learn_q if self.config.learner == "dqn" else self._learn_policy
        steps, losses = zip(*(learn(episodes, progress) for episodes in self.episodes), strict=True)
        reward, over = (torch.cat([getattr(s, name) for s in steps]).float().mean() for name in ("reward", "over"))
        return {"reward": float(reward), "flips": float(over), "loss": float(torch.stack(losses).detach().mean())}

    def _fresh(self, sampler: EpisodeSampler, rows: int) -> tuple[State, Analysis, View]:
        state = sampler.fresh(rows)
        analysis, _ = self._analysed(sampler, state, Analysis.start(state, sampler.task))
        return state, analysis, observe(state, analysis, sampler.task, self.config.restore)

    @torch.no_grad()
    def _analysed(self, sampler: EpisodeSampler, state: State, analysis: Analysis) -> tuple[Analysis, Tensor]:
        """The whole plan at once; and (n, f + 1, p), the L2 of changes that flip the class, infinite for others."""
        task = sampler.task
        todo = plan(state, analysis.turn, task, self.config.sweep, self.config.restore)
        rows, entry, patch = todo.nonzero(as_tuple=True)
        inside = task.grid.spread(torch.eye(len(task.grid), device=rows.device)).bool()
        drop, flips = torch.zeros_like(analysis.effect), torch.full_like(analysis.effect, torch.inf)
        before = log_odds(task.goal, state.scores, state.y)
        for at in torch.arange(len(rows), device=rows.device).split(_BLOCK):
            r, e, q = rows[at], entry[at], patch[at]
            scores = sampler.victim(torch.where(inside[q], state.bank[r, e], state.x[r]), "train")
            drop[r, e, q] = before[r] - log_odds(task.goal, scores, state.y[r])
            flips[r, e, q] = torch.where(task.goal.margin(scores, state.y[r]) < 0, analysis.cost[r, e, q], torch.inf)
        return analysis.read(drop, todo), flips

    @torch.no_grad()
    def _play(self, episodes: Episodes, slots: Tensor) -> Step:
        """One step of every row and the analysis after it, which may find a flip; episodes that have ended start again."""
        sampler, task, state, old = episodes.sampler, episodes.sampler.task, episodes.state, episodes.analysis
        stepped = edit(state.assignment, slots[:, : self.config.add], slots[:, self.config.add :])
        after, outcome = sampler.env.step(state, propose(stepped, Accept.ALWAYS))
        analysis, flips = self._analysed(sampler, after, replace(old, fresh=old.fresh / 2, turn=old.turn + 1))
        nearest, where = flips.flatten(1).min(1)
        found = nearest.isfinite() & ~outcome.done
        gained = torch.where(found, analysis.effect.flatten(1).gather(1, where[:, None]).squeeze(1), 0.0)
        first, before, odds = (log_odds(task.goal, s, state.y) for s in (state.clean, state.scores, after.scores))
        reward = dilution(before, odds - gained, first, self.config.confidence).nan_to_num(0.0)
        if self.config.reward == "dilution_l2":
            further = after.distance.square() - state.distance.square() + torch.where(found, nearest.square(), 0.0)
            whole = old.cost[:, 1:].square().mean(1).sum(1).clamp(min=1e-12)
            reward = reward - self.config.l2_penalty * further / whole
        over, view = outcome.done | found, observe(after, analysis, task, self.config.restore)
        step = Step(episodes.view, slots, reward, over, (after.step >= task.budget) & ~over, view)
        if (ended := over | step.late | outcome.failed).any():
            fresh = self._fresh(sampler, int(ended.sum()))
            after, analysis, view = after.put(ended, fresh[0]), analysis.put(ended, fresh[1]), view.put(ended, fresh[2])
        episodes.state, episodes.analysis, episodes.view = after, analysis, view
        return step

    def _learn_q(self, episodes: Episodes, progress: float) -> tuple[Step, Tensor]:
        """One step and double Q-learning from the replay (https://arxiv.org/abs/1509.06461)."""
        c, grid, (first, last) = self.config, episodes.sampler.task.grid.shape, self.config.exploration
        with torch.no_grad():
            judged = self.network(episodes.view, grid)
            draw = torch.rand(len(judged.value), 2 + judged.advantage[0].numel(), device=judged.value.device)
            share = max(last, first + (last - first) * 2 * progress)
            step = self._play(episodes, explore(choose(judged, c.add, c.remove), judged, c.add, share, draw))
        held = step if episodes.replay is None else Step.cat([episodes.replay, step])
        episodes.replay = held = held[torch.randperm(len(held.reward), device=held.reward.device)[: c.replay]]
        for _ in range(c.gradient_steps):
            sample = held[torch.randint(len(held.reward), (c.batch,), device=held.reward.device)]
            with torch.no_grad():
                best = choose(self.network(sample.after, grid), c.add, c.remove)
                worth = step_value(self.target(sample.after, grid), best, c.add)
            aim = common.double_q_target(sample.reward, sample.over, worth, c.gamma)
            loss = smooth_l1_loss(step_value(self.network(sample.view, grid), sample.slots, c.add), aim, beta=0.1)
            self.descend(loss, 1.0)
            for mine, theirs in zip(self.target.parameters(), self.network.parameters(), strict=True):
                mine.data.lerp_(theirs.data, c.target_rate)
        return step, loss

    def _learn_policy(self, episodes: Episodes, progress: float) -> tuple[Step, Tensor]:
        """A rollout, and PPO's or A2C's update from it."""
        c, grid, steps, before, values = self.config, episodes.sampler.task.grid.shape, [], [], []
        with torch.no_grad():
            for _ in range(c.rollout):
                judged = self.network(episodes.view, grid)
                slots, log_prob, _ = draw_slots(judged, c.add, c.remove)
                steps.append(self._play(episodes, slots))
                before.append(log_prob)
                values.append(torch.stack([judged.value, self.network(steps[-1].after, grid).value]))
        (value, later), held = torch.stack(values, 1), Step.cat(steps)
        over, late, reward = (each.view_as(value) for each in (held.over, held.late, held.reward))
        reward = reward + c.gamma * later * late
        advantage = common.generalized_advantages(reward, value, later, over | late, c.gamma, c.smoothing)
        old, aim = torch.cat(before), (advantage + value).flatten()
        unit = ((advantage - advantage.mean()) / (advantage.std() + 1e-6)).flatten()
        passes = c.gradient_steps if c.learner == "ppo" else 1
        for rows in torch.cat([torch.randperm(len(aim)) for _ in range(passes)]).to(aim.device).split(c.batch):
            judged = self.network(held.view[rows], grid)
            _, log_prob, entropy = draw_slots(judged, c.add, c.remove, held.slots[rows])
            loss = common.policy_gradient_loss(log_prob, unit[rows])
            if c.learner == "ppo":
                loss = common.clipped_loss(log_prob, old[rows], unit[rows], c.clip)
            loss = loss + 0.5 * smooth_l1_loss(judged.value, aim[rows]) - c.entropy * entropy.mean()
            self.descend(loss, 1.0)
        return held, loss


def train(
    victims: Sequence[Victim], batch: Batch, validation: Batch | None, options: DualActionConfig, folder: Path,
    tell: Tell = lambda figures: None,
) -> Path:  # fmt: skip
    """Write FOLDER/agent.safetensors, or resume the training in FOLDER."""
    with open_folder(folder, options, victims, batch) as resume:
        torch.manual_seed(options.seed)
        batch, validation = hold_out(batch, validation, options)
        network = DualActionNetwork(Shape(width=options.width, blocks=options.blocks)).to(options.device)
        if options.start is not None:
            network = read_network(Path(options.start), KIND, Shape, DualActionNetwork)[0].to(options.device)
        for victim in victims:
            victim.chunk = max(victim.chunk, _BLOCK)
        samplers = samplers_for(options, victims, batch, options.patches, options.horizon)
        policy = DualAction(network, options.sweep, options.add, options.remove, options.restore)
        judge = partial(validate, policy, options.patches[0], victims, validation, options)
        learner = DualActionLearner(network, samplers, options)
        return TrainingLoop(AGENT, KIND, network.shape, options, learner, judge, resume, tell).run()


@dataclass(frozen=True)
class DualAction(Policy[Analysis]):
    """A trained agent; every query of its analyses counts."""

    network: DualActionNetwork
    sweep: Sweep = "full"
    add: int = 2
    remove: int = 1
    restore: bool = True
    epsilon: float = 0.02
    name: str = KIND

    def __post_init__(self) -> None:
        share = isinstance(self.sweep, int | float) and 0 < self.sweep <= 1
        if not share and self.sweep not in ("full", "one_filter"):
            raise OptionError(f"expected sweep to be full, one_filter or a share above 0, up to 1, got {self.sweep!r}")
        if self.add < 1 or self.remove < 1 or not 0 <= self.epsilon <= 1:
            given = f"{self.add}, {self.remove} and {self.epsilon:g}"
            raise OptionError(f"expected add and remove of at least 1 and epsilon from 0 to 1, got {given}")

    def __str__(self) -> str:
        return f"{self.name}(sweep={self.sweep}, add={self.add}, remove={self.remove}, restore={self.restore})"

    def least_steps(self, task: Task) -> int:
        entries = 1 if self.sweep == "one_filter" else task.entries
        return entries * sensitivity.part_of(self.sweep, len(task.grid)) + 1

    def begin(self, state: State, task: Task) -> Analysis:
        return self.observe(state, Analysis.start(state, task), task)

    def observe(self, state: State, memory: Analysis, task: Task) -> Analysis:
        """With the effect that was just measured; after a step, with a new plan."""
        fresh = memory.asked < 0
        todo = torch.where(fresh[:, None, None], plan(state, memory.turn, task, self.sweep, self.restore), memory.todo)
        drop = log_odds(task.goal, state.scores, state.y) - log_odds(task.goal, state.answer, state.y)
        where = torch.zeros_like(memory.todo).flatten(1).scatter(1, memory.asked.clamp(min=0)[:, None], ~fresh[:, None])
        return replace(memory, todo=todo).read(drop[:, None, None].expand_as(memory.effect), where.view_as(todo))

    def contribution(self, state: State, memory: Analysis, task: Task) -> Tensor:
        return memory.effect.gather(1, state.assignment[:, None]).squeeze(1)

    def propose(self, state: State, memory: Analysis, task: Task) -> Proposal[Analysis]:
        a, p = memory, len(task.grid)
        measuring = a.todo.flatten(1).any(1)
        look = torch.where(a.todo, a.cost, torch.inf).flatten(1).argmin(1)  # the smallest change first
        assignment = state.assignment.scatter(1, (look % p)[:, None], (look // p)[:, None])
        if not measuring.all():
            view, acting = observe(state, a, task, self.restore), ~measuring
            with torch.no_grad():
                judged = self.network.to(state.x.device)(view[acting], task.grid.shape)
            slots, draw = choose(judged, self.add, self.remove), uniform(state.seed, state.step, 2 + a.cost[0].numel())
            slots = explore(slots, judged, self.add, self.epsilon, draw[acting])
            assignment[acting] = edit(state.assignment[acting], slots[:, : self.add], slots[:, self.add :])
        fresh, asked = torch.where(measuring[:, None, None], a.fresh, a.fresh / 2), torch.where(measuring, look, -1)
        after = replace(a, fresh=fresh, asked=asked, turn=a.turn + ~measuring)
        return Proposal(assignment, torch.where(measuring, Accept.IF_FLIPPED, Accept.ALWAYS), after)


def load_policy(path: Path, **options: Any) -> DualAction:
    """The agent in a file, as it was trained but for `options`."""
    network, _, card = read_network(path, KIND, Shape, DualActionNetwork)
    config = card.get("config", {})
    known = ("sweep", "add", "remove", "restore") if isinstance(config, dict) else ()
    chosen = {name: config[name] for name in known if name in config} | {"name": path.stem} | options
    check_options(DualAction, chosen, f"the policy {str(path)!r}")
    return DualAction(network, **chosen)


make_policy = partial(common.named_policy, KIND, load_policy)  # dual_action(agent=FILE, ...) of the command line
