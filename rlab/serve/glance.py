"""What the list of runs shows of an attack: its model and data, its figures, and the picture of its nearest flip."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rlab.core.status import Status
from rlab.errors import FolderError, InputError
from rlab.results.titles import Names
from rlab.serve.runs import NoSuchRun
from rlab.serve.samples import read_sample
from rlab.storage.names import CONFIG, SAMPLES, SETTING, inside

_QUERIES = "queries_"  # columns that count them, by phase


@dataclass(frozen=True)
class Glance:
    """The figures of a finished attack."""

    title: str
    flipped: int
    attacked: int
    l2: str  # median of the flips
    queries: int  # of the whole run
    nearest: int | None  # row of the flip with the smallest L2


def glance_at(run: Path) -> Glance | None:
    """The figures of an attack; None if its table cannot be read."""
    try:
        path = inside(run, SAMPLES)
        return _glance(run, path.stat().st_mtime_ns)
    except (OSError, InputError, pa.ArrowException, KeyError, ValueError):
        return None  # the run's own page says what is wrong


@lru_cache(maxsize=512)
def _glance(run: Path, changed: int) -> Glance:
    file = pq.ParquetFile(inside(run, SAMPLES))
    counts = [name for name in file.schema_arrow.names if name.startswith(_QUERIES)]
    table = file.read(columns=["status", "final_l2", *counts])
    setting = json.loads((file.schema_arrow.metadata or {})[SETTING.encode()])
    status = table["status"].to_pylist()
    won = np.array([each == Status.SUCCEEDED.value for each in status], dtype=bool)
    l2 = table["final_l2"].to_numpy()
    unit = setting["unit"] if None in setting["bounds"] and setting["unit"] else ""
    config = inside(run, CONFIG)
    names = Names.read(config) if config.is_file() else Names()
    return Glance(
        title=names.title(len(status), setting["size"]),
        flipped=int(won.sum()),
        attacked=sum(each != Status.SKIPPED.value for each in status),
        l2=f"{np.median(l2[won]):.3g} {unit}".rstrip() if won.any() else "–",
        queries=sum(int(pc.sum(table[name]).as_py() or 0) for name in counts),
        nearest=int(np.where(won, l2, np.inf).argmin()) if won.any() else None,
    )


def thumbnail(run: Path) -> bytes:
    """The nearest flip of an attack, perturbed, as PNG."""
    glance = glance_at(run)
    if glance is None or glance.nearest is None:
        raise NoSuchRun(run.name)
    return _thumbnail(run, glance.nearest, inside(run, SAMPLES).stat().st_mtime_ns)


@lru_cache(maxsize=512)
def _thumbnail(run: Path, row: int, changed: int) -> bytes:
    from rlab.results.strip import strip_of  # imports torch

    strips = strip_of(read_sample(run, row), [])
    if not strips:
        raise FolderError(f"{run.name} did not keep its inputs")
    return base64.b64decode(strips[0].triples[0].pictures[-1].src.partition(",")[2])
