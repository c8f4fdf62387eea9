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
from rlab.explanation.files import ARRAYS as MAPS
from rlab.explanation.files import SCORES
from rlab.explanation.page import read_scores
from rlab.present.report import REPORT
from rlab.storage.files import ARRAYS, SAMPLES, read_rows
from rlab.storage.index import read_index
from rlab.storage.ledger import check_files
from rlab.storage.names import file_name


def attack_files(folder: Path) -> Iterator[str]:
    yield from (SAMPLES, ARRAYS)
    check_files(folder, ARRAYS)
    yield from (name for name, _ in read_index(folder / ARRAYS).shards)


def explain_files(folder: Path) -> Iterator[str]:
    yield SCORES
    yield from (f"{MAPS}/{file_name(method)}.safetensors" for method in read_scores(folder))


def benchmark_files(folder: Path) -> Iterator[str]:
    yield from (f"results/{VERIFIED}", str(DEFAULT / REPORT))
    if not (folder / GRADED).exists():
        yield from (MANIFEST, METADATA)
        yield from (row["file"] for row in read_rows(folder / METADATA) if row["file"])
