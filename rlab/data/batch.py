"""Samples with their labels, ids and metadata, as all of rlab passes them around."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rlab.data.kinds import KINDS as KINDS
from rlab.data.kinds import Kind as Kind
from rlab.data.take import ALL, Take
from rlab.errors import DataError
from rlab.predictions.kinds import Prediction
from rlab.predictions.targets import check_targets
from rlab.storage.outside import is_text, short

UNBOUNDED = (-math.inf, math.inf)
DARK = 127  # values from 0 to at most this may have another range than 0..255


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of samples, besides their values, labels and ids."""

    bounds: tuple[float, float] = (0.0, 1.0)  # the range of allowed values; signals in a physical unit have none
    classes: tuple[str, ...] = ()  # names by class index; empty if unknown
    unit: str = ""  # of the values, e.g. "mV"
    rate: float | None = None  # samples or frames per second
    left_out: tuple[tuple[str, str], ...] = ()  # (id, reason) of each skipped sample
    leads: tuple[str, ...] = ()  # names of the channels, if any
    eight_bit: bool = False  # whether the values came as 8 bits, so that an attack should stay at such values
    numbered: bool = False  # whether the class numbers follow from the names alone, e.g. those of folders
    one_label: bool = False  # samples with several labels were left out
    take: Take = ALL  # how the samples were selected
    target: Prediction = "classes"  # what `y` holds
    aims: Tensor | None = None  # (b,) int64: the class that a targeted attack aims at, if each sample has its own


class Samples(Facts, ABC):
    """Samples of one shape, in memory (`Batch`) or read on demand (`Source`)."""

    y: Tensor  # (b,) int64, or (b, k) of zeros and ones if samples have several labels; for other targets, rows of them
    ids: tuple[str, ...]

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape (c, *size) of one sample."""

    @abstractmethod
    def __getitem__(self, rows: slice | Sequence[int]) -> Batch:
        """The samples in `rows`, as a batch."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def size(self) -> tuple[int, ...]:
        return self.shape[1:]

    @property
    def rank(self) -> int:
        return len(self.shape) - 1

    @property
    def kind(self) -> Kind:
        return KINDS[self.rank - 1]

    def __repr__(self) -> str:
        shape, (low, high) = "×".join(map(str, self.shape)), self.bounds
        unit = f" {self.unit}" if self.unit else ""
        name = type(self).__name__
        return f"{name}({len(self)} {self.kind} samples, {shape}, values in [{low:g}, {high:g}]{unit})"

    def check_numbers(self, classes: int) -> None:
        """Refuse numbers that follow from the names alone if the model has more `classes` than there are names."""
        if self.numbered and len(self.classes) < classes:
            names = ", ".join(f"{number} {short(name)}" for number, name in enumerate(self.classes[:3]))
            more = ", ..." if len(self.classes) > 3 else ""
            raise DataError(
                f"the data name {len(self.classes)} classes ({names}{more}, numbered by name), but the model has "
                f"{classes}: pass all its class names in order, classes=[...] (-D classes=FILE, one name per line)"
            )

    def _check_facts(self) -> None:
        """Refuse names that are no text, and targets that are not one for each sample."""
        if wrong := [name for name in (*self.ids, *self.classes) if not is_text(name)]:
            raise DataError(f"expected names that can be written as UTF-8, got {short(wrong[0])}: rename it")
        check_targets(self.target, self.y, self.size, self.ids)
        if self.aims is not None and (self.aims.dtype != torch.int64 or self.aims.shape != (len(self),)):
            got = f"{self.aims.dtype} of shape {tuple(self.aims.shape)}"
            raise DataError(f"expected one target class as int64 for each of {len(self)} samples, got {got}")

    def _picked(self, rows: Sequence[int]) -> dict[str, Any]:
        """What is known of each of these samples."""
        index = list(rows)
        aims = None if self.aims is None else self.aims[index]
        return {"y": self.y[index], "ids": tuple(self.ids[i] for i in index), "aims": aims}

    def label_name(self, label: int) -> str:
        return self.classes[label] if label < len(self.classes) else str(label)


def summarise_losses(left_out: Sequence[tuple[str, str]], most: int = 4) -> str:
    """One line about the skipped samples: the count of each reason, most common first, with one example."""
    counts = Counter(reason for _, reason in left_out)
    first = {reason: name for name, reason in reversed(left_out)}
    parts = [f"{count} × {reason} (first {first[reason]})" for reason, count in counts.most_common(most)]
    more = sum(counts.values()) - sum(count for _, count in counts.most_common(most))
    return f"{len(left_out)} left out: " + "; ".join([*parts, *([f"{more} for other reasons"] if more else [])])


