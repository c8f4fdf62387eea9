"""What a benchmark's folder gets once every chunk exists: joined levels or tables of labels, and the versions that made it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch import Tensor

import rlab
from rlab.benchmarking.config import ORIGINALS
from rlab.benchmarking.formats import Joined
from rlab.benchmarking.manifest import Row
from rlab.benchmarking.single import Single, Wfdb
from rlab.errors import FolderError, OptionError
from rlab.runs.fingerprint import agent_fingerprint
from rlab.storage import files
from rlab.storage.digest import digest
from rlab.storage.names import file_name

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


def sample_path(form: Single, row: Row) -> PurePosixPath:
    """The path of a sample's file within the benchmark's folder."""
    name = file_name(row["id"].rsplit(".", 1)[0]).replace(".", "_").replace("+", "_")
    inner = form.path(f"{row['place']:05d}_{name}", row["label"])  # only characters that WFDB records allow
    return PurePosixPath(*((row["victim"], row["level"]) if row["victim"] else (ORIGINALS,)), inner)


def write_sample(folder: Path, form: Single | Joined, row: Row, x: Tensor) -> dict[str, str]:
    """Write a sample x (c, *size) unless its level is joined later; the columns that describe its file."""
    if isinstance(form, Joined):
        place = f"{row['victim']}/{row['level']}" if row["victim"] else ORIGINALS
        return {"file": f"{place}{form.ending}", "sha256": digest(x.float(), length=64)}
    path = folder / (name := sample_path(form, row))
    path.parent.mkdir(parents=True, exist_ok=True)
    form.write(path, x)
    if not torch.equal(form.read(path), x):
        raise FolderError(f"{path} does not hold the values that the model was queried with: choose another format")
    return {"file": name.as_posix(), "sha256": form.digest(path)}


def join_levels(
    folder: Path, form: Joined, rows: Sequence[Row], parts: Mapping[str, Sequence[Path]], originals: Tensor
) -> list[Row]:
    """Write one file per level, from the parts (by set) that its chunks left; rows that name their place in it."""
    members, numbered = defaultdict[str, list[Row]](list), list[Row]()
    for row in rows:
        if row["file"]:
            row = {**row, "row": len(members[row["file"]])}
            members[row["file"]].append(row)
        numbered.append(row)
    for name, some in members.items():
        victim, level, path = some[0]["victim"], some[0]["level"], folder / name
        if not path.exists():
            chunks = (files.read_arrays(part)[0] for part in parts.get(victim, ()) if part.exists())
            x = torch.cat([arrays[level] for arrays in chunks if level in arrays]) if victim else originals
            path.parent.mkdir(parents=True, exist_ok=True)
            with files.replacing(path) as file:
                form.pack(file, x, [row["label"] for row in some], [row["id"] for row in some])
    return numbered


def write_labels(folder: Path, rows: Sequence[Row], form: Single) -> None:
    """Write labels.csv for every level: file (signals: record), label and source id."""
    by_level: dict[PurePosixPath, list[dict[str, Any]]] = defaultdict(list)
    for row in (row for row in rows if row["file"]):
        path = PurePosixPath(row["file"])
        level = path.parent if isinstance(form, Wfdb) else path.parent.parent
        named = {"record": path.stem} if isinstance(form, Wfdb) else {"file": path.relative_to(level).as_posix()}
        by_level[level].append({**named, "label": row["label"], "source": row["id"]})
    for level, labels in by_level.items():
        files.write_csv(folder / level / LABELS, labels)
