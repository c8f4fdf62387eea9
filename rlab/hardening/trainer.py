"""The training loop: attack the current weights, train on adversarial and clean samples, evaluate, keep the best.

Three things preserve clean accuracy. Targets lie between the label and the original model's output for the clean input.
Weights are averaged over steps. And the weights of an epoch are interpolated with the original ones, just far enough
that accuracy on validation data falls by no more than `max_clean_drop`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from rlab.core.rng import seeded_globals
from rlab.data.batch import Batch
from rlab.errors import ModelError, OptionError
from rlab.hardening.batches import TrainingBatch, class_counts, class_weights, make_batch
from rlab.hardening.options import HardenOptions
from rlab.hardening.trainable import (
    Epoch,
    TrainerState,
    Weights,
    best_epoch,
    blend,
    correct,
    cross_entropy,
    disagreement,
    draw_weights,
    follow,
    goal_of,
    set_mode,
    take,
    twin,
)
from rlab.progress import Progress
from rlab.storage.resume import Resume
from rlab.victims.torch_module import TorchVictim

SHARES = tuple(i / 10 for i in range(10, 0, -1))  # shares of the change in weights to try, largest first
FIRST = 8  # inputs that determine the number of classes
_AVERAGED = 10  # weights are averaged over at most a tenth of all steps
_KEPT_AT_FIRST = 0.8  # of clean accuracy, after one epoch; a model that loses more does not recover
_WARM = 0.05  # share of all steps in which the learning rate rises
_BESIDE_BYTES = 2**32  # limit for keeping the training data on the model's device
_BANK_BYTES = 2**31  # limit for samples that are attacked together


class HardeningTrainer:
    """One hardening. All changes are in its state; randomness depends only on the seed, the epoch and the step."""

    def __init__(self, original: TorchVictim, train: Batch, validation: Batch, options: HardenOptions) -> None:
        self.original, self.validation, self.options = original, validation, options
        self.batch = _beside(train, original.device)
        self.goal = goal_of(original)
        self.generator = options.generator(train, self.goal)
        self.victim, self.kept = twin(original), twin(original)  # the model in training; the model to keep
        fast = options.amp and original.device.type == "cuda"
        self.victim.autocast, self.victim.half = fast, torch.bfloat16  # float16 loses small gradients
        if fast and train.rank == 2:
            self.victim.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if options.from_scratch:
            draw_weights(self.victim.model, options.seed)
        self.optimizer = optimizer_for(self.victim.model, options)
        self.start = take(self.victim.model)
        self.steps = math.ceil(len(train) / options.training_batch)
        self.decay = min(options.ema_decay, max(0.0, 1 - _AVERAGED / (self.steps * options.epochs)))

    def run(self, resume: Resume | None, progress: Progress) -> TrainerState:
        """Run all unfinished epochs, and save the state after each."""
        tree = None if resume is None else resume.recall("state", "")
        state = self._begin() if tree is None else TrainerState.of(tree, self.original.device)
        self.victim.model.load_state_dict(state.weights)
        self.optimizer.load_state_dict(state.optimizer)
        self.classes, self.earlier_rows = len(state.flipped), state.rows - self._rows()
        for epoch in state.history[1:]:
            progress(epoch)
        while not state.stopped and state.epochs < self.options.epochs:
            finished = state.epochs
            self._epoch(state)
            state.rows = self._rows() + self.earlier_rows
            if resume is not None:
                resume.record("state", "", state.tree())
            if state.epochs > finished:
                progress(state.history[-1])
        return state

    def _begin(self) -> TrainerState:
        """The initial state, with the original model evaluated; refuses unusable models and labels."""
        scores = self.kept(self.validation.x[:FIRST].to(self.kept.device), "train")
        classes = scores.shape[1]
        for part in (self.batch, self.validation):
            part.check_numbers(classes)
            self.goal.check(part.y, classes)
        clean = self._accuracy(self.start)
        if not clean > 0 and not self.options.from_scratch:
            raise ModelError(
                f"the model is wrong on all {len(self.validation)} validation samples, so there is nothing to harden: "
                "check the model and the labels with `rlab doctor`"
            )
        first = Epoch(0, math.nan, clean, self._robust(), 0.0, 0, self._rows())
        weights, ema, none = take(self.victim.model), take(self.victim.model), torch.zeros(classes)
        optimizer = self.optimizer.state_dict()
        return TrainerState(weights, ema, self.start, optimizer, none, none.clone(), [first], rows=first.rows)

    def _epoch(self, state: TrainerState) -> None:
        number = state.epochs
        with seeded_globals(self._seed(number)):
            loss, flipped, ema = self._train(state)
        if not math.isfinite(loss):
            state.stopped = (
                f"the loss became NaN in epoch {number + 1}, so training stopped and the weights of epoch "
                f"{best_epoch(state.history).number} are kept: lower the learning rate"
            )
            return
        state.latest, state.flipped = flipped, state.flipped + flipped
        state.weights, state.ema = take(self.victim.model), ema
        state.optimizer = self.optimizer.state_dict()
        self._evaluate(state, loss, int(flipped.sum()))

    def _evaluate(self, state: TrainerState, loss: float, flipped: int) -> None:
        """Evaluate the weights to keep of this epoch, and keep them if they are the best so far."""
        best, base = best_epoch(state.history), state.history[0]
        scratch = self.options.from_scratch
        if not scratch and not state.epochs and (fell_to := self._accuracy(state.ema)) < _KEPT_AT_FIRST * base.clean:
            state.stopped = (
                f"clean accuracy fell from {base.clean:.1%} to {fell_to:.1%} in the first epoch, so training stopped and the "
                f"original weights are kept: lower the learning rate from {self.options.learning_rate:g}"
            )
            return
        least = -math.inf if scratch else base.clean - self.options.max_clean_drop
        share, clean, kept = self._interpolate(state.ema, least)
        robust = self._robust() if share else base.robust
        rows = self._rows() + self.earlier_rows
        state.history.append(Epoch(state.epochs + 1, loss, clean, robust, share, flipped, rows))
        if best_epoch(state.history) is not best:
            state.best = kept
        idle = state.epochs - best_epoch(state.history).number
        if self.options.patience is not None and idle >= self.options.patience:
            state.stopped = f"training stopped: {idle} epochs did not improve on epoch {state.epochs - idle}"

    def _interpolate(self, ema: Weights, least: float) -> tuple[float, float, Weights]:
        """The largest share of the change with a clean accuracy of at least `least`, that accuracy, and the weights."""
        for share in SHARES:
            kept = blend(self.start, ema, share)
            clean = self._accuracy(kept)
            if clean >= least:
                return share, clean, kept
        return 0.0, self._accuracy(self.start), self.start

    def _accuracy(self, weights: Weights) -> float:
        """Load these weights into the model to keep, and return its clean accuracy on validation data."""
        self.kept.model.load_state_dict(weights)
        return int(correct(self.kept, self.validation.x, self.validation.y, "train").sum()) / len(self.validation)

    def _robust(self) -> float:
        """The share of validation samples that the model to keep gets right both clean and attacked."""
        few = self.validation[: self.options.validation_attacked]
        flipped = self.generator.over(self.kept, few, self._chunk(), self._seed(-1)).flipped
        return int((correct(self.kept, few.x, few.y, "train") & ~flipped).sum()) / len(few)

    def _train(self, state: TrainerState) -> tuple[float, Tensor, Weights]:
        """One epoch: the mean loss (NaN if it or the weights are not finite), flipped samples (k,), averaged weights."""
        seed = self._seed(state.epochs)
        weights = class_weights(state.latest) if self.options.balance else torch.ones_like(state.latest)
        order = torch.randperm(len(self.batch), generator=Generator().manual_seed(seed))
        total, flipped, ema = 0.0, torch.zeros_like(state.latest), state.ema
        for at, rows in enumerate(order.split(self.options.training_batch)):
            self._schedule(state.epochs * self.steps + at)
            self.victim.model.eval()
            own, device = rows.to(self.batch.x.device), self.victim.device
            x, y = self.batch.x[own].to(device), self.batch.y[own].to(device)
            batch = make_batch(x, y, weights, self.options, self.generator, self.victim, seed + 17 * at)
            set_mode(self.victim.model, self.options.batch_norm)
            loss, wrong = self._step(batch)
            if not math.isfinite(loss):
                return math.nan, flipped, ema
            ema = follow(ema, self.victim.model, self.decay)
            total += loss * len(rows)
            flipped += class_counts(batch.y[batch.rows][wrong], self.classes)
        finite = all(bool(torch.isfinite(value).all()) for value in ema.values())
        return total / len(self.batch) if finite else math.nan, flipped, ema

    def _step(self, batch: TrainingBatch) -> tuple[float, Tensor]:
        """One step: the loss, and (m,) where the first harder version fools the model."""
        x = torch.cat([batch.x0, *batch.views])
        if self.options.step is not None:
            own = self.victim.reading.arrange(x).to(self.victim.dtype)
            self.victim.rows["train"] += len(own)
            labels = torch.cat([batch.y, *(batch.y[batch.rows] for _ in batch.views)])
            assert batch.flipped is not None
            return _as_loss(self.options.step(self.victim.model, own, labels, self.optimizer)), batch.flipped
        target = self._targets(batch)
        scores = self.victim.scores_with_grad(x, "train").float()
        clean, harder = scores[: len(batch.x0)], scores[len(batch.x0) :]
        views = harder.split(len(batch.rows)) if batch.views else ()
        loss, multilabel = cross_entropy(clean, target, self.victim.multilabel), self.victim.multilabel
        if views and self.options.distorted_weight:
            losses = [cross_entropy(view, target[batch.rows], multilabel) for view in views]
            loss = loss + self.options.distorted_weight * torch.stack(losses).mean()
        if views and self.options.consistency_weight:
            divergence = disagreement(self.options.consistency, clean[batch.rows], views, multilabel)
            loss = loss + self.options.consistency_weight * divergence
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        wrong = self.goal.reached(views[0].detach(), batch.y[batch.rows]) if views else batch.rows[:0]
        return float(loss.detach()), wrong

    def _targets(self, batch: TrainingBatch) -> Tensor:
        """(b, k): between the labels and the original model's output for the clean inputs."""
        hard = batch.y.float() if self.victim.multilabel else F.one_hot(batch.y, self.classes).float()
        if not self.options.distillation_weight:
            return hard
        soft = self.original.probabilities(self.original(batch.x0, "train"))
        return hard.lerp(soft, self.options.distillation_weight)

    def _schedule(self, at: int) -> None:
        """Set the learning rate: a linear rise, then a cosine."""
        through = at / (self.steps * self.options.epochs)
        height = through / _WARM if through < _WARM else 0.5 * (1 + math.cos(math.pi * (through - _WARM) / (1 - _WARM)))
        for group in self.optimizer.param_groups:
            group["lr"] = self.options.learning_rate * max(height, 1e-3)

    def _chunk(self) -> int:
        bank = (self.options.entries + 1) * self.batch.x[0].numel() * self.batch.x.element_size()
        return max(1, min(4096, _BANK_BYTES // (8 * bank)))

    def _rows(self) -> int:
        """All inputs sent to the model in training, the model to keep, and the original."""
        return sum(victim.rows.total() for victim in (self.victim, self.kept, self.original))

    def _seed(self, number: int) -> int:
        return (self.options.seed * 1_000_003 + (number + 2) * 7_919_000) % 2**62


def optimizer_for(model: nn.Module, options: HardenOptions) -> torch.optim.Optimizer:
    """AdamW to fine-tune, SGD with Nesterov momentum from scratch."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    if options.from_scratch:
        return torch.optim.SGD(parameters, options.learning_rate, 0.9, weight_decay=options.weight_decay, nesterov=True)
    return torch.optim.AdamW(parameters, options.learning_rate, weight_decay=options.weight_decay)


def _as_loss(answer: object) -> float:
    loss = answer.detach().item() if isinstance(answer, Tensor) and answer.numel() == 1 else answer
    if isinstance(loss, float):
        return loss
    raise OptionError(f"expected step(model, x, y, optimizer) to return the loss, got {type(answer).__name__}")


def _beside(batch: Batch, device: torch.device) -> Batch:
    """The batch on the model's device, unless it is too large."""
    small = batch.x.numel() * batch.x.element_size() < _BESIDE_BYTES
    return replace(batch, x=batch.x.to(device), y=batch.y.to(device)) if small else batch