def likely_top(high: float) -> int:
    """The end of the range of values from 0 to `high`: of 8 or 16 bits if they reach beyond its half."""
    return next((top for top in (255, 65535) if top // 2 < high <= top), math.ceil(high))


def _check_labels(y: Tensor) -> None:
    if y.dtype != torch.int64 or not y.numel() or int(y.min()) < 0:
        lowest = f" from {y.min()}" if y.numel() else ""
        raise DataError(f"expected int64 labels of at least 0, got {y.dtype}{lowest}")
    if y.dim() > 1 and (y.dim() > 2 or int(y.max()) > 1):
        raise DataError(f"expected labels (n,), or (n, k) of zeros and ones, got shape {tuple(y.shape)}")


def _check_dense(value: object) -> None:
    """Refuse what is no tensor, or none with values in rows."""
    odd = not isinstance(value, Tensor) or value.is_nested or value.is_quantized or value.is_meta
    if odd or not isinstance(value, Tensor) or value.layout != torch.strided or not value.dim():
        found = f"{value.dim()} dimensions, {value.layout}" if isinstance(value, Tensor) else type(value).__name__
        dense = "expected x and y as dense tensors whose first dimension is the samples"
        raise DataError(f"{dense}, got {found}: pass lists and arrays as rlab.load((x, y))")


@dataclass(frozen=True, repr=False)
class Batch(Samples):
    """Inputs of one shape, in memory."""

    x: Tensor  # (b, c, *size) float32
    y: Tensor
    ids: tuple[str, ...] = ()  # default: positions
    masks: Tensor | None = None  # (b, *size) bool: where the labelled object is, if known
    r_peaks: tuple[tuple[int, ...], ...] | None = None  # annotated R peaks of each signal, as sample numbers

    def __post_init__(self) -> None:
        _check_dense(self.x)
        _check_dense(self.y)
        if not self.ids:
            object.__setattr__(self, "ids", tuple(str(i) for i in range(len(self.x))))
        if self.rank not in range(1, len(KINDS) + 1):
            shapes = "(samples, channels, time), (..., height, width) or (..., frames, height, width)"
            raise DataError(f"expected inputs of shape {shapes}, got {tuple(self.x.shape)}")
        if not self.x.numel():
            raise DataError(f"expected at least one sample with values, got shape {tuple(self.x.shape)}")
        if not len(self.x) == len(self.y) == len(self.ids):
            counts = f"{len(self.x)} inputs, {len(self.y)} labels and {len(self.ids)} ids"
            raise DataError(f"got {counts}: expected the same number of each")
        self._check_facts()
        if self.target == "classes":
            _check_labels(self.y)
        if self.masks is not None and self.masks.shape != (len(self.x), *self.size):
            raise DataError(f"expected masks of shape {(len(self.x), *self.size)}, got {tuple(self.masks.shape)}")
        if self.r_peaks is not None and len(self.r_peaks) != len(self.x):
            raise DataError(f"got r_peaks of {len(self.r_peaks)} samples for {len(self.x)} inputs")
        if self.leads and len(self.leads) != self.x.shape[1]:
            raise DataError(f"got {len(self.leads)} leads for {self.x.shape[1]} channels: expected one for each")
        if self.x.dtype != torch.float32:
            raise DataError(f"expected float32 inputs, got {self.x.dtype}: divide by 255 or call .float()")
        if not self.bounds[0] < self.bounds[1]:
            raise DataError(f"expected bounds with the lower one first, got {self.bounds}")
        if not torch.isfinite(self.x).all():
            bad = [i for i, x in zip(self.ids, self.x, strict=True) if not torch.isfinite(x).all()]
            count = f"{len(bad)} of {len(self.x)} samples"
            raise DataError(f"{count} hold NaN or infinite values, first {bad[0]!r}: correct or remove them")
        low, high = float(self.x.min()), float(self.x.max())
        rounded = torch.tensor(self.bounds).tolist()  # an end of the range itself is allowed, as float32 holds it
        if low < min(self.bounds[0], rounded[0]) or high > max(self.bounds[1], rounded[1]):
            ends = f"{math.floor(low)},{math.ceil(high)}"
            advice = f"rescale them or pass their true bounds, such as bounds=({ends}) (-D bounds=[{ends}])"
            whole = high <= 65535 and bool((self.x == self.x.round()).all())  # of 16 bits
            if low >= 0 and high > 1.5 and (high <= 255 or whole):
                top = likely_top(high)
                advice = f"divide by {top} or pass their true range, bounds=(0, {top}) (-D bounds=[0,{top}])"
            raise DataError(f"expected values in {list(self.bounds)}, got {low:.6g} to {high:.6g}: {advice}")

    def _repr_html_(self) -> str:
        """Show the kind of data, the classes and the first samples in a notebook cell."""
        from rlab.present.notebook import data_html  # imports matplotlib

        bounded = all(map(math.isfinite, self.bounds))
        low, high = self.bounds if bounded else (float(self.x.min()), float(self.x.max()))
        facts = {
            "data": f"{len(self)} {self.kind} samples of size {' × '.join(map(str, self.size))}",
            "channels": f"{self.x.shape[1]}",
            "values": f"{low:.3g} to {high:.3g} {self.unit}".rstrip(),
        }
        facts |= {"rate": f"{self.rate:g} Hz"} if self.rate else {}
        facts |= {"targets": self.target} if self.target != "classes" else {"classes": self._class_counts()}
        facts |= {"left out": f"{len(self.left_out)}"} if self.left_out else {}
        return data_html(facts, self.x, self.ids, (low, high), self.rate)

    def _class_counts(self) -> str:
        """Names and sample counts of the first twelve classes."""
        labels = self.y.nonzero()[:, 1] if self.y.dim() > 1 else self.y
        counts = zip(*(each.tolist() for each in labels.unique(return_counts=True)), strict=True)
        shown = [f"{self.label_name(k)} {count}" for k, count in counts]
        return ", ".join(shown[:12]) + (f" and {len(shown) - 12} more" if len(shown) > 12 else "")

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.x.shape[1:])

    def __getitem__(self, rows: slice | Sequence[int]) -> Batch:
        """The samples in `rows` (a slice, which is not copied, numbers, or a boolean mask), as a batch."""
        every = range(len(self))
        if isinstance(rows, slice):
            chosen = list(every[rows])
        else:
            chosen = torch.tensor(every)[torch.as_tensor(rows)].tolist() if len(rows) else []
        index = rows if isinstance(rows, slice) and (rows.step or 1) > 0 else chosen
        return replace(
            self,
            x=self.x[index],
            **self._picked(chosen),
            masks=None if self.masks is None else self.masks[index],
            r_peaks=None if self.r_peaks is None else tuple(self.r_peaks[i] for i in chosen),
        )
