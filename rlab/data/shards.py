"""Load images from a few large files: Parquet, as Hugging Face writes it, and tar shards of WebDataset.

Both are read in place; nothing is unpacked to disk.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rlab.data.fields import Column, Pictures, Split
from rlab.data.images import IMAGES, Part, picture_source
from rlab.data.labels import LABEL_NAMES, Encoded, encode, encode_array
from rlab.data.source import Source
from rlab.errors import DataError, InputError, OptionError
from rlab.storage.outside import regular, short

IMAGE_NAMES = ("image", "img", "picture", "jpg", "png", "bytes")
MOST_LABEL = 2**16  # bytes
_FEATURES = b"huggingface"


class ShardOptions(Pictures):
    label_column: Column = None
    split: Split = None


def parquet(source: ShardOptions) -> Source:
    """Load images (b, channels, h, w) from a column of encoded images (bytes, or {bytes, path} of Hugging Face), and labels from
    the column `label_column`.

    A folder contributes all its files, or with `split` those whose names begin with it.
    """
    paths = shards(source, ".parquet")
    try:
        files = [pq.ParquetFile(path, pre_buffer=False) for path in paths]
        schema = files[0].schema_arrow
        image, label = _image_column(schema, paths[0]), _label_column(schema, source.label_column, paths[0])
        labels = np.concatenate([file.read(columns=[label])[label].to_numpy() for file in files])
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise DataError(f"cannot read {source.path!r} as Parquet: {error}") from error
    labels = labels.astype(str) if labels.dtype == object else labels
    encoded = encode_array(labels, source.classes or _class_names(schema, label))
    lock = Lock()

    @lru_cache(maxsize=1)
    def cells(number: int, group: int) -> list[Any]:
        found: list[Any] = files[number].read_row_group(group, columns=[image])[image].to_pylist()
        return found

    def opened(number: int, group: int, row: int) -> IO[bytes]:
        with lock:
            cell = cells(number, group)[row]
        value = cell.get("bytes") if isinstance(cell, dict) else cell
        return io.BytesIO(value if isinstance(value, bytes) else b"")

    items = dict[str, Part]()
    for number, (path, file) in enumerate(zip(paths, files, strict=True)):
        counts = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        places = [(group, row) for group, count in enumerate(counts) for row in range(count)]
        items |= {f"{path.stem}:{i:06d}": Part(path, partial(opened, number, *at)) for i, at in enumerate(places)}
    return _chosen(source, items, encoded)


def _chosen(source: ShardOptions, items: dict[str, Part], labels: Encoded) -> Source:
    """The selected images."""
    ids, rows = list(items), source.take.rows(labels[0])
    return picture_source(source, {ids[i]: items[ids[i]] for i in rows}, labels[0][rows], labels[1])


def shards(source: ShardOptions, ending: str) -> list[Path]:
    """The file itself, or the files of the folder with this suffix, only those of `split` if it is set."""
    folder, split = source.location, source.split
    if not folder.is_dir():
        if split is not None:
            raise OptionError(f"{source.path!r} is a single file: split works only for a folder")
        regular(folder)
        return [folder]
    every = [folder / name for name in source.place.files((ending,), f"{ending} files")]
    chosen = [path for path in every if split is None or path.name.startswith(split)]
    if not chosen:
        raise OptionError(f"no {ending} file in {source.path!r} begins with {split!r}: check split")
    return chosen


def _image_column(schema: pa.Schema, path: Path) -> str:
    for field in sorted(schema, key=lambda field: field.name.lower() not in IMAGE_NAMES):
        nested = pa.types.is_struct(field.type) and field.type.get_field_index("bytes") >= 0
        if nested or pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
            return str(field.name)
    columns = short(", ".join(schema.names), 400)
    raise DataError(f"{path.name!r} has no column of images: expected a column of bytes, got {columns}")


def _label_column(schema: pa.Schema, wanted: str | None, path: Path) -> str:
    for name in (*LABEL_NAMES, "fine_label") if wanted is None else (wanted,):
        if name in schema.names:
            return name
    lack = "column of labels" if wanted is None else f"column {wanted!r}"
    raise OptionError(f"{path.name!r} has no {lack}: pass label_column, one of {short(', '.join(schema.names), 400)}")


def _class_names(schema: pa.Schema, label: str) -> tuple[str, ...] | None:
    """Class names from ClassLabel of Hugging Face, if the schema has them."""
    try:
        names = json.loads((schema.metadata or {})[_FEATURES])["info"]["features"][label]["names"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    return tuple(map(str, names)) if isinstance(names, list) else None


def webdataset(source: ShardOptions) -> Source:
    """Load images (b, channels, h, w) from members with the same name: NAME.jpg (or another image) with NAME.cls (a number or
    a name) or NAME.json (with the label under the key `label_column`).

    A folder contributes all its files, or with `split` those whose names begin with it.
    """
    paths = shards(source, ".tar")
    members = {name: (part, text) for path in paths for name, part, text in _members(path, source.label_column)}
    if not members:
        raise DataError(f"{source.path!r} holds no images: expected members such as 0001.jpg and 0001.cls")
    labels = encode([label for _, label in members.values()], source.classes)
    return _chosen(source, {name: part for name, (part, _) in members.items()}, labels)


def _members(path: Path, wanted: str | None) -> Iterator[tuple[str, Part, str]]:
    """The id, the image and the label of each sample of a tar file, in order; only the labels are read."""
    images, labels = dict[str, Part](), dict[str, str]()
    try:
        with tarfile.open(path, "r:") as archive:
            for info in archive:
                if not info.isreg() or info.issparse():
                    continue
                parent, _, last = info.name.rpartition("/")  # a name ends at the first dot after the last slash
                name, _, ending = last.partition(".")
                stem, ending = str(PurePosixPath(parent, name)), ending.lower()
                if f".{ending.rpartition('.')[2]}" in IMAGES:
                    images.setdefault(stem, Part(path, partial(_opened, path, info.offset_data, info.size)))
                elif ending in ("cls", "json") and info.size <= MOST_LABEL and (file := archive.extractfile(info)):
                    label = _label(ending, file.read(), wanted)
                    labels |= {} if label is None else {stem: label}
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        raise DataError(f"cannot read {str(path)!r} as a tar file ({str(error) or type(error).__name__})") from error
    if missing := [name for name in images if name not in labels]:
        count = f"{len(missing)} of {len(images)} images in {path.name!r}, first {missing[0]!r}"
        raise DataError(f"{count}, have no label: expected a .cls or .json member of the same name")
    return ((f"{path.stem}:{name}", image, labels[name]) for name, image in images.items())


def _opened(path: Path, at: int, size: int) -> IO[bytes]:
    with path.open("rb") as file:
        file.seek(at)
        return io.BytesIO(file.read(size))


def _label(ending: str, content: bytes, wanted: str | None) -> str | None:
    try:
        if ending == "cls":
            return content.decode().strip()
        values = json.loads(content)
        names: Sequence[str] = LABEL_NAMES if wanted is None else (wanted,)
        label = next((values[name] for name in names if name in values), None) if isinstance(values, dict) else None
        return None if isinstance(label, dict | list | None) else str(label)
    except (UnicodeDecodeError, ValueError, RecursionError):
        return None
