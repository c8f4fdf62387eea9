"""A run by class: which classes break most easily, under which distortion, at what ratio; and label by label."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.errors import InputError
from rlab.results.data import ResultData
from rlab.stats import median_of


@dataclass(frozen=True)
class ClassRow:
    """What became of one class's samples; medians are over those that flipped, NaN where none did."""

    name: str
    samples: int
    attacked: int
    succeeded: int
    success: float  # share of the attacked
    median_queries: float
    median_l2: float  # after cleanup
    snr_flip: float  # dB, when the goal was first reached
    snr_final: float  # dB, of what is stored


@dataclass(frozen=True)
class LabelRow:
    """One label of several: how often it was true, and how often the attack switched it off or on."""

    name: str
    true: int  # attacked samples that carry it
    switched_off: int  # of them predicted with it before and without it after
    absent: int  # attacked samples that do not carry it
    switched_on: int  # of them predicted without it before and with it after
    median_queries: float  # of the flipped samples in which it switched


def has_classes(result: ResultData) -> bool:
    """Whether there is more than one class among the labels."""
    return sum(bool(rows.any()) for rows in _members(result)) > 1


def by_class(result: ResultData) -> list[ClassRow]:
    """One row a class that has samples, the easiest to break first; a sample of several labels is in each of theirs."""
    rows = [_class_row(result, name, held) for name, held in _named(result) if held.any()]
    return sorted(rows, key=lambda row: (-row.success if row.attacked else 1.0, row.median_queries))


def by_distortion(result: ResultData) -> dict[str, dict[str, float]]:
    """Class -> filter -> share of its flipped samples in which the filter took part, after cleanup."""
    filters = entry_filters(result.setting.palette)
    found: dict[str, dict[str, float]] = {}
    for name, held in _named(result):
        won = held & result.succeeded
        if won.any():
            chosen = result.assignment[won].long()
            found[name] = {
                one: float(torch.isin(chosen, torch.tensor(entries)).any(1).float().mean())
                for one, entries in filters.items()
            }
    return found


def by_label(result: ResultData) -> list[LabelRow]:
    """One row a label, for goals of several labels at once."""
    if result.labels.dim() != 2:
        raise InputError("a table by label needs a run with several labels a sample: use by_class")
    return [_label_row(result, k, _name(result, k)) for k in range(result.labels.shape[1])]


def entry_filters(palette: Sequence[str]) -> dict[str, list[int]]:
    """Filter name -> its entries in an assignment, from names like 'muscle_noise@20dB#2'."""
    found: dict[str, list[int]] = {}
    for entry, name in enumerate(palette, 1):
        found.setdefault(name.rpartition("@")[0] or name, []).append(entry)
    return found


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


def _members(result: ResultData) -> list[Tensor]:
    """By class, which samples (n,) carry it."""
    if result.labels.dim() == 2:
        return list((result.labels == 1).T)
    return [result.labels == k for k in range(int(result.labels.max()) + 1)]


def _named(result: ResultData) -> list[tuple[str, Tensor]]:
    return [(_name(result, k), held) for k, held in enumerate(_members(result))]


def _name(result: ResultData, k: int) -> str:
    return result.setting.classes[k] if k < len(result.setting.classes) else f"class {k}"
