"""Load folders of sounds, with a table of labels or one folder per class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlab.data.fields import Labelled, Rate, Window, check_room
from rlab.data.labels import labels_of
from rlab.data.source import Source, Unreadable, decoded, first_loss, readable
from rlab.data.wfdb import ratio_of, resample
from rlab.errors import DataError, MissingExtra, optional
from rlab.storage.outside import regular

SOUNDS = (".wav", ".flac", ".ogg", ".aiff", ".aif", ".au")
BOUNDS = (-1.0, 1.0)  # of a sound, by the convention of its files
MOST_RATE = 768_000  # samples per second


class AudioOptions(Labelled):
    rate: Rate = None
    window: Window = None


def audio(source: AudioOptions) -> Source:
    """Load sounds (b, 1, t) in [-1, 1], the mean of their channels.

    `rate` resamples them (default: the rate that all files share). `window` is the length in seconds (default: that of the
    longest file); longer sounds are cut, shorter ones end in silence.
    """
    names = source.place.files(SOUNDS, "sounds")
    labels, classes = labels_of(source, names)
    rows = {names[row]: row for row in source.take.rows(labels)}
    headers, losses = readable(read_header, {name: source.location / name for name in rows})
    if not headers:
        raise DataError(f"no sound in {source.path!r} can be read{first_loss(losses)}")
    rates = sorted({header.samplerate for header in headers.values()})
    if source.rate is None and len(rates) > 1:
        raise DataError(f"expected sounds of one rate, got {rates[0]} and {rates[-1]} Hz: pass rate, to resample them")
    rate = source.rate or float(rates[0])
    seconds = source.window or max(header.frames / header.samplerate for header in headers.values())
    length = max(1, round(seconds * rate))

    def read(name: str) -> NDArray[np.float32]:
        return read_sound(source.location / name, headers[name], rate, length)

    facts = source.facts(classes) | {"bounds": BOUNDS, "rate": rate, "left_out": tuple(losses)}
    files = [(source.location / name,) for name in headers]
    y = labels[[rows[name] for name in headers]]
    return decoded(read, {name: name for name in headers}, y, files, (1, length), **facts)


def read_header(file: Path) -> Any:
    """What soundfile knows of a file without reading its values."""
    regular(file)
    info = _soundfile().info(str(file))
    if not info.frames or not 0 < info.samplerate <= MOST_RATE:
        raise Unreadable("holds no sound")
    return info


def read_sound(file: Path, header: Any, rate: float, length: int) -> NDArray[np.float32]:
    """Values (1, length) at `rate`."""
    needed = min(header.frames, int(np.ceil(length * header.samplerate / rate)))
    check_room(2, (header.channels, needed))
    values, _ = _soundfile().read(str(file), frames=needed, dtype="float32", always_2d=True)
    sound = resample(values.mean(1)[None], ratio_of(header.samplerate, rate))[0, :length]
    if not np.isfinite(sound).all():
        raise Unreadable("holds NaN or infinite values")
    padded = np.zeros((1, length), np.float32)
    padded[0, : len(sound)] = np.clip(sound, *BOUNDS)
    return padded


def _soundfile() -> Any:
    return optional("soundfile", MissingExtra("soundfile", "audio"))
