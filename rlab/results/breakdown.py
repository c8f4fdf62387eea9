"""A run by class, by distortion and by label: which break most easily, at which SNR."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.errors import OptionError
from rlab.results.change import flip_shares
from rlab.results.data import ResultData
from rlab.results.predicted import class_words
from rlab.stats import median_of


@dataclass(frozen=True)
class ClassRow:
    """The samples of one class; medians are over flipped samples, and NaN without any."""

    name: str
    samples: int
    attacked: int
    succeeded: int
    success: float  # share of the attacked samples
    median_queries: float
    median_l2: float  # after cleanup
    snr_flip: float  # dB, at the first flip
    snr_final: float  # dB, of the stored input


@dataclass(frozen=True)
class LabelRow:
    """One label of multilabel data: how often it was true, and how often the attack switched it off or on."""

    name: str
    true: int  # attacked samples with this label
    switched_off: int  # of these, predicted with it before and without it after
    absent: int  # attacked samples without this label
    switched_on: int  # of these, predicted without it before and with it after
    median_queries: float  # over flipped samples in which it switched


def has_classes(result: ResultData) -> bool:
    """Whether the labels contain more than one class; boxes, maps and numbers are not broken down."""
    return result.setting.target == "classes" and sum(bool(held.any()) for _, held in class_members(result)) > 1


def by_class(result: ResultData) -> list[ClassRow]:
    """One row per class with samples, the easiest to break first; a sample with several labels counts in each class."""
    rows = [_class_row(result, name, held) for name, held in class_members(result) if held.any()]
    return sorted(rows, key=lambda row: (-row.success if row.attacked else 1.0, row.median_queries))


def by_distortion(result: ResultData) -> dict[str, dict[str, float]]:
    """Class -> filter -> its mean share of the squared change of the class's flips; nothing if inputs were not kept."""
    rows, by_entry = flip_shares(result)
    filters = entry_filters(result.setting.palette)
    shares: dict[str, dict[str, float]] = {}
    for name, held in class_members(result):
        if held[rows].any():
            own = by_entry[held[rows]].mean(0)
            shares[name] = {each: float(sum(own[entry - 1] for entry in entries)) for each, entries in filters.items()}
    return shares


def by_label(result: ResultData) -> list[LabelRow]:
    """One row per label, for multilabel data."""
    if result.labels.dim() != 2:
        raise OptionError("by_label needs a run with several labels per sample: use by_class")
    return [_label_row(result, k, name) for k, (name, _) in enumerate(class_members(result))]


def entry_filters(palette: Sequence[str]) -> dict[str, list[int]]:
    """Map filter names to their entries in an assignment, from names like 'muscle_noise@20dB#2'."""
    entries: dict[str, list[int]] = {}
    for entry, name in enumerate(palette, 1):
        entries.setdefault(name.rpartition("@")[0] or name, []).append(entry)
    return entries


def _class_row(result: ResultData, name: str, held: Tensor) -> ClassRow:
    attacked, won = held & result.attacked, held & result.succeeded
    return ClassRow(
        name=name,
        samples=int(held.sum()),
        attacked=int(attacked.sum()),
        succeeded=int(won.sum()),
        success=float(won.sum()) / float(attacked.sum()) if attacked.any() else math.nan,
        median_queries=median_of(result.effort, won),
        median_l2=median_of(result.final["l2"], won),
        snr_flip=median_of(result.flip["snr_db"], won),
        snr_final=median_of(result.final["snr_db"], won),
    )


def _label_row(result: ResultData, k: int, name: str) -> LabelRow:
    true, before, after = result.labels[:, k] == 1, result.before[:, k] > 0.5, result.after[:, k] > 0.5
    off, on = result.attacked & true & before & ~after, result.attacked & ~true & ~before & after
    return LabelRow(
        name=name,
        true=int((result.attacked & true).sum()),
        switched_off=int(off.sum()),
        absent=int((result.attacked & ~true).sum()),
        switched_on=int(on.sum()),
        median_queries=median_of(result.effort, (off | on) & result.succeeded),
    )


def class_members(result: ResultData) -> list[tuple[str, Tensor]]:
    """For each class, its name and which samples (n,) have it; nothing if the model does not return scores of classes."""
    if result.setting.target != "classes":
        return []
    several = result.labels.dim() == 2
    members = (
        (result.labels == 1).T if several else result.labels == torch.arange(int(result.labels.max()) + 1)[:, None]
    )
    return [(class_words(result.setting, k), held) for k, held in enumerate(members)]
