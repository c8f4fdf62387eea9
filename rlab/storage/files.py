"""Files of a run: Parquet and CSV tables, safetensors arrays, JSON. Writes are atomic, and nothing is pickled."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors import safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from rlab.errors import FolderError, InputError, OptionError
from rlab.redact import redact
from rlab.storage.index import ASSIGNMENT, INDEX, KEPT, Index, readable
from rlab.storage.names import ARRAYS as ARRAYS
from rlab.storage.names import SAMPLES as SAMPLES
from rlab.storage.names import SETTING as SETTING
from rlab.storage.stored import read_stored, stored
from rlab.storage.stored import replacing as replacing
from rlab.storage.stored import write_atomically as write_atomically

T = TypeVar("T")

_TENSOR, _TABLE = "__tensor__", "__table__"
_PLAIN = {str, int, float, bool, type(None)}
_RUN_BY_SPREADSHEETS = ("=", "+", "-", "@", "\t", "\r", "\n")


def write_text(path: Path, text: str) -> None:
    """Write text atomically, without secrets; characters that UTF-8 cannot encode are escaped."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, redact(text).encode("utf-8", "backslashreplace"))


def write_new(path: Path, text: str) -> None:
    """Write text to a new file; refuse to overwrite one."""
    refuse_existing(path)
    write_text(path, text)


def refuse_existing(path: Path) -> None:
    if os.path.lexists(path):
        raise OptionError(f"{path} already exists and is not overwritten: name another file with --out, or remove it")


def copy_folder(source: Path, target: Path) -> Path:
    """Copy a run folder; an existing target must be empty."""
    refuse_filled(target)
    shutil.copytree(source, target, dirs_exist_ok=True)
    return target


