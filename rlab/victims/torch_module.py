"""Torch modules as victims: in evaluation mode, with normalisation inside so that data keep their natural range."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import TYPE_CHECKING, Unpack, final

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from rlab.errors import ModelError
from rlab.guard import time_limit
from rlab.storage.config import takes
from rlab.victims.base import Victim
from rlab.victims.failures import first_line
from rlab.victims.limit import spend
from rlab.victims.reading import Reading

if TYPE_CHECKING:
    from rlab.keywords import VictimKeywords


@final
class TorchVictim(Victim):
    """Without `device` the model stays where it is.

    `layout` is "frames_first" for video models that take (b, t, c, h, w), and "no_channels" for models that take data of one
    channel as (b, *size).
    """

    @takes(Reading)
    def __init__(
        self,
        model: nn.Module,
        *,
        device: str | torch.device | None = None,
        autocast: bool = False,
        **reading: Unpack[VictimKeywords],
    ) -> None:
        if not isinstance(model, nn.Module):
            raise ModelError(f"expected a torch module, got {type(model).__name__}: wrap a function in CallableVictim")
        super().__init__(**reading)
        held = list(chain(model.parameters(), model.buffers()))
        if any(part.is_meta or is_lazy(part) for part in held):
            raise ModelError("the model's weights have no values yet (device 'meta' or a lazy module): load them first")
        self.model = model if device is None else _moved(model, device)
        self.model.eval()
        first = next((part for part in held if part.is_floating_point()), torch.empty(0))
        self.device = first.device if device is None else torch.device(device)
        self.dtype = first.dtype
        self.inputs = self.reading.preprocessing
        self.autocast, self.half = autocast, torch.float16 if self.device.type == "cuda" else torch.bfloat16

    def _predict(self, x: Tensor) -> Tensor:
        if self.model.training:  # it may have been trained since
            self.model.eval()
        own = x.to(self.device, copy=self.reading.normalise is None)  # the model may modify it
        with torch.inference_mode(), self._precision():
            return self._read(self.model(self.reading.arrange(own).to(self.dtype)), x, self.reading.output)

    def _about(self) -> str:
        return type(self.model).__name__

    def outputs_in_graph(self, x: Tensor, phase: str) -> Tensor:
        """The model's own outputs (b, k), with gradients if enabled; rows are counted like all others."""
        spend(len(x), phase)
        self.rows[phase] += len(x)
        with self._sentences(x), time_limit(self.timeout), self._precision():
            own = self.reading.arrange(x.clone()).to(self.dtype)  # the model may modify it
            return self._shaped(self._read(self.model(own), x, self.reading.output), len(x))

    def scores_with_grad(self, x: Tensor, phase: str) -> Tensor:
        """Scores (b, k) with gradients by x: for training agents and white-box baselines."""
        with torch.enable_grad():
            return self.scores_of(self.outputs_in_graph(x, phase))

    def input_gradient(self, x: Tensor, of: Callable[[Tensor], Tensor], phase: str) -> Tensor:
        """The gradient (b, c, *size) of `of(scores)` (b,) by the input."""
        inputs = x.detach().to(self.device).requires_grad_()
        with torch.enable_grad():
            value = of(self.scores_with_grad(inputs, phase)).sum()
        return torch.autograd.grad(value, inputs)[0].to(x.device)

    def _precision(self) -> AbstractContextManager[object]:
        return torch.autocast(self.device.type, self.half) if self.autocast else nullcontext()


def _moved(model: nn.Module, device: str | torch.device) -> nn.Module:
    try:
        if torch.device(device).type == "meta":
            raise RuntimeError("it has no values")
        return model.to(torch.device(device))
    except (RuntimeError, AssertionError) as error:
        raise ModelError(f"cannot put the model on device {str(device)!r}: {first_line(error)}") from error
