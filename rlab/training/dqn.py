"""Deep Q-learning of the Q-map: double, dueling, n-step, on thousands of rows at once, with TorchRL's replay and loss.

A set of changes made in one step is one action: a row of weights over the Q-map that sum to one, so that TorchRL's
one-hot DQN loss values the set as the mean of its members. Double DQN: https://arxiv.org/abs/1509.06461.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.data.postprocs import MultiStep
from torchrl.objectives import DQNLoss, SoftUpdate, ValueEstimators

from rlab.core.env import IF_BETTER, Proposal, State
from rlab.policies.features import Features, fixed, moving, pack, unpack
from rlab.policies.learned import write
from rlab.policies.qmap import QMap, best_set
from rlab.training.episodes import EpisodeSampler

KEYS = ("before", "entries", "projection", "now", "entry_maps", "patch_maps", "scalars")


@dataclass(frozen=True)
class LearnerConfig:
    """How to learn; the defaults suit a few hundred rows on a CPU."""

    rows: int = 128  # that step together in each sampler
    rollout: int = 6  # steps between updates
    updates: int = 6  # gradient steps after each rollout
    batch: int = 128
    replay: int = 12_000
    rate: float = 5e-4
    gamma: float = 0.9
    n_steps: int = 1
    epsilon: float = 0.1  # share of random actions once exploration has settled
    settle: float = 0.3  # share of the training during which epsilon falls from 1
    tau: float = 0.01  # how fast the target network follows
    restraint: float = 0.1  # what having been tried lowers a value by, while collecting


class SetValue(TensorDictModuleBase):
    """Features -> `action_value` (n, planes * (f + 1) * p) and the greedy `action` as weights over it."""

    in_keys = list(KEYS)  # noqa: RUF012
    out_keys = ["action_value", "action", "chosen_action_value"]  # noqa: RUF012

    def __init__(self, network: QMap) -> None:
        super().__init__()
        self.network = network

    def forward(self, tensordict: TensorDict) -> TensorDict:
        seen = {key: tensordict.get(key).float() for key in KEYS}
        q = self.network(seen).float()
        plane, entry, patch = best_set(
            q.detach().masked_fill(~legal(seen)[:, None], -torch.inf), self.network.config.counts(q.shape[-1])
        )
        tensordict.set("action_value", q.flatten(1))
        action = as_weights(plane, entry, patch, q.shape)
        tensordict.set("action", action)
        tensordict.set("chosen_action_value", (q.flatten(1) * action).sum(1, keepdim=True))
        return tensordict


def legal(seen: Features) -> Tensor:
    """(n, f + 1, p) bool: changes that would change something, read off the features."""
    add = seen["entry_maps"][:, :, 0].flatten(2) < 0.5
    restore = seen["patch_maps"][:, :1].flatten(2) < 0.5  # map 0 is where nothing is
    return torch.cat([restore, add], 1)


def as_weights(plane: Tensor, entry: Tensor, patch: Tensor, shape: torch.Size) -> Tensor:
    """A set -> (n, planes * (f + 1) * p), each member 1 / size of the set."""
    _, planes, entries, patches = shape
    inside = patch >= 0
    at = (plane[:, None] * entries + entry) * patches + patch
    weight = inside / inside.sum(1, keepdim=True).clamp(min=1)
    flat = torch.zeros(len(plane), planes * entries * patches + 1, device=plane.device)
    flat.scatter_(1, torch.where(inside, at, flat.shape[1] - 1), weight.to(flat.dtype))
    return flat[:, :-1]


class Learner:
    """The network in training, and the replay of each sampler."""

    def __init__(self, network: QMap, samplers: list[EpisodeSampler], config: LearnerConfig) -> None:
        self.network, self.samplers, self.config = network, samplers, config
        self.device = next(network.parameters()).device
        self.value = SetValue(network)
        self.loss = DQNLoss(
            self.value, loss_function="smooth_l1", double_dqn=True, delay_value=True, action_space="one_hot"
        )
        self.loss.make_value_estimator(ValueEstimators.TD0, gamma=config.gamma)
        self.target = SoftUpdate(self.loss, tau=config.tau)
        self.optimizer = torch.optim.AdamW(self.loss.parameters(), lr=config.rate, weight_decay=1e-4)
        self.ahead = MultiStep(max(config.gamma, 1e-6), config.n_steps).to(self.device)  # it refuses 0
        self.replays = [self._replay() for _ in samplers]
        self.states: list[State] = []
        self.ended: list[tuple[float, float]] = []  # steps and L2 of episodes that reached the goal lately

    def _replay(self) -> TensorDictReplayBuffer:
        storage = LazyTensorStorage(self.config.replay, device=self.device)
        return TensorDictReplayBuffer(storage=storage, batch_size=self.config.batch)

    def begin(self) -> None:
        self.states = [self._remember(sampler, sampler.fresh(self.config.rows)) for sampler in self.samplers]

    def round(self, progress: float) -> dict[str, float]:
        """One rollout and its updates in every sampler; `progress` in 0..1 sets the exploration. Returns figures."""
        epsilon = max(self.config.epsilon, 1 - progress / self.config.settle)
        rate = self.config.rate * min(1.0, 2 * (1 - progress) + 0.05)  # the second half winds down
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        reward = sum(self._collect(i, epsilon) for i in range(len(self.samplers)))
        losses = [self._update(i) for _ in range(self.config.updates) for i in range(len(self.samplers))]
        recent = self.ended[-4000:]
        self.ended = recent
        steps = sorted(s for s, _ in recent)
        far = sorted(d for _, d in recent)
        return {
            "loss": sum(losses) / len(losses),
            "reward": reward / len(self.samplers),
            "epsilon": epsilon,
            "median_steps": steps[len(steps) // 2] if steps else float("nan"),
            "median_l2": far[len(far) // 2] if far else float("nan"),
        }

    @torch.no_grad()
    def _remember(self, sampler: EpisodeSampler, state: State) -> State:
        """The fixed features travel in the memory, flat."""
        own = fixed(state, sampler.task.grid, self.network.config.channels, self.network.compass)
        return replace(state, memory=pack(own))

    def _see(self, sampler: EpisodeSampler, state: State) -> Features:
        shape = self.network.config
        own = unpack(state.memory, sampler.task, shape.channels, shape.heads)
        seen = moving(state, sampler.task, shape.channels) | own
        return {key: seen[key].half() for key in KEYS}

    @torch.no_grad()
    def _collect(self, index: int, epsilon: float) -> float:
        sampler, state, total = self.samplers[index], self.states[index], 0.0
        views, chosen, rewards, dones = [self._see(sampler, state)], [], [], []
        for _ in range(self.config.rollout):
            entry, patch, action = self._act(state, views[-1], epsilon)
            keep = torch.full((len(state),), IF_BETTER, device=self.device)
            state, outcome = sampler.env.step(
                state, Proposal(write(state.assignment, entry, patch), keep, state.memory)
            )
            over = outcome.done | outcome.failed | (state.step >= sampler.task.budget)
            self.ended.extend(
                zip(state.step[outcome.done].tolist(), state.distance[outcome.done].tolist(), strict=True)
            )
            if over.any():
                state.put(over, self._remember(sampler, sampler.fresh(int(over.sum()))))
            chosen.append(action)
            rewards.append(outcome.reward.clamp(-1, 2))
            dones.append(over)
            views.append(self._see(sampler, state))
            total += float(outcome.reward.mean()) / self.config.rollout
        self.states[index] = state
        whole = _pack(views, chosen, rewards, dones)
        self.replays[index].extend(self.ahead(whole).reshape(-1))
        return total

    def _act(self, state: State, seen: Features, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
        """The best set, or for a share of the rows a random one."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            q = self.network({key: value.float() for key, value in seen.items()}).float()
        q = q - self.config.restraint * state.tried[:, None]
        random = torch.rand(len(q), 1, 1, 1, device=self.device) < epsilon
        q = torch.where(random, _by_chance(q), q).masked_fill(~legal(seen)[:, None], -torch.inf)
        plane, entry, patch = best_set(q, self.network.config.counts(q.shape[-1]))
        action = torch.stack([plane[:, None].expand_as(entry), entry, patch], 1).to(torch.int16)
        return entry, patch, action

    def _update(self, index: int) -> float:
        sampler = self.samplers[index]
        if len(self.replays[index]) < self.config.batch:
            return 0.0
        sample = self.replays[index].sample().to(self.device)
        shape = torch.Size([len(sample), self.network.config.planes, sampler.task.entries + 1, len(sampler.task.grid)])
        plane, entry, patch = sample["chosen"].long().unbind(1)
        sample.set("action", as_weights(plane[:, 0], entry, patch, shape))
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            loss = self.loss(sample)["loss"]
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.loss.parameters(), 5.0)
        self.optimizer.step()
        self.target.step()
        return float(loss.detach())

    def state_dict(self) -> dict[str, Any]:
        return {"loss": self.loss.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.loss.load_state_dict(saved["loss"])
        self.optimizer.load_state_dict(saved["optimizer"])


def _by_chance(q: Tensor) -> Tensor:
    """Values that choose any plane; any change where it is of single ones, its own set where it is of sets."""
    any_plane = torch.rand(*q.shape[:2], 1, 1, device=q.device)
    own = q[:, 1:] - q[:, 1:].amax((2, 3), keepdim=True)
    return any_plane + torch.cat([1e-3 * torch.rand_like(q[:, :1]), own], 1)


def _pack(views: list[Features], chosen: list[Tensor], rewards: list[Tensor], dones: list[Tensor]) -> TensorDict:
    """Steps in sequence -> (rows, steps), each with what came next."""
    rows, steps = len(chosen[0]), len(chosen)
    now = {key: torch.stack([view[key] for view in views[:-1]], 1) for key in KEYS}
    then = {key: torch.stack([view[key] for view in views[1:]], 1) for key in KEYS}
    done = torch.stack(dones, 1)[..., None]
    end = {"reward": torch.stack(rewards, 1)[..., None], "done": done, "terminated": done.clone()}
    whole = now | {"chosen": torch.stack(chosen, 1), "next": then | end}
    return TensorDict(whole, batch_size=[rows, steps])
