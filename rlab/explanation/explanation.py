"""Explanations of the same samples by one or several methods, with the scores of their maps; tables, pages and folders."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from rlab.present.inline import figure_image
from rlab.present.notebook import SAMPLES, blocks_html
from rlab.present.page import Block, Folded, Gallery, Number, Page, Picture, Section, Text, Viewers
from rlab.present.report import REPORT, Metric, PathLike, Report
from rlab.present.table import Cells, Share, Table
from rlab.results.viewers.pixels import small_address
from rlab.runs.fingerprint import data_fingerprint
from rlab.stats import Estimate, mean_estimate
from rlab.storage.files import replacing, write_csv
from rlab.storage.names import PICTURES, file_name
from rlab.storage.resume import Mark, Resume, open_run

PICTURED = 12  # samples to draw
MIDDLE = "middle"  # the method
BY_CLASS = ("probability", "mask_share", "dice", "deletion", "insertion")  # figures in the table of classes
COLUMNS = 6  # maximum of viewers per row


@dataclass(frozen=True, repr=False)
class Explanation(Explained, Report):
    """An explanation by one method, to read, plot, print and save."""

    verb: ClassVar[str] = "explain"

    @staticmethod
    def join(parts: Sequence[Explanation]) -> Explanation:
        """Explanations of consecutive samples as one."""
        whole = Explanation.cat([replace(part, seconds=0.0) for part in parts])
        return replace(whole, seconds=sum(part.seconds for part in parts))

    @property
    def alone(self) -> MethodComparison:
        """The report of this method alone."""
        return MethodComparison({self.method: replace(self, inputs=None)}, self.inputs)

    def view(self, samples: int = PICTURED, folder: Path | None = None) -> Page:
        return self.alone.view(samples, folder)

    def plot(self, sample: int | None = None) -> Figure:
        """Draw the maps over the first samples, or over one sample."""
        return self.alone.plot(sample)

    def metrics(self) -> Mapping[str, Metric]:
        return self.alone.metrics()

    def save(self, folder: PathLike, pictures: int = PICTURED) -> Path:
        """Write arrays, tables and pictures of the first samples; several methods can share a folder."""
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
        """Mean queries, masks and scores; with intervals the table is too wide for a terminal."""
        rows: list[Cells] = []
        for name, each in self.judged.items():
            means = [each.mean(score, self.seed) for score in self.names]
            shown = [mean if intervals else mean.value for mean in means]
            rows.append([name + "\n(white box)" * each.gradients, each.mean_queries, Share(each.mask_share), *shown])
        about = "Means and 95% bootstrap intervals" if intervals and self.names else ""
        return Table(["method", "queries", "mask\ncovers", *_heads(self.names)], rows, about)

    def middle_table(self) -> Table | None:
        """Each method minus the method `middle`, which ignores the model; None without it."""
        others = [name for name in self.judged if name != MIDDLE]
        names = [name for name in ("dice", "dice_map", "deletion", "insertion") if name in self.names]
        if MIDDLE not in self.judged or not others or not names:
            return None
        rows: list[Cells] = [[own, *(self.difference(own, MIDDLE, name) for name in names)] for own in others]
        return Table(
            [f"minus {MIDDLE}", *_heads(names)], rows, f"Against a Gaussian in the middle, the method {MIDDLE}"
        )

    def class_table(self) -> Table:
        """Means by explained class and method."""
        figures = {name: each.figures for name, each in self.judged.items()}
        every = dict.fromkeys(figure for own in figures.values() for figure in own)
        heads = [name for name in every if name in BY_CLASS or name.startswith("map in")]
        rows: list[Cells] = []
        for label in self.first.labels.unique().tolist():
            at = self.first.labels == label
            for name, own in figures.items():
                means = [round(float(own[head][at].nanmean()), 4) if head in own else None for head in heads]
                rows.append([self.first.names[int(at.nonzero()[0])], name, int(at.sum()), *means])
        return Table(["class", "method", "samples", *heads], rows, "By class", words=2)

    def records(self) -> list[dict[str, Any]]:
        """One row per method and sample; None for a figure that a method does not have."""
        records = [record for each in self.judged.values() for record in each.records()]
        heads = dict.fromkeys(name for record in records for name in record)
        return [{**heads, **record} for record in records]

    def metrics(self) -> Mapping[str, Metric]:
        return {
            f"{own}: {name}": each.mean(name, self.seed) for own, each in self.judged.items() for name in each.figures
        }

    def plot(self, sample: int | None = None) -> Figure:
        """Draw the first samples, or one sample, with the map of every method."""
        samples = range(len(self.batch))
        return draw_maps(
            overlays_of(self.judged, self.batch, samples[:SAMPLES] if sample is None else [samples[sample]])
        )

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
        middle = self.middle_table()
        methods += [middle, Text(AGAINST, quiet=True)] if middle else []
        methods += [Text(ATTACK_MASK)] if "mask" in self.judged else []
        count = 0 if self.inputs is None else min(samples, len(self.inputs))
        shown = [block for row in range(count) for block in self._sample(row, count * len(self.judged), cell)]
        if not shown and (words := self._words(0)):
            methods += [
                Text(f"In words, for {self.first.sample_ids[0]}, the first of {len(self.first)} samples:"),
                *words,
            ]
        sections = [Section("Methods", [*methods, self.class_table()])]
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
        shown = [
            over.viewer(
                f"{cell}map-{row}-{at}",
                name,
                f"Dice {float(dice[name]):.2f}" if name in dice else "",
                among,
                bool(cell),
            )
            for at, (name, over) in enumerate(overs.items())
        ]
        facts = ", ".join(next(iter(overs.values())).title.rpartition(", by ")[0].split("\n"))
        signal = self.batch.kind == "signal"
        viewers = Viewers(shown, min(len(shown), 2 if signal else COLUMNS), small=not signal)
        about, words = Text(f"{self.batch.ids[row]}: {facts}."), self._words(row)
        folded = [Folded("In words", words)] if words else []
        if not next(iter(overs.values())).clinical:
            return [about, viewers, *folded]
        sheets = {name: small_address(over.sheet(), among) for name, over in overs.items()}
        pictures = [Picture(sheet, f"{name}: twelve leads with heat") for name, sheet in sheets.items()]
        return [about, Gallery(pictures), Folded("Every lead in full length", [viewers]), *folded]

    def save(self, folder: PathLike, pictures: int = PICTURED) -> Path:
        """Write arrays, tables and pictures of the first samples, which are stored too; several methods can share a folder."""
        path = Path(folder)
        with open_explanation(path, {}, self.batch) as resume:
            resume.create()
            earlier = {} if self.names or not (path / REPORT).exists() else MethodComparison.load(path).judged
            inputs = self.batch[: min(pictures, len(self.batch))] if pictures else None
            own = {name: replace(each, inputs=None, seconds=math.nan) for name, each in self.judged.items()}
            replace(self, judged={**earlier, **own}, inputs=inputs).write(path)
            (path / PICTURES).mkdir(exist_ok=True)
            for name, each in own.items():
                if each.effects is not None:
                    write_csv(path / f"{each.effects.kind}.csv", each.effects.rows(each.sample_ids, each.names))
                for row in range(0 if inputs is None else len(inputs)):
                    stem = f"{row:03d}_{file_name(Path(self.batch.ids[row]).stem)}_{file_name(name)}"
                    over = Overlay.of(each, self.batch, row)
                    image = over.sheet() if over.clinical else figure_image(draw_maps([[over]]))
                    with replacing(path / PICTURES / f"{stem}.png") as file:
                        image.save(file, "PNG")
        return path


def _heads(names: Sequence[str]) -> list[str]:
    return [{"dice": "Dice", "dice_map": "Dice of\nthe map", "iou": "IoU"}.get(name, name) for name in names]


@contextmanager
def open_explanation(folder: Path, about: Mapping[str, Mark], batch: Batch) -> Iterator[Resume]:
    """Open a folder for explanations; a later explanation replaces an earlier one by the same method.

    All are drawn together, so the folder belongs to the inputs and to what they are `about`: the first model and class.
    """
    about = {**about, "the data": data_fingerprint(batch)}
    with open_run(folder, {"command": MethodComparison.verb}) as resume:
        for key, mark in about.items():
            resume.refuse_other(key, mark)
        yield resume
        for key, mark in about.items():
            resume.step(key, mark, lambda: None)
