"""Training the belief search's controller: a dueling double DQN, read top to bottom. In plain torch, minutes on a CPU.

An episode is an attack of `steps` queries on rows that step together. The reward of a query is the fall of the logarithm of the
best flip's distance (before the first: of everything distorted), and rewards are discounted so that the return is the area under
the anytime curve over the logarithm of the queries:

    w(t) = log(horizon / t)    the share of the curve that a fall at query t lowers
    gamma_t = w(t + 1) / w(t)

    target = r_1 + gamma_1 r_2 + ... + gamma_1..gamma_n max Q'      action by the online, value by the target network

An episode that was cut by its length is truncated and bootstraps; one that the model's failure ended is terminated and does not.
Double DQN: https://arxiv.org/abs/1509.06461. Shapes: T steps, n rows, c candidates.
"""

from __future__ import annotations

import copy
import math
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from rlab import __version__
from rlab.data.batch import Batch
from rlab.policies.belief.controller import Candidates, Controller, read_controller, save_controller
from rlab.runs.fingerprint import data_fingerprint, files_of, model_fingerprint
from rlab.storage.config import Options, check, read_config, write_config
from rlab.storage.digest import digest
from rlab.storage.resume import open_run
from rlab.training.arenas import (
    Arena,
    Choose,
    ControllerSource,
    Episode,
    follow_rule,
    make_arenas,
    measure_area,
    run_episode,
)
from rlab.training.metrics import MetricLogger
from rlab.training.ranks import ALONE, Ranks
from rlab.victims.base import Victim
from rlab.victims.resolve import load_model

CONTROLLER, LOG = "controller.safetensors", "log.jsonl"
_STATE = "state"
Figures = dict[str, float]
Tell = Callable[[Figures], None]


class ControllerOptions(Options):
    """What to train on, how long, and how to learn."""

    kind: Literal["controller"] = "controller"
    sources: tuple[ControllerSource, ...] = Field(min_length=1)
    minutes: float = Field(10.0, gt=0)
    validation_interval: float = Field(2.0, gt=0)  # minutes between validations
    validation_rows: int = Field(32, ge=1)  # of each arena
    validation_share: float = Field(0.2, gt=0, lt=1)  # of the data, never trained on
    rows: int = Field(64, ge=1)  # that step together
    steps: int = Field(99, ge=2)  # of an episode; with the clean query, as many queries and one
    horizon: int = Field(300, ge=3)  # queries after which a fall of the distance counts no more
    discount: float | None = Field(None, ge=0, le=1)  # in place of the area's own: 0 counts nothing but the next query
    n_steps: int = Field(3, ge=1)
    width: int = Field(64, ge=1)
    batch: int = Field(512, ge=1)
    updates: int = Field(1, ge=1)  # gradient steps after each step of the rows
    buffer_size: int = Field(60_000, ge=1)
    learning_rate: float = Field(1e-3, gt=0)
    epsilon: tuple[float, float] = (0.5, 0.1)  # share of random candidates at the start, and from the middle on
    tau: float = Field(0.005, gt=0, le=1)  # how fast the target network follows
    start: str | None = None  # a controller's file to begin with
    device: str = "cpu"
    seed: int = 0

    @classmethod
    def read(cls, path: Path, minutes: float | None = None, device: str | None = None) -> ControllerOptions:
        """From a YAML or TOML file; what is given here goes before it."""
        before = {"minutes": minutes, "device": device}
        return check(cls, read_config(path) | {k: v for k, v in before.items() if v is not None}, str(path))

    def load(self) -> list[tuple[ControllerSource, list[Victim], Batch]]:
        """Each source with its models and data."""
        loaded = []
        for source in self.sources:
            batch = source.data.load()
            models = [model.model_copy(update={"device": model.device or self.device}) for model in source.models]
            loaded.append((source, [load_model(model, batch.bounds) for model in models], batch))
        return loaded


def area_weight(queries: Tensor, horizon: int) -> Tensor:
    """The share of the anytime curve, over the logarithm of the queries, that lies after so many queries."""
    return (math.log(horizon) - queries.clamp(min=1).log()).clamp(min=0)


def discounts(steps: int, horizon: int) -> Tensor:
    """(T,): what a reward one step later is worth; step t asks query t + 2, the clean one being the first."""
    weight = area_weight(torch.arange(2, steps + 3).float(), horizon)
    return weight[1:] / weight[:-1].clamp(min=1e-9)


