"""What is trained: victims that can be, their weights, averaged and drawn back to where they came from, and the history."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from rlab.core.goals import Goal, MultiLabel, Untargeted
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.victims.base import Victim
from rlab.victims.callables import CallableVictim, OnnxVictim, SklearnVictim
from rlab.victims.http import HttpVictim
from rlab.victims.torch_module import TorchVictim

Weights = dict[str, Tensor]
INSTEAD: dict[type[Victim], str] = {
    OnnxVictim: "an ONNX file holds no training: harden the torch model it was exported from, and export that again",
    HttpVictim: "a model behind an address answers and does not learn: harden its torch model where it is kept, "
    "or hand the samples of `rlab attack` to those who train it",
    SklearnVictim: "a scikit-learn model is fitted, not fine-tuned: fit it again with the samples of `rlab attack` added",
    CallableVictim: "a function has no weights: pass the torch module inside it as rlab.TorchVictim(module)",
}
_GENERAL = "only torch modules can be trained: pass one as rlab.TorchVictim(module)"


def trainable(model: nn.Module | Victim, batch: Batch) -> TorchVictim:
    """The victim to train; refuses one that cannot be, by name."""
    if isinstance(model, nn.Module):
        model = TorchVictim(model, bounds=batch.bounds)
    if not isinstance(model, TorchVictim):
        why = next((text for kind, text in INSTEAD.items() if isinstance(model, kind)), _GENERAL)
        raise InputError(f"{type(model).__name__} cannot be hardened: {why}")
    if not any(p.requires_grad and p.is_floating_point() for p in model.model.parameters()):
        raise InputError(
            f"{type(model.model).__name__} cannot be hardened: none of its parameters requires a gradient, "
            f"call .requires_grad_(True) on those that may change"
        )
    return model


def twin(victim: TorchVictim) -> TorchVictim:
    """A copy with weights and a count of its own."""
    other = copy.deepcopy(victim)
    other.rows = Counter()
    return other


def goal_of(victim: TorchVictim) -> Goal:
    """What counts as wrong: any other class, or any label where there are several."""
    return MultiLabel() if victim.multilabel else Untargeted()


def correct(victim: TorchVictim, x: Tensor, y: Tensor, phase: str = "verify") -> Tensor:
    """(n,) bool, on the CPU: where the victim has x (n, c, *size) right."""
    goal, chunks = goal_of(victim), zip(x.split(4096), y.split(4096), strict=True)
    parts = [goal.correct(victim(a.to(victim.device), phase), b.to(victim.device)).cpu() for a, b in chunks]
    return torch.cat(parts)


@dataclass(frozen=True)
class Epoch:
    """What one pass over the data brought; accuracies are of what would be kept of it, on validation data."""

    number: int  # from 1; 0 is the original
    loss: float
    clean: float
    robust: float  # correct on the untouched input and under the attack
    share: float  # of the way from the original weights
    flipped: int  # adversarial samples the model got wrong as they were made
    rows: int  # that reached the model so far, attacks, training and validation together

    def __len__(self) -> int:
        return 1

    def note(self) -> str:
        return f"clean {self.clean:.1%}, under attack {self.robust:.1%}, loss {self.loss:.3g}"


@dataclass
class TrainerState:
    """All that changes from epoch to epoch."""

    weights: Weights
    ema: Weights
    best: Weights
    optimizer: dict[str, Any]
    flipped: Tensor  # (k,) samples flipped so far by class
    latest: Tensor  # (k,) in the last epoch or round
    history: list[Epoch] = field(default_factory=list)  # finished epochs; the first is the original
    stopped: str = ""
    rows: int = 0  # that reached the model so far

    @property
    def epochs(self) -> int:
        return len(self.history) - 1

    def tree(self) -> dict[str, Any]:
        return vars(self) | {"history": [asdict(epoch) for epoch in self.history]}

    @classmethod
    def of(cls, tree: Mapping[str, Any], device: torch.device) -> TrainerState:
        """The inverse of `tree`, weights on this device."""
        weights = ("weights", "ema", "best")
        moved = {key: {name: value.to(device) for name, value in tree[key].items()} for key in weights}
        return cls(**{**tree, **moved, "history": [Epoch(**epoch) for epoch in tree["history"]]})


def best_epoch(history: Sequence[Epoch]) -> Epoch:
    return max(history, key=lambda epoch: (epoch.robust, epoch.number))


def take(model: nn.Module) -> Weights:
    """A copy of all parameters and buffers."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


@torch.no_grad()
def follow(average: Weights, model: nn.Module, decay: float) -> None:
    """Moves an exponential average a step towards the model's weights; counters are copied."""
    now = model.state_dict()
    moving = [name for name, value in now.items() if value.is_floating_point()]
    torch._foreach_lerp_([average[name] for name in moving], [now[name] for name in moving], 1 - decay)
    for name in now.keys() - set(moving):
        average[name].copy_(now[name])


def blend(original: Mapping[str, Tensor], changed: Mapping[str, Tensor], share: float) -> Weights:
    """A point on the line between two weights (Wortsman et al. 2022, https://arxiv.org/abs/2109.01903); 1 is `changed`."""
    return {
        name: torch.lerp(value, changed[name], share) if value.is_floating_point() else changed[name].clone()
        for name, value in original.items()
    }


def set_mode(model: nn.Module, batch_norm: str) -> None:
    """Training mode; with `batch_norm` frozen, BatchNorm layers keep the statistics of clean data."""
    model.train()
    if batch_norm == "frozen":
        for layer in model.modules():
            if isinstance(layer, _BatchNorm):
                layer.eval()
