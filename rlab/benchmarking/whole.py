"""What a benchmark's folder gets once every chunk exists: joined levels or tables of labels, and the versions that made it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch import Tensor

import rlab
from rlab.benchmarking.formats import Joined
from rlab.benchmarking.manifest import Row
from rlab.benchmarking.single import Format, Wfdb
from rlab.errors import FolderError, OptionError
from rlab.runs.fingerprint import agent_fingerprint
from rlab.storage import files
from rlab.storage.digest import digest
from rlab.storage.run_file import AGAIN, PARTS

LABELS = "labels.csv"


class NothingFlipped(OptionError):
    """No sample was flipped, so there is no benchmark to make; `queries` were sent to the victims."""

    def __init__(self, sentence: str, queries: int = 0) -> None:
        super().__init__(sentence)
        self.queries = queries


def versions(policy: str) -> dict[str, str]:
    """Versions of the packages, and the fingerprint of the agent if the policy is one."""
    agent = agent_fingerprint(policy)
    numbers = {"rlab": rlab.__version__} | ({"agent": agent} if agent else {})
    for package in ("torch", "numpy", "pillow", "pyarrow", "wfdb", "av"):
        try:
            numbers[package] = version(package)
        except PackageNotFoundError:
            continue
    return numbers


def join_levels(folder: Path, rows: Sequence[Row], form: Joined) -> list[dict[str, Any]]:
    """Join the parts into one file per level, and return rows that name their new file; the parts stay."""
    joined, by_folder = [dict(row) for row in rows], defaultdict(list)
    for row in joined:
        if row["file"]:
            by_folder[PurePosixPath(row["file"]).parent].append(row)
    for parent, members in by_folder.items():
        whole = PurePosixPath(f"{parent.relative_to(PARTS)}{form.ending}")
        joined_before = (folder / whole).exists() and not all((folder / row["file"]).exists() for row in members)
        if not joined_before:
            (folder / whole).parent.mkdir(parents=True, exist_ok=True)
            x = torch.stack([_part(folder, row, form) for row in members])
            with files.replacing(folder / whole) as file:
                form.pack(file, x, [row["label"] for row in members], [row["id"] for row in members])
        for number, row in enumerate(members):
            row |= {"file": whole.as_posix(), "row": number}
    return joined


def write_labels(folder: Path, rows: Sequence[Row], form: Format) -> None:
    """Write labels.csv for every level: file (signals: record), label and source id."""
    by_level: dict[PurePosixPath, list[dict[str, Any]]] = defaultdict(list)
    for row in (row for row in rows if row["file"]):
        path = PurePosixPath(row["file"])
        level = path.parent if isinstance(form, Wfdb) else path.parent.parent
        named = {"record": path.stem} if isinstance(form, Wfdb) else {"file": path.relative_to(level).as_posix()}
        by_level[level].append({**named, "label": row["label"], "source": row["id"]})
    for level, labels in by_level.items():
        files.write_csv(folder / level / LABELS, labels)


def _part(folder: Path, row: Row, form: Joined) -> Tensor:
    """Read a sample that a chunk wrote, and check it."""
    path = folder / row["file"]
    try:
        x = form.read(path)
    except (OSError, ValueError, EOFError) as error:
        raise FolderError(f"cannot read {path} ({error}): delete it and {AGAIN}") from error
    if digest(x.float(), length=64) != row["sha256"]:
        raise FolderError(f"{path} is damaged, its content has changed: delete it and {AGAIN}")
    return x
