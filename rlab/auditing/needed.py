"""The files that the results of a stage need, within its folder; a stage runs again if one of them was deleted.

Later files are listed in earlier ones, so a caller stops at the first that is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rlab.auditing.config import VERIFIED
from rlab.auditing.results import GRADED
from rlab.benchmarking.manifest import MANIFEST, METADATA
from rlab.benchmarking.report import DEFAULT
from rlab.present.report import REPORT
from rlab.storage.files import ARRAYS, SAMPLES, read_rows
from rlab.storage.index import read_index
from rlab.storage.run_file import check_files


def attack_files(folder: Path) -> Iterator[str]:
    yield from (SAMPLES, ARRAYS)
    check_files(folder, ARRAYS)
    yield from (name for name, _ in read_index(folder / ARRAYS).shards)


def benchmark_files(folder: Path) -> Iterator[str]:
    yield from (f"results/{VERIFIED}", str(DEFAULT / REPORT))
    if not (folder / GRADED).exists():
        yield from (MANIFEST, METADATA)
        yield from (row["file"] for row in read_rows(folder / METADATA) if row["file"])
