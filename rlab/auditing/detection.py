"""Does the model still detect a class when a distortion fills one group of channels? The stage behind the metric `detection`.

Every sample with a class that the model detects unchanged is distorted in one group at a time over its whole length, and asked
once. No search takes place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from rlab.auditing.config import Condition
from rlab.auditing.load import LoadedAudit
from rlab.core.attack import Attack
from rlab.core.channels import group_names
from rlab.core.rng import sample_seeds
from rlab.data.batch import Batch
from rlab.filters.base import snr_db
from rlab.filters.palette import DECIBEL, Entry, Palette, strength
from rlab.present.page import Page, Section, Text
from rlab.present.report import Metric, Report
from rlab.present.table import Cells, Share, Table
from rlab.progress import bar
from rlab.results.breakdown import entry_filters
from rlab.results.result import AttackResult
from rlab.stats import share_estimate

_CHUNK = 64  # samples that are distorted at once
_ALL = "all channels"


@dataclass(frozen=True)
class Tally:
    """Samples of one class that the model detects unchanged, and how many of them with a distortion in a group of channels."""

    distortion: str
    snr: float | None  # dB within the group; None: the severity of the palette
    entry: str  # the distortion with its severity
    channels: str  # the group in words
    label: int
    detected: int
    still: int

    @property
    def condition(self) -> Condition:
        return Condition(self.distortion, self.snr)


@dataclass(frozen=True)
class Detection(Report):
    """All tallies of an audit's folder, and the queries that they took."""

    verb: ClassVar[str] = "audit --detect"
    tallies: tuple[Tally, ...] = ()
    rows: int = 0
    classes: tuple[str, ...] = ()

    def records(self) -> list[dict[str, Any]]:
        """One row per distortion, group of channels and class."""
        return [asdict(tally) for tally in self.tallies]

    def metrics(self) -> dict[str, Metric]:
        return {
            f"{t.entry} in {t.channels}, {self._class(t)}": Share(share_estimate(t.still, t.detected))
            for t in self.tallies
        }

    def view(self, samples: int = 24, folder: Path | None = None) -> Page:
        rows: list[Cells] = [[t.entry, t.channels, self._class(t), t.detected, t.still] for t in self.tallies]
        head = ["distortion", "in", "class", "detected unchanged", "still detected"]
        table = Table(head, rows, "Samples whose class the model detects", words=3)
        note = "The distortion fills one group of channels over the whole length, and dB are within this group. There is no search."
        return Page("Detection", [Section("Detection", [table, Text(note, quiet=True)])])

    def _class(self, tally: Tally) -> str:
        return self.classes[tally.label] if self.classes else str(tally.label)


def detect(audit: LoadedAudit, before: Detection) -> Detection:
    """Measure the conditions that `before` does not have, and add them to it."""
    attack, batch, victim = audit.options.build(audit.batch), audit.batch, audit.victim
    right = detected(AttackResult.load(audit.folder / "attack").before.double(), batch.y)
    rows = right.any(1).nonzero().flatten()
    if not len(rows):
        return before
    seeds = sample_seeds(audit.options.seed, 0, len(batch))
    tallies, asked, names = list(before.tallies), victim.rows.total(), groups_of(attack, batch)
    known = {tally.condition for tally in before.tallies}
    new = [each for each in audit.options.conditions if each not in known]
    todo = [(each, entry, group) for each in new for entry in entries_of(each, attack.palette) for group in names]
    with bar(len(rows) * len(todo), "detect", unit="queries") as progress:
        for condition, entry, group in todo:
            alone, found = replace(attack.palette, entries=(entry,)), torch.zeros_like(right)
            for some in rows.split(_CHUNK):
                x = distorted(batch.x[some], alone, names[group], condition.snr, batch.bounds, seeds[some].tolist())
                scores = victim(x.to(victim.device), "verify").cpu()
                found[some] = detected(victim.probabilities(scores), batch.y[some])
                progress(some)
            kept, of = (right & found).sum(0).tolist(), right.sum(0).tolist()
            about = (condition.distortion, condition.snr, entry.name, group)
            tallies += [Tally(*about, label, of[label], kept[label]) for label in range(len(of)) if of[label]]
    return Detection(tuple(tallies), before.rows + victim.rows.total() - asked, batch.classes)


def detected(probabilities: Tensor, labels: Tensor) -> Tensor:
    """(n, k), labels (n,) or (n, k) -> (n, k) bool: classes of each sample that the model finds; never where it returned NaN."""
    if labels.shape[1:]:
        return (probabilities > 0.5) & (labels == 1)
    own = torch.zeros_like(probabilities, dtype=torch.bool).scatter(1, labels[:, None], True)
    first = torch.zeros_like(own).scatter(1, probabilities.argmax(1, keepdim=True), True)
    return own & first & ~probabilities.isnan()


def distorted(
    x: Tensor,
    palette: Palette,
    channels: Sequence[int],
    snr: float | None,
    bounds: tuple[float, float],
    seeds: Sequence[int],
) -> Tensor:
    """x: (b, c, *size) with these channels of the palette's one entry; `snr` is the ratio within these channels alone."""
    own, out = list(channels), x.clone()
    changed = palette.bank(x, bounds, seeds)[:, 1, own]
    if snr is not None:
        louder = strength(snr_db(x[:, own], changed) - snr).view(-1, *(1,) * (x.dim() - 1))
        changed = (x[:, own] + (changed - x[:, own]) * louder).clamp(*bounds)
    out[:, own] = changed
    return out if snr is None or palette.rounded is None else palette.rounded(out)


def entries_of(condition: Condition, palette: Palette) -> Iterator[Entry]:
    """The entries of the palette with this filter, or the filter at the given SNR."""
    own = [palette.entries[at - 1] for at in entry_filters(palette.names)[condition.distortion]]
    if condition.snr is None:
        yield from own
    else:
        yield replace(own[0], severity=condition.snr, unit=DECIBEL, factor=1.0, draw=0)


def groups_of(attack: Attack, batch: Batch) -> dict[str, tuple[int, ...]]:
    """The channels of each group, by its name."""
    groups = attack.grid.groups
    if not groups:
        return {_ALL: tuple(range(batch.shape[0]))}
    return dict(zip(group_names(groups, batch.leads), groups, strict=True))
