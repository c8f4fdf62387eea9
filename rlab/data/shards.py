"""Load images from a few large files: Parquet, as Hugging Face writes it, and tar shards of WebDataset.

Both are read in place; nothing is unpacked to disk.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rlab.data.fields import DataFields
from rlab.data.images import IMAGES, picture_source
from rlab.data.labels import LABEL_NAMES, encode, encode_array
from rlab.data.source import Source, reads
from rlab.errors import DataError, OptionError
from rlab.storage.outside import regular, short

IMAGE_NAMES = ("image", "img", "picture", "jpg", "png", "bytes")
MOST_IMAGE, MOST_LABEL = 2**28, 2**16  # limits in bytes on an encoded image and a label
_FEATURES = b"huggingface"
_OPTIONS = ("label_column", "classes", "size", "resize", "channels", "bounds", "split")


@reads(*_OPTIONS)
def parquet(source: DataFields) -> Source:
    """Load images (b, channels, h, w) from a column of encoded images (bytes, or {bytes, path} of Hugging Face), and labels from
    the column `label_column`.

    A folder contributes all its files, or with `split` those whose names begin with it.
    """
    paths = shards(source, ".parquet")
    files = [_opened(path) for path in paths]
    schema = files[0].schema_arrow
    image, label = _image_column(schema, paths[0]), _label_column(schema, source.label_column, paths[0])
    try:
        labels = np.concatenate([file.read(columns=[label])[label].to_numpy() for file in files])
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise DataError(f"cannot read the labels of {source.path!r}: {error}") from error
    labels = labels.astype(str) if labels.dtype == object else labels
    own = _class_names(schema, label)
    source = source if own is None else source.model_copy(update={"classes": source.classes or own})
    y, classes = encode_array(labels, source.classes)
    counts = [file.metadata.num_rows for file in files]
    names = [f"{path.stem}:{i:06d}" for path, count in zip(paths, counts, strict=True) for i in range(count)]
    rows = source.take.rows(y)
    stored = _Rows(files, image)
    ids = tuple(names[i] for i in rows)
    return picture_source(
        source, ids, y[rows], classes, tuple(paths), opened=lambda wanted: stored.get([rows[i] for i in wanted])
    )


def shards(source: DataFields, ending: str) -> list[Path]:
    """The file itself, or the files of the folder with this suffix, only those of `split` if it is set."""
    if not source.location.is_dir():
        if source.split is not None:
            raise OptionError(f"{source.path!r} is a single file: split works only for a folder")
        chosen = [source.location]
    else:
        every = sorted(source.location.rglob(f"*{ending}"))
        chosen = [path for path in every if source.split is None or path.name.startswith(source.split)]
    if not chosen:
        raise OptionError(f"no {ending} file in {source.path!r} begins with {source.split!r}: check split")
    for path in chosen:
        regular(path)
    return chosen


def _opened(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, pre_buffer=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"cannot read {str(path)!r} as Parquet: {error}") from error


def _image_column(schema: pa.Schema, path: Path) -> str:
    for field in sorted(schema, key=lambda field: field.name.lower() not in IMAGE_NAMES):
        nested = pa.types.is_struct(field.type) and field.type.get_field_index("bytes") >= 0
        if nested or pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
            return str(field.name)
    raise DataError(f"{path.name!r} has no column of images: expected a column of bytes, got {_columns(schema)}")


def _label_column(schema: pa.Schema, wanted: str | None, path: Path) -> str:
    for name in (*LABEL_NAMES, "fine_label") if wanted is None else (wanted,):
        if name in schema.names:
            return name
    lack = "column of labels" if wanted is None else f"column {wanted!r}"
    raise OptionError(f"{path.name!r} has no {lack}: pass label_column, one of {_columns(schema)}")


def _columns(schema: pa.Schema) -> str:
    return short(", ".join(schema.names), 400)


def _class_names(schema: pa.Schema, label: str) -> tuple[str, ...] | None:
    """Class names from ClassLabel of Hugging Face, if the schema has them."""
    try:
        names = json.loads((schema.metadata or {})[_FEATURES])["info"]["features"][label]["names"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    return tuple(map(str, names)) if isinstance(names, list) else None


class _Rows:
    """Encoded images of several files by row, with one row group of them in memory."""

    def __init__(self, files: Sequence[pq.ParquetFile], column: str) -> None:
        self.files, self.column, self.lock = files, column, Lock()
        groups = [(number, group) for number, file in enumerate(files) for group in range(file.num_row_groups)]
        counts = [files[number].metadata.row_group(group).num_rows for number, group in groups]
        self.groups, self.starts = groups, np.cumsum([0, *counts])
        self.at, self.held = -1, list[bytes]()

    def get(self, rows: Sequence[int]) -> list[IO[bytes]]:
        with self.lock:
            contents = {row: self._one(row) for row in sorted(set(rows))}
        return [io.BytesIO(contents[row]) for row in rows]

    def _one(self, row: int) -> bytes:
        at = int(np.searchsorted(self.starts, row, side="right")) - 1
        if at != self.at:
            number, group = self.groups[at]
            try:
                table = self.files[number].read_row_group(group, columns=[self.column])
            except (pa.ArrowException, OSError) as error:
                raise DataError(f"cannot read row {row} of the Parquet files: {error}") from error
            self.at, self.held = at, [_content(cell) for cell in table[self.column].to_pylist()]
        return self.held[row - int(self.starts[at])]


def _content(cell: Any) -> bytes:
    """The bytes of an image; empty if the cell holds none or too many."""
    value = cell.get("bytes") if isinstance(cell, dict) else cell
    return value if isinstance(value, bytes) and len(value) <= MOST_IMAGE else b""


@reads(*_OPTIONS)
def webdataset(source: DataFields) -> Source:
    """Load images (b, channels, h, w) from members with the same name: NAME.jpg (or another image) with NAME.cls (a number or
    a name) or NAME.json (with the label under the key `label_column`).

    A folder contributes all its files, or with `split` those whose names begin with it.
    """
    paths = shards(source, ".tar")
    members = [member for path in paths for member in _members(path, source.label_column)]
    if not members:
        raise DataError(f"{source.path!r} holds no images: expected members such as 0001.jpg and 0001.cls")
    y, classes = encode([member.label for member in members], source.classes)
    rows = source.take.rows(y)
    chosen = [members[i] for i in rows]
    ids = tuple(f"{member.path.stem}:{member.name}" for member in chosen)
    return picture_source(
        source, ids, y[rows], classes, tuple(paths), opened=lambda wanted: [chosen[i].open() for i in wanted]
    )


@dataclass(frozen=True)
class _Member:
    """An image in a tar file."""

    path: Path
    name: str
    at: int
    size: int
    label: str

    def open(self) -> IO[bytes]:
        with self.path.open("rb") as file:
            file.seek(self.at)
            return io.BytesIO(file.read(self.size))


def _members(path: Path, wanted: str | None) -> list[_Member]:
    """List the samples of one tar file in order; only the labels are read."""
    images: dict[str, tarfile.TarInfo] = {}
    labels: dict[str, str] = {}
    size = regular(path)
    try:
        with tarfile.open(path, "r:") as archive:
            while (info := archive.next()) is not None:
                vars(archive)["members"].clear()  # tarfile keeps all members in memory otherwise
                if not info.isreg() or info.issparse() or info.offset_data + info.size > size:
                    continue
                stem, ending = _split(info.name)
                if f".{ending.rpartition('.')[2]}" in IMAGES and info.size <= MOST_IMAGE:
                    images.setdefault(stem, info)
                elif ending in ("cls", "json") and info.size <= MOST_LABEL and (file := archive.extractfile(info)):
                    label = _label(ending, file.read(), wanted)
                    labels |= {} if label is None else {stem: label}
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        raise DataError(f"cannot read {str(path)!r} as a tar file ({str(error) or type(error).__name__})") from error
    if missing := [name for name in images if name not in labels]:
        count = f"{len(missing)} of {len(images)} images in {path.name!r}, first {missing[0]!r}"
        raise DataError(f"{count}, have no label: expected a .cls or .json member of the same name")
    return [_Member(path, name, info.offset_data, info.size, labels[name]) for name, info in images.items()]


def _split(name: str) -> tuple[str, str]:
    """'a/0001.seg.png' -> ('a/0001', 'seg.png'): split at the first dot after the last slash."""
    parent, _, last = name.rpartition("/")
    stem, _, ending = last.partition(".")
    return (str(PurePosixPath(parent) / stem) if parent else stem), ending.lower()


def _label(ending: str, content: bytes, wanted: str | None) -> str | None:
    try:
        if ending == "cls":
            return content.decode().strip()
        values = json.loads(content)
        names = LABEL_NAMES if wanted is None else (wanted,)
        label = next((values[name] for name in names if name in values), None) if isinstance(values, dict) else None
        return None if isinstance(label, dict | list | None) else str(label)
    except (UnicodeDecodeError, ValueError, RecursionError):
        return None
