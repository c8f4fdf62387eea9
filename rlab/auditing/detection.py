"""Does the model still detect a class when a distortion fills one group of channels? The stage behind the metric `detection`.

Every sample with a class that the model detects unchanged is distorted in one group at a time over its whole length, and asked
once. No search takes place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rlab.auditing.config import Condition
from rlab.auditing.load import LoadedAudit
from rlab.auditing.record import Rows, StageRecord, Tally
from rlab.core.attack import Attack
from rlab.core.channels import group_names
from rlab.core.rng import sample_seeds
from rlab.data.batch import Batch
from rlab.filters.base import snr_db
from rlab.filters.palette import DECIBEL, Entry, Palette, strength
from rlab.present.page import Section, Text
from rlab.present.table import Cells, Table
from rlab.progress import bar
from rlab.results.breakdown import entry_filters
from rlab.results.result import AttackResult

_CHUNK = 64  # samples that are distorted at once
_ALL = "all channels"


def detect(audit: LoadedAudit, earlier: StageRecord) -> StageRecord:
    """Measure the conditions that an earlier record does not have, and add them to it."""
    attack, batch, victim = audit.options.build(audit.batch), audit.batch, audit.victim
    right = detected(AttackResult.load(audit.folder / "attack").before.double(), batch.y)
    rows = right.any(1).nonzero().flatten()
    if not len(rows):
        return earlier
    seeds, names, before = (
        sample_seeds(audit.options.seed, 0, len(batch)),
        groups_of(attack, batch),
        victim.rows.total(),
    )
    tallies, known = list(earlier.tallies), {Condition(each.distortion, each.snr) for each in earlier.tallies}
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
            counts = zip(right.sum(0).tolist(), (right & found).sum(0).tolist(), strict=True)
            about = (condition.distortion, condition.snr, entry.name, group)
            tallies += [Tally(*about, batch.label_name(k), k, of, kept) for k, (of, kept) in enumerate(counts) if of]
    return StageRecord(earlier.rows + Rows(model=victim.rows.total() - before), tallies=tuple(tallies))


def detection_section(tallies: Sequence[Tally]) -> Section:
    rows: list[Cells] = [[t.entry, t.channels, t.name, t.detected, t.still] for t in tallies]
    head = ["distortion", "in", "class", "detected unchanged", "still detected"]
    table = Table(head, rows, "Samples whose class the model detects", words=3)
    note = "The distortion fills one group of channels over the whole length, and dB are within this group. There is no search."
    return Section("Detection", [table, Text(note, quiet=True)])


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
