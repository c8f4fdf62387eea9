"""Finished steps of a run, one file each in the folder `parts`: a step is finished if its file exists.

The file holds the step's value, of plain values, tensors and tables, the fingerprint of what the value depends on, and a digest
of itself. Nothing is pickled.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict

from rlab.storage.names import key_name
from rlab.storage.run_file import PARTS, check_digest, damaged
from rlab.storage.sealed import UNSEALED, is_intact, sealed
from rlab.storage.stored import write_atomically

STEP, ARRAYS = ".step", ".safetensors"  # endings


class Step(BaseModel):
    """A value, what it depends on, and the digest of the arrays that belong to it, if any."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    fingerprint: str
    value: Any = None
    arrays: str | None = None  # of the file `part_path`
    seal: str = UNSEALED

    def write(self, folder: Path, key: str) -> None:
        """Write the step's file; it replaces an earlier one."""
        from rlab.storage.files import tree_to_bytes  # here: `rlab serve` starts without torch

        path = step_path(folder, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, sealed(tree_to_bytes({**vars(self), "seal": UNSEALED})))


def read_step(path: Path) -> Step:
    """Read a step's file; refuse one that is damaged."""
    from rlab.storage.files import read_tree
    from rlab.storage.index import readable

    with readable(path):
        if not is_intact(path):
            raise damaged(path)
        return Step.model_validate(read_tree(path))


def part_path(folder: Path, key: str) -> Path:
    """The arrays that belong to a step."""
    return folder / PARTS / f"{key_name(key)}{ARRAYS}"


def step_path(folder: Path, key: str) -> Path:
    return folder / PARTS / f"{key_name(key)}{STEP}"


def stored_step(folder: Path, key: str) -> Step | None:
    """A finished step, or None."""
    path = step_path(folder, key)
    return read_step(path) if os.path.lexists(path) else None


def step_paths(folder: Path, prefix: str = "") -> dict[str, Path]:
    """The files of the finished steps whose keys start with `prefix`, sorted by key; a long key is cut as in its file name."""
    found = {unquote(path.stem): path for path in (folder / PARTS).glob(f"*{STEP}")}
    return {key: found[key] for key in sorted(found) if key.startswith(prefix)}


def read_steps(folder: Path, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield keys and values of finished steps whose keys start with `prefix`, sorted by key."""
    for key, path in step_paths(folder, prefix).items():
        yield key, read_step(path).value


def check_part(path: Path) -> None:
    """Refuse arrays that differ from what their step wrote; those of no step are not checked."""
    step = stored_step(path.parent.parent, unquote(path.stem)) if path.parent.name == PARTS else None
    if step is not None and step.arrays is not None:
        check_digest(path, step.arrays)