def refuse_filled(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FolderError(f"{folder} already exists: name a new folder")


def finite(value: Any) -> Any:
    """Replace floats that JSON lacks: NaN becomes null, an infinity its name."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in value.items()}
    return [finite(inner) for inner in value] if isinstance(value, list | tuple) else value


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(redact(finite(value)), indent=1, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    with readable(path):
        try:
            return json.loads(read_stored(path))
        except FileNotFoundError:
            raise FolderError(f"{path} is missing: the folder is incomplete, so run its command again") from None


def read_result(path: Path, make: Callable[[Any], T]) -> T:
    """What `make` builds from the JSON file; one that lacks what rlab writes is refused."""
    plain = read_json(path)
    try:
        return make(plain)
    except InputError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        why = f"{type(error).__name__} {error}".splitlines()[0]
        raise FolderError(f"{path} was not written by rlab: {why}") from error


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write one line per record under the first record's keys; text that a spreadsheet would execute gets an apostrophe."""
    text = io.StringIO()
    if rows:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([map(_as_text, rows[0]), *([_as_text(row.get(key)) for key in rows[0]] for row in rows)])
    write_text(path, text.getvalue())


def _as_text(cell: Any) -> Any:
    if not isinstance(cell, str):
        return cell
    text: str = redact(cell).replace("\r", "\n")  # the writer does not quote a lone \r, which would end the line
    try:
        float(text)
    except ValueError:
        return f"'{text}" if text.startswith(_RUN_BY_SPREADSHEETS) else text
    return text


def write_arrays(path: Path, arrays: Mapping[str, Tensor], setting: str) -> None:
    write_atomically(path, to_bytes(dict(arrays), metadata={SETTING: setting}))


def read_arrays(path: Path, *names: str) -> tuple[dict[str, Tensor], str]:
    """Read the arrays with these names, or all, and the setting they were made with."""
    with opened_arrays(path) as file:
        wanted = names or file.keys()
        return {name: file.get_tensor(name) for name in wanted}, (file.metadata() or {}).get(SETTING, "")


def write_tree(path: Path, tree: Any) -> None:
    """Write nested dictionaries and lists of plain values, tensors and tables as one safetensors file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, tree_to_bytes(tree))


def tree_to_bytes(tree: Any) -> bytes:
    arrays: dict[str, Tensor] = {}
    plain = json.dumps(redact(_without_tensors(tree, arrays)))
    return to_bytes(arrays or {"": torch.zeros(0)}, metadata={SETTING: plain})


def read_tree(path: Path) -> Any:
    arrays, plain = read_arrays(path)
    try:
        return _with_tensors(json.loads(plain), arrays)
    except (KeyError, TypeError, ValueError) as error:
        raise FolderError(f"{path} is damaged: {type(error).__name__} {error}") from error


def _without_tensors(tree: Any, arrays: dict[str, Tensor]) -> Any:
    """Return JSON values and move tensors and tables into `arrays`; number keys, as in optimizer states, stay numbers."""
    if type(tree) in _PLAIN or (type(tree) is list and set(map(type, tree)) <= _PLAIN):
        return tree  # the common case
    if isinstance(tree, Tensor):
        name = f"{len(arrays):05d}"
        arrays[name] = tree.detach().cpu().clone().contiguous()  # safetensors refuses tensors that share memory
        return {_TENSOR: name}
    if isinstance(tree, pa.Table):
        name, file = f"{len(arrays):05d}", io.BytesIO()
        pq.write_table(redact_table(tree), file)
        arrays[name] = torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)
        return {_TABLE: name}
    if isinstance(tree, Mapping):
        return {"dict": [[key, _without_tensors(value, arrays)] for key, value in tree.items()]}
    if isinstance(tree, list | tuple):
        return [_without_tensors(value, arrays) for value in tree]
    return tree


def _with_tensors(plain: Any, arrays: Mapping[str, Tensor]) -> Any:
    if isinstance(plain, list):
        return [_with_tensors(value, arrays) for value in plain]
    if isinstance(plain, dict):
        if _TENSOR in plain:
            return arrays[plain[_TENSOR]]
        if _TABLE in plain:
            with pa.BufferReader(arrays[plain[_TABLE]].numpy()) as file:
                table = pq.ParquetFile(file).read(use_threads=False)
            table.validate(full=True)  # otherwise Arrow would trust a wrong length inside it
            return table
        return {key: _with_tensors(value, arrays) for key, value in plain["dict"]}
    return plain


def redact_table(table: pa.Table) -> pa.Table:
    """Remove secrets from the table's text columns."""
    for at, column in enumerate(table.schema):
        texts = table.column(at).to_pylist() if pa.types.is_string(column.type) else []
        if (clean := redact(texts)) != texts:
            table = table.set_column(at, column, pa.array(clean, pa.string()))
    return table


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]], setting: str) -> None:
    table = pa.Table.from_pylist([redact(row) for row in rows]).replace_schema_metadata({SETTING: redact(setting)})
    with replacing(path) as file:
        pq.write_table(table, file)


def read_rows(path: Path) -> list[dict[str, Any]]:
    with opened_parquet(path) as file:
        rows: list[dict[str, Any]] = file.read().to_pylist()
    return rows


@contextmanager
def opened_parquet(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file without pq.read_table, which would import pandas."""
    with readable(path), pq.ParquetFile(stored(path), pre_buffer=False) as file:
        yield file


def write_index(folder: Path, assignment: Tensor, kept: Tensor, index: Index, setting: str) -> None:
    """Write all assignments (n, p), which samples are `kept` (n,) with their inputs, and where those inputs are."""
    text = json.dumps({"shards": index.shards, "shape": index.shape}).encode()
    where = torch.frombuffer(bytearray(text), dtype=torch.uint8)  # as an array: the order of metadata keys varies
    write_arrays(folder / ARRAYS, {ASSIGNMENT: assignment, KEPT: kept.to(torch.uint8), INDEX: where}, setting)


def read_assignment(path: Path) -> tuple[Tensor, str]:
    """Read the assignments (n, p) and the run's setting."""
    arrays, setting = read_arrays(path, ASSIGNMENT)
    return arrays[ASSIGNMENT], setting


@contextmanager
def opened_arrays(path: Path) -> Iterator[Any]:
    with readable(path), safe_open(stored(path), framework="pt") as file:
        yield file
