"""What a model takes and what it returns, declared once for Python, configuration files, the command line and the doctor."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Self

import numpy as np
import torch
from pydantic import BeforeValidator, Field, StrictInt, model_validator
from torch import Tensor

from rlab.errors import OptionError
from rlab.predictions.kinds import Prediction
from rlab.storage.config import Bounds, Options

Channels = float | Sequence[float]  # one number for all channels, or one per channel
# (b, c, *size), (b, *size, c), for clips (b, t, c, h, w), (b, *size) for data of one channel, and (b, values)
Layout = Literal["channels_first", "channels_last", "frames_first", "no_channels", "flat"]
Outputs = Literal["auto", "logits", "probabilities", "labels", "topk", "boxes", "map", "numbers"]
Score = Callable[[Any], Any]  # what a model returns -> (b,), above 0 if the searched-for class is present, or (b, k)
LABELS = ("labels", "topk")  # kinds of outputs that name classes without scores
PREDICTED: dict[str, Prediction] = {"boxes": "boxes", "map": "map", "numbers": "numbers"}
UNIT, UNBOUNDED = (0.0, 1.0), (-math.inf, math.inf)
_LONGEST = 10**6  # seconds


def _listed(values: object) -> object:
    """Arrays of one number per channel as lists."""
    return values.tolist() if isinstance(values, np.ndarray | Tensor) else values


PerChannel = Annotated[Channels | None, BeforeValidator(_listed)]


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

    def __str__(self) -> str:
        mean, std = (", ".join(f"{value:.4g}" for value in values) for values in (self.mean, self.std))
        return f"and subtracts mean {mean}, divides by std {std}"

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


def lay_out(x: Tensor, layout: Layout) -> Tensor:
    """x: (b, c, *size) -> the same in another order of axes."""
    match layout:
        case "channels_first":
            return x
        case "channels_last":
            return x.movedim(1, -1)
        case "frames_first":
            return x.transpose(1, 2)
        case "flat":
            return x.flatten(1)
    if x.shape[1] != 1:
        raise OptionError(f"expected data with 1 channel for layout='no_channels', got {x.shape[1]} channels")
    return x.squeeze(1)


class Reading(Options):
    """What a model takes and what it returns: the keywords of every victim, and options of every model by name."""

    mean: PerChannel = Field(None, description="mean of each channel in the data's range (default: none)")
    std: PerChannel = Field(None, description="standard deviation of each channel (default: none)")
    bounds: Bounds | None = Field(
        None, description="range of values the model expects, to which data are rescaled (default: the data's)"
    )
    layout: Layout = Field(
        "channels_first",
        description="axis order that the model expects: channels_first (default), channels_last, frames_first, no_channels, or "
        "flat for one row of values per input",
    )
    outputs: Outputs = Field(
        "auto",
        description="what the model returns: logits, probabilities, labels or topk of classes, or boxes, a map of classes, or "
        "numbers (default: auto, which checks whether classes have logits or probabilities)",
    )
    box_format: Literal["xyxy", "xywh"] | None = Field(
        None, description="boxes in arrays: corners (xyxy, default) or xywh, by centre"
    )
    box_scale: Literal["pixels", "unit"] | None = Field(
        None, description="boxes in arrays: in pixels (default), or a share of the input (unit)"
    )
    box_columns: Literal["scores", "objectness", "class"] | None = Field(
        None,
        description="boxes in arrays: what follows the four coordinates: scores of all classes (scores), an objectness before them "
        "(objectness), or one score and the class number (class) (default: scores)",
    )
    box_layout: Literal["rows", "columns"] | None = Field(
        None, description="boxes in arrays: a box is one of the rows (default) or columns"
    )
    box_overlap: float | None = Field(
        None,
        gt=0,
        le=1,
        description="boxes in arrays: of boxes of a class that overlap more, keep the best (default: 0.5)",
    )
    multilabel: bool = Field(False, description="several classes can be true at once (default: no)")
    classes: int | None = Field(None, ge=1, description="number of classes, for new weights or a model without scores")
    output: str | StrictInt | None = Field(None, description="name or index of the scores if there are several outputs")
    score: Score | str | None = Field(
        None, description="function, or module:function, that turns the output into a score above 0 if it is right"
    )
    chunk: int | None = Field(None, ge=1, description="maximum batch size for the model")
    timeout: float | None = Field(
        None,
        gt=0,
        le=_LONGEST,
        exclude=True,  # not stored, so that a run can be resumed with another value
        description="seconds for an answer (default: 10 for HTTP, else no limit)",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.bounds is not None and not self.bounds[0] < self.bounds[1]:
            raise OptionError(f"expected bounds (low, high) with low below high, got {self.bounds}")
        if self.classes is not None and self.outputs not in LABELS:
            raise OptionError(f"classes is only for outputs 'labels' and 'topk', got outputs {self.outputs!r}")
        if self.classes == 1:
            raise OptionError("expected at least 2 classes, got 1")
        if self.multilabel and self.outputs == "topk":
            raise OptionError("outputs='topk' does not work for a multilabel model: pass outputs='labels'")
        if self.outputs != "boxes" and (given := [name for name in self.given() if name.startswith("box_")]):
            raise OptionError(f"the option {given[0]} needs outputs=boxes, got outputs={self.outputs}")
        Normalise.of(self.mean, self.std)
        return self

    def given(self) -> dict[str, Any]:
        """The options that differ from their defaults."""
        fields = type(self).model_fields
        return {name: value for name, value in self if value != fields[name].default}

    @property
    def normalise(self) -> Normalise | None:
        return Normalise.of(self.mean, self.std)

    def arrange(self, x: Tensor, layout: Layout | None = None) -> Tensor:
        """x: (b, c, *size) -> the same, normalised and in the layout of the model, or in the one given."""
        own = self.normalise
        return lay_out(x if own is None else own(x), layout or self.layout)

    @property
    def preprocessing(self) -> str:
        """What happens to the values of an input, in words."""
        return str(self.normalise or "without normalisation (no mean and std)")

    @property
    def prediction(self) -> Prediction:
        """What the model predicts."""
        return PREDICTED.get(self.outputs, "classes")

    @property
    def tells_labels(self) -> bool:
        """Whether the model returns classes without scores."""
        return self.outputs in LABELS
