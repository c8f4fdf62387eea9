"""Torch modules as victims: in evaluation mode, with normalisation inside so that data keep their natural range."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Literal, Unpack, final, get_args

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from rlab.errors import ModelError, OptionError
from rlab.guard import time_limit
from rlab.storage.config import named_keywords
from rlab.victims.base import Common, Victim
from rlab.victims.failures import first_line
from rlab.victims.limit import spend

Channels = float | Sequence[float]  # one number for all channels, or one per channel


@dataclass(frozen=True)
class Normalise:
    """x: (b, c, *size) -> (x - mean) / std, in the units of x, with one value for all channels or one per channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, mean: Channels | None, std: Channels | None) -> Normalise | None:
        """None if neither is given; a missing mean is 0, a missing std is 1."""
        if mean is None and std is None:
            return None
        return cls(_values(0.0 if mean is None else mean), _values(1.0 if std is None else std))

    def __post_init__(self) -> None:
        if not all(math.isfinite(m) for m in self.mean) or not all(s > 0 and math.isfinite(s) for s in self.std):
            raise OptionError(f"expected a finite mean and a std above 0, got mean={self.mean} and std={self.std}")

    def __call__(self, x: Tensor) -> Tensor:
        return (x - self._spread(self.mean, "mean", x)) / self._spread(self.std, "std", x)

    def within(self, bounds: tuple[float, float]) -> Normalise:
        """This normalisation of data in [0, 1], converted to data in `bounds`."""
        low, span = bounds[0], bounds[1] - bounds[0]
        if not math.isfinite(span):
            raise OptionError(f"the model's mean and std are for data in [0, 1], not {list(bounds)}: pass mean and std")
        return Normalise(tuple(low + m * span for m in self.mean), tuple(s * span for s in self.std))

    @staticmethod
    def _spread(values: tuple[float, ...], name: str, x: Tensor) -> Tensor:
        if len(values) not in (1, x.shape[1]):
            counts = f"{name} has {len(values)} values but the inputs have {x.shape[1]} channels"
            raise OptionError(f"{counts}: give one value, or one per channel")
        return _constants(values, x.dtype, x.device).view(-1, *(1,) * (x.dim() - 2))


@cache
def _constants(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Cached, because copying to a GPU waits for all its work."""
    with torch.inference_mode(False):  # for gradients
        return torch.tensor(values, dtype=dtype, device=device)


def _values(channels: Channels) -> tuple[float, ...]:
    return (float(channels),) if isinstance(channels, int | float) else tuple(float(value) for value in channels)


# (b, c, *size), (b, *size, c), for clips (b, t, c, h, w), and (b, *size) for data of one channel
Layout = Literal["channels_first", "channels_last", "frames_first", "no_channels"]


@final
@named_keywords
class TorchVictim(Victim):
    """`mean` and `std` are in the units of the data; without `device` the model stays where it is.

    `compile` uses `torch.compile`, which takes a minute, speeds up long runs on a GPU and changes the last bits.
    `layout` is the order of axes that the model expects: "channels_first", "channels_last", "frames_first" for video models
    that take (b, t, c, h, w), or "no_channels" for models that take data of one channel as (b, *size).
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        mean: Channels | None = None,
        std: Channels | None = None,
        device: str | torch.device | None = None,
        autocast: bool = False,
        compile: bool | None = None,
        layout: Layout = "channels_first",
        **common: Unpack[Common],
    ) -> None:
        if not isinstance(model, nn.Module):
            raise ModelError(f"expected a torch module, got {type(model).__name__}: wrap a function in CallableVictim")
        super().__init__(**common)
        held = list(chain(model.parameters(), model.buffers()))
        if any(part.is_meta or is_lazy(part) for part in held):
            raise ModelError("the model's weights have no values yet (device 'meta' or a lazy module): load them first")
        self.model = model if device is None else _moved(model, device)
        self.model.eval()
        first = next((part for part in held if part.is_floating_point()), torch.empty(0))
        self.device = first.device if device is None else torch.device(device)
        self.dtype = first.dtype
        self.normalise = Normalise.of(mean, std)
        self.inputs = preprocessing(self.normalise)
        self.autocast, self.half = autocast, torch.float16 if self.device.type == "cuda" else torch.bfloat16
        self.compile = bool(compile)
        self._compiled: tuple[nn.Module, Callable[[Tensor], object]] | None = None
        self.layout = known_layout(layout)

    def _predict(self, x: Tensor) -> Tensor:
        if self.model.training:  # it may have been trained since
            self.model.eval()
        own = x.to(self.device, copy=self.normalise is None)  # the model may modify it
        with torch.inference_mode(), self._precision():
            return self._read(self._callable(arrange(own, self.normalise, self.layout).to(self.dtype)), x, self.output)

    @property
    def _callable(self) -> Callable[[Tensor], object]:
        """The model, compiled on request, and again if it was replaced."""
        if not self.compile:
            return self.model
        if self._compiled is None or self._compiled[0] is not self.model:
            self._compiled = (self.model, torch.compile(self.model))
        return self._compiled[1]

    def _about(self) -> str:
        return type(self.model).__name__

    def outputs_in_graph(self, x: Tensor, phase: str) -> Tensor:
        """The model's own outputs (b, k), with gradients if enabled; rows are counted like all others."""
        spend(len(x), phase)
        self.rows[phase] += len(x)
        with self._sentences(x), time_limit(self.timeout), self._precision():
            own = arrange(x.clone(), self.normalise, self.layout).to(self.dtype)  # the model may modify it
            return self._shaped(self._read(self.model(own), x, self.output), len(x))

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


def known_layout(layout: Layout) -> Layout:
    if layout not in get_args(Layout):
        raise OptionError(f"expected layout to be one of {', '.join(get_args(Layout))}, got {layout!r}")
    return layout


def preprocessing(normalise: Normalise | None) -> str:
    """What `normalise` does, in words."""
    if normalise is None:
        return "without normalisation (no mean and std)"
    mean, std = (", ".join(f"{value:.4g}" for value in values) for values in (normalise.mean, normalise.std))
    return f"and subtracts mean {mean}, divides by std {std}"


def arrange(x: Tensor, normalise: Normalise | None, layout: Layout) -> Tensor:
    """x: (b, c, *size) -> the same, normalised and in the layout of the model."""
    x = x if normalise is None else normalise(x)
    match layout:
        case "channels_first":
            return x
        case "channels_last":
            return x.movedim(1, -1)
        case "frames_first":
            return x.transpose(1, 2)
    if x.shape[1] != 1:
        raise OptionError(f"expected data with 1 channel for layout='no_channels', got {x.shape[1]} channels")
    return x.squeeze(1)


def _moved(model: nn.Module, device: str | torch.device) -> nn.Module:
    try:
        if torch.device(device).type == "meta":
            raise RuntimeError("it has no values")
        return model.to(torch.device(device))
    except (RuntimeError, AssertionError) as error:
        raise ModelError(f"cannot put the model on device {str(device)!r}: {first_line(error)}") from error
