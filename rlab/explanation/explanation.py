"""Explanations of the same samples by one or several methods, with the scores of their maps; tables, pages and folders."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self
from uuid import uuid4

from matplotlib.figure import Figure

from rlab.data.batch import Batch
from rlab.errors import DataError
from rlab.explanation.explained import SCORES, Explained
from rlab.explanation.pictures import Overlay, draw_maps, overlays_of
from rlab.explanation.words import AGAINST, ATTACK_MASK, LEGEND, RULES
from rlab.present.figures import save_drawings
from rlab.present.notebook import SAMPLES, blocks_html
from rlab.present.page import Block, Folded, Number, Page, Section, Text, Viewers
from rlab.present.report import Metric, PathLike, Report
from rlab.present.table import Cells, Share, Table
from rlab.stats import NOTHING, Estimate, mean_estimate
from rlab.storage.files import write_csv
from rlab.storage.names import PICTURES, file_name

PICTURED = 12  # samples to draw
MIDDLE = "middle"  # the method that ignores the model
BEATS = ("dice", "dice_map", "deletion", "insertion")  # scores in which a method should beat the middle
COLUMNS = 6  # maximum of viewers per row
HEADS = {"dice": "Dice", "dice_map": "Dice of\nthe map", "iou": "IoU"}  # of scores, in words


@dataclass(frozen=True, repr=False)
class Explanation(Explained, Report):
    """An explanation by one method, to read, plot, print and save."""

    verb: ClassVar[str] = "explain"

    @property
    def alone(self) -> MethodComparison:
        """The report of this method alone."""
        return MethodComparison({self.method: self}, self.inputs)

    def view(self, samples: int = PICTURED, folder: Path | None = None) -> Page:
        return self.alone.view(samples, folder)

    def plot(self, sample: int | None = None) -> Figure:
        """Draw the maps over the first samples, or over one sample."""
        return self.alone.plot(sample)

    def metrics(self) -> Mapping[str, Metric]:
        return self.alone.metrics()

    def save(self, folder: PathLike, pictures: int = PICTURED) -> Path:
        """Write arrays, tables and pictures of the first samples."""
        return self.alone.save(folder, pictures)

    @classmethod
    def load(cls, folder: PathLike) -> Self:
        """Read the explanation by the first method in a folder; `MethodComparison.load` reads those by all."""
        found = MethodComparison.load(folder)
        return cls(**{**vars(found.first), "inputs": found.inputs})

    def _repr_html_(self) -> str:
        return self.alone._repr_html_()


@dataclass(frozen=True, repr=False)
class MethodComparison(Report):
    """Explanations by method, in the order they ran; `left_out` says which scores are missing and why."""

    verb: ClassVar[str] = "explain"

    judged: Mapping[str, Explanation]
    inputs: Batch | None = None  # what was explained; the first samples if it was read from a folder
    left_out: tuple[str, ...] = ()
    seed: int = 0
    rows: int = 0  # rows that reached the model, for maps and scores
    copy_rows: int = 0  # rows that reached the copy with shuffled weights

    def __repr__(self) -> str:
        return f"MethodComparison({', '.join(self.judged)} on {len(self.first)} samples)"

    @property
    def first(self) -> Explanation:
        return next(iter(self.judged.values()))

    @property
    def batch(self) -> Batch:
        """What was explained."""
        if self.inputs is None:
            raise DataError("the inputs of this explanation were not kept: explain them again")
        return self.inputs

    @property
    def names(self) -> list[str]:
        """Scores that any method has, in the table's order."""
        return [name for name in SCORES if any(name in each.scores for each in self.judged.values())]

    def difference(self, method: str, other: str, score: str) -> Estimate:
        """The mean difference of two methods over the same samples, with its paired bootstrap interval."""
        gap = self.judged[method].scores[score] - self.judged[other].scores[score]
        return mean_estimate(gap.double().numpy(), self.seed)

    def table(self, intervals: bool = False) -> Table:
        """Mean queries, masks and scores; with intervals the table is too wide for a terminal. Below, each method minus the method
        `middle`, if that is one of them."""
        rows: list[Cells] = []
        for name, each in self.judged.items():
            means = [each.mean(score, self.seed) for score in self.names]
            shown = [mean if intervals else mean.value for mean in means]
            rows.append([name + "\n(white box)" * each.gradients, each.mean_queries, Share(each.mask_share), *shown])
        for name in self.judged if MIDDLE in self.judged else ():
            if name != MIDDLE and self.names:
                gaps = [self.difference(name, MIDDLE, each) if each in BEATS else NOTHING for each in self.names]
                against = [None if math.isnan(gap.value) else gap if intervals else gap.value for gap in gaps]
                rows.append([f"{name}\nminus {MIDDLE}", None, None, *against])
        about = "Means and 95% bootstrap intervals" if intervals and self.names else ""
        heads = [HEADS.get(name, name) for name in self.names]
        return Table(["method", "queries", "mask\ncovers", *heads], rows, about)

    def records(self) -> list[dict[str, Any]]:
        """One row per method and sample; None for a figure that a method does not have."""
        records = [record for each in self.judged.values() for record in each.records()]
        heads = dict.fromkeys(name for record in records for name in record)
        return [{**heads, **record} for record in records]

    def metrics(self) -> Mapping[str, Metric]:
        means = {name: each.mean for name, each in self.judged.items()}
        return {
            f"{name}: {key}": means[name](key, self.seed) for name, own in self.judged.items() for key in own.figures
        }

    def plot(self, sample: int | None = None) -> Figure:
        """Draw the first samples, or one sample, with the map of every method."""
        rows = range(len(self.batch))
        return draw_maps(overlays_of(self.judged, self.batch, rows[:SAMPLES] if sample is None else [rows[sample]]))

    def view(self, samples: int = PICTURED, folder: Path | None = None) -> Page:
        numbers = [Number("samples", len(self.first))]
        if len(self.judged) == 1:
            numbers += [Number("queries per sample", round(self.first.mean_queries))]
            numbers += [Number("mask covers", Share(self.first.mask_share))]
        return Page(
            f"What decides{'' if folder is None else f': {folder.name}'}", self.sections(samples), numbers=numbers
        )

    def _repr_html_(self) -> str:
        """The page with the first samples, without anything interactive."""
        sections = self.sections(SAMPLES, uuid4().hex[:8])  # ids of several cells must differ
        return blocks_html([block for section in sections for block in section.blocks], self.view(0).numbers)

    def sections(self, samples: int = PICTURED, cell: str = "") -> list[Section]:
        """Tables of methods, maps over the first samples, and tables of regions or waves; `cell` is a prefix for ids."""
        methods: list[Block] = [Text(f"{line}.") for line in self.left_out]
        methods += [self.table(intervals=True), *([Text(RULES, quiet=True)] if self.names else [])]
        methods += [Text(AGAINST, quiet=True)] if self.names and MIDDLE in self.judged and len(self.judged) > 1 else []
        methods += [Text(ATTACK_MASK)] if "mask" in self.judged else []
        count = 0 if self.inputs is None else min(samples, len(self.inputs))
        shown = [block for row in range(count) for block in self._sample(row, count * len(self.judged), cell)]
        if not shown and (words := self._words(0)):
            methods += [
                Text(f"In words, for {self.first.sample_ids[0]}, the first of {len(self.first)} samples:"),
                *words,
            ]
        sections = [Section("Methods", methods)]
        sections += [Section("Samples", [Text(LEGEND, quiet=True), *shown])] if shown else []
        for each in self.judged.values():
            if each.effects is not None:
                blocks = each.effects.blocks(each.sample_ids, each.names, max(samples, 1))
                sections.append(Section(each.effects.kind.capitalize(), blocks))
        return sections

    def _words(self, row: int) -> list[Block]:
        """What each method shows about one sample, in sentences."""
        lines = {name: each.statements(row) for name, each in self.judged.items()}
        return [Text(f"{name}: {'; '.join(own)}.") for name, own in lines.items() if own]

    def _sample(self, row: int, among: int, cell: str) -> list[Block]:
        """One sample with the map of every method; `among` is the number of maps on the page."""
        overs = {name: Overlay.of(each, self.batch, row) for name, each in self.judged.items()}
        dice = {name: each.scores["dice"][row] for name, each in self.judged.items() if "dice" in each.scores}
        notes = {name: f"Dice {float(dice[name]):.2f}" if name in dice else "" for name in overs}
        facts = ", ".join(next(iter(overs.values())).title.rpartition(", by ")[0].split("\n"))
        about, words = Text(f"{self.batch.ids[row]}: {facts}."), self._words(row)
        folded = [Folded("In words", words)] if words else []

        def viewers(clinical: bool = False) -> Viewers:
            ids = f"{cell}{'sheet' if clinical else 'map'}-{row}-"
            shown = [
                over.viewer(f"{ids}{at}", name, notes[name], among, bool(cell), clinical)
                for at, (name, over) in enumerate(overs.items())
            ]
            signal = self.batch.kind == "signal"
            return Viewers(shown, min(len(shown), 1 if clinical else 2 if signal else COLUMNS), small=not signal)

        if not next(iter(overs.values())).clinical:
            return [about, viewers(), *folded]
        return [about, viewers(clinical=True), Folded("Every lead in full length", [viewers()]), *folded]

    def kept(self, pictures: int) -> MethodComparison:
        """What is stored: the inputs of the first samples only, each once, and no times, which differ between equal runs."""
        inputs = None if self.inputs is None or not pictures else self.inputs[: min(pictures, len(self.inputs))]
        judged = {name: replace(each, inputs=None, seconds=0.0) for name, each in self.judged.items()}
        return replace(self, judged=judged, inputs=inputs)

    def save(self, folder: PathLike, pictures: int = PICTURED) -> Path:
        """Write arrays, tables and pictures of the first samples, which are stored too."""
        return Report.save(self.kept(pictures), folder)

    def write(self, folder: Path) -> None:
        """Also write the effects of regions or waves, and pictures of the inputs."""
        super().write(folder)
        for name, each in self.judged.items():
            if each.effects is not None:
                write_csv(folder / f"{each.effects.kind}.csv", each.effects.rows(each.sample_ids, each.names))
            for row, sample in enumerate(() if self.inputs is None else self.inputs.ids):
                stem = f"{row:03d}_{file_name(Path(sample).stem)}_{file_name(name)}"
                save_drawings({stem: Overlay.of(each, self.batch, row).figure}, folder / PICTURES, "png")
