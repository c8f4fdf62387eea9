"""What a benchmark's folder says about its samples: the manifest, and a row for every sample and level."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, TypeAdapter, ValidationError

import rlab
from rlab.benchmarking.config import SetKind, parse_ladder
from rlab.benchmarking.formats import FormatName, Row, Shape
from rlab.errors import FolderError
from rlab.runs.fingerprint import agent_fingerprint
from rlab.storage import files
from rlab.storage.digest import digest
from rlab.storage.names import refuse_strange
from rlab.storage.outside import short
from rlab.storage.run_file import why_unreadable
from rlab.storage.stored import read_stored

MANIFEST, METADATA, CARD = "manifest.json", "metadata.parquet", "README.md"
FREE = "free"  # name of the set without a model


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
    sets: SetKind = "each"
    distances: tuple[float, ...] = ()  # L2 of the ladder's severities
    channels: tuple[int, ...] = ()  # the group of each channel as in the grid; () if all channels go together

    rlab_benchmark: Literal[2] = 2  # version of the format


def read_manifest(folder: Path) -> tuple[Manifest, tuple[Row, ...]]:
    """The manifest and all rows, whose hash is checked."""
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
        raise FolderError(f"{folder / MANIFEST} is damaged or from another version ({wrong}{held}): {how}") from error
    rows = tuple(files.read_rows(folder / METADATA))
    if rows_digest(rows) != manifest.hash:
        raise Edited(f"{folder / METADATA} was edited: the hash of its rows is not the one in {MANIFEST}")
    return manifest, rows


def rows_digest(rows: Sequence[Row]) -> str:
    """One hash over all rows and the hashes of their files; any edit changes it."""

    def line(row: Row) -> bytes:
        finite = {key: value for key, value in row.items() if not isinstance(value, float) or math.isfinite(value)}
        return json.dumps(finite, sort_keys=True, default=str).encode() + b"\n"

    return digest(*map(line, rows), length=64)


def versions(policy: str) -> dict[str, str]:
    """Versions of the packages, and the fingerprint of the agent if the policy is one."""
    agent = agent_fingerprint(policy)
    numbers = {"rlab": rlab.__version__} | ({"agent": agent} if agent else {})
    for package in ("torch", "numpy", "pillow", "pyarrow", "av"):
        try:
            numbers[package] = version(package)
        except PackageNotFoundError:
            continue
    return numbers
