"""Trainable victims, their losses and weights (averaged, and interpolated with the original), and the state of training."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from rlab.core.goals import Goal, MultiLabel, Untargeted
from rlab.core.rng import seeded_globals
from rlab.data.batch import Batch
from rlab.errors import ModelError
from rlab.victims.base import Victim
from rlab.victims.callables import CallableVictim, SklearnVictim
from rlab.victims.graphs import GraphVictim
from rlab.victims.http import HttpVictim
from rlab.victims.torch_module import TorchVictim

Consistency = Literal["jsd", "kl"]
Weights = dict[str, Tensor]
INSTEAD: dict[type[object], str] = {
    GraphVictim: "an ONNX file or another graph cannot be trained: harden the torch model that it was exported from, and export "
    "it again",
    HttpVictim: "a model behind an address cannot be trained from here: harden its torch model where it is stored, "
    "or give the samples of `rlab attack` to the people who train it",
    SklearnVictim: "a scikit-learn model cannot be fine-tuned: fit it again with the samples of `rlab attack` added",
    CallableVictim: "a function has no weights: pass the torch module inside it as rlab.TorchVictim(module)",
    object: "only torch modules can be trained: pass one as rlab.TorchVictim(module)",
}


def trainable(model: nn.Module | Victim, batch: Batch) -> TorchVictim:
    """The model as a victim that can be trained; refuses all others."""
    if isinstance(model, nn.Module):
        model = TorchVictim(model, bounds=batch.bounds)
    if not isinstance(model, TorchVictim):
        why = next(text for kind, text in INSTEAD.items() if isinstance(model, kind))
        raise ModelError(f"{type(model).__name__} cannot be hardened: {why}")
    if not any(p.requires_grad and p.is_floating_point() for p in model.model.parameters()):
        raise ModelError(
            f"{type(model.model).__name__} cannot be hardened: none of its parameters requires a gradient; "
            "call .requires_grad_(True) on those that may change"
        )
    return model


def draw_weights(model: nn.Module, seed: int) -> None:
    """Draw all weights of the model anew, as its layers do when they are built."""
    with seeded_globals(seed):
        for name, layer in model.named_modules():
            draw = getattr(layer, "reset_parameters", None) or getattr(layer, "_reset_parameters", None)
            if draw is not None:
                draw()
            elif next(layer.parameters(recurse=False), None) is not None:
                raise ModelError(
                    f"{type(model).__name__} cannot be trained from scratch: its layer {name or type(layer).__name__!r} has "
                    "weights of its own but no method reset_parameters(), which draws them anew; add one"
                )


def twin(victim: TorchVictim) -> TorchVictim:
    """A copy with separate weights and a new count of queries."""
    other = copy.deepcopy(victim)
    other.rows = Counter()
    return other


def goal_of(victim: TorchVictim) -> Goal:
    """The goal that makes the victim wrong: any other class, or any label of several."""
    return MultiLabel() if victim.multilabel else Untargeted()


def correct(victim: TorchVictim, x: Tensor, y: Tensor, phase: str = "verify") -> Tensor:
    """(n,) bool on the CPU: where the victim is right about x (n, c, *size)."""
    goal, chunks = goal_of(victim), zip(x.split(4096), y.split(4096), strict=True)
    parts = [goal.correct(victim(a.to(victim.device), phase), b.to(victim.device)).cpu() for a, b in chunks]
    return torch.cat(parts)


@dataclass(frozen=True)
class Epoch:
    """The result of one epoch; accuracies are on validation data, with the weights that would be kept."""

    number: int  # from 1; 0 is the original
    loss: float
    clean: float
    robust: float  # share that is right both on clean inputs and under attack
    share: float  # of the change in weights that is kept
    flipped: int  # adversarial samples that fooled the model when they were made
    rows: int  # inputs sent to the model so far, in attacks, training and validation

    def __len__(self) -> int:
        return 1

    def note(self) -> str:
        return f"clean {self.clean:.1%}, under attack {self.robust:.1%}, loss {self.loss:.3g}"


@dataclass
class TrainerState:
    """Everything that changes from epoch to epoch."""

    weights: Weights
    ema: Weights
    best: Weights
    optimizer: dict[str, Any]
    flipped: Tensor  # (k,) samples flipped so far by class
    latest: Tensor  # (k,) samples flipped in the last epoch
    history: list[Epoch] = field(default_factory=list)  # finished epochs; the first is the original
    stopped: str = ""
    rows: int = 0  # inputs sent to the model so far

    @property
    def epochs(self) -> int:
        return len(self.history) - 1

    def tree(self) -> dict[str, Any]:
        return vars(self) | {"history": [asdict(epoch) for epoch in self.history]}

    @classmethod
    def of(cls, tree: Mapping[str, Any], device: torch.device) -> TrainerState:
        """The inverse of `tree`, with the weights on this device."""
        weights = ("weights", "ema", "best")
        moved = {key: {name: value.to(device) for name, value in tree[key].items()} for key in weights}
        return cls(**{**tree, **moved, "history": [Epoch(**epoch) for epoch in tree["history"]]})


def best_epoch(history: Sequence[Epoch]) -> Epoch:
    return max(history, key=lambda epoch: (epoch.robust, epoch.number))


def take(model: nn.Module) -> Weights:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


@torch.no_grad()
def follow(average: Weights, model: nn.Module, decay: float) -> Weights:
    """The exponential average one step closer to the model's weights, with a copy of its counters."""
    now = model.state_dict()
    moving = [name for name, value in now.items() if value.is_floating_point()]
    moved = torch._foreach_lerp([average[name] for name in moving], [now[name] for name in moving], 1 - decay)
    new = dict(zip(moving, moved, strict=True))
    return {name: new[name] if name in new else value.clone() for name, value in now.items()}


