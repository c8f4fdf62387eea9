"""Video clips on disk, of which a few frames are decoded on demand, with the splits and groups of UCF-101 and HMDB-51."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from rlab.data.eight_bit import finite
from rlab.data.fields import UNIT, Frames, Labelled, Resizing, Size, Sized, Split, check_room
from rlab.data.fitting import fit, sides
from rlab.data.images import to_pixels
from rlab.data.labels import Table, labels_of, look_up, read_table, table_of
from rlab.data.source import Loss, Pixels, Source, Unreadable, decoded
from rlab.data.take import parse_ranges
from rlab.errors import DataError, InputError, MissingExtra, OptionError, optional
from rlab.storage.outside import read_lines

Indices = NDArray[np.int64]
Sampling = Literal["uniform", "dense"]
UNEVEN = 1.5  # the frame rate counts as variable if a gap exceeds the median gap by this factor
MOST_PIXELS = 2**26  # per frame
VIDEOS = (".avi", ".mp4", ".mkv", ".mov", ".webm", ".m4v", ".mpg", ".mpeg")
FOLDERS = ("ucfTrainTestlist", "testTrainMulti_7030_splits")
HMDB_CODES = {"1": "train", "2": "test"}  # 0: the fold does not use the clip


def frame_indices(count: int, frames: int, sampling: Sampling) -> Indices:
    """Choose `frames` of `count` frames, in order.

    uniform: the centres of `frames` equal intervals; a shorter clip repeats frames evenly. dense: consecutive frames
    from the middle; a shorter clip repeats its last frame.
    """
    steps = np.arange(frames)
    if sampling == "uniform":
        return (2 * steps + 1) * count // (2 * frames)
    return np.minimum(max(0, (count - frames) // 2) + steps, count - 1)


def pick(times: Indices, frames: int, sampling: Sampling) -> Indices:
    """Like `frame_indices`, but for a variable frame rate uniform means uniform in time."""
    gaps = np.diff(times)
    if sampling == "dense" or not len(gaps) or gaps.max() <= UNEVEN * np.median(gaps):
        return frame_indices(len(times), frames, sampling)
    length = int(times[-1] - times[0] + np.median(gaps))
    instants = times[0] + frame_indices(length, frames, "uniform")
    return np.searchsorted(times, instants, side="right") - 1


def read_clip(
    path: Path, frames: int, size: Size | None = None, sampling: Sampling = "uniform", resizing: Resizing = "crop"
) -> Pixels:
    """Decode one file into (3, frames, h, w) uint8."""
    times, declared = _timeline(path)
    if declared[0] * declared[1] > MOST_PIXELS:  # a small file can declare frames that exceed the memory
        raise Unreadable(f"has frames of {declared[0]} × {declared[1]} pixels, more than the limit of {MOST_PIXELS:,}")
    check_room(1, (3, frames, *(declared if size is None else sides(size))))
    wanted = pick(times, frames, sampling)
    pictures, seen = _in_turn(path, wanted, size, resizing)
    if not seen:
        raise Unreadable("holds no frames")
    if not set(wanted.tolist()) <= set(pictures):  # the container declares more frames than it holds
        wanted = frame_indices(seen, frames, sampling)
        pictures, _ = _in_turn(path, wanted, size, resizing)
    if len({picture.shape for picture in pictures.values()}) > 1:
        raise Unreadable("its frames change size: pass a size")
    return np.stack([pictures[int(i)] for i in wanted], axis=1)


def _timeline(path: Path) -> tuple[Indices, tuple[int, int]]:
    """The time of each frame in ticks of the container, or else its number, and height and width, without decoding."""
    with opened(path) as container:
        stream = container.streams.video[0]
        size = (stream.codec_context.height, stream.codec_context.width)
        times = [packet.pts for packet in container.demux(stream) if packet.size and not packet.is_discard]
    if not times:
        raise Unreadable("holds no frames")
    if None in times or len(set(times)) < len(times):
        return np.arange(len(times)), size
    return np.sort(np.array(times, dtype=np.int64)), size


def _in_turn(path: Path, wanted: Indices, size: Size | None, resizing: Resizing) -> tuple[dict[int, Pixels], int]:
    """The wanted frames (3, h, w) by index, and the number of frames decoded to reach the last of them."""
    keep, last = set(wanted.tolist()), int(wanted[-1])
    pictures: dict[int, Pixels] = {}
    seen = 0
    with opened(path) as container:
        for frame in container.decode(video=0):
            if seen in keep:
                pictures[seen] = upright(frame, size, resizing)
            seen += 1
            if seen > last:
                break
    return pictures, seen


def upright(frame: Any, size: Size | None, resizing: Resizing) -> Pixels:
    """A PyAV frame as (3, h, w), rotated as its metadata demand; grey frames have three equal channels."""
    image = frame.to_image()
    turned = image.rotate(frame.rotation, expand=True) if frame.rotation % 360 else image
    return to_pixels(fit(turned, size, resizing))


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open a container and turn its errors into `Unreadable`."""
    av = optional("av", MissingExtra("av", "video"))
    try:
        with av.open(str(path)) as container:
            if not container.streams.video:
                raise Unreadable("holds no video stream")
            yield container
    except (Unreadable, InputError):
        raise
    except Exception as error:  # FFmpeg and PyAV raise many kinds of errors on damaged files
        reason = getattr(error, "strerror", None) or error  # without the path, so that equal reasons count together
        raise Unreadable(f"cannot be decoded: {reason}") from error


