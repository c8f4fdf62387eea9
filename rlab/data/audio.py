"""Load folders of sounds, with a table of labels or one folder per class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlab.data.fields import DataFields, check_room
from rlab.data.files import files_below
from rlab.data.labels import labels_of
from rlab.data.source import Source, Unreadable, own_files, readable, reader, reading, reads
from rlab.data.wfdb_read import ratio_of, resample
from rlab.errors import DataError, MissingExtra, optional
from rlab.storage.outside import regular

SOUNDS = (".wav", ".flac", ".ogg", ".aiff", ".aif", ".au")
BOUNDS = (-1.0, 1.0)  # of a sound, by the convention of its files
MOST_RATE = 768_000  # samples per second
Floats = NDArray[np.float32]


@reads("target", "labels", "label_column", "classes", "rate", "window")
def audio(source: DataFields) -> Source:
    """Load sounds (b, 1, t) in [-1, 1], the mean of their channels.

    `rate` resamples them (default: the rate that all files share). `window` is the length in seconds (default: that of the
    longest file); longer sounds are cut, shorter ones end in silence.
    """
    names = files_below(source.location, SOUNDS, "sounds")
    labels, classes = labels_of(source, names)
    rows = {names[row]: row for row in source.take.rows(labels)}
    headers, losses = readable(read_header, {name: source.location / name for name in rows})
    if not headers:
        raise DataError(f"no sound in {source.path!r} can be read, first {losses[0][0]!r}, which {losses[0][1]}")
    rates = sorted({header.samplerate for header in headers.values()})
    if source.rate is None and len(rates) > 1:
        raise DataError(f"expected sounds of one rate, got {rates[0]} and {rates[-1]} Hz: pass rate, to resample them")
    rate = source.rate or float(rates[0])
    seconds = source.window or max(header.frames / header.samplerate for header in headers.values())
    length = max(1, round(seconds * rate))
    ids = tuple(headers)
    files = tuple(source.location / name for name in ids)
    items = list(zip(files, headers.values(), strict=True))
    read = reader(lambda item: read_sound(*item, rate, length), items, ids, BOUNDS)
    facts = source.facts(classes) | {"bounds": BOUNDS, "rate": rate, "left_out": tuple(losses)}
    return Source(
        read, (1, length), labels[[rows[name] for name in ids]], ids, files, parts=own_files(len(ids)), **facts
    )


def read_header(file: Path) -> Any:
    """What soundfile knows of a file without reading its values."""
    regular(file)
    info = _soundfile().info(str(file))
    if not info.frames or not 0 < info.samplerate <= MOST_RATE:
        raise Unreadable("holds no sound")
    return info


def read_sound(file: Path, header: Any, rate: float, length: int) -> Floats:
    """Values (1, length) at `rate`."""
    needed = min(header.frames, int(np.ceil(length * header.samplerate / rate)))
    check_room(2, (header.channels, needed))
    with reading():
        values, _ = _soundfile().read(str(file), frames=needed, dtype="float32", always_2d=True)
    sound = resample(values.mean(1)[None], ratio_of(header.samplerate, rate))[0, :length]
    if not np.isfinite(sound).all():
        raise Unreadable("holds NaN or infinite values")
    padded = np.zeros((1, length), np.float32)
    padded[0, : len(sound)] = np.clip(sound, *BOUNDS)
    return padded


def _soundfile() -> Any:
    return optional("soundfile", MissingExtra("soundfile", "audio"))
