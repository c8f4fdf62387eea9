"""Finished steps of a run, one file each in the folder `parts`: a step is finished if its file exists.

The file holds the step's value, the fingerprint of what the value depends on, and a digest of itself. A table is stored as
Parquet, a value with tensors as safetensors, anything else as JSON. Nothing is pickled.
"""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict

from rlab.redact import redact
from rlab.storage.names import key_name
from rlab.storage.run_file import MOST_TEXT, PARTS, check_digest, damaged, read_run
from rlab.storage.sealed import UNSEALED, is_intact, sealed
from rlab.storage.stored import read_stored, write_atomically

_HEADER = b"step"  # a key of a table's metadata


class Step(BaseModel):
    """A value, what it depends on, and the digest of the arrays that belong to it, if any."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    fingerprint: str
    value: Any = None
    arrays: str | None = None  # of the file `part_path`
    seal: str = UNSEALED

    def write(self, folder: Path, key: str) -> None:
        """Write the step's file; it replaces an earlier one."""
        suffix, content = _to_bytes(self)
        path = folder / PARTS / f"{key_name(key)}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        for other in _READERS.keys() - {suffix}:
            path.with_name(f"{key_name(key)}{other}").unlink(missing_ok=True)
        write_atomically(path, sealed(content))


def _to_bytes(step: Step) -> tuple[str, bytes]:
    import pyarrow as pa  # here: `rlab serve` starts without it and torch
    from pyarrow import parquet

    from rlab.storage.files import has_tensors, tree_to_bytes
    from rlab.storage.tables import redact_table

    header = {"fingerprint": step.fingerprint, "arrays": step.arrays, "seal": UNSEALED}
    if isinstance(step.value, pa.Table):
        file, metadata = io.BytesIO(), {**(step.value.schema.metadata or {}), _HEADER: json.dumps(header)}
        parquet.write_table(redact_table(step.value).replace_schema_metadata(metadata), file)
        return ".parquet", file.getvalue()
    if has_tensors(step.value):
        return ".tensors", tree_to_bytes({**header, "value": step.value})
    return ".json", json.dumps({**header, "value": redact(step.value)}).encode()


def read_step(path: Path) -> Step:
    """Read a step's file; refuse one that is damaged."""
    from rlab.storage.index import readable

    with readable(path):
        if not is_intact(path, None if path.suffix == ".tensors" else MOST_TEXT):
            raise damaged(path)
        return Step.model_validate(_READERS[path.suffix](path))


def _read_json(path: Path) -> Any:
    return json.loads(read_stored(path, MOST_TEXT))


def _read_table(path: Path) -> Any:
    from rlab.storage.files import opened_parquet

    with opened_parquet(path) as file:
        table = file.read(use_threads=False)
    table.validate(full=True)  # otherwise Arrow would trust a wrong length inside it
    metadata = dict(table.schema.metadata or {})
    header = json.loads(metadata.pop(_HEADER))
    return {**header, "value": table.replace_schema_metadata(metadata or None)}


def _read_tree(path: Path) -> Any:
    from rlab.storage.files import read_tree

    return read_tree(path)


_READERS: dict[str, Callable[[Path], Any]] = {".json": _read_json, ".parquet": _read_table, ".tensors": _read_tree}


def part_path(folder: Path, key: str) -> Path:
    """The arrays that belong to a step."""
    return folder / PARTS / f"{key_name(key)}.safetensors"


def step_path(folder: Path, key: str) -> Path | None:
    """The file of a finished step, or None."""
    paths = (folder / PARTS / f"{key_name(key)}{suffix}" for suffix in _READERS)
    return next((path for path in paths if os.path.lexists(path)), None)


def step_paths(folder: Path, prefix: str = "") -> dict[str, Path]:
    """The files of the finished steps whose keys start with `prefix`, sorted by key; a long key is cut as in its file name."""
    try:
        with os.scandir(folder / PARTS) as entries:
            paths = [Path(entry) for entry in entries if not entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return {}
    found = {unquote(path.stem): path for path in paths if path.suffix in _READERS}
    return {key: found[key] for key in sorted(found) if key.startswith(prefix)}


def read_steps(folder: Path, prefix: str) -> list[Any]:
    """Read the values of finished steps whose keys start with `prefix`."""
    return [read_step(path).value for path in step_paths(folder, prefix).values()]


def read_versions(folder: Path) -> dict[str, str]:
    """Read the versions, the device and the threads a run was begun with; empty without `run.json`."""
    run = read_run(folder)
    return {} if run is None else run.versions


def remove_arrays(folder: Path) -> None:
    """Remove everything but plain values from the parts of a run: its files include the arrays and tables."""
    for path in (folder / PARTS).glob("*"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.suffix != ".json":
            path.unlink(missing_ok=True)
    with suppress(OSError):  # some are left, or nothing can be written there
        (folder / PARTS).rmdir()


def check_shard(folder: Path, path: Path) -> None:
    """Refuse arrays that differ from what their step wrote; those of no step are not checked."""
    step = step_path(folder, unquote(path.stem)) if path.parent.name == PARTS else None
    if step is not None:
        check_digest(path, read_step(step).arrays)
