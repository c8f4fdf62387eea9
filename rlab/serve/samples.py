"""The samples of an attack: filtered, sorted, in pages, and as small pictures. The inputs stay on disk until they are drawn."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch
from PIL import Image
from pydantic import Field, model_validator
from torch import Tensor

from rlab.core.status import Status
from rlab.errors import OptionError
from rlab.present.inline import opened
from rlab.present.layers import SMOOTH_FROM
from rlab.results.pictures import easiest, small_pictures
from rlab.results.predicted import class_words, name_of
from rlab.results.result import AttackedSample, AttackResult
from rlab.results.sample import Sample
from rlab.results.tones import status_cell
from rlab.storage.config import Options
from rlab.storage.index import readable
from rlab.storage.names import SAMPLES, inside

ROWS = 50  # per page
SIDE = 128  # pixels of a small picture
Version = Literal["original", "perturbed"]
Order = Literal["row", "l2", "-l2", "queries", "-queries", "patches", "-patches", "label", "status", "id"]
ORDERS: dict[Order, str] = {
    "row": "order of the run",
    "l2": "smallest distance first",
    "-l2": "largest distance first",
    "queries": "fewest queries first",
    "-queries": "most queries first",
    "patches": "fewest patches first",
    "-patches": "most patches first",
    "label": "by class",
    "status": "by outcome",
    "id": "by name",
}


class SampleFilter(Options):
    """The filters in an address; missing or empty fields do not filter."""

    status: Literal[tuple(status.name.lower() for status in Status)] | None = None  # type: ignore[valid-type]
    label: int | None = Field(None, ge=0)
    entry: int | None = Field(None, ge=1, le=255)  # palette entry that the sample must use
    queries_from: int | None = Field(None, ge=0)
    queries_to: int | None = Field(None, ge=0)
    l2_from: float | None = Field(None, ge=0)
    l2_to: float | None = Field(None, ge=0)
    words: str | None = Field(None, max_length=200)  # part of the id
    sort: Order = "row"
    page: int = Field(1, ge=1, le=10**9)

    @model_validator(mode="before")
    @classmethod
    def _given(cls, values: Any) -> Any:
        return {name: value for name, value in values.items() if value != ""} if isinstance(values, Mapping) else values

    def asked(self) -> dict[str, Any]:
        """The fields for an address, without defaults."""
        return self.model_dump(exclude_defaults=True)


@dataclass(frozen=True)
class SamplePage:
    """One page of the samples that match a filter, and what the filter can choose from."""

    result: AttackResult
    rows: Sequence[tuple[int, AttackedSample]]  # with their numbers in the run
    matching: int
    page: int
    pages: int

    @property
    def pictured(self) -> bool:
        return any(sample.inputs.has(0) for _, sample in self.rows)

    @property
    def classes(self) -> Mapping[int, str]:
        """The classes that occur in the run."""
        labels, setting = self.result.labels, self.result.setting
        if setting.target != "classes":
            return {}
        present = range(labels.shape[1]) if labels.dim() > 1 else labels.unique().tolist()
        return {k: name_of(setting, k) for k in present}

    @property
    def states(self) -> Mapping[str, str]:
        """The outcomes that occur in the run, with their numbers of samples."""
        counts = Counter(self.result.status)
        return {each.name.lower(): f"{each.label} ({counts[each]:,})" for each in Status if counts[each]}

    @property
    def palette(self) -> Mapping[int, str]:
        """Counted from 1."""
        return dict(enumerate(self.result.setting.palette, 1))

    def words(self, sample: AttackedSample) -> tuple[str, ...]:
        """What is true of a sample, and how it was read before and after."""
        labels = (sample.label, sample.predicted_before, sample.predicted_after)
        return tuple(class_words(sample.setting, label) for label in labels)

    cell = staticmethod(status_cell)


def find_samples(result: AttackResult, wanted: SampleFilter) -> SamplePage:
    order = _ordered(result, _matching(result, wanted).nonzero().flatten().tolist(), wanted.sort)
    pages = max(1, -(-len(order) // ROWS))
    page = min(wanted.page, pages)
    rows = [(at, result[at]) for at in order[(page - 1) * ROWS : page * ROWS]]
    return SamplePage(result, rows, len(order), page, pages)


def _matching(result: AttackResult, wanted: SampleFilter) -> Tensor:
    """(n,) bool: the samples that match the filter."""
    several, l2, words = result.labels.dim() > 1, result.final["l2"], (wanted.words or "").lower()
    rules: Mapping[str, Callable[[Any], Tensor]] = {
        "status": lambda name: torch.tensor([status.name.lower() == name for status in result.status]),
        "label": lambda k: (result.labels[:, k : k + 1] == 1).any(1) if several else result.labels == k,
        "entry": lambda entry: (result.assignment == entry).any(1),
        "queries_from": lambda least: result.effort >= least,
        "queries_to": lambda most: result.effort <= most,
        "l2_from": lambda least: l2 >= least,
        "l2_to": lambda most: l2 <= most,
        "words": lambda _: torch.tensor([words in name.lower() for name in result.ids]),
    }
    chosen = torch.ones(len(result), dtype=torch.bool)
    for name, value in wanted.asked().items():
        chosen &= rules[name](value) if name in rules else True
    return chosen


def _ordered(result: AttackResult, rows: list[int], order: Order) -> list[int]:
    """Samples in the order shown; ties keep the order of the run."""
    if order == "label" and result.labels.dim() > 1:
        raise OptionError("samples with several labels cannot be sorted by label: filter by one label instead")
    key, columns = order.removeprefix("-"), {
        "l2": result.final["l2"], "patches": result.final["l0_patches"], "queries": result.effort, "label": result.labels
    }  # fmt: skip
    values: Sequence[Any] = {"row": range(len(result)), "status": result.status, "id": result.ids}.get(key, ())
    values = columns[key].tolist() if key in columns else values
    return sorted(rows, key=values.__getitem__, reverse=order.startswith("-"))


def thumbnail(run: Path, row: int | None, which: Version) -> bytes:
    """One sample as PNG, by default the flip with the smallest L2; empty if its inputs were not stored."""
    result = load_attack(run)
    row = next(iter(easiest(result, 1)), len(result)) if row is None else row
    return _thumbnails(run, row, _changed(run))[which] if row < len(result) and result.inputs.has(row) else b""


@lru_cache(maxsize=1024)
def _thumbnails(run: Path, row: int, changed: int) -> dict[Version, bytes]:
    (before, _, after), _ = small_pictures(Sample.of(load_attack(run), row).layers)
    return {"original": _png(opened(before)), "perturbed": _png(opened(after))}


def _png(picture: Image.Image) -> bytes:
    """A small picture keeps sharp pixels."""
    content, times = io.BytesIO(), SIDE // max(picture.size)
    if times > 1 and max(picture.size) < SMOOTH_FROM:
        picture = picture.resize((times * picture.width, times * picture.height), Image.Resampling.NEAREST)
    picture.save(content, format="png")
    return content.getvalue()


def load_attack(run: Path) -> AttackResult:
    """The result in a folder, whose inputs stay on disk; the last ones are kept until their table changes."""
    return _load_attack(run, _changed(run))


def _changed(run: Path) -> int:
    table = inside(run, SAMPLES)
    with readable(table):
        return table.stat().st_mtime_ns


@lru_cache(maxsize=2)
def _load_attack(run: Path, changed: int) -> AttackResult:
    return AttackResult.load(run)
