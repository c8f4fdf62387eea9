"""Raw results as Parquet files: named lists of numbers, and in the header how they were measured."""

from __future__ import annotations

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
Curves = tuple[Improvements, ...]  # for each attacked sample, every nearer flip as (queries, distance)


@dataclass(frozen=True)
class Raw:
    """What one piece of a benchmark measured."""

    numbers: Numbers = field(default_factory=dict)
    facts: Facts = field(default_factory=dict)


@dataclass(frozen=True)
class Origin:
    """How a raw file was made. Empty fields are unknown: rlab 0.2.0 and earlier did not record them."""

    version: str = rlab.__version__
    commit: str = ""
    device: str = ""
    seconds: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


def commit() -> str:
    """The commit of this repository, with + if files have changed since; empty outside a repository."""
    try:
        call = ["git", "-C", str(HERE), "describe", "--always", "--dirty=+", "--exclude=*"]
        return subprocess.run(call, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


@dataclass(frozen=True)
class Store:
    """A folder of raw files, one for each piece."""

    folder: Path

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.parquet"

    def __contains__(self, name: str) -> bool:
        return self.path(name).exists()

    def names(self, prefix: str = "") -> list[str]:
        return sorted(path.stem for path in self.folder.glob("*.parquet") if path.stem.startswith(prefix))

    def origin(self, name: str) -> Origin:
        held = pq.read_schema(self.path(name)).metadata
        return Origin(**json.loads(held[b"origin"]))

    def read(self, name: str) -> Raw:
        table = pq.read_table(self.path(name))
        rows = zip(*(table[column].to_pylist() for column in ("name", "values", "scalar")), strict=True)
        return Raw(nested({key: values[0] if single else values for key, values, single in rows}), self.facts(name))

    def facts(self, name: str) -> Facts:
        facts: dict[str, Any] = json.loads(pq.read_schema(self.path(name)).metadata[b"facts"])
        return facts

    def write(self, name: str, raw: Raw, origin: Origin) -> None:
        """Replace the file in one step, so that a stopped run leaves no half a file."""
        flat = dict(flattened(raw.numbers))
        lists = [[_float(v) for v in (values if isinstance(values, list) else [values])] for values in flat.values()]
        scalar = [not isinstance(values, list) for values in flat.values()]
        columns = {"name": list(flat), "values": pa.array(lists, pa.list_(pa.float64())), "scalar": scalar}
        header = {"origin": json.dumps(asdict(origin), default=list), "facts": json.dumps(raw.facts, default=list)}
        self.folder.mkdir(parents=True, exist_ok=True)
        part = self.path(name).with_suffix(".part")
        table = pa.table(columns).replace_schema_metadata(header)
        pq.write_table(table, part, compression="zstd", compression_level=19, use_dictionary=["name"])
        part.replace(self.path(name))

    def matches(self, name: str, settings: Mapping[str, Any]) -> bool:
        """Whether the file exists and was made with these settings."""
        return name in self and self.origin(name).settings == json.loads(json.dumps(settings, default=list))


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)


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
