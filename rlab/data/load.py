"""Load any kind of data: recognise what a path holds and call its loader."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, Self, get_type_hints, overload

from rlab.data.annotated.loaders import BoxOptions, MapOptions, boxes, has_boxes, has_maps, maps
from rlab.data.arrays import ArrayOptions, CsvOptions, arrays, csv_signals
from rlab.data.audio import SOUNDS, AudioOptions, audio
from rlab.data.batch import Batch, Kind, Samples
from rlab.data.clips import VIDEOS, ClipOptions, video_folder
from rlab.data.embedded import DEMO as DEMO
from rlab.data.embedded import DemoOptions, demo
from rlab.data.fields import Selection
from rlab.data.files import Place
from rlab.data.images import CIFAR10C, IMAGES, ImageOptions, LevelOptions, cifar10c, image_folder
from rlab.data.memory import READ, InMemory, in_memory
from rlab.data.physionet import CincOptions, PtbXlOptions, cinc2017, cinc2020, is_cinc2017, is_cinc2020, is_ptbxl, ptbxl
from rlab.data.shards import ShardOptions, parquet, webdataset
from rlab.data.source import Source, read_all
from rlab.data.volumes import VOLUMES, VolumeOptions, volumes
from rlab.data.wfdb_records import WfdbOptions, wfdb_records
from rlab.errors import DataError, OptionError
from rlab.progress import showing
from rlab.storage.config import check_keywords
from rlab.storage.outside import regular, short

HELD = 2**26  # bytes; larger data are read in chunks unless the options say otherwise
PICKLED = (".pkl", ".pickle", ".pt", ".pth", ".joblib")
PICKLED_CIFAR = ("test_batch", *(f"data_batch_{i}" for i in range(1, 6)))  # of the Python version of CIFAR-10


class DataOptions(
    ImageOptions, BoxOptions, MapOptions, ClipOptions, VolumeOptions, AudioOptions, ArrayOptions, CsvOptions, WfdbOptions,
    PtbXlOptions, CincOptions, ShardOptions, DemoOptions, LevelOptions,
):  # fmt: skip
    """A source of samples that can be loaded, with the options of every loader; a plain string is its path."""

    def load(self) -> Batch:
        """Load all samples."""
        if self.stream:
            raise OptionError("this needs all samples in memory: remove stream, which works only in attacks")
        with _readable(self.path):
            return read_all(self._loader()(self))

    def open(self) -> Samples:
        """Load the samples, or return a source that reads chunks, if `stream` is set or the data are large."""
        with _readable(self.path):
            own = self.model_dump(mode="json", exclude={*Selection.model_fields} - {"target"})
            found = replace(self._loader()(self), options=json.dumps(own))
            return found if self.stream or (self.stream is None and found.bytes > HELD) else read_all(found)

    def suited(self, several: bool) -> Self:
        """These options for a model with several labels per sample, or one, where the data can be read either way."""
        loader = self._loader()
        choice = several or loader is not arrays  # arrays with several labels keep them: the goal refuses these
        open_question = self.multilabel is None and "multilabel" in options_of(loader).model_fields and choice
        return self.model_copy(update={"multilabel": several}) if open_question else self

    def _loader(self) -> Loader:
        loader = find_loader(self)
        own = options_of(loader)
        foreign = [name for name, value in self if value is not None and name not in own.model_fields]
        if self.target not in (None, *own.holds):
            foreign.append("target")
        if foreign:
            options = ", ".join(own.model_fields.keys() - Selection.model_fields.keys())
            raise OptionError(f"the option {foreign[0]!r} does not apply to {self.path!r}: its options are {options}")
        return loader


PICTURES = (*IMAGES, *VIDEOS)
Loader = Callable[[DataOptions], Source]
FILES: dict[str, Loader] = {
    **{".npz": arrays, ".npy": arrays, ".parquet": parquet, ".tar": webdataset},
    **dict.fromkeys((".csv", ".tsv", ".txt"), csv_signals),
    **dict.fromkeys((".hea", ".dat"), wfdb_records),
}
# What a folder holds; the first row that applies counts. Kinds that a user can ask for: None if the user does not say.
FOLDERS: tuple[tuple[Callable[[Place], bool], tuple[Kind | None, ...], Loader], ...] = (
    (is_ptbxl, (None, "signal"), ptbxl),
    (is_cinc2017, (None, "signal"), cinc2017),
    (lambda at: at.holds((".parquet",)) and not at.holds(IMAGES), (None, "image"), parquet),
    (lambda at: at.holds((".tar",)) and not at.holds(IMAGES), (None, "image"), webdataset),
    (is_cinc2020, (None, "signal"), cinc2020),
    (lambda at: at.holds(VOLUMES) and not at.holds(PICTURES), (None, "image", "video"), volumes),
    (lambda at: at.holds(SOUNDS) and not at.holds((".hea", *PICTURES)), (None,), audio),
    (lambda at: at.holds(SOUNDS) and not at.holds((".hea",)), ("signal",), audio),
)
BY_KIND: dict[Kind, tuple[tuple[str, ...], Loader]] = {
    "image": (IMAGES, image_folder),
    "video": (VIDEOS, video_folder),
    "signal": ((".hea",), wfdb_records),
}


def options_of(loader: Loader) -> type[Selection]:
    """The options that a loader reads: the class of its argument."""
    kind: type[Selection] = get_type_hints(loader)["source"]
    return kind


@contextmanager
def _readable(path: str) -> Iterator[None]:
    """Turn failures of the disk or the memory into `DataError`."""
    try:
        yield
    except (OSError, MemoryError) as error:
        raise DataError(f"cannot read {short(path)}: {str(error) or type(error).__name__}") from error


@overload
def load(path: str | os.PathLike[str], *, stream: Literal[True], **options: Any) -> Source: ...


@overload
def load(path: str | os.PathLike[str] | InMemory, **options: Any) -> Batch: ...


def load(
    path: str | os.PathLike[str] | InMemory, *, stream: bool | None = None, progress: bool = True, **options: Any
) -> Samples:
    """Load samples from a file, a folder or `demo:NAME`; the options are the fields of `DataOptions`.

    Arrays (x, y), or a Dataset or DataLoader of such pairs, take those of the options that apply: bounds, kind, classes,
    multilabel, rate, limit, order, shuffle and seed. With `stream`, return a `Source`, which reads a batch with `source[rows]`.
    If reading takes long, a bar shows the progress, unless you pass progress=False.
    """
    if not isinstance(path, str | os.PathLike):
        declared = check_keywords(load, DataOptions, {"path": "memory", **options})
        if foreign := [name for name in options if name not in READ] + (["stream"] if stream else []):
            raise OptionError(f"the option {foreign[0]!r} does not apply to data in memory: expected {', '.join(READ)}")
        return in_memory(path, declared)
    declared = check_keywords(load, DataOptions, {"path": str(path), "stream": stream or None, **options})
    with showing(progress):
        return declared.open() if stream else declared.load()


def find_loader(source: DataOptions) -> Loader:
    """The loader for the data at `source.path`."""
    path, place = source.path, source.place
    for prefix, loader in ((DEMO, demo), (CIFAR10C, cifar10c)):
        if path.startswith(prefix):
            return loader
    file, ending = place.path, place.path.suffix.lower()
    if ending in PICKLED or file.name in PICKLED_CIFAR or any((file / name).is_file() for name in PICKLED_CIFAR):
        raise DataError(f"{path!r} is a pickle, which can run any code when loaded: save it as .npz with x and y")
    if ending not in (".npz", ".npy") and (by_target := _by_target(source)):
        return by_target
    if file.is_dir():
        return _folder_loader(place, source.kind)
    if file.with_name(file.name + ".hea").is_file():
        return wfdb_records
    regular(file, "file or folder")
    if ending not in FILES:
        raise DataError(f"cannot tell what {path!r} is: expected a folder or a file ending in {', '.join(FILES)}")
    return FILES[ending]


def _by_target(source: DataOptions) -> Loader | None:
    """The loader of boxes or maps, if the options ask for it, or the folder holds annotations and no labels of another kind."""
    table, asked = source.labels or "", source.target
    if asked == "map" or (asked is None and (source.masks is not None or source.trimap)):
        return maps
    if asked == "boxes" or (asked is None and table.endswith(".json")):
        return boxes
    if asked is not None or table or (source.location / "labels.csv").is_file():
        return None
    return boxes if has_boxes(source.place) else maps if has_maps(source.location) else None


def _folder_loader(place: Place, kind: Kind | None) -> Loader:
    """The loader for the contents of the folder."""
    for holds, kinds, loader in FOLDERS:
        if kind in kinds and holds(place):
            return loader
    there = [name for name, (usual, _) in BY_KIND.items() if place.holds(usual)]
    if kind is not None and kind not in there:
        raise DataError(f"the folder {str(place.path)!r} holds no {kind} files: expected {', '.join(BY_KIND[kind][0])}")
    if not there:
        kinds_read = "images, clips, sounds, volumes or WFDB records"
        raise DataError(f"the folder {str(place.path)!r} holds no {kinds_read}: check the path")
    if kind is None and len(there) > 1:
        advice = f"pass kind, one of {', '.join(there)}"
        raise DataError(f"the folder {str(place.path)!r} holds {' and '.join(there)} files: {advice}")
    return BY_KIND[kind or there[0]][1]
