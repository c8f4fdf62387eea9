"""The sections of a page with explanations: maps over samples, methods, classes and regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlab.data.batch import Batch
from rlab.explanation.viewers import legend, sample_viewers
from rlab.explanation.wave_effects import wave_tables
from rlab.present.page import Block, Section, Text
from rlab.present.table import Share, Table

if TYPE_CHECKING:
    from rlab.explanation.explanation import Explanation

Rows = Sequence[Mapping[str, Any]]


ATTACK_MASK = (
    "The method mask shows the patches that an attack changed: enough to flip the decision, but not where the model looks. In our "
    "benchmark on ECG beats such masks overlap the true place badly (Dice 0.14, belief 0.49). For an explanation, use belief."
)


def maps_sections(
    explained: Mapping[str, Explanation],
    batch: Batch | None,
    classes: Mapping[str, Rows],
    regions: Rows | None,
    waves: Rows | None = None,
) -> list[Section]:
    """Maps over the samples of `batch`, each method's queries and masks, and the rows of the tables of classes, regions and
    waves."""
    rows: list[list[str | float | Share]] = [
        [name, len(each), each.mean_queries, Share(each.mask_share)] for name, each in explained.items()
    ]
    tables: list[Block] = [Table(["method", "samples", "queries\nper sample", "mask\ncovers"], rows)]
    tables += [Text(ATTACK_MASK)] if "mask" in explained else []
    tables += [_by_class(name, own) for name, own in classes.items()]
    shown: list[Block] = []
    if batch is not None:
        fitting = {name: each for name, each in explained.items() if each.maps[0].shape == batch.x[0, 0].shape}
        shown += legend(batch)
        for row in range(min(len(batch), *map(len, fitting.values()))):
            shown += sample_viewers(fitting, batch, row, len(batch) * len(fitting))
    sections = [*([Section("Samples", shown)] if shown else []), Section("Methods", tables)]
    sections += [] if waves is None else [Section("Waves", wave_tables(waves))]
    return [*sections, *([Section("Regions", _regions(regions))] if regions is not None else [])]


def _by_class(method: str, stored: Rows) -> Table:
    rows: list[list[str | float | Share]] = [
        [row["class"], int(row["samples"]), *(Share(float(row[name])) for name in list(row)[2:])] for row in stored
    ]
    return Table(list(stored[0]), rows, f"By class, {method}")


def _regions(stored: Rows) -> list[Block]:
    """The settled regions with their intervals, and the number of unsettled ones."""
    rows: list[list[str | float]] = [
        [row["id"], row["class"], row["region"], *(float(row[name]) for name in ("effect", "low", "high"))]
        for row in stored
        if str(row["settled"]) == "True"
    ]
    head = ["sample", "class", "region", "removing it lowers\nthe probability by", "from", "to"]
    left = f"{len(stored) - len(rows)} of {len(stored)} regions are not settled: their 90% intervals include 0."
    return [Table(head, rows, "Regions whose 90% interval excludes 0"), Text(left, quiet=True)]
