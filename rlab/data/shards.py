"""Images in a few large files: Parquet as Hugging Face writes it, and the tar shards of WebDataset.

Both are read in place. A row or member is data, whatever it is called: nothing is unpacked to disk, nothing is run.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rlab.data.batch import Batch
from rlab.data.fields import DataFields, reads
from rlab.data.images import IMAGES, picture_source
from rlab.data.labels import LABEL_NAMES, encode, encode_array
from rlab.data.source import Source
from rlab.errors import InputError
from rlab.storage.outside import regular, short

IMAGE_NAMES = ("image", "img", "picture", "jpg", "png", "bytes")
MOST_IMAGE, MOST_LABEL = 2**28, 2**16  # bytes of an encoded image and of a label
ROWS = 32  # of a Parquet file that are in memory at once
_FEATURES = b"huggingface"
_OPTIONS = ("label_column", "classes", "size", "channels", "bounds", "split")


@reads(*_OPTIONS)
def parquet(source: DataFields) -> Batch:
    """Images (b, channels, h, w) encoded in the rows of a .parquet file or a folder of them (see `parquet_source`)."""
    return parquet_source(source)[:]


def parquet_source(source: DataFields) -> Source:
    """A column of encoded images (bytes, or Hugging Face's {bytes, path}) and one of labels; `label_column` names it.

    Of a folder all files are used, or with `split` those whose names begin with it."""
    paths = shards(source, ".parquet")
    files = [_opened(path) for path in paths]
    schema = files[0].schema_arrow
    image, label = _image_column(schema, paths[0]), _label_column(schema, source.label_column, paths[0])
    try:
        labels = np.concatenate([file.read(columns=[label])[label].to_numpy() for file in files])
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise InputError(f"cannot read the labels of {source.path!r}: {error}") from error
    labels = labels.astype(str) if labels.dtype == object else labels
    y, classes = encode_array(labels, source.classes or _class_names(schema, label))
    counts = [file.metadata.num_rows for file in files]
    names = [f"{path.stem}:{i:06d}" for path, count in zip(paths, counts, strict=True) for i in range(count)]
    rows = source.take.order(len(names))
    stored = _Rows(files, image)
    return picture_source(
        source, lambda wanted: stored.get([rows[i] for i in wanted]), tuple(names[i] for i in rows), y[rows], classes,
        tuple(paths),
    )  # fmt: skip


def shards(source: DataFields, ending: str) -> list[Path]:
    """The file itself, or those of the folder with this ending, of the split where one is named."""
    if not source.location.is_dir():
        if source.split is not None:
            raise InputError(f"{source.path!r} is one file: split is for a folder of them")
        regular(source.location)
        return [source.location]
    every = sorted(source.location.rglob(f"*{ending}"))
    found = [path for path in every if source.split is None or path.name.startswith(source.split)]
    if not found:
        raise InputError(f"no {ending} of {source.path!r} has a name that begins with {source.split!r}: check split")
    for path in found:
        regular(path)
    return found


def _opened(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, pre_buffer=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"cannot read {str(path)!r} as Parquet: {error}") from error


def _image_column(schema: pa.Schema, path: Path) -> str:
    for field in sorted(schema, key=lambda field: field.name.lower() not in IMAGE_NAMES):
        held = pa.types.is_struct(field.type) and field.type.get_field_index("bytes") >= 0
        if held or pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
            return str(field.name)
    raise InputError(f"{path.name!r} has no column of encoded images: expected one of bytes, got {_told(schema)}")


def _label_column(schema: pa.Schema, wanted: str | None, path: Path) -> str:
    for name in (*LABEL_NAMES, "fine_label") if wanted is None else (wanted,):
        if name in schema.names:
            return name
    asked = "column of labels" if wanted is None else f"column {wanted!r}"
    raise InputError(f"{path.name!r} has no {asked}: pass label_column, one of {_told(schema)}")


def _told(schema: pa.Schema) -> str:
    return short(", ".join(schema.names), 400)


def _class_names(schema: pa.Schema, label: str) -> tuple[str, ...] | None:
    """Those that Hugging Face's ClassLabel has."""
    try:
        names = json.loads((schema.metadata or {})[_FEATURES])["info"]["features"][label]["names"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    return tuple(map(str, names)) if isinstance(names, list) else None


class _Rows:
    """Encoded images of several files by row; a few rows are in memory at once, however large a row group is."""

    def __init__(self, files: Sequence[pq.ParquetFile], column: str) -> None:
        self.files, self.column, self.lock = files, column, Lock()
        self.groups: list[tuple[int, int, int]] = []  # first row, file, row group
        first = 0
        for number, file in enumerate(files):
            for group in range(file.num_row_groups):
                self.groups.append((first, number, group))
                first += file.metadata.row_group(group).num_rows
        self.starts = [start for start, _, _ in self.groups]
        self.group, self.at, self.held = -1, 0, list[bytes]()
        self.coming: Iterator[Any] = iter(())

    def get(self, rows: Sequence[int]) -> list[IO[bytes]]:
        with self.lock:
            found = {row: self._one(row) for row in sorted(set(rows))}
        return [io.BytesIO(found[row]) for row in rows]

    def _one(self, row: int) -> bytes:
        """Reads on from where the last row was, or anew from the start of the row's group."""
        group = int(np.searchsorted(self.starts, row, side="right")) - 1
        if group != self.group or row < self.at:
            self.group, (self.at, number, inner) = group, self.groups[group]
            self.held = []
            self.coming = self.files[number].iter_batches(ROWS, row_groups=[inner], columns=[self.column])
        try:
            while row >= self.at + len(self.held):
                self.at += len(self.held)
                self.held = [_content(cell) for cell in next(self.coming).column(0).to_pylist()]
        except (pa.ArrowException, OSError, StopIteration) as error:
            self.group = -1
            raise InputError(f"cannot read row {row} of the Parquet files: {error or 'it is not there'}") from error
        return self.held[row - self.at]


def _content(cell: Any) -> bytes:
    """What is no image, or too large for one, is nothing."""
    value = cell.get("bytes") if isinstance(cell, dict) else cell
    return value if isinstance(value, bytes) and len(value) <= MOST_IMAGE else b""


@reads(*_OPTIONS)
def webdataset(source: DataFields) -> Batch:
    """Images (b, channels, h, w) in a .tar file or a folder of them (see `webdataset_source`)."""
    return webdataset_source(source)[:]


def webdataset_source(source: DataFields) -> Source:
    """Members of one name make a sample: NAME.jpg (or another image) and NAME.cls (a number or name), or NAME.json with a
    label, called as `label_column` says. Of a folder all files are used, or with `split` those whose names begin with it."""
    paths = shards(source, ".tar")
    members = [member for path in paths for member in _members(path, source.label_column)]
    if not members:
        raise InputError(f"{source.path!r} holds no images: expected members such as 0001.jpg and 0001.cls")
    y, classes = encode([member.label for member in members], source.classes)
    rows = source.take.order(len(members))
    chosen = [members[i] for i in rows]
    ids = tuple(f"{member.path.stem}:{member.name}" for member in chosen)
    return picture_source(
        source, lambda wanted: [chosen[i].open() for i in wanted], ids, y[rows], classes, tuple(paths)
    )  # fmt: skip


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
    """The samples of one tar file, in its order; only labels are read."""
    images: dict[str, tarfile.TarInfo] = {}
    labels: dict[str, str] = {}
    size = regular(path)
    try:
        with tarfile.open(path, "r:") as archive:
            while (info := archive.next()) is not None:
                vars(archive)["members"].clear()  # tarfile would remember all of them
                if not info.isreg() or info.issparse() or info.offset_data + info.size > size:
                    continue
                stem, ending = _split(info.name)
                if f".{ending.rpartition('.')[2]}" in IMAGES and info.size <= MOST_IMAGE:
                    images.setdefault(stem, info)
                elif ending in ("cls", "json") and info.size <= MOST_LABEL and (file := archive.extractfile(info)):
                    label = _label(ending, file.read(), wanted)
                    labels |= {} if label is None else {stem: label}
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        why = "it may be compressed: unpack it" if "gz" in path.suffixes[-1:] else str(error) or type(error).__name__
        raise InputError(f"cannot read {str(path)!r} as a tar file ({why})") from error
    if missing := [name for name in images if name not in labels]:
        count = f"{len(missing)} of {len(images)} images in {path.name!r}, first {missing[0]!r}"
        raise InputError(f"{count}, have no label: expected a member .cls, or .json with a label, of the same name")
    return [_Member(path, name, info.offset_data, info.size, labels[name]) for name, info in images.items()]


def _split(name: str) -> tuple[str, str]:
    """'a/0001.seg.png' -> ('a/0001', 'seg.png'): the name ends at the first dot of its last part."""
    parent, _, last = name.rpartition("/")
    stem, _, ending = last.partition(".")
    return (str(PurePosixPath(parent) / stem) if parent else stem), ending.lower()


def _label(ending: str, content: bytes, wanted: str | None) -> str | None:
    try:
        if ending == "cls":
            return content.decode().strip()
        if ending == "json":
            values = json.loads(content)
            names = LABEL_NAMES if wanted is None else (wanted,)
            found = next((values[name] for name in names if name in values), None) if isinstance(values, dict) else None
            return None if isinstance(found, dict | list | None) else str(found)
    except (UnicodeDecodeError, ValueError, RecursionError):
        return None
    return None
