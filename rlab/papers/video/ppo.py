"""PPO for both agents at once, on many rows that step together: TorchRL's clipped loss and generalised advantages.

Each agent has a critic and a reward of its own; the drop of the margin, as a share of the margin at the start, is what they
share, and all they know of each other. A choice depends on the choices before it in the same step, so an actor judges the
options that were taken: its distribution is the one the network worked out for them.
PPO: https://arxiv.org/abs/1707.06347, GAE: https://arxiv.org/abs/1506.02438.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import Tensor, nn
from torch.nn.functional import smooth_l1_loss
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value.functional import generalized_advantage_estimate

from rlab.core.distances import mean_absolute
from rlab.core.env import Accept, State, StepOutcome, propose
from rlab.core.rng import uniform
from rlab.papers.video.actors import KEYS, SpatialActor, TemporalActor, few_frames, on_salient, representative
from rlab.papers.video.choices import Hierarchy
from rlab.papers.video.pair import Pair, PairAction, draws_needed, written
from rlab.papers.video.policy import fixed_view
from rlab.papers.video.view import EFFECT, SCALARS, FixedView, MobileNet, View
from rlab.stats import median_of
from rlab.storage.config import Options
from rlab.training.episodes import EpisodeSampler

AGENTS = ("temporal", "spatial")
_SUMMARY = SCALARS + 7


class PPOConfig(Options):
    """How to learn; the defaults suit a few dozen rows on a CPU."""

    rows: int = 32  # that step together in each sampler
    rollout: int = 8  # steps between updates
    epochs: int = 2  # passes over a rollout
    batch: int = 128
    learning_rate: float = 5e-4
    gamma: float = 0.95
    smoothing: float = 0.9  # GAE's lambda
    clip: float = 0.2
    entropy: float = 0.002
    teacher: float = 1.0  # weight of the first-order effects, where the victim can be differentiated
    query_cost: float = 0.02  # what a query costs, in the unit of the shared reward
    distortion_cost: float = 0.015  # what a unit of MAP costs
    few: float = 0.05
    limit: float = 0.5  # the share of frames that may be kept for nothing
    representative: float = 0.05
    objectness: float = 0.05
    motion: float = 0.05


@dataclass(frozen=True)
class RewardedSampler:
    """A sampler with what its clips are rewarded by."""

    sampler: EpisodeSampler
    maps: Tensor | None  # (clips, t, 2, rows, columns) objectness and motion; None rewards neither
    hierarchy: Hierarchy


class PPOTrainer:
    """The agents in training."""

    def __init__(
        self, pair: Pair, rewarded: list[RewardedSampler], config: PPOConfig, mobilenet: MobileNet | None = None
    ) -> None:
        self.pair, self.rewarded, self.config, self.mobilenet = pair, rewarded, config, mobilenet
        self.device = next(pair.parameters()).device
        self.critics = nn.ModuleDict({name: _critic() for name in AGENTS}).to(self.device)
        actors = (TemporalActor(pair), SpatialActor(pair))
        self.actors: dict[str, TemporalActor | SpatialActor] = dict(zip(AGENTS, actors, strict=True))
        self.losses = {name: self._loss(name) for name in AGENTS}
        self.parameters = [*pair.parameters(), *self.critics.parameters()]
        self.optimizer = torch.optim.Adam(self.parameters, lr=config.learning_rate)
        self.episodes: list[tuple[State, FixedView]] = []
        self.ended: list[tuple[float, float]] = []  # steps and L2 of episodes that reached the goal lately

    def _loss(self, name: str) -> ClipPPOLoss:
        critic = TensorDictModule(self.critics[name], in_keys=["summary"], out_keys=[f"{name}_value"])
        loss = ClipPPOLoss(
            self.actors[name], critic, clip_epsilon=self.config.clip, entropy_coeff=self.config.entropy,
            critic_coeff=0.5, normalize_advantage=True, functional=False, log_explained_variance=False,
        )  # fmt: skip
        action = {"temporal": "chosen", "spatial": "option"}[name]
        loss.set_keys(
            action=action, sample_log_prob=f"{name}_log_prob", advantage=f"{name}_advantage",
            value_target=f"{name}_target", value=f"{name}_value",
        )  # fmt: skip
        return loss

    def begin(self) -> None:
        self.episodes = [self._fresh(rewarded, self.config.rows) for rewarded in self.rewarded]

    def _fresh(self, rewarded: RewardedSampler, rows: int) -> tuple[State, FixedView]:
        state = rewarded.sampler.fresh(rows)
        return state, fixed_view(self.pair, state, rewarded.sampler.task, self.mobilenet)

    def round(self, progress: float) -> dict[str, float]:
        """One rollout and its updates in every sampler; `progress` in 0..1 winds the rate down. Returns figures."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.learning_rate * min(1.0, 2 * (1 - progress) + 0.05)
        figures: list[dict[str, float]] = []
        for index, rewarded in enumerate(self.rewarded):
            rollout, earned = self._collect(index)
            figures.append(earned | self._learn(rewarded, rollout))
        self.ended = self.ended[-4000:]
        steps, distances = torch.tensor(self.ended).view(-1, 2).unbind(1)
        mean = {key: sum(each[key] for each in figures) / len(figures) for key in figures[0]}
        return mean | {"median_steps": median_of(steps), "train_l2": median_of(distances)}

    @torch.no_grad()
    def _collect(self, index: int) -> tuple[TensorDict, dict[str, float]]:
        """A rollout (rows * steps,) with advantages, and the mean of each reward."""
        rewarded, (state, fixed) = self.rewarded[index], self.episodes[index]
        sampler, steps, earned = rewarded.sampler, [], []
        for _ in range(self.config.rollout):
            seen = _rounded(fixed.seen(state, sampler.task))
            draw = uniform(state.seed, state.step, draws_needed(rewarded.hierarchy, sampler.task.grid.shape[0]))
            act = self.pair.act(seen, rewarded.hierarchy, draw)
            taught = sampler.effects(state) if self.config.teacher else None
            assignment = written(state.assignment, act.kept, act.choice.region, act.choice.entry)
            after, outcome = sampler.env.step(state, propose(assignment, Accept.IF_BETTER))
            reward = self._rewards(rewarded, state, after, act, outcome, seen)
            terminated = outcome.done | outcome.failed
            over = terminated | (after.step >= sampler.task.budget)
            step = self._transition(seen, summary(_rounded(fixed.seen(after, sampler.task))), act, reward)
            step |= {"done": over[:, None], "terminated": terminated[:, None]}
            step |= {} if taught is None else {"effect": (taught * EFFECT).clamp(-3, 3).half()}
            steps.append(TensorDict(step, batch_size=[len(over)]))
            earned.append({name: float(value.mean()) for name, value in reward.items()})
            flipped = after[outcome.done]
            self.ended.extend(zip(flipped.step.tolist(), flipped.distance.tolist(), strict=True))
            if over.any():
                fresh, view = self._fresh(rewarded, int(over.sum()))
                after, fixed = after.put(over, fresh), fixed.put(over, view)
            state = after
        self.episodes[index] = state, fixed
        whole = torch.stack(steps, 1)
        for name in AGENTS:
            self._advantages(whole, name)
        mean = {key: sum(each[key] for each in earned) / len(earned) for key in earned[0]}
        return whole.reshape(-1), mean

    def _rewards(
        self, rewarded: RewardedSampler, before: State, after: State, act: PairAction, outcome: StepOutcome, seen: View
    ) -> dict[str, Tensor]:
        """The two agents' rewards (n,), and the parts they are made of."""
        c = self.config
        added = _map255(after) - _map255(before)
        shared = outcome.reward.nan_to_num(0.0).clamp(-1, 2) - c.query_cost - c.distortion_cost * added
        few = few_frames(act.kept, max(1, round(c.limit * act.kept.shape[1])))
        typical = representative(seen["frames"], act.kept)
        objects = moved = torch.zeros_like(shared)
        if rewarded.maps is not None:
            salient = rewarded.maps[before.sample.to(rewarded.maps.device)].to(shared.device).flatten(3)
            objects = on_salient(salient[:, :, 0], act.choice.region, act.kept)
            moved = on_salient(salient[:, :, 1], act.choice.region, act.kept)
        return {
            "temporal": shared + c.few * few + c.representative * typical,
            "spatial": shared + c.objectness * objects + c.motion * moved,
            "shared": shared,
            "objectness": objects,
            "motion": moved,
            "frames": act.kept.sum(1).to(torch.float32),
        }

    def _transition(self, seen: View, then: Tensor, act: PairAction, reward: dict[str, Tensor]) -> dict[str, Tensor]:
        """What is kept of one step, but for how it ended; `then` is the summary of what came of it."""
        now = summary(seen)
        step: dict[str, Tensor] = {key: seen[key].half() for key in KEYS} | {"summary": now}
        step |= {"chosen": act.chosen, "kept": act.kept, "option": act.choice.option}
        step |= {"temporal_log_prob": act.log_prob, "spatial_log_prob": act.choice.log_prob}
        for name in AGENTS:
            step |= {f"{name}_reward": reward[name][:, None], f"{name}_value": self.critics[name](now)}
            step[f"{name}_next"] = self.critics[name](then)
        return step

    def _advantages(self, whole: TensorDict, name: str) -> None:
        advantage, target = generalized_advantage_estimate(
            self.config.gamma, self.config.smoothing, whole[f"{name}_value"], whole[f"{name}_next"],
            whole[f"{name}_reward"], whole["done"], whole["terminated"],
        )  # fmt: skip
        whole[f"{name}_advantage"], whole[f"{name}_target"] = advantage, target

    def _learn(self, rewarded: RewardedSampler, rollout: TensorDict) -> dict[str, float]:
        actor = self.actors["spatial"]
        assert isinstance(actor, SpatialActor)
        actor.hierarchy = rewarded.hierarchy
        told: list[dict[str, float]] = []
        for _ in range(self.config.epochs):
            order = torch.randperm(len(rollout)).to(rollout.device)
            for rows in order.split(self.config.batch):
                told.append(self._update(rollout[rows]))
        return {key: sum(each[key] for each in told) / len(told) for key in told[0]}

    def _update(self, sample: TensorDict) -> dict[str, float]:
        parts: dict[str, Tensor] = {}
        for name in AGENTS if self.pair.config.temporal else AGENTS[1:]:
            terms = self.losses[name](sample)
            parts[name] = terms["loss_objective"] + terms["loss_entropy"] + terms["loss_critic"]
        if "effect" in sample.keys():  # noqa: SIM118
            parts["teacher"] = self.config.teacher * self._teach(sample)
        loss: Tensor = torch.stack(list(parts.values())).sum()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        return {f"loss_{name}": float(value.detach()) for name, value in parts.items()} | {"loss": float(loss.detach())}

    def _teach(self, sample: TensorDict) -> Tensor:
        """How far what each agent foresaw in its last judgement is from the taught effects."""
        temporal, spatial = self.actors["temporal"].foreseen, self.actors["spatial"].foreseen
        assert spatial is not None
        taught = sample["effect"].float().unflatten(2, (spatial.shape[1], -1)).transpose(1, 2)  # (b, t, f + 1, q)
        missed = smooth_l1_loss(spatial, taught)
        if temporal is not None:
            missed = missed + smooth_l1_loss(temporal, taught[:, :, 1:].amax((2, 3)))
        return missed

    def state_dict(self) -> dict[str, Any]:
        modules = {"pair": self.pair.state_dict(), "critics": self.critics.state_dict()}
        return modules | {"optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.pair.load_state_dict(saved["pair"])
        self.critics.load_state_dict(saved["critics"])
        self.optimizer.load_state_dict(saved["optimizer"])


def summary(view: View) -> Tensor:
    """(n, 15): a view in a few numbers, whatever its size, for the critics."""
    patches, tries = view["patches"].mean((1, 3, 4)), view["tries"][:, :, :, 1:]
    best, often = tries[:, :, :, 0].amax((1, 2, 3, 4)), tries[:, :, :, 1].mean((1, 2, 3, 4))
    power = view["changes"][:, :, :, 1].mean((1, 2, 3, 4))
    busy = view["cells"].std((1, 2, 3, 4))
    return torch.cat([view["scalars"], patches, torch.stack([best, often, power, busy], 1)], 1)


def _critic() -> nn.Module:
    return nn.Sequential(nn.Linear(_SUMMARY, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))


def _map255(state: State) -> Tensor:
    """(n,) mean absolute change, in the data's units of one, times 255."""
    return mean_absolute(state.x0, state.x) * 255 / state.scale


def _rounded(view: View) -> View:
    """As it will be read back from half precision, so that a choice is judged by what it was made from."""
    return {key: view[key].half().float() for key in KEYS}
