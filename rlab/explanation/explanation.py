"""What an explanation returns: maps and masks of the samples, with ways to read, plot, print and save them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from matplotlib.figure import Figure
from torch import Tensor

from rlab.core.batched import Rows
from rlab.data.batch import Batch
from rlab.errors import DataError
from rlab.explanation.effects import RegionEffects, WaveEffects, wave_tables
from rlab.explanation.files import class_rows, save_explanation
from rlab.explanation.pictures import draw_maps, save_overlays
from rlab.explanation.subject import Subject
from rlab.explanation.viewers import legend, maps_sections, sample_viewers
from rlab.present.notebook import SAMPLES, blocks_html
from rlab.present.page import Block, Number, Page, Text
from rlab.present.result import PathLike, Result
from rlab.present.table import Share
from rlab.storage.names import PICTURES

PICTURED = 12  # samples to draw


@dataclass(frozen=True)
class Explanation(Rows, Result):
    """Maps by one method. A higher value means that the decision depends more on that point of the sample."""

    method: str
    maps: Tensor  # (n, *size) float32
    mask: Tensor  # (n, *size) bool, by `rule`
    labels: Tensor  # (n,) explained class
    queries: Tensor  # (n,) rows that reached the model for the map, the clean prediction included
    rule: str
    seconds: float
    gradients: bool = False  # whether the method used the model's gradients or layers
    deviation: Tensor | None = None  # (n, *size) standard deviation of the maps, if the method knows it
    regions: RegionEffects | None = None  # effect of removing each region, if the method knows it
    by_lead: Tensor | None = None  # (n, c, *size) the map of each lead, if the method tells leads apart
    waves: WaveEffects | None = None  # effect of removing each wave in each group of leads, if the method knows it
    drops: Tensor | None = (
        None  # (n, c, *size): the effect of the wave at each point, if the method removes whole waves
    )
    probabilities: Tensor | None = None  # (n, k) of the clean inputs
    subject: Subject | None = None  # what was explained, to score the maps; None if it was not kept
    inputs: Batch | None = None  # what was explained; None if it was not kept

    def __len__(self) -> int:
        return len(self.maps)

    def __repr__(self) -> str:
        maps = f"{len(self)} maps {'×'.join(map(str, self.maps.shape[1:]))} by {self.method}"
        return f"Explanation({maps}, masks cover {self.mask_share:.0%}, {self.effort})"

    @property
    def mask_share(self) -> float:
        return float(self.mask.float().mean())

    @property
    def mean_queries(self) -> float:
        return float(self.queries.float().mean())

    @property
    def effort(self) -> str:
        """The mean number of queries as a phrase."""
        count = round(self.mean_queries)
        return f"{count:,} {'query' if count == 1 else 'queries'} per sample"

    @property
    def arrays(self) -> dict[str, Tensor]:
        names = ("maps", "mask", "labels", "queries", "deviation", "by_lead", "drops", "probabilities")
        return {name: array for name in names if (array := getattr(self, name)) is not None}

    @staticmethod
    def join(parts: Sequence[Explanation]) -> Explanation:
        """Explanations of consecutive samples as one."""
        whole = Explanation.cat([replace(part, seconds=0.0) for part in parts])
        return replace(whole, seconds=sum(part.seconds for part in parts))

    @property
    def batch(self) -> Batch:
        """What was explained."""
        if self.inputs is None:
            raise DataError("the inputs of this explanation were not kept: explain them again")
        return self.inputs

    def plot(self, sample: int | None = None) -> Figure:
        """Draw the maps over the first samples, or over one sample."""
        rows = range(min(len(self), SAMPLES)) if sample is None else [range(len(self))[sample]]
        return draw_maps({self.method: self}, self.batch, rows)

    def records(self) -> list[dict[str, Any]]:
        """One row per sample: the explained class, its probability, the size of the mask and the queries."""
        records = []
        for i, label in enumerate(self.labels.tolist()):
            probability = None if self.probabilities is None else float(self.probabilities[i, label])
            name = str(label) if self.inputs is None else self.inputs.label_name(label)
            sample = str(i) if self.inputs is None else self.inputs.ids[i]
            record = {"id": sample, "method": self.method, "explained": label, "explained_name": name}
            figures = {"mask_share": float(self.mask[i].float().mean()), "queries": int(self.queries[i])}
            records.append(record | {"probability": probability} | figures)
        return records

    def make_page(self) -> Page:
        classes = {self.method: class_rows(self, self.batch)}
        regions = None if self.regions is None else self.regions.rows(self.batch, self.labels)
        waves = None if self.waves is None else self.waves.rows(self.batch, self.labels)
        shown = self.batch[: min(len(self.batch), PICTURED)]
        sections = maps_sections({self.method: self}, shown, classes, regions, waves)
        return Page(f"Explanation by {self.method}", sections, numbers=self._numbers())

    def _numbers(self) -> list[Number]:
        queries, covered = round(self.mean_queries), Share(self.mask_share)
        return [Number("samples", len(self)), Number("queries per sample", queries), Number("mask covers", covered)]

    def save(self, folder: PathLike, pictures: int = PICTURED) -> Path:
        """Write arrays, tables and pictures of the first samples; several methods can share a folder."""
        path = Path(folder)
        save_explanation(self, self.batch, path, pictures)
        save_overlays(self, self.batch, path / PICTURES, pictures)
        return path

    def _repr_html_(self) -> str:
        """The maps over the first samples, or only figures if the inputs were not kept."""
        if self.inputs is None:
            return blocks_html([Text(f"Maps by the method {self.method}; the inputs were not kept.")], self._numbers())
        cell, count = uuid4().hex[:8], min(SAMPLES, len(self))  # ids of several cells must differ
        blocks: list[Block] = [Text(f"What decides, by the method {self.method}."), *legend()]
        for row in range(count):
            blocks += sample_viewers({self.method: self}, self.batch, row, 2 * count, cell=cell)
        if self.waves is not None:
            blocks += wave_tables(self.waves.rows(self.batch, self.labels), count)
        return blocks_html(blocks, self._numbers())
