"""What lists show of attacks, audits and their samples: model and data, verdict, figures, and small pictures."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rlab.core.status import Status
from rlab.errors import InputError
from rlab.results.titles import Names
from rlab.serve.runs import MOST, NoSuchRun
from rlab.serve.samples import kept_rows, load_attack, look_of
from rlab.storage.names import CONFIG, SAMPLES, SETTING, inside
from rlab.storage.outside import read_text
from rlab.storage.stored import stored

Version = Literal["original", "perturbed"]
_QUERIES = "queries_"  # columns that count them, by phase


@dataclass(frozen=True)
class Glance:
    """The figures of a finished attack."""

    title: str
    flipped: int
    attacked: int
    l2: str  # median of the flips
    queries: int  # of the whole run
    nearest: int | None  # row of the flip with the smallest L2, if its inputs are stored
    look: str  # classes of its picture


def glance_at(run: Path) -> Glance | None:
    """The figures of an attack; None if its table cannot be read."""
    try:
        return _glance(run, (run / SAMPLES).lstat().st_mtime_ns)
    except (OSError, InputError, pa.ArrowException, KeyError, ValueError):
        return None  # the run's own page says what is wrong


class AuditGlance(NamedTuple):
    """The figures of a finished audit."""

    met: int  # requirements
    of: int
    queries: int  # of all stages


def audit_at(audit: Path) -> AuditGlance | None:
    """The figures of an audit; None if its record cannot be read."""
    try:
        record = json.loads(read_text(inside(audit, "audit.json")))
        passed = [bool(each["passed"]) for each in record["requirements"]]
        return AuditGlance(sum(passed), len(passed), int(record["rows"]["total"]))
    except (OSError, InputError, KeyError, TypeError, ValueError):
        return None  # the run's own page says what is wrong


@lru_cache(maxsize=MOST)
def _glance(run: Path, changed: int) -> Glance:
    file = pq.ParquetFile(stored(inside(run, SAMPLES)))
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
        nearest=_nearest(run, np.where(won, l2, np.inf)),
        look=look_of(setting["size"]),
    )


def _nearest(run: Path, l2: NDArray[np.float64]) -> int | None:
    """The row of the smallest finite L2 (n,), if its inputs are stored."""
    nearest = int(l2.argmin()) if len(l2) else 0
    flipped = len(l2) > 0 and np.isfinite(l2[nearest])
    return nearest if flipped and nearest in kept_rows(run, [nearest]) else None


def thumbnail(run: Path, row: int, which: Version) -> bytes:
    """One sample, original or perturbed, as PNG."""
    path = inside(run, SAMPLES)
    if not path.is_file():
        raise NoSuchRun(run.name)
    return _thumbnails(run, row, path.stat().st_mtime_ns)[which]


@lru_cache(maxsize=1024)
def _thumbnails(run: Path, row: int, changed: int) -> dict[Version, bytes]:
    from rlab.results.pictures import small_pictures  # imports torch
    from rlab.results.sample import Sample

    (before, _, after), _ = small_pictures(Sample.of(load_attack(run), row).layers)
    urls: dict[Version, str] = {"original": before, "perturbed": after}  # data: URLs
    return {which: base64.b64decode(url.partition(",")[2]) for which, url in urls.items()}
