"""Filter, sort and page the samples of an attack on columns of its Parquet file; only shown rows become Python objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field, model_validator

from rlab.core.status import Status
from rlab.data.kinds import kind_of
from rlab.errors import InputError, OptionError
from rlab.results.tones import STATUS_TONES
from rlab.storage.config import Options
from rlab.storage.index import read_index, readable
from rlab.storage.names import ARRAYS, SAMPLES, SETTING, inside
from rlab.storage.run_file import reading
from rlab.storage.stored import stored

if TYPE_CHECKING:
    from rlab.results.result import AttackResult

ROWS = 50  # per page
BLOCK = 8192  # assignments read at once
COLUMNS = ("id", "status", "label", "predicted_before", "predicted_after", "final_l2", "final_l0_patches")
EFFORT = ("queries_search", "queries_cleanup")
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
_COLUMN = {"l2": "final_l2", "patches": "final_l0_patches"}


class SampleFilter(Options):
    """The filters in an address; missing or empty fields do not filter."""

    status: Literal[tuple(status.name.lower() for status in Status)] | None = None  # type: ignore[valid-type]
    label: int | None = Field(None, ge=0)
    entry: int | None = Field(None, ge=1)  # palette entry that the sample must use
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
class SampleRow:
    row: int
    id: str
    status: str
    tone: str
    label: str
    before: str
    after: str
    queries: int
    l2: float
    patches: float
    pictured: bool  # its inputs are stored


@dataclass(frozen=True)
class SamplePage:
    rows: Sequence[SampleRow]
    matching: int
    total: int
    page: int
    pages: int
    classes: Mapping[int, str]  # that occur in the run
    states: Mapping[str, str]  # that occur in the run, with their numbers of samples
    palette: Mapping[int, str]  # counted from 1
    look: str  # classes of small pictures in the page's style

    @property
    def pictured(self) -> bool:
        return any(row.pictured for row in self.rows)


def look_of(size: Sequence[int]) -> str:
    """How small pictures of inputs of this size are shown: curves are inverted in dark mode, small images have sharp pixels."""
    return " drawn" if kind_of(size) == "signal" else " crisp" if min(size[-2:]) < 64 else ""


def find_samples(run: Path, wanted: SampleFilter) -> SamplePage:
    with reading(run), readable(run / SAMPLES):
        file = pq.ParquetFile(stored(inside(run, SAMPLES)))
        table = file.read(columns=[*COLUMNS, *EFFORT])
        setting = json.loads((file.schema_arrow.metadata or {})[SETTING.encode()])
        table = table.append_column("queries", pc.add(table[EFFORT[0]], table[EFFORT[1]]))
        chosen = np.flatnonzero(_matching(run, table, wanted))
        order = _ordered(table, chosen, wanted)
        pages = max(1, -(-len(order) // ROWS))
        page = min(wanted.page, pages)
        shown = order[(page - 1) * ROWS : page * ROWS]
        names = tuple(setting.get("classes") or ())
        kept, values = kept_rows(run, shown.tolist()), table.take(shown).to_pylist()
        rows = [_row(int(at), each, names, int(at) in kept) for at, each in zip(shown, values, strict=True)]
        classes = {k: _name(names, k) for k in _labels(table)}
        counts = {str(each["values"]): int(each["counts"]) for each in pc.value_counts(table["status"]).to_pylist()}
        states = {
            each.name.lower(): f"{each.label} ({counts[each.value]:,})" for each in Status if each.value in counts
        }
        palette, look = dict(enumerate(setting["palette"], 1)), look_of(setting["size"])
        return SamplePage(rows, len(chosen), table.num_rows, page, pages, classes, states, palette, look)


def kept_rows(run: Path, rows: Sequence[int]) -> set[int]:
    """The rows whose inputs are stored; none if the arrays are damaged, which the page of a sample reports."""
    with suppress(OSError, InputError, IndexError):
        index = read_index(inside(run, ARRAYS))
        return {row for row in rows if index.at(row) is not None}
    return set()


def _matching(run: Path, table: pa.Table, wanted: SampleFilter) -> NDArray[np.bool_]:
    """(n,) rows that match the filter."""
    label, several = table["label"], pa.types.is_list(table["label"].type)
    labels = None if wanted.label is None or not several else pc.list_element(label, wanted.label)
    rules: list[tuple[Any, Callable[[Any], Any]]] = [
        (wanted.status, lambda name: pc.equal(table["status"], Status[name.upper()].value)),
        (wanted.label, lambda k: pc.equal(label, k) if labels is None else pc.equal(labels, 1)),
        (wanted.words, lambda words: pc.match_substring(table["id"], words, ignore_case=True)),
        (wanted.queries_from, lambda least: pc.greater_equal(table["queries"], least)),
        (wanted.queries_to, lambda most: pc.less_equal(table["queries"], most)),
        (wanted.l2_from, lambda least: pc.greater_equal(table["final_l2"], least)),
        (wanted.l2_to, lambda most: pc.less_equal(table["final_l2"], most)),
    ]
    parts = [rule(value) for value, rule in rules if value is not None]
    mask = np.ones(table.num_rows, dtype=bool)
    for part in parts:
        mask &= part.fill_null(False).to_numpy()
    if wanted.entry is not None:
        used = used_entries(run)
        if len(used) != len(mask):
            raise ValueError(f"{len(mask)} rows but {len(used)} arrays")
        mask &= used[:, wanted.entry] if wanted.entry < used.shape[1] else False
    return mask


def _ordered(table: pa.Table, chosen: NDArray[np.int64], wanted: SampleFilter) -> NDArray[np.int64]:
    """Row numbers in the order shown; ties keep the order of the run."""
    if wanted.sort == "row":
        return chosen
    key, down = wanted.sort.removeprefix("-"), wanted.sort.startswith("-")
    column = table[_COLUMN.get(key, key)].take(pa.array(chosen))
    if pa.types.is_list(column.type):
        raise OptionError("samples with several labels cannot be sorted by label: filter by one label instead")
    keys = pa.table({"key": column, "row": chosen})
    return chosen[pc.sort_indices(keys, [("key", "descending" if down else "ascending"), ("row", "ascending")])]


def _labels(table: pa.Table) -> list[int]:
    label = table["label"]
    if pa.types.is_string(table["predicted_before"].type):
        return []
    if pa.types.is_list(label.type):
        return list(range(len(label[0]) if len(label) else 0))
    return sorted(pc.unique(label).to_pylist())


def _row(at: int, values: Mapping[str, Any], names: Sequence[str], pictured: bool) -> SampleRow:
    status, label = Status(values["status"]), values["label"]
    several = [k for k, true in enumerate(label) if true] if isinstance(label, list) else [label]
    return SampleRow(
        row=at,
        id=str(values["id"]),
        status=status.label.split(" because")[0],
        tone=STATUS_TONES[status],
        label=", ".join(_name(names, k) for k in several) if isinstance(values["predicted_before"], int) else "",
        before=_name(names, values["predicted_before"]),
        after=_name(names, values["predicted_after"]),
        queries=int(values["queries"]),
        l2=float(values["final_l2"]),
        patches=float(values["final_l0_patches"]),
        pictured=pictured,
    )


def _name(names: Sequence[str], label: int | str) -> str:
    """The name of a class; words for boxes, maps and numbers stand as they are."""
    if isinstance(label, str):
        return label
    return names[label] if label < len(names) else f"class {label}"


def used_entries(run: Path) -> NDArray[np.bool_]:
    """(n, entries + 1) which palette entries each sample uses; cached until the file changes."""
    path = inside(run, ARRAYS)
    with readable(path):
        return _used_entries(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=8)
def _used_entries(path: Path, changed: int) -> NDArray[np.bool_]:
    from safetensors import safe_open

    with safe_open(stored(path), framework="np") as file:
        held = file.get_slice("assignment")
        n = held.get_shape()[0]
        used = np.zeros((n, 256), dtype=bool)
        for start in range(0, n, BLOCK):
            block = held[start : min(start + BLOCK, n)]
            used[np.arange(start, start + len(block))[:, None], block] = True
    return used


def load_attack(run: Path) -> AttackResult:
    """The result in a folder, whose inputs stay on disk; the last ones are kept until their table changes."""
    table = inside(run, SAMPLES)
    with readable(table):
        return _load_attack(run, table.stat().st_mtime_ns)


@lru_cache(maxsize=2)
def _load_attack(run: Path, changed: int) -> AttackResult:
    from rlab.results.result import AttackResult  # imports torch

    return AttackResult.load(run)