class ClipOptions(Labelled, Sized):
    frames: Frames = None
    sampling: Sampling | None = Field(None, description="video: sample frames uniformly or densely around the middle")
    split: Split = None
    fold: PositiveInt | None = Field(None, description="video: number of the official split (default: 1)")
    splits: str | None = Field(None, description="video: folder with the official split lists")
    groups: int | str | None = Field(None, description="video: groups of UCF-101, e.g. 4-7")


def read_split(
    folder: Path, split: str, fold: int = 1, splits: str | None = None
) -> tuple[frozenset[str], tuple[str, ...]]:
    """The clips of a split as 'class/name' without suffix, and the class names in order if a list gives them.

    The lists lie in `splits`, or else in the folder of the clips, below it or beside it.
    """
    if split not in ("train", "test"):
        raise OptionError(f"expected split train or test, got {split!r}")
    usual = [folder, *(top / name for top in (folder, folder.parent) for name in FOLDERS)]
    folders = [Path(splits)] if splits else usual
    for lists in folders:
        ucf, hmdb = lists / f"{split}list{fold:02d}.txt", sorted(lists.glob(f"*_test_split{fold}.txt"))
        if ucf.is_file():  # lines 'class/clip.avi', followed by a class number in train lists
            return frozenset(_stem(line.split()[0]) for line in read_lines(ucf)), _class_order(lists / "classInd.txt")
        if hmdb:  # lines 'clip.avi 1' of one class: 1 is train, 2 is test, 0 is unused
            named = {file.name.removesuffix(f"_test_split{fold}.txt"): read_lines(file) for file in hmdb}
            pairs = [(label, *line.rsplit(maxsplit=1)) for label, lines in named.items() for line in lines]
            wanted = [pair for pair in pairs if HMDB_CODES.get(pair[-1]) == split]
            return frozenset(f"{pair[0]}/{PurePosixPath(pair[1]).stem}" for pair in wanted), ()
    expected = f"{split}list{fold:02d}.txt or CLASS_test_split{fold}.txt in {str(folders[0])!r}"
    raise DataError(f"found no lists of split {split} {fold}: expected {expected}, or pass their folder as splits")


def _stem(name: str) -> str:
    """'class/clip.avi' -> 'class/clip'; re-encoded clips have other suffixes."""
    path = PurePosixPath(name)
    return f"{path.parent.name}/{path.stem}"


def _class_order(path: Path) -> tuple[str, ...]:
    """Read lines '1 ApplyEyeMakeup', counted from 1."""
    try:
        pairs = [line.split(maxsplit=1) for line in read_lines(path)] if path.is_file() else []
        return tuple(name for _, name in sorted((int(number), name) for number, name in pairs))
    except ValueError:
        raise DataError(f"expected lines like '1 ApplyEyeMakeup' in {str(path)!r}: correct the file") from None


def keep_groups(source: ClipOptions, names: Sequence[str]) -> list[int]:
    """Rows of the clips in `groups`, by the column group of the table or by names like v_Surfing_g07_c02."""
    wanted, path = parse_ranges(str(source.groups), "groups like 4-7 or 4,6,8-25"), table_of(source)
    if path.is_file() and "group" in Table.read(path).names:
        groups = look_up(read_table(path, "group"), names, path.name)
    else:
        groups = ["".join(re.findall(r"_g(\d+)_c\d+", name)[:1]) for name in names]
    kept = [row for row, group in enumerate(groups) if re.fullmatch("[0-9]{1,6}", group) and int(group) in wanted]
    if not kept:
        expected = "names like v_Surfing_g07_c02, or a column group with integers in the table of labels"
        raise OptionError(f"none of {len(names)} clips is in the groups {source.groups}: expected {expected}")
    return kept


def video_folder(source: ClipOptions) -> Source:
    """Load clips (b, 3, frames, h, w) from one folder per class, or from one folder with a table of labels.

    `split` and `fold` use the UCF-101 or HMDB-51 lists in the folder `splits` (default: in or beside the path); `groups` such as
    '4-7' or '4,6,8-25' keeps the clips of these UCF-101 groups. A clip that cannot be decoded is skipped and listed; a clip
    shorter than `frames` repeats frames (see `frame_indices`). The default size is that of the first clip.
    """
    names, missing = source.place.files(VIDEOS, "clips"), list[Loss]()
    if source.split is not None:
        clips, order = read_split(source.location, source.split, source.fold or 1, source.splits)
        names = [name for name in names if _stem(name) in clips]
        if not names:
            count = f"none of the {len(clips)} clips of split {source.split}"
            raise DataError(f"{count} are in the folder: check its lists")
        missing = [(clip, "is listed but there is no file") for clip in sorted(clips - set(map(_stem, names)))]
        source = source.model_copy(update={"classes": source.classes or order or None})
    y, classes = labels_of(source, names)
    kept = range(len(names)) if source.groups is None else keep_groups(source, names)
    rows = [kept[i] for i in source.take.rows(y[list(kept)])]
    frames, bounds, how = source.frames or 16, source.bounds or UNIT, source.sampling or "uniform"
    folder = source.location
    files = {names[i]: folder / names[i] for i in rows}

    def decode_one(file: Path) -> Pixels:
        return read_clip(file, frames, source.size, how, source.resize or "crop")

    shape = None if source.size is None else (3, frames, *sides(source.size))
    facts = source.facts(classes) | {"bounds": bounds, "eight_bit": finite(bounds), "left_out": tuple(missing)}
    return decoded(decode_one, files, y[rows], [(file,) for file in files.values()], shape, **facts)
