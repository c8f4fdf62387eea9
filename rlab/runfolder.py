"""Files of a run: rows in Parquet, arrays in safetensors. Everything appears whole or not at all; nothing is pickled."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from rlab.errors import InputError

SAMPLES, ARRAYS, SETTING = "samples.parquet", "arrays.safetensors", "setting"


def write_atomically(path: Path, content: bytes) -> None:
    """The file is there whole after this, or as it was before."""
    beside = path.with_name(path.name + ".part")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def write_arrays(path: Path, arrays: Mapping[str, Tensor], setting: str) -> None:
    write_atomically(path, to_bytes(dict(arrays), metadata={SETTING: setting}))


def read_arrays(path: Path) -> tuple[dict[str, Tensor], str]:
    """Arrays by name, and the setting they were made under."""
    try:
        with safe_open(path, framework="pt") as file:
            names = file.keys()  # not a mapping: it cannot be looped over itself
            return {name: file.get_tensor(name) for name in names}, (file.metadata() or {}).get(SETTING, "")
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot read {path}: {error}") from error


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]], setting: str) -> None:
    table = pa.Table.from_pylist([dict(row) for row in rows]).replace_schema_metadata({SETTING: setting})
    beside = path.with_name(path.name + ".part")
    pq.write_table(table, beside)
    beside.replace(path)


def read_rows(path: Path) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    except (OSError, pa.ArrowInvalid) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    return found


def join_arrays(parts: Sequence[Path], path: Path) -> None:
    """Several array files as one, stacked along the samples, a tensor at a time so that memory stays small."""
    with safe_open(parts[0], framework="np") as first:
        names, metadata = list(first.keys()), first.metadata()
    header: dict[str, Any] = {"__metadata__": metadata or {}}
    at = 0
    for name in names:
        shapes, dtype = [], ""
        for part in parts:
            with safe_open(part, framework="np") as file:
                view = file.get_slice(name)
                shapes.append(view.get_shape())
                dtype = view.get_dtype()
        shape = [sum(s[0] for s in shapes), *shapes[0][1:]]
        width = _WIDTH[dtype]
        for length in shape:
            width *= length
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + width]}
        at += width
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    beside = path.with_name(path.name + ".part")
    with beside.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            for part in parts:
                with safe_open(part, framework="np") as file:
                    out.write(file.get_tensor(name).tobytes())
        out.flush()
        os.fsync(out.fileno())
    beside.replace(path)


_WIDTH = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "U8": 1, "BOOL": 1}
