"""The last step of a benchmark in arrays or records: one .npz a level, or a table of labels beside the records."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from rlab.runs.attack import PARTS
from rlab.runs.files import write_atomically


def join_levels(folder: Path, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Parts become VICTIM/LEVEL.npz with x, y and ids; rows say which file and row they are in. Parts stay for now."""
    groups: dict[PurePosixPath, list[int]] = {}
    for at, row in enumerate(rows):
        if row["file"]:
            groups.setdefault(PurePosixPath(row["file"]).parent, []).append(at)
    out = [dict(row) for row in rows]
    for parent, members in groups.items():
        whole = PurePosixPath(f"{parent.relative_to(PARTS)}.npz")
        (folder / whole).parent.mkdir(parents=True, exist_ok=True)
        beside = folder / f"{whole}.part"
        with beside.open("wb") as file:
            np.savez(
                file,
                x=np.stack([np.load(folder / rows[at]["file"], allow_pickle=False) for at in members]),
                y=np.array([rows[at]["label"] for at in members]),
                ids=np.array([rows[at]["id"] for at in members]),
            )
        beside.replace(folder / whole)
        for number, at in enumerate(members):
            out[at] |= {"file": whole.as_posix(), "row": number}
    return out


def label_tables(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """labels.csv in every folder of records: record, label."""
    groups: dict[Path, list[tuple[str, int]]] = {}
    for row in rows:
        if row["file"]:
            path = folder / row["file"]
            groups.setdefault(path.parent, []).append((path.stem, row["label"]))
    for place, members in groups.items():
        text = io.StringIO()
        csv.writer(text).writerows([("record", "label"), *members])
        write_atomically(place / "labels.csv", text.getvalue().encode())