def blend(original: Mapping[str, Tensor], changed: Mapping[str, Tensor], share: float) -> Weights:
    """Interpolate between two sets of weights (Wortsman et al. 2022, https://arxiv.org/abs/2109.01903); 1 is `changed`."""
    return {
        name: torch.lerp(value, changed[name], share) if value.is_floating_point() else changed[name].clone()
        for name, value in original.items()
    }


def set_mode(model: nn.Module, batch_norm: str) -> None:
    """Switch to training mode; with `batch_norm` frozen, BatchNorm layers keep their statistics."""
    model.train()
    if batch_norm == "frozen":
        for layer in model.modules():
            if isinstance(layer, _BatchNorm):
                layer.eval()


def cross_entropy(scores: Tensor, target: Tensor, multilabel: bool) -> Tensor:
    """Cross-entropy with target probabilities (b, k); scores are log-probabilities, or log-odds for multiple labels."""
    if multilabel:
        return F.binary_cross_entropy_with_logits(scores, target)
    return -(target * scores.clamp(min=-1e4)).sum(1).mean()  # avoids 0 * -inf = NaN


def distributions(scores: Tensor, multilabel: bool) -> Tensor:
    """(b, k) -> log-probabilities (b, 1, k), or (b, k, 2) for multiple independent labels."""
    if multilabel:
        return torch.stack([F.logsigmoid(scores), F.logsigmoid(-scores)], -1)
    return scores.clamp(min=-1e4)[:, None]


def divergence(clean: Tensor, other: Tensor, multilabel: bool) -> Tensor:
    """(b,): Kullback-Leibler divergence from the clean output to the other, averaged over multiple labels."""
    p, q = (distributions(scores, multilabel) for scores in (clean, other))
    return (p.exp() * (p - q)).sum(2).mean(1)


def jensen_shannon(answers: Sequence[Tensor], multilabel: bool) -> Tensor:
    """(b,): Jensen-Shannon divergence of several outputs (Hendrycks et al. 2020)."""
    logs = torch.stack([distributions(scores, multilabel) for scores in answers])
    mean = logs.logsumexp(0) - math.log(len(answers))
    return (logs.exp() * (logs - mean)).sum(3).mean((0, 2))


def disagreement(kind: Consistency, clean: Tensor, views: Sequence[Tensor], multilabel: bool) -> Tensor:
    """Mean over the batch: jsd of all outputs, or kl from the clean output to each view."""
    if kind == "jsd":
        return jensen_shannon([clean, *views], multilabel).mean()
    return torch.stack([divergence(clean, view, multilabel).mean() for view in views]).mean()
