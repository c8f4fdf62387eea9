"""Models of other runtimes as victims: one input of any layout and number type, and outputs by name."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlab.errors import ModelError, VictimError
from rlab.victims.base import Victim
from rlab.victims.batches import in_sizes, sizes_below
from rlab.victims.callables import as_array
from rlab.victims.reading import Layout, lay_out

if TYPE_CHECKING:
    from rlab.keywords import VictimKeywords

Array = NDArray[Any]
_FLOAT: np.dtype[Any] = np.dtype("float32")
_GUESSES: tuple[Layout, ...] = ("channels_first", "channels_last", "frames_first", "no_channels")


@dataclass(frozen=True)
class Port:
    """An input or output of a graph; real value = scale * (stored value - zero)."""

    name: str
    shape: tuple[int | None, ...] = ()  # with the axis of rows; None where any length fits; empty if unknown
    dtype: np.dtype[Any] = _FLOAT
    scale: float = 1.0
    zero: int = 0

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether inputs of this shape, whatever the number of rows, can be sent."""
        pairs = zip(self.shape[1:], shape[1:], strict=False)
        return not self.shape or (len(shape) == len(self.shape) and all(own in (None, side) for own, side in pairs))

    def layout(self, x: Tensor, likely: Sequence[Layout]) -> Layout | None:
        """The first of the likely layouts in which inputs x (b, c, *size) can be sent."""
        empty = torch.empty(x.shape, device="meta")
        return next((layout for layout in likely if self.fits(lay_out(empty, layout).shape)), None)

    def has_probabilities(self) -> bool:
        """Whether the stored values span 0 to 1, as those of a quantised softmax or sigmoid do."""
        if self.dtype.kind not in "iu" or self.scale == 1:
            return False
        info = np.iinfo(self.dtype)
        return self.zero == info.min and 0.98 < self.scale * (info.max - info.min) <= 1

    def __str__(self) -> str:
        return "(" + ", ".join(["rows", *("any" if side is None else str(side) for side in self.shape[1:])]) + ")"


ANYTHING = Port("")  # an input that is not known


class GraphVictim(Victim):
    """A graph takes (rows, *shape) in its own layout, which is found from its shape and the data unless `layout` is given.

    A graph of 8-bit integers gets the range of the data spread over all its integers, such as 0..1 over 0..255. With `mean`
    and `std`, or for data without bounds, values are stored with the graph's own scale and zero point instead.
    """

    kind = "model"  # in words
    compiles = False  # whether it compiles anew for each number of rows

    def __init__(self, sources: Sequence[Port], answers: Sequence[Port], **reading: Unpack[VictimKeywords]) -> None:
        super().__init__(**reading)
        if len(sources) != 1:
            names = ", ".join(port.name for port in sources)
            raise ModelError(f"expected {self._about()} with one input, got {len(sources)}: {names}")
        source = sources[0]
        if source.dtype.kind != "f" and source.dtype not in (np.uint8, np.int8):
            wanted = f"the {self.kind} to take floating-point or 8-bit numbers"
            raise ModelError(f"expected {wanted}, got {source.dtype}: convert them inside the graph")
        self.source, self.ports = source, self._chosen(answers)
        if self.outputs == "auto" and self.score is None and self.ports[0].has_probabilities():
            self.reading = self.read_as(outputs="probabilities").reading  # rounded ones do not sum to 1
        bounded = self.reading.normalise is None and math.isfinite(self.bounds[1] - self.bounds[0])
        self.span = self.bounds if bounded and source.dtype.kind != "f" else None
        self.inputs = f"spread over all integers of {source.dtype}" if self.span else self.reading.preprocessing

    @abstractmethod
    def _infer(self, array: Array) -> Sequence[Array]:
        """Stored inputs in the layout of the graph -> the stored values of `self.ports`, in this order."""

    def contents(self) -> Iterator[object]:
        """What decides its answers besides its attributes: files, or values in memory."""
        yield from ()

    def _about(self) -> str:
        return f"an {self.kind}" if self.kind[0] in "AEIOU" else f"a {self.kind}"

    def _chosen(self, outputs: Sequence[Port]) -> Sequence[Port]:
        """The output with the scores, or all outputs for a custom score or for boxes."""
        names, wanted = [port.name for port in outputs], self.reading.output
        named = names[wanted] if isinstance(wanted, int) and -len(names) <= wanted < len(names) else wanted
        if named is not None and named not in names:
            raise ModelError(f"the {self.kind} has no output {named!r}: choose one of {', '.join(names)}")
        if named is None and len(names) > 1 and self.score is None and self.prediction != "boxes":
            raise ModelError(
                f"the {self.kind} has several outputs: pass one of {', '.join(names)} as output (-M output=NAME)"
            )
        return [port for port in outputs if named in (None, port.name)]

    @final
    def _predict(self, x: Tensor) -> Tensor:
        layout = self._fitting(x)
        rows = self.source.shape[0] if self.source.shape else None
        sizes = (rows,) if rows is not None else sizes_below(self.chunk) if self.compiles else ()
        return in_sizes(x, sizes, lambda part: self._feed(part, layout))

    def _fitting(self, x: Tensor) -> Layout:
        """The layout that fits the graph; channels first if several do."""
        given = self.reading.layout
        likely = _GUESSES if given == "channels_first" else (given,)
        if (layout := self.source.layout(x, likely[: 4 if x.shape[1] == 1 else 3])) is not None:
            return layout
        data, size = ", ".join(map(str, x.shape[1:])), "size=224" if x.dim() > 3 else "another rate or window"
        raise VictimError(
            f"the {self.kind} takes inputs of shape {self.source}, but the data are (rows, {data}) with channels first, "
            f"and no order of axes fits: load the data in its size, such as {size}, or pass layout="
        )

    def _feed(self, x: Tensor, layout: Layout) -> Tensor:
        stored = self._stored(self.reading.arrange(x, layout))
        answers = [_real(port, array) for port, array in zip(self.ports, self._infer(stored), strict=True)]
        named = dict(zip((port.name for port in self.ports), answers, strict=True))
        return self._read(answers[0] if len(answers) == 1 else named, x)

    def _stored(self, x: Tensor) -> Array:
        values, source = as_array(x), self.source
        if source.dtype.kind == "f":
            return values.astype(source.dtype, copy=False)
        info = np.iinfo(source.dtype)
        if self.span is None:
            values = values / np.float32(source.scale) + source.zero
        else:
            share = (values - self.span[0]) / (self.span[1] - self.span[0])
            values = info.min + share * (info.max - info.min)
        return np.clip(np.rint(values), info.min, info.max).astype(source.dtype)


def _real(port: Port, stored: Array) -> Array:
    """Stored values as real ones. A probability of 0 means less than half a step, and becomes a quarter of one."""
    if port.dtype.kind == "f" or (port.scale, port.zero) == (1, 0):
        return stored
    real = (stored.astype(np.float32) - port.zero) * np.float32(port.scale)
    return np.maximum(real, np.float32(port.scale / 4)) if port.has_probabilities() else real
