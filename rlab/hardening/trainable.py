"""Whether a victim can be trained, and what to do where it cannot."""

from __future__ import annotations

import copy
from collections import Counter

from torch import nn

from rlab.core.goals import Goal, MultiLabel, Untargeted
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.victims.base import Victim
from rlab.victims.callables import CallableVictim
from rlab.victims.http import HttpVictim
from rlab.victims.onnx import OnnxVictim
from rlab.victims.sklearn import SklearnVictim
from rlab.victims.torch_module import TorchVictim

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
