"""Hardening: attack the weights as they are, train on what was found beside clean data, judge, keep the best.

Three things hold clean accuracy where it was. Targets lie between the label and what the original model said of the
untouched input. Weights are averaged over steps. And what is kept of an epoch is drawn back along the line to the
original weights just so far that accuracy on validation data stays within `drop`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from rlab.comparison.libraries import own_chance
from rlab.core.goals import Goal, MultiLabel, Untargeted
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.hardening import weights as w
from rlab.hardening.balance import class_weights
from rlab.hardening.checkpoint import Checkpoint, Epoch, Progressed
from rlab.hardening.config import HardenConfig
from rlab.hardening.makers import AgentMaker, Maker, PerturbationSpace, SlopeMaker
from rlab.hardening.sources import Augment, LiveSource, Mixed, Pool, PoolSource, Source, find_pool, pool_counts
from rlab.hardening.trainable import twin
from rlab.policies import parse_policy
from rlab.progress import Progress
from rlab.victims.torch_module import TorchVictim, arrange

Step = Callable[[nn.Module, Tensor, Tensor, torch.optim.Optimizer], Tensor]
_SHARES = tuple(i / 10 for i in range(10, 0, -1))  # how much of the way from the original is tried, most first
_AVERAGED = 10  # weights are averaged over no more than one of so many steps of all
_WARM = 0.05  # share of all steps over which the learning rate rises
_BANK_BYTES = 2**31  # of the samples that are attacked together


class NotFinite(Exception):
    """The loss or the weights are no numbers any more."""


def goal_of(victim: TorchVictim) -> Goal:
    return MultiLabel() if victim.multilabel else Untargeted()


def make_maker(config: HardenConfig, batch: Batch, goal: Goal) -> Maker:
    """Who makes the samples, as the configuration names it."""
    assert config.palettes is not None
    assert config.patches is not None
    ground = PerturbationSpace(batch.bounds, config.palettes, config.patches, config.entries, goal)
    if config.policy == "slope":
        return SlopeMaker(ground, config.reach)
    return AgentMaker(ground, parse_policy(config.policy), config.budget, config.beyond)


class Trainer:
    """One hardening. Everything that changes is in `state`; chance depends on the seed, the epoch and the step alone."""

    def __init__(
        self,
        original: TorchVictim,
        data: tuple[Batch, Batch],
        config: HardenConfig,
        maker: Maker,
        step: Step | None,
        augment: Augment | None,
    ) -> None:
        self.original, self.config, self.maker, self.user_step, self.augment = original, config, maker, step, augment
        self.batch, self.validation = data
        self.goal = goal_of(original)
        self.victim, self.judged = twin(original), twin(original)
        self.victim.autocast = False  # half precision loses small gradients; `amp` is the way that does not
        self.optimizer = torch.optim.AdamW(
            [p for p in self.victim.model.parameters() if p.requires_grad], config.rate, weight_decay=config.decay
        )
        self.start = w.take(original.model)
        self.steps = math.ceil(len(self.batch) / config.together)
        self.decay = min(config.average, max(0.0, 1 - _AVERAGED / (self.steps * config.total)))
        self.pool: Pool | None = None

    def run(self, checkpoint: Checkpoint, progress: Progress) -> Progressed:
        state = checkpoint.load(self.original.device)
        if state is None:
            state = self._begin()
        self._restore(state)
        for one in state.history[1:]:
            progress(one)
        while not state.stopped and state.epochs < self.config.total:
            done = state.epochs
            self._one_epoch(state, checkpoint)
            state.rows = self._rows() + self.before
            checkpoint.save(state)
            if state.epochs > done:
                progress(state.history[-1])
        return state

    def _begin(self) -> Progressed:
        """The original, judged; refuses a model or labels that nothing can be learned from."""
        scores = self.judged(self.validation.x[:8].to(self.judged.device), "train")
        classes = scores.shape[1]
        for part in (self.batch, self.validation):
            self.goal.check(part.y, classes)
        clean = self._accuracy(self.start)
        if not clean > 0:
            raise InputError(
                f"the model has none of the {len(self.validation)} validation samples right, so there is nothing to "
                f"harden: check model and labels with `rlab doctor`"
            )
        first = Epoch(0, math.nan, clean, self._robust(), 0.0, 0, self._rows())
        none = torch.zeros(classes)
        return Progressed(
            w.take(self.victim.model), w.take(self.victim.model), self.start, self.optimizer.state_dict(),
            none, none.clone(), [first], rows=first.rows,
        )  # fmt: skip

    def _restore(self, state: Progressed) -> None:
        self.victim.model.load_state_dict(state.model)
        self.optimizer.load_state_dict(state.optimizer)
        self.classes = len(state.found)
        self.before = state.rows - self._rows()  # rows of earlier sittings

    def _one_epoch(self, state: Progressed, checkpoint: Checkpoint) -> None:
        number = state.epochs
        seed = self._seed(number)
        average = {name: value.clone() for name, value in state.average.items()}
        try:
            with own_chance(seed):
                source = self._source(state, number, checkpoint)
                if source is None:
                    state.stopped = (
                        f"nothing was found in round {number // self.config.epochs + 1}: "
                        f"the model holds against this attack, so there is nothing to train on"
                    )
                    return
                loss, found = self._train(source, state, average, number, seed)
        except NotFinite:
            state.stopped = (
                f"the loss turned NaN in epoch {number + 1}, so training stopped; the weights of epoch "
                f"{state.best_epoch.number} are kept: lower the learning rate"
            )
            return
        if self.config.mode == "live":
            state.last = found
            state.found = state.found + found
        state.model, state.average = w.take(self.victim.model), average
        state.optimizer = self.optimizer.state_dict()
        self._judge(state, loss, int(found.sum()))

    def _judge(self, state: Progressed, loss: float, found: int) -> None:
        """What would be kept of this epoch, and whether it is the best so far."""
        best, base = state.best_epoch, state.history[0]
        share, clean, kept = self._within(state.average, base.clean - self.config.drop)
        robust = self._robust() if share else base.robust
        rows = self._rows() + self.before
        state.history.append(Epoch(state.epochs + 1, loss, clean, robust, share, found, rows))
        if state.best_epoch is not best:
            state.best = kept
        idle = state.epochs - state.best_epoch.number
        if self.config.patience is not None and idle >= self.config.patience:
            state.stopped = f"no epoch was better than {state.best_epoch.number} for {idle} epochs"

    def _within(self, average: w.Weights, least: float) -> tuple[float, float, w.Weights]:
        """The longest way from the original at which clean accuracy is at least this, the accuracy, and the weights there."""
        for share in _SHARES:
            kept = w.blend(self.start, average, share)
            clean = self._accuracy(kept)
            if clean >= least:
                return share, clean, kept
        return 0.0, self._accuracy(self.start), self.start

    def _accuracy(self, weights: w.Weights) -> float:
        """Of the judged victim, which holds these weights from now on."""
        self.judged.model.load_state_dict(weights)
        right = 0
        for x, y in _parts(self.validation, 4096):
            scores = self.judged(x.to(self.judged.device), "train")
            right += int(self.goal.correct(scores, y.to(scores.device)).sum())
        return right / len(self.validation)

    def _robust(self) -> float:
        """The share of validation samples the judged victim has right, untouched and attacked."""
        few, held = self.validation[: self.config.judged], 0
        for number, (x, y) in enumerate(_parts(few, self._together())):
            x, y = x.to(self.judged.device), y.to(self.judged.device)
            made = self.maker(self.judged, x, y, self._seed(-1) + number)
            right = self.goal.correct(self.judged(x, "train"), y)
            held += int((right & ~made.flipped).sum())
        return held / len(few)

    def _source(self, state: Progressed, number: int, checkpoint: Checkpoint) -> Source | None:
        classes = len(state.found)
        if self.config.mode == "live":
            return LiveSource(self.batch, classes, self.config.share, self.augment, self.maker)
        first = number % self.config.epochs == 0 and (self.config.fresh or number == 0)
        if first:
            self.victim.model.eval()
            self.pool = find_pool(self.maker, self.victim, self.batch, self._together(), self._seed(number) + 1)
            checkpoint.save_pool(self.pool)
            state.last = pool_counts(self.pool, self.batch, classes)
            state.found = state.found + state.last
        elif self.pool is None:
            self.pool = checkpoint.load_pool()
        assert self.pool is not None
        if not len(self.pool):
            return None
        return PoolSource(self.batch, classes, self.config.share, self.augment, self.pool)

    def _train(
        self, source: Source, state: Progressed, average: w.Weights, number: int, seed: int
    ) -> tuple[float, Tensor]:
        """One pass over the data: mean loss, and (k,) how many samples were found."""
        weights = class_weights(state.last) if self.config.balance else torch.ones_like(state.last)
        order = torch.randperm(len(self.batch), generator=Generator().manual_seed(seed))
        total, found = 0.0, torch.zeros_like(state.last)
        for at, rows in enumerate(order.split(self.config.together)):
            self._pace(number * self.steps + at)
            self.victim.model.eval()
            mixed = source.mix(self.victim, rows, weights, seed + 17 * at)
            w.set_mode(self.victim.model, self.config.norm)
            loss = self._step(mixed)
            if not math.isfinite(loss):
                raise NotFinite
            w.follow(average, self.victim.model, self.decay)
            total += loss * len(rows)
            found += mixed.found
        if not w.finite(average):
            raise NotFinite
        return total / len(self.batch), found if self.config.mode == "live" else state.last

    def _step(self, mixed: Mixed) -> float:
        if self.user_step is not None:
            x = arrange(mixed.x, self.victim.normalise, self.victim.layout).to(self.victim.dtype)
            self.victim.rows["train"] += len(x)
            return _as_loss(self.user_step(self.victim.model, x, mixed.y, self.optimizer))
        target = self._targets(mixed)
        kind = self.victim.device.type
        with torch.autocast(kind, torch.bfloat16, enabled=self.config.amp):
            scores = self.victim.scores_with_grad(mixed.x, "train")
        loss = _soft_loss(scores.float(), target, self.victim.multilabel)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def _targets(self, mixed: Mixed) -> Tensor:
        """(b, k) between the labels and what the original says of the untouched inputs."""
        hard = mixed.y.float() if self.victim.multilabel else F.one_hot(mixed.y, self.classes).float()
        if not self.config.anchor:
            return hard
        soft = self.original.probabilities(self.original(mixed.x0, "train"))
        return hard.lerp(soft, self.config.anchor)

    def _pace(self, at: int) -> None:
        """The learning rate rises, then falls along a cosine."""
        through = at / (self.steps * self.config.total)
        height = through / _WARM if through < _WARM else 0.5 * (1 + math.cos(math.pi * (through - _WARM) / (1 - _WARM)))
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.rate * max(height, 1e-3)

    def _together(self) -> int:
        one = (self.config.entries + 1) * self.batch.x[0].numel() * self.batch.x.element_size()
        return max(1, min(4096, _BANK_BYTES // (8 * one)))

    def _rows(self) -> int:
        """All that reached the model: as it is trained, as it is judged, and as it was."""
        return sum(sum(one.rows.values()) for one in (self.victim, self.judged, self.original))

    def _seed(self, number: int) -> int:
        return (self.config.seed * 1_000_003 + (number + 2) * 7_919_000) % 2**62


def _parts(batch: Batch, together: int) -> list[tuple[Tensor, Tensor]]:
    return list(zip(batch.x.split(together), batch.y.split(together), strict=True))


def _as_loss(answer: object) -> float:
    """What a user's own step returned."""
    match answer:
        case Tensor() if answer.numel() == 1:
            return float(answer.detach())
        case float():
            return answer
    raise InputError(f"expected step(model, x, y, optimizer) to return the loss, got {type(answer).__name__}")


def _soft_loss(scores: Tensor, target: Tensor, multilabel: bool) -> Tensor:
    """Cross-entropy with targets (b, k) that are probabilities."""
    if multilabel:
        return F.binary_cross_entropy_with_logits(scores, target)
    return -(target * scores).sum(1).mean()
