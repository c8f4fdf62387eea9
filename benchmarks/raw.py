"""Raw results as Parquet files: named lists of numbers, and in the header how they were measured."""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import rlab
from rlab.core.trace import Improvements

HERE = Path(__file__).resolve().parent
RESULTS, RAW = HERE / "results", HERE / "results" / "raw"
Numbers = Mapping[str, Any]  # nested by name; leaves are numbers or lists of numbers, None where one is missing
Facts = Mapping[str, Any]  # anything JSON holds
NAMED = {"name": pa.string(), "scalar": pa.bool_()}
ROW = pa.schema(NAMED | {"digits": pa.int8(), "whole": pa.list_(pa.int64()), "floats": pa.list_(pa.float64())})
DIGITS, INFINITE = (0, 2, 4, 5, 6), 2**62  # decimals to try, and what stands for infinity
Curves = tuple[Improvements, ...]  # for each attacked sample, every nearer flip as (queries, distance)


@dataclass(frozen=True)
class Raw:
    """What one piece of a benchmark measured."""

    numbers: Numbers = field(default_factory=dict)
    facts: Facts = field(default_factory=dict)


def minor(version: str) -> str:
    """'0.3' of '0.3.0.dev0'."""
    return ".".join(version.split(".")[:2])


@dataclass(frozen=True)
class Origin:
    """How a raw file was made. Empty fields are unknown: rlab 0.2.0 and earlier did not record them."""

    version: str = rlab.__version__
    commit: str = ""
    device: str = ""
    seconds: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def current(self) -> bool:
        """Whether this minor version of rlab made it."""
        return minor(self.version) == minor(rlab.__version__)


def commit() -> str:
    """The commit of this repository, with + if files have changed since; empty outside a repository."""
    try:
        call = ["git", "-C", str(HERE), "describe", "--always", "--dirty=+", "--exclude=*"]
        return subprocess.run(call, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


@dataclass(frozen=True)
class Store:
    """A folder of raw files, one for each piece; `used` lists those read so far, so that a page can name its sources."""

    folder: Path
    used: list[str] = field(default_factory=list, compare=False)

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.parquet"

    def __contains__(self, name: str) -> bool:
        return self.path(name).exists()

    def names(self, prefix: str = "") -> list[str]:
        return sorted(path.stem for path in self.folder.glob("*.parquet") if path.stem.startswith(prefix))

    def _header(self, name: str, part: str) -> dict[str, Any]:
        held: dict[str, Any] = json.loads(pq.read_metadata(self.path(name)).metadata[part.encode()])
        return held

    def origin(self, name: str) -> Origin:
        return Origin(**self._header(name, "origin"))

    def digest(self, names: Sequence[str]) -> str:
        """Eight digits that change with the files of these names."""
        return hashlib.sha256(b"".join(self.path(name).read_bytes() for name in names)).hexdigest()[:8]

    def facts(self, name: str) -> Facts:
        self.used.append(name)
        return self._header(name, "facts")

    def read(self, name: str) -> Raw:
        rows = pq.read_table(self.path(name)).to_pylist()
        return Raw(nested({row["name"]: _from_row(row) for row in rows}), self.facts(name))

    def curves(self, files: Mapping[str, str]) -> dict[str, Curves]:
        """By row, the curves of those files that exist."""
        return {row: to_curves(self.read(file).numbers) for row, file in files.items() if file in self}

    def write(self, name: str, raw: Raw, origin: Origin) -> None:
        """Replace the file in one step, so that a stopped run leaves no half a file."""
        table = pa.Table.from_pylist([_to_row(*leaf) for leaf in flattened(raw.numbers)], ROW)
        header = {"origin": json.dumps(asdict(origin), default=list), "facts": json.dumps(raw.facts, default=list)}
        self.folder.mkdir(parents=True, exist_ok=True)
        part = self.path(name).with_suffix(".part")
        smallest = {"compression": "zstd", "compression_level": 19, "write_statistics": False, "store_schema": False}
        with pq.ParquetWriter(part, ROW, use_dictionary=["name"], **smallest) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata(header)
        part.replace(self.path(name))

    def matches(self, name: str, settings: Mapping[str, Any]) -> bool:
        """Whether this version of rlab made the file, with these settings."""
        if name not in self or not (origin := self.origin(name)).current:
            return False
        return origin.settings == json.loads(json.dumps(settings, default=list))


def _to_row(name: str, value: Any) -> dict[str, Any]:
    """A leaf of the numbers as `whole` / 10 ** `digits`, which takes half the space, or as `floats` where that is not exact."""
    values = [None if v is None else float(v) for v in (value if isinstance(value, list) else [value])]
    row = {"name": name, "scalar": not isinstance(value, list)}
    for digits in DIGITS:
        whole = [_whole(v, digits) for v in values]
        if [_plain(w, digits) for w in whole] == values:
            return row | {"whole": whole, "digits": digits}
    return row | {"floats": values}


def _whole(value: float | None, digits: int) -> int | None:
    if value is None or value == math.inf:
        return None if value is None else INFINITE
    return round(value * 10**digits) if abs(value) < 2**40 else 0


def _plain(whole: int | None, digits: int) -> float | None:
    return None if whole is None else math.inf if whole == INFINITE else whole / 10**digits


def _from_row(row: Mapping[str, Any]) -> Any:
    values = row["floats"] if row["whole"] is None else [_plain(w, row["digits"]) for w in row["whole"]]
    return values[0] if row["scalar"] else values


def flattened(values: Numbers, before: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves by their path, names joined with '/'."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{before}{name}/")
        else:
            yield f"{before}{name}", list(value) if isinstance(value, Sequence) else value


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, last = path.split("/")
        inside = values
        for parent in parents:
            inside = inside.setdefault(parent, {})
        inside[last] = value
    return values


def from_curves(curves: Sequence[Improvements], digits: int = 4) -> dict[str, Any]:
    """Curves as numbers: each flip's sample, query and distance."""
    flips = [(i, q, round(d, digits)) for i, curve in enumerate(curves) for q, d in curve]
    sample, query, distance = (list(column) for column in zip(*flips, strict=True)) if flips else ([], [], [])
    return {"samples": len(curves), "sample": sample, "query": query, "distance": distance}


def to_curves(numbers: Numbers) -> Curves:
    curves: list[list[tuple[int, float]]] = [[] for _ in range(int(numbers["samples"]))]
    for sample, query, distance in zip(*(numbers[name] for name in ("sample", "query", "distance")), strict=True):
        curves[int(sample)].append((int(query), distance))
    return tuple(tuple(curve) for curve in curves)


def or_nan(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]