def n_step_returns(reward: Tensor, discount: Tensor, failed: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """reward and failed (T, n), discount (T,) -> discounted sums (T, n) of up to `steps` rewards, what the value of the
    state after them counts (T, n), which is nothing once terminated, and the index of that state (T,)."""
    length = len(reward)
    total, factor = torch.zeros_like(reward), torch.ones_like(reward)
    after = (torch.arange(length) + steps).clamp(max=length)
    for ahead in range(steps):
        rows = torch.arange(max(length - ahead, 0))
        total[rows] += factor[rows] * reward[rows + ahead]
        factor[rows] *= discount[rows + ahead, None] * ~failed[rows + ahead]
    return total, factor, after


def double_q_target(reward: Tensor, factor: Tensor, online: Tensor, target: Tensor) -> Tensor:
    """reward and factor (n,), Q of the state after (n, c) by both networks -> (n,)."""
    return reward + factor * target.gather(1, online.argmax(1, keepdim=True))[:, 0]


class ReplayBuffer:
    """Transitions of all arenas together, the oldest overwritten; on the CPU."""

    def __init__(self, size: int) -> None:
        self.size, self.added, self.columns = size, 0, dict[str, Tensor]()

    def __len__(self) -> int:
        return min(self.added, self.size)

    def extend(self, columns: dict[str, Tensor]) -> None:
        """Columns (n, ...) of n transitions."""
        count = len(next(iter(columns.values())))
        if not self.columns:
            self.columns = {name: value.new_zeros(self.size, *value.shape[1:]) for name, value in columns.items()}
        places = (torch.arange(count) + self.added) % self.size
        for name, value in columns.items():
            self.columns[name][places] = value
        self.added += count

    def sample(self, count: int) -> dict[str, Tensor]:
        rows = torch.randint(len(self), (count,))
        return {name: value[rows] for name, value in self.columns.items()}


class ControllerTrainer:
    """Acts in one arena after the other, each source by its weight, and learns from all. Of several processes each acts with a
    share of the rows and learns from what it saw; the networks are the same in all of them."""

    def __init__(
        self,
        controller: Controller,
        arenas: Sequence[Sequence[Arena]],
        options: ControllerOptions,
        ranks: Ranks = ALONE,
    ) -> None:
        self.online, self.target, self.arenas, self.options = controller, copy.deepcopy(controller), arenas, options
        self.optimizer = torch.optim.Adam(controller.parameters(), lr=options.learning_rate)
        self.rows, self.batch = (ranks.split(options.rows, "rows of"), ranks.split(options.batch, "a batch of"))
        self.buffer, self.rng = ReplayBuffer(-(-options.buffer_size // ranks.count)), random.Random(options.seed)
        self.ranks = ranks

    def round(self, progress: float) -> Figures:
        """One episode of some arena, and as many updates as it has steps; `progress` in 0..1 sets the exploration."""
        options = self.options
        (arenas,) = self.rng.choices(self.arenas, [source.weight for source in options.sources])
        arena = self.rng.choice(arenas)
        first, last = options.epsilon
        epsilon = max(last, first + (last - first) * 2 * progress)
        for group in self.optimizer.param_groups:
            group["lr"] = options.learning_rate * min(1.0, 2 * (1 - progress) + 0.05)  # the second half winds down
        episode = run_episode(arena, self.rows, options.steps, lambda seen: self._explore(seen, epsilon))
        self.buffer.extend(transitions(episode, options))
        losses = [self._update() for _ in range(options.steps * options.updates)]
        return {"loss": sum(losses) / len(losses), "reward": float(episode.reward.sum(0).mean()), "epsilon": epsilon}

    def _explore(self, candidates: Candidates, epsilon: float) -> Tensor:
        greedy = self.online.choose(candidates)
        anything = torch.multinomial(candidates.legal.float(), 1)[:, 0]
        return torch.where(torch.rand(len(greedy), device=greedy.device) < epsilon, anything, greedy)

    def _update(self) -> float:
        device = next(self.online.parameters()).device  # the networks follow the rows they choose for
        self.target.to(device)
        batch = {name: value.to(device) for name, value in self.buffer.sample(self.batch).items()}
        after = (batch["after_described"], batch["after_standing"], batch["after_legal"])
        with torch.no_grad():
            goal = double_q_target(batch["reward"], batch["factor"], self.online(*after), self.target(*after))
        q = self.online(batch["described"], batch["standing"], batch["legal"])
        loss = F.smooth_l1_loss(q.gather(1, batch["action"][:, None])[:, 0], goal)
        self.optimizer.zero_grad()
        loss.backward()
        self.ranks.average(self.online.parameters())
        torch.nn.utils.clip_grad_norm_(self.online.parameters(), 5.0)
        self.optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(self.target.parameters(), self.online.parameters(), strict=True):
                slow.lerp_(fast, self.options.tau)
        return float(loss.detach())

    def state_dict(self) -> dict[str, Any]:
        networks = {"online": self.online.state_dict(), "target": self.target.state_dict()}
        return networks | {"optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.online.load_state_dict(saved["online"])
        self.target.load_state_dict(saved["target"])
        self.optimizer.load_state_dict(saved["optimizer"])


def transitions(episode: Episode, options: ControllerOptions) -> dict[str, Tensor]:
    """An episode as rows of the replay buffer; steps after a row's failure are left out."""
    length = len(episode.action)
    constant = options.discount
    discount = discounts(length, options.horizon) if constant is None else torch.full((length,), constant)
    total, factor, after = n_step_returns(episode.reward.cpu(), discount, episode.failed.cpu(), options.n_steps)
    columns = {"action": episode.action.cpu(), "reward": total, "factor": factor}
    for name in ("described", "standing", "legal"):
        seen = torch.stack([getattr(candidates, name) for candidates in episode.seen]).cpu()
        columns |= {name: seen[:-1], f"after_{name}": seen[after]}
    gone = torch.cat([torch.zeros_like(episode.failed[:1]), episode.failed[:-1]]).cpu()
    return {name: value[~gone] for name, value in columns.items()}


def train_controller(
    loaded: Sequence[tuple[ControllerSource, Sequence[Victim], Batch]],
    options: ControllerOptions,
    folder: Path,
    tell: Tell = lambda figures: None,
    ranks: Ranks = ALONE,
) -> Path:
    """Writes FOLDER/controller.safetensors, the best on validation, or goes on with the training that is there."""
    marks = [data_fingerprint(batch) for _, _, batch in loaded]
    models = digest(*(model_fingerprint("", victim) for _, victims, _ in loaded for victim in victims))
    asked = {"command": "train", **options.plain(), "the models": models, "the data": digest(*marks)}
    with ranks.alone(open_run(folder, asked | files_of(options.plain()))) as resume:
        torch.manual_seed(options.seed)
        controller = Controller(options.width)
        if options.start is not None:
            controller.load_state_dict(read_controller(options.start)[0].state_dict())
        learning, validation = [], []
        for source, victims, batch in loaded:
            order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(options.seed)).tolist()
            share = max(1, round(options.validation_share * len(batch)))
            own = options.seed + 7919 * ranks.rank  # each process acts in episodes of its own
            learning.append(make_arenas(source, victims, batch[order[share:]], options.steps, own))
            validation += make_arenas(source, victims, batch[order[:share]], options.steps, options.seed)
        trainer, seconds, best = ControllerTrainer(controller, learning, options, ranks), 0.0, -math.inf
        saved = None
        if resume is not None:
            rule = [_validate(arena, follow_rule, options) for arena in validation]
            logger = MetricLogger(folder / LOG)
            resume.create()
            write_config(folder, options.plain())
            saved = resume.recall(_STATE, "")
        if (saved := ranks.same(saved)) is not None:
            trainer.load_state_dict(saved["trainer"])
            seconds, best = saved["seconds"], saved["best"]
        if not ranks.first:
            torch.manual_seed(options.seed + 7919 * ranks.rank)
        began, validated, rounds = time.monotonic() - seconds, time.monotonic(), 0
        progress = seconds / (options.minutes * 60)
        while progress < 1:
            progress = ranks.agree(min(1.0, (time.monotonic() - began) / (options.minutes * 60)))
            figures, rounds = trainer.round(progress), rounds + 1
            if progress < 1 and time.monotonic() - validated < options.validation_interval * 60:
                continue
            validated = time.monotonic()
            if resume is None:
                continue
            gains = {
                arena.name: before - _validate(arena, trainer.target.choose, options)
                for arena, before in zip(validation, rule, strict=True)
            }
            figures |= {"gain": sum(gains.values()) / len(gains), "rounds": rounds, "progress": progress}
            if figures["gain"] > best:
                best = figures["gain"]
                card = {"rlab": __version__, "config": options.plain(), "validation": figures, "gains": gains}
                save_controller(trainer.target, folder / CONTROLLER, card)
            seconds, validated = time.monotonic() - began, time.monotonic()
            resume.record(_STATE, "", {"trainer": trainer.state_dict(), "seconds": seconds, "best": best})
            logger.note(figures, seconds)
            tell(figures)
        return folder / CONTROLLER


def _validate(arena: Arena, choose: Choose, options: ControllerOptions) -> float:
    return float(measure_area(arena, choose, options.validation_rows, options.steps, options.seed).mean())
