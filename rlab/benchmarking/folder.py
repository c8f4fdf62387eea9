"""A benchmark on disk: a manifest, one row a sample and level in Parquet, and the samples themselves.

manifest.json  metadata.parquet  README.md  originals/...  VICTIM/LEVEL/...
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlab.benchmarking.formats import Format, Shape, make_format, values_digest
from rlab.benchmarking.ladder import FLIP, ORIGINAL, Ladder, parse_ladder
from rlab.core.goals import Goal, parse_goal
from rlab.data.arrays import read_npz
from rlab.errors import InputError
from rlab.filters.palette import Palette
from rlab.runs import files

MANIFEST, METADATA, CARD, ORIGINALS = "manifest.json", "metadata.parquet", "README.md", "originals"
VERSION = 1
Row = Mapping[str, Any]


class Edited(InputError):
    """A file is not what the metadata says; the sentence names it."""


@dataclass(frozen=True)
class Manifest:
    """What a reader must know besides the rows."""

    shape: Shape
    storage: str
    classes: tuple[str, ...]  # names by index, empty where unknown
    outputs: int  # scores a model must give
    goal: str
    ladder: str
    palette: tuple[str, ...]  # as given, so that the filters can be made again
    entries: tuple[str, ...]  # by the numbers of an assignment, from 1
    patch: tuple[int, ...]
    policy: str
    budget: int
    steps: int
    lead: float
    seed: int
    victims: tuple[tuple[str, str], ...]  # folder name, mark of the model
    versions: Mapping[str, str]
    interrupted: int = 0  # chunks begun anew after a kill; their rows were asked again
    hash: str = ""  # of all rows' files
    config: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        plain = asdict(self)
        plain["shape"]["bounds"] = [b if math.isfinite(b) else None for b in self.shape.bounds]
        return json.dumps({"rlab_benchmark": VERSION, **plain}, indent=1, default=str) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        found = json.loads(text)
        if found.pop("rlab_benchmark") != VERSION:
            raise ValueError("another version")
        found = {key: _tuple(value) for key, value in found.items()}
        shape = {key: _tuple(value) for key, value in found.pop("shape").items()}
        low, high = shape["bounds"]
        shape["bounds"] = (-math.inf if low is None else low, math.inf if high is None else high)
        return cls(shape=Shape(**shape), **found)


def _tuple(value: Any) -> Any:
    return tuple(_tuple(one) for one in value) if isinstance(value, list) else value


@dataclass(frozen=True)
class Benchmark:
    """A finished benchmark folder."""

    folder: Path
    manifest: Manifest
    rows: tuple[Row, ...]

    @classmethod
    def load(cls, folder: str | Path) -> Benchmark:
        """Reads the manifest and the rows; the samples are read when they are asked for."""
        place = Path(folder)
        if not (place / MANIFEST).is_file() or not (place / METADATA).is_file():
            begun = (place / "ledger.sqlite").exists()
            why = "is not finished: give its command again to go on" if begun else "is not a benchmark folder"
            raise InputError(f"{place} {why}")
        try:
            manifest = Manifest.from_json((place / MANIFEST).read_text(encoding="utf-8"))
            rows = tuple(files.read_rows(place / METADATA))
            found = digest_of(rows)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"{place / MANIFEST} is damaged or of another version: {type(error).__name__} {error}"
            ) from error
        if found != manifest.hash:
            raise Edited(f"{place / METADATA} was edited: its rows do not have the hash that {MANIFEST} gives")
        return cls(place, manifest, rows)

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def format(self) -> Format:
        return make_format(self.manifest.storage, self.manifest.shape)

    @property
    def ladder(self) -> Ladder:
        return parse_ladder(self.manifest.ladder)

    @property
    def goal(self) -> Goal:
        return parse_goal(self.manifest.goal)

    @property
    def victims(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.manifest.victims)

    def palette(self) -> Palette:
        shape = self.manifest.shape
        return Palette.of(self.manifest.palette, len(shape.size), shape.channels, shape.rate, shape.unit)

    def originals(self) -> list[Row]:
        return [row for row in self.rows if row["level"] == ORIGINAL]

    def of(self, victim: str, level: str = FLIP) -> list[Row]:
        """The rows of a set, in the order of the samples; also those that are not there, with their reason."""
        if victim not in self.victims:
            raise InputError(f"{self.folder} has no set against {victim!r}: it has {', '.join(self.victims)}")
        if level not in self.ladder.names:
            raise InputError(f"{self.folder} has no level {level!r}: it has {', '.join(self.ladder.names)}")
        return [row for row in self.rows if row["victim"] == victim and row["level"] == level]

    def read(self, rows: Sequence[Row], check: bool = True) -> Tensor:
        """The samples of these rows (n, c, *size); a file that was edited is named."""
        x = torch.empty(len(rows), self.manifest.shape.channels, *self.manifest.shape.size)
        for at, (row, values) in enumerate(self.each(rows)):
            if isinstance(values, str) or (check and self.found_digest(row, values) != row["sha256"]):
                said = values if isinstance(values, str) else "its sha256 is not the one in the metadata"
                raise Edited(f"{self.folder / row['file']} was edited ({said}): restore it, or make the benchmark anew")
            x[at] = values
        return x

    def each(self, rows: Sequence[Row]) -> Iterator[tuple[Row, Tensor | str]]:
        """Row after row with its values, or with what is wrong with its file."""
        held: dict[str, dict[str, Any] | str] = {}
        for row in rows:
            if self.format.joined:
                if row["file"] not in held:
                    held = {row["file"]: self._arrays(self.folder / row["file"])}
                yield row, self._joined(held[row["file"]], row)
            else:
                yield row, self._single(row)

    def found_digest(self, row: Row, values: Tensor) -> str:
        return values_digest(values) if self.format.joined else self.format.digest(self.folder / row["file"])

    def _single(self, row: Row) -> Tensor | str:
        path = self.folder / row["file"]
        absent = [one for one in self.format.files(path) if not one.is_file()]
        if absent:
            return f"{absent[0].name} is missing"
        try:
            return self._shaped(self.format.read(path))
        except InputError as error:
            return str(error)

    def _arrays(self, path: Path) -> dict[str, Any] | str:
        try:
            return dict(read_npz(path))
        except InputError as error:
            return str(error)

    def _joined(self, arrays: dict[str, Any] | str, row: Row) -> Tensor | str:
        if isinstance(arrays, str):
            return arrays
        at = row["row"]
        if not {"x", "y", "ids"} <= arrays.keys() or not all(len(arrays[key]) > at for key in ("x", "y", "ids")):
            return f"it has no row {at}"
        if str(arrays["ids"][at]) != row["id"] or int(arrays["y"][at]) != row["label"]:
            return f"the id or label of row {at} differs"
        return self._shaped(torch.from_numpy(arrays["x"][at]))

    def _shaped(self, values: Tensor) -> Tensor | str:
        want = (self.manifest.shape.channels, *self.manifest.shape.size)
        return values if tuple(values.shape) == want else f"its shape is {tuple(values.shape)}, not {want}"

    def with_hash(self) -> Benchmark:
        return replace(self, manifest=replace(self.manifest, hash=digest_of(self.rows)))


def digest_of(rows: Sequence[Row]) -> str:
    """One hash of every file and of what the rows say of it: any edit changes it."""
    digest = hashlib.sha256()
    for row in rows:
        said = {key: value for key, value in row.items() if not isinstance(value, float) or math.isfinite(value)}
        digest.update(json.dumps(said, sort_keys=True, default=str).encode() + b"\n")
    return digest.hexdigest()
