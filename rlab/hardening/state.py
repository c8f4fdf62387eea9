"""What changes as a model is hardened: its weights, averaged and drawn back to where they came from, and its history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

Weights = dict[str, Tensor]


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

    @property
    def best_epoch(self) -> Epoch:
        return best_epoch(self.history)

    def tree(self) -> dict[str, Any]:
        return vars(self) | {"history": [asdict(epoch) for epoch in self.history]}

    @classmethod
    def of(cls, tree: Mapping[str, Any], device: torch.device) -> TrainerState:
        """The inverse of `tree`, weights on this device."""
        weights = ("weights", "ema", "best")
        moved = {key: {name: value.to(device) for name, value in tree[key].items()} for key in weights}
        return cls(**{**tree, **moved, "history": [Epoch(**epoch) for epoch in tree["history"]]})


def best_epoch(history: list[Epoch] | tuple[Epoch, ...]) -> Epoch:
    return max(history, key=lambda epoch: (epoch.robust, epoch.number))


def take(model: nn.Module) -> Weights:
    """A copy of all parameters and buffers."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


@torch.no_grad()
def follow(average: Weights, model: nn.Module, decay: float) -> None:
    """Moves an exponential average a step towards the model's weights; counters are copied."""
    for name, value in model.state_dict().items():
        if value.is_floating_point():
            average[name].lerp_(value, 1 - decay)
        else:
            average[name].copy_(value)


def blend(original: Mapping[str, Tensor], changed: Mapping[str, Tensor], share: float) -> Weights:
    """A point on the line between two weights (Wortsman et al. 2022, https://arxiv.org/abs/2109.01903); 1 is `changed`."""
    return {
        name: torch.lerp(value, changed[name], share) if value.is_floating_point() else changed[name].clone()
        for name, value in original.items()
    }


def finite(weights: Mapping[str, Tensor]) -> bool:
    return all(bool(torch.isfinite(value).all()) for value in weights.values() if value.is_floating_point())


def set_mode(model: nn.Module, norm: str) -> None:
    """Training mode; with `norm` frozen, BatchNorm layers keep the statistics of clean data."""
    model.train()
    if norm == "frozen":
        for layer in model.modules():
            if isinstance(layer, _BatchNorm):
                layer.eval()
