"""The last step of a benchmark in arrays or records: one .npz a level, or a table of labels beside the records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from rlab.benchmarking.folder import Row
from rlab.runs.files import write_csv
from rlab.runs.resume import PARTS


def join_levels(folder: Path, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Parts become VICTIM/LEVEL.npz with x, y and ids; rows say which file and row they are in. Parts stay for now."""
    joined = [dict(row) for row in rows]
    for parent, members in _by_folder(joined).items():
        whole = PurePosixPath(f"{parent.relative_to(PARTS)}.npz")
        (folder / whole).parent.mkdir(parents=True, exist_ok=True)
        beside = folder / f"{whole}.part"
        with beside.open("wb") as file:
            np.savez(
                file,
                x=np.stack([np.load(folder / row["file"], allow_pickle=False) for row in members]),
                y=np.array([row["label"] for row in members]),
                ids=np.array([row["id"] for row in members]),
            )
        beside.replace(folder / whole)
        for number, row in enumerate(members):
            row |= {"file": whole.as_posix(), "row": number}
    return joined


def label_tables(folder: Path, rows: Sequence[Row]) -> None:
    """labels.csv in every folder of records: record, label."""
    for parent, members in _by_folder(rows).items():
        labels = [{"record": PurePosixPath(row["file"]).stem, "label": row["label"]} for row in members]
        write_csv(folder / parent / "labels.csv", labels)


def _by_folder(rows: Sequence[Any]) -> dict[PurePosixPath, list[Any]]:
    """The rows that have a file, by the folder it lies in."""
    groups = defaultdict(list)
    for row in rows:
        if row["file"]:
            groups[PurePosixPath(row["file"]).parent].append(row)
    return dict(groups)
