"""The facts of an attack by sample, as tensors, and the figures computed from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from rlab.core.distances import minimised
from rlab.core.setting import Setting
from rlab.core.status import Status
from rlab.core.trace import DISTANCE_NAMES, Improvements, best_within, tally_of
from rlab.progress import Tally
from rlab.results.kept import HeldInputs, Inputs, Pair, StoredInputs
from rlab.results.predicted import Label, class_words, predicted, true_label
from rlab.victims.account import PHASES, STORED

WITHIN = (5, 20, 50, 200)  # numbers of queries at which tables report the best flip so far


@dataclass(frozen=True, repr=False)
class SampleData:
    """One sample of a result: its label, its status and its cost."""

    id: str
    label: Label
    status: Status
    queries: int  # from the clean prediction to the end of cleanup; the verification is not counted here
    distance: float  # of the stored input, by the minimised distance; infinite without a verified flip
    l2: float  # between the untouched and the perturbed input, as in every table
    before: Tensor  # (k,) probabilities of the untouched input, or its row of boxes, points or numbers
    after: Tensor  # (k,) the same of the perturbed input
    inputs: Inputs  # of this sample only, read when first used
    entries: Tensor  # (p,) the palette entry of every patch, 0 if untouched
    setting: Setting
    truth: Tensor  # its row of labels
    phases: Mapping[str, int]  # queries by phase, the verification included
    flip: Mapping[str, float]  # distances by name at the first flip
    final: Mapping[str, float]  # distances by name of the stored input
    r_peaks: tuple[int, ...] = ()

    @property
    def succeeded(self) -> bool:
        """Whether the sample was flipped, and the flip verified."""
        return self.status is Status.SUCCEEDED

    @property
    def x(self) -> Tensor:
        """(c, *size)."""
        return self.inputs.all()[0][0]

    @property
    def perturbed(self) -> Tensor:
        """(c, *size)."""
        return self.inputs.all()[1][0]

    @property
    def mask(self) -> Tensor:
        """(*size) bool: where the input is distorted, in any channel."""
        return self.setting.grid.cover(self.entries != 0)

    @property
    def channel_mask(self) -> Tensor:
        """(c, *size) bool: where each channel is distorted."""
        return self.setting.grid.spread(self.entries != 0).expand(self.inputs.shape[1:])

    @property
    def predicted_before(self) -> Label:
        return predicted(self.setting, self.before, self.truth)

    @property
    def predicted_after(self) -> Label:
        return predicted(self.setting, self.after, self.truth)

    def __repr__(self) -> str:
        label, *read = (class_words(self.setting, k) for k in (self.label, self.predicted_before, self.predicted_after))
        distance = f"{DISTANCE_NAMES[self.setting.distance]} {self.setting.format_distance(self.distance)}"
        facts = f"{self.id}: {label} read as {' -> '.join(read)}, {distance}, {self.queries} queries, {self.status}"
        return f"{type(self).__name__}({facts})"


@dataclass(frozen=True)
class ResultData:
    """The facts of n samples, one entry per sample in every field, in the order of the data."""

    setting: Setting
    ids: tuple[str, ...]
    labels: Tensor  # (n,) or (n, k)
    status: tuple[Status, ...]
    queries: Tensor  # (n, phases) rows that reached the model, by rlab.victims.base.PHASES
    before: Tensor  # (n, k) probabilities of the untouched input
    after: Tensor  # (n, k) probabilities of the perturbed input
    flip: Mapping[str, Tensor]  # distances (n,) by name at the first flip; NaN without a flip
    final: Mapping[str, Tensor]  # distances (n,) by name of the stored inputs
    assignment: Tensor  # (n, p) uint8
    inputs: Inputs  # original and perturbed inputs, read on demand
    seeds: Tensor  # (n,)
    improvements: tuple[Improvements, ...] = ()  # (n) every nearer flip as (queries so far, distance)
    r_peaks: tuple[tuple[int, ...], ...] = ()  # (n) annotated R peaks, as in `Batch.r_peaks`; empty if unknown

    def __post_init__(self) -> None:
        for name in ("improvements", "r_peaks"):
            object.__setattr__(self, name, getattr(self, name) or ((),) * len(self))

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def _both(self) -> Pair:
        return self.inputs.all()

    @property
    def original(self) -> Tensor:
        """(n, c, *size): all untouched inputs, kept in memory; `result[i]` and `result[a:b]` read only their own."""
        return self._both[0]

    @property
    def perturbed(self) -> Tensor:
        """(n, c, *size): all perturbed inputs, kept in memory."""
        return self._both[1]

    @cached_property
    def succeeded(self) -> Tensor:
        """(n,) bool."""
        return self._is(Status.SUCCEEDED)

    @cached_property
    def attacked(self) -> Tensor:
        """(n,) bool: samples that the model predicted correctly before the attack."""
        return ~self._is(Status.SKIPPED)

    def _is(self, status: Status) -> Tensor:
        return torch.from_numpy(np.fromiter((each is status for each in self.status), bool, len(self)))

    @property
    def effort(self) -> Tensor:
        """(n,) the queries of each sample in all tables: from the clean prediction to the end of cleanup."""
        return self.queries[:, PHASES.index("search")] + self.queries[:, PHASES.index("cleanup")]

    @property
    def masks(self) -> Tensor:
        """(n, *size) bool: where the input is distorted, in any channel."""
        return self.setting.grid.cover(self.assignment != 0)

    @property
    def channel_masks(self) -> Tensor:
        """(n, c, *size) bool: where each channel is distorted."""
        return self.setting.grid.spread(self.assignment != 0).expand(self.inputs.shape)

    def best_within(self, queries: int) -> Tensor:
        """(n,): the distance of the best flip within this number of queries, the clean one included; infinite without one."""
        return best_within(self.improvements, queries).masked_fill(~self.succeeded, math.inf)

    @property
    def learning_queries(self) -> int:
        """Queries that this run spent only to learn a simulator."""
        learned = self.setting.learned
        return learned.queries if learned is not None and learned.here else 0

    @property
    def total_queries(self) -> int:
        """All queries of the run: of the samples, and of learning."""
        return int(self.queries.sum()) + self.learning_queries

    def distances(self) -> tuple[Tensor, Tensor]:
        """(n,), (n,): the minimised distance of the first flip and of the stored one, which may not be the nearest; or NaN."""
        ends = [(flips[0][1], flips[-1][1]) if flips else (math.nan, math.nan) for flips in self.improvements]
        first, last = torch.tensor(ends).T
        end = minimised(self.setting.distance, self.final, last).where(self.succeeded, math.nan)
        return minimised(self.setting.distance, self.flip, first), end

    def tally(self) -> Tally:
        """Return the counts for the progress bar."""
        return tally_of(self.status)

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Join results of consecutive samples; a single result is not copied."""
        if len(parts) == 1:
            return parts[0]
        merged: dict[str, Any] = {}
        for f in fields(cls):
            values = [getattr(part, f.name) for part in parts]
            if f.name == "setting":
                merged[f.name] = values[0]
            elif f.name == "inputs":
                merged[f.name] = HeldInputs(*(torch.cat(side) for side in zip(*(v.all() for v in values), strict=True)))
            elif isinstance(values[0], Tensor):
                merged[f.name] = torch.cat(values)
            elif isinstance(values[0], tuple):
                merged[f.name] = tuple(item for value in values for item in value)
            else:
                merged[f.name] = {key: torch.cat([value[key] for value in values]) for key in values[0]}
        return cls(**merged)

    def where(self, rows: Tensor) -> Self:
        """Return the result of the samples with the indices `rows`."""
        chosen: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, HeldInputs | StoredInputs):
                chosen[f.name] = value.where(rows.tolist())
            elif isinstance(value, Tensor):
                chosen[f.name] = value[rows]
            elif isinstance(value, tuple):
                chosen[f.name] = tuple(value[i] for i in rows.tolist())
            elif isinstance(value, Mapping):
                chosen[f.name] = {key: column[rows] for key, column in value.items()}
        return replace(self, **chosen)

    @cached_property
    def _numbers(self) -> tuple[list[list[int]], list[float], dict[str, list[float]], dict[str, list[float]]]:
        """Queries and distances as Python numbers, because tensors are slow to read one by one."""
        flip, final = ({name: values.tolist() for name, values in each.items()} for each in (self.flip, self.final))
        return self.queries.tolist(), self.distances()[1].tolist(), flip, final

    def sample(self, at: int) -> SampleData:
        """One sample, counted from the end if `at` is negative."""
        i = self.position(at)
        label, (queries, ends, flip, final) = self.labels[i], self._numbers
        phases = dict(zip(STORED, queries[i], strict=False))
        return SampleData(
            id=self.ids[i],
            label=true_label(self.setting, label),
            truth=label,
            status=self.status[i],
            queries=phases["search"] + phases["cleanup"],
            distance=ends[i] if self.status[i] is Status.SUCCEEDED else math.inf,
            l2=final["l2"][i],
            before=self.before[i],
            after=self.after[i],
            inputs=self.inputs.where([i]),
            entries=self.assignment[i],
            setting=self.setting,
            phases=phases,
            flip={name: values[i] for name, values in flip.items()},
            final={name: values[i] for name, values in final.items()},
            r_peaks=self.r_peaks[i],
        )

    def position(self, at: int) -> int:
        """The position of a sample, counted from the end if `at` is negative."""
        try:
            return range(len(self))[at]
        except (IndexError, TypeError):
            message = f"expected the position of a sample, from 0 to {len(self) - 1}, got {at!r}"
            raise IndexError(message) from None
