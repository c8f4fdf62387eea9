"""The parts of a page with explanations: every method's map over the inputs, and tables of methods, classes and regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlab.data.batch import Batch
from rlab.explanation.effects import wave_tables
from rlab.explanation.pictures import Overlay, is_clinical, picture, shown_of
from rlab.present.page import Block, Folded, Gallery, Picture, Section, Text, Viewers
from rlab.present.table import Share, Table
from rlab.present.viewer import Viewer
from rlab.results.viewers.heat import heat_stage
from rlab.results.viewers.pixels import small_address
from rlab.stats import Estimate

if TYPE_CHECKING:
    from rlab.explanation.explanation import Explanation

LEGEND = (
    "Each map lies over its input: the stronger the colour, the more the decision depends on that place according to the method. "
    "It is paler where the method is less sure. A line, or a bar below a signal, marks the mask and the ground truth, if any."
)
Rows = Sequence[Mapping[str, Any]]
ATTACK_MASK = (
    "The method mask shows the patches that an attack changed: enough to flip the decision, but not where the model looks. In our "
    "benchmark on ECG beats such masks overlap the true place badly (Dice 0.14, belief 0.49). For an explanation, use belief."
)
REGIONS = (
    "Brackets hold 90% intervals. The first is that of another removal of the same region with edges moved by up to a tenth of its "
    "sides. The last column is the mean drop, also that of the map, while random other places are removed too: it is larger than "
    "that of the region alone if the model has several reasons. Regions whose first interval includes no change are left out."
)
COLUMNS = 6  # maximum per row


def sample_viewers(
    explanations: Mapping[str, Explanation],
    batch: Batch,
    row: int,
    among: int,
    notes: Mapping[str, str] | None = None,
    cell: str = "",
) -> list[Block]:
    """One sample: the input with its ground truth, then the map of each method.

    `among` is the number of maps on the page; `cell` is a prefix for ids in a notebook cell.
    """
    input_ = shown_of(batch, row)
    overs = {name: Overlay.of(explanation, batch, row) for name, explanation in explanations.items()}
    stages = {"input": heat_stage(input_, None, 1, still=True)}
    stages |= {name: heat_stage(input_, over, among, bool(cell)) for name, over in overs.items()}
    shown = [
        Viewer(f"{cell}map-{row}-{number}", name, "", "", (notes or {}).get(name, ""), (), stage)
        for number, (name, stage) in enumerate(stages.items())
    ]
    classes, label = next(iter(overs.values())).classes, int(next(iter(explanations.values())).labels[row])
    facts = ", ".join(part for part in (classes, f"explained: {batch.label_name(label)}") if part)
    columns = min(len(shown), 2 if batch.kind == "signal" else COLUMNS)
    viewers = Viewers(shown, columns, small=batch.kind != "signal")
    if not is_clinical(batch):
        return [Text(f"{batch.ids[row]}: {facts}."), viewers]
    sheets = [
        Picture(small_address(picture(explanation, batch, row), among), f"{name}: twelve leads with heat")
        for name, explanation in explanations.items()
    ]
    return [Text(f"{batch.ids[row]}: {facts}."), Gallery(sheets), Folded("Every lead in full length", [viewers])]


def legend() -> list[Block]:
    """How to read the maps."""
    return [Text(LEGEND)]


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
        shown += legend() if fitting else []
        for row in range(min([len(batch), *map(len, fitting.values())]) if fitting else 0):
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
    """The settled regions, those with the largest effect first in each sample, and the number of unsettled ones."""
    settled = [row for row in stored if str(row["settled"]) == "True"]
    order = {name: number for number, name in enumerate(dict.fromkeys(row["id"] for row in settled))}
    settled.sort(key=lambda row: (order[row["id"]], -abs(float(row["after"]) - float(row["before"]))))
    rows: list[list[str | float | Estimate]] = []
    for row in settled:
        alone = Estimate(*(float(row[name]) for name in ("after", "low", "high")))
        mean = Estimate(*(float(row[name]) for name in ("mean_effect", "mean_low", "mean_high")))
        rows.append([row["id"], row["class"], row["region"], float(row["before"]), alone, mean])
    head = ["sample", "class", "region", "probability", "after removing\nit alone", "mean drop among\nother removals"]
    return [Table(head, rows, "Regions that change the class's probability alone"), Text(REGIONS, quiet=True)]
