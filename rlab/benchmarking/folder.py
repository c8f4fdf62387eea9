"""A benchmark on disk: a manifest, a Parquet table with one row per sample and level, and the samples.

manifest.json  metadata.parquet  README.md  originals/...  VICTIM/LEVEL/...
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
from matplotlib.figure import Figure
from pydantic import AfterValidator, TypeAdapter, ValidationError
from torch import Tensor

from rlab.benchmarking.chunk import COUNTS
from rlab.benchmarking.config import FLIP, ORIGINAL, Ladder, SetKind, parse_ladder
from rlab.benchmarking.formats import Joined, make_format
from rlab.benchmarking.single import Format, FormatName, Shape
from rlab.benchmarking.tables import benchmark_page, draw_distances, queries_of
from rlab.core.goals import Goal, parse_goal
from rlab.data.fields import check_room
from rlab.errors import DataError, FolderError, InputError, OptionError
from rlab.present.page import Page
from rlab.present.result import PathLike, Result
from rlab.storage import files
from rlab.storage.digest import digest
from rlab.storage.ledger import why_unreadable
from rlab.storage.names import inside, refuse_strange
from rlab.storage.outside import short
from rlab.storage.stored import read_stored

if TYPE_CHECKING:
    from rlab.benchmarking.report import BenchmarkReport

FREE = "free"  # name of the set without a model
MANIFEST, METADATA, CARD = "manifest.json", "metadata.parquet", "README.md"
Row = Mapping[str, Any]


class Edited(FolderError):
    """A file differs from its description in the metadata."""


@dataclass(frozen=True)
class Manifest:
    """Everything a reader needs besides the rows."""

    shape: Shape
    storage: FormatName
    classes: tuple[str, ...]  # names by index, empty if unknown
    outputs: int  # number of classes a model must have
    goal: str
    ladder: Annotated[str, AfterValidator(lambda text: str(parse_ladder(text)))]
    palette: tuple[str, ...]  # as you gave it, so that the filters can be rebuilt
    entries: tuple[str, ...]  # entry i of an assignment, from 1
    patch: tuple[int, ...]
    policy: str
    budget: int
    steps: int
    lead: float
    seed: int
    victims: tuple[tuple[str, str], ...]  # folder name of a set, fingerprint of its model
    versions: Mapping[str, str]
    reach: float  # largest L2 on the distance axis
    hash: str = ""  # of all rows and their files
    config: Mapping[str, Any] = field(default_factory=dict)
    containers: Mapping[str, str] = field(default_factory=dict)  # sha256 of each Parquet file
    sets: SetKind = "each"
    distances: tuple[float, ...] = ()  # L2 of the ladder's severities
    channels: tuple[int, ...] = ()  # the group of each channel as in the grid; () if all channels go together

    rlab_benchmark: Literal[2] = 2  # version of the format


@dataclass(frozen=True)
class Benchmark(Result):
    """A finished benchmark folder."""

    folder: Path
    manifest: Manifest
    rows: tuple[Row, ...]

    def __repr__(self) -> str:
        names, levels = ", ".join(name for name, _ in self.manifest.victims), len({row["level"] for row in self.rows})
        return f"Benchmark({self.folder}: {len(self.rows)} rows in {levels} levels against {names})"

    @classmethod
    def load(cls, folder: PathLike) -> Benchmark:
        """Read the manifest and the rows; samples are read on demand."""
        folder = Path(folder)
        refuse_strange(folder)
        if not (folder / MANIFEST).is_file() or not (folder / METADATA).is_file():
            raise FolderError(f"{folder} {why_unreadable(folder, 'benchmark make', 'a benchmark folder')}")
        try:
            manifest = TypeAdapter(Manifest).validate_json(read_stored(folder / MANIFEST))
        except ValidationError as error:
            first = error.errors()[0]
            wrong = ".".join(map(str, first["loc"])) or "it is not JSON"
            held = f" is {short(first['input'])}" if first["loc"] and isinstance(first["input"], str) else ""
            how = "make the benchmark again, or read it with the version that made it"
            raise FolderError(
                f"{folder / MANIFEST} is damaged or from another version ({wrong}{held}): {how}"
            ) from error
        rows = tuple(files.read_rows(folder / METADATA))
        if rows_digest(rows) != manifest.hash:
            raise Edited(f"{folder / METADATA} was edited: the hash of its rows is not the one in {MANIFEST}")
        return cls(folder, manifest, rows)

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    def class_name(self, label: int) -> str:
        return self.manifest.classes[label] if self.manifest.classes else f"class {label}"

    def plot(self) -> Figure:
        """Draw the share of samples that have no file within a distance, for every set and level."""
        return draw_distances(self)

    def records(self) -> list[dict[str, Any]]:
        """One row per sample and level: with class names, and the queries without the one that verifies the stored file."""
        records = []
        for row in self.rows:
            record = {name: value for name, value in row.items() if name not in COUNTS}
            record["label_name"] = self.class_name(row["label"])
            record["predicted_name"] = None if row["predicted"] is None else self.class_name(row["predicted"])
            records.append(record | {"queries": queries_of(row, COUNTS[:2])})
        return records

    def make_page(self, report: BenchmarkReport | None = None, samples: int = 24) -> Page:
        return benchmark_page(self, report, samples)

    def save(self, folder: PathLike) -> Path:
        """Copy the benchmark's folder."""
        return files.copy_folder(self.folder, Path(folder))

    @property
    def format(self) -> Format:
        return make_format(self.manifest.storage, self.manifest.shape)

    @property
    def ladder(self) -> Ladder:
        return replace(parse_ladder(self.manifest.ladder), distances=self.manifest.distances)

    @property
    def free(self) -> bool:
        """Whether no model was queried, so that there is no flip."""
        return self.manifest.sets == FREE

    @property
    def levels(self) -> tuple[str, ...]:
        return tuple(name for name in self.ladder.names if name != FLIP) if self.free else self.ladder.names

    @property
    def base_level(self) -> str:
        """The flip, or the mildest level if there is no flip."""
        return self.levels[0] if self.free else FLIP

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models that the sets were made against."""
        return () if self.free else self.victims

    @property
    def named_models(self) -> dict[str, Any]:
        """How to load the models that the folder was made with; loading them may run code that the folder names."""
        models = self.manifest.config.get("models")
        return dict(models) if isinstance(models, Mapping) else {}

    @property
    def goal(self) -> Goal:
        return parse_goal(self.manifest.goal)

    @property
    def victims(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.manifest.victims)

    @property
    def reach(self) -> float:
        """Largest L2 on the distance axis."""
        return self.manifest.reach

    @property
    def scale(self) -> tuple[Any, ...]:
        """What two benchmarks must have in common before you can compare their distances."""
        m = self.manifest
        return m.shape.kind, m.shape.channels, m.shape.size, m.shape.unit, m.entries, m.patch, m.channels

    def originals(self) -> list[Row]:
        return [row for row in self.rows if row["level"] == ORIGINAL]

    def of(self, victim: str, level: str = FLIP) -> list[Row]:
        """All rows of a set in the order of the samples, including samples that did not reach the level."""
        if victim not in self.victims:
            raise OptionError(f"{self.folder} has no set against {victim!r}: it has {', '.join(self.victims)}")
        if level not in self.levels:
            raise OptionError(f"{self.folder} has no level {level!r}: it has {', '.join(self.levels)}")
        return [row for row in self.rows if row["victim"] == victim and row["level"] == level]

    def stored(self, victim: str, level: str = FLIP) -> list[Row]:
        """The rows of a set that have a file."""
        return [row for row in self.of(victim, level) if row["reached"]]

    def sets(self) -> Iterator[tuple[str, str, list[Row]]]:
        """Victim, level and rows of every set that has files."""
        for victim in self.victims:
            for level in self.levels:
                if rows := self.stored(victim, level):
                    yield victim, level, rows

    def read(self, rows: Sequence[Row]) -> Tensor:
        """The samples of these rows (n, c, *size); raises `Edited` if a file differs."""
        shape = (self.manifest.shape.channels, *self.manifest.shape.size)
        check_room(len(rows), shape)
        x = torch.empty(len(rows), *shape)
        for at, (row, values) in enumerate(self.each(rows)):
            if isinstance(values, str):
                path = self.folder / str(row["file"])
                raise Edited(f"{path} was edited ({values}): restore it, or delete it and make the benchmark again")
            x[at] = values
        return x

    def each(self, rows: Sequence[Row]) -> Iterator[tuple[Row, Tensor | str]]:
        """Yield each row with its values (c, *size), or with a description of what is wrong with its file."""
        opened: dict[Path, Mapping[str, Any]] = {}
        form, expected = self.format, (self.manifest.shape.channels, *self.manifest.shape.size)
        for row in rows:
            try:
                path = inside(self.folder, row["file"])
                if isinstance(form, Joined) and path not in opened:
                    known = self.manifest.containers.get(row["file"])
                    if known is not None and path.is_file() and digest(path, length=64) != known:
                        raise DataError(f"its sha256 is not the one in {MANIFEST}")
                    opened = {path: form.unpack(path)}
                if isinstance(form, Joined):
                    values = _joined_values(opened[path], row)
                    found = digest(values.float(), length=64)
                elif missing := [file.name for file in form.files(path) if not file.is_file()]:
                    raise DataError(f"{missing[0]} is missing")
                else:
                    values, found = form.read(path), form.digest(path)
                if tuple(values.shape) != expected:
                    raise DataError(f"its shape is {tuple(values.shape)}, not {expected}")
                if row["sha256"] != found:
                    raise DataError("its sha256 is not the one in the metadata")
                yield row, values
            except InputError as error:
                yield row, str(error)


def _joined_values(arrays: Mapping[str, Any], row: Row) -> Tensor:
    at = row["row"]
    if any(len(arrays.get(key, ())) <= at for key in ("x", "y", "ids")):
        raise DataError(f"it has no row {at}")
    if str(arrays["ids"][at]) != row["id"] or int(arrays["y"][at]) != row["label"]:
        raise DataError(f"the id or label of row {at} differs")
    return torch.from_numpy(arrays["x"][at])


def rows_digest(rows: Sequence[Row]) -> str:
    """One hash over all rows and the hashes of their files; any edit changes it."""

    def line(row: Row) -> bytes:
        finite = {key: value for key, value in row.items() if not isinstance(value, float) or math.isfinite(value)}
        return json.dumps(finite, sort_keys=True, default=str).encode() + b"\n"

    return digest(*map(line, rows), length=64)
