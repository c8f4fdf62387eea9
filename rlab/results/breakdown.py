"""A run by class: which break most easily, by which distortion, at which SNR, and which labels switched."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rlab.present.table import Cells, Share, Table, records
from rlab.results.change import flip_shares
from rlab.results.data import ResultData
from rlab.results.predicted import class_words
from rlab.stats import median_of

_SNR = ("SNR dB\nat flip", "SNR dB")


def by_class(result: ResultData) -> list[Mapping[str, Any]]:
    """The rows of `class_table`, by heading."""
    return records(class_table(result))


def class_table(result: ResultData) -> Table:
    """One row per class with samples, the easiest to break first; empty for boxes, maps and numbers.

    Medians are over flipped samples. A sample with several labels counts in each of its classes; of these, the table also says how
    many attacked samples with and without the label switched it off and on."""
    several, before, after = result.labels.dim() > 1, result.before > 0.5, result.after > 0.5
    head = ["class", "samples", "flipped", "success", "queries", f"L2{result.setting.l2_unit}", *_SNR]
    values = (result.effort, result.final["l2"], result.flip["snr_db"], result.final["snr_db"])
    rows, shares = list[tuple[tuple[float, float], Cells]](), flip_shares(result)
    for k, (name, held) in enumerate(class_members(result)):
        won, attacked, others = held & result.succeeded, held & result.attacked, ~held & result.attacked
        flipped, tried = int(won.sum()), int(attacked.sum())
        success, medians = flipped / tried if tried else math.nan, [median_of(each, won) for each in values]
        switched = list[str]()
        if several:
            off, on = attacked & before[:, k] & ~after[:, k], others & ~before[:, k] & after[:, k]
            switched = [f"{int(off.sum())} of {tried}", f"{int(on.sum())} of {int(others.sum())}"]
        figures: Cells = [int(held.sum()), f"{flipped} of {tried}", Share(success, 0), *medians]
        if held.any():
            cells: Cells = [name, *figures, *switched, _mostly(result.setting.palette, held, *shares)]
            rows.append(((-success if tried else 1.0, medians[0]), cells))
    rows.sort(key=lambda row: row[0])
    head += [*(["switched off", "switched on"] if several else []), "mostly by"]
    return Table(head, [cells for _, cells in rows], "By class, easiest first (medians over flipped samples)")


def _mostly(palette: Sequence[str], held: Tensor, rows: Tensor, shares: Tensor) -> str:
    """The filter that made most of the squared change of the class's flips, and its share; a dash without flips or inputs."""
    if not held[rows].any():
        return "–"
    means = shares[held[rows]].mean(0).tolist()
    filters = {name: sum(means[entry - 1] for entry in entries) for name, entries in entry_filters(palette).items()}
    name = max(filters, key=filters.__getitem__)
    return f"{name} {filters[name]:.0%}"


def entry_filters(palette: Sequence[str]) -> dict[str, list[int]]:
    """Map filter names to their entries in an assignment, from names like 'muscle_noise@20dB#2'."""
    entries: dict[str, list[int]] = {}
    for entry, name in enumerate(palette, 1):
        entries.setdefault(name.rpartition("@")[0] or name, []).append(entry)
    return entries


def class_members(result: ResultData) -> list[tuple[str, Tensor]]:
    """For each class, its name and which samples (n,) have it; nothing if the model does not return scores of classes."""
    if result.setting.target != "classes":
        return []
    several = result.labels.dim() == 2
    members = (
        (result.labels == 1).T if several else result.labels == torch.arange(int(result.labels.max()) + 1)[:, None]
    )
    return [(class_words(result.setting, k), held) for k, held in enumerate(members)]
