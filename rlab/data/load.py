"""Load any kind of data: recognise what a path holds and call its loader."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self, overload

from rlab.data.annotated.boxes import boxes, has_boxes
from rlab.data.annotated.maps import has_maps, maps
from rlab.data.arrays import npy, npz
from rlab.data.audio import SOUNDS, audio
from rlab.data.batch import Batch, Kind, Samples
from rlab.data.cinc import cinc2020, is_cinc2020
from rlab.data.clips import VIDEOS, video_folder
from rlab.data.csv_signals import csv_signals
from rlab.data.embedded import DEMO as DEMO
from rlab.data.embedded import demo
from rlab.data.fields import DataFields
from rlab.data.files import endings_below
from rlab.data.images import CIFAR10C, IMAGES, cifar10c, image_folder, is_pickled_cifar
from rlab.data.memory import READ, InMemory, in_memory
from rlab.data.numpy_files import HELD as HELD
from rlab.data.physionet import cinc2017, is_cinc2017, is_ptbxl, ptbxl
from rlab.data.shards import parquet, webdataset
from rlab.data.source import ACCEPTED, Loader, Source, read_all
from rlab.data.volumes import DICOM, NIFTI, volumes
from rlab.data.wfdb_records import wfdb_records
from rlab.errors import DataError, OptionError
from rlab.predictions.kinds import Prediction
from rlab.progress import showing
from rlab.storage.config import check_keywords
from rlab.storage.outside import regular, short

_COMMON = ("path", "kind", "limit", "order", "shuffle", "seed", "stream")
PICKLED = (".pkl", ".pickle", ".pt", ".pth", ".joblib")
BY_ENDING: dict[str, Loader] = {
    **{".npz": npz, ".npy": npy, ".parquet": parquet, ".tar": webdataset},
    **dict.fromkeys((".csv", ".tsv", ".txt"), csv_signals),
    **dict.fromkeys((".hea", ".dat"), wfdb_records),
}
BY_KIND: dict[Kind, tuple[tuple[str, ...], Loader]] = {
    "image": (IMAGES, image_folder),
    "video": (VIDEOS, video_folder),
    "signal": ((".hea",), wfdb_records),
}
TARGETS: dict[Loader, Prediction] = {boxes: "boxes", maps: "map"}  # of loaders that know no other


class DataOptions(DataFields):
    """A source of samples that can be loaded; a plain string is its path."""

    def load(self) -> Batch:
        """Load all samples."""
        if self.stream:
            raise OptionError("this needs all samples in memory: remove stream, which works only in attacks")
        with _readable(self.path):
            return read_all(self._loader()(self))

    def open(self) -> Samples:
        """Load the samples, or return a source that reads chunks, if `stream` is set or the data are large."""
        with _readable(self.path):
            found = replace(self._loader()(self), options=json.dumps(self.model_dump(mode="json", exclude={*_COMMON})))
            return found if self.stream or (self.stream is None and found.bytes > HELD) else read_all(found)

    def suited(self, several: bool) -> Self:
        """These options for a model with several labels per sample, or one, where the data can be read either way."""
        loader = self._loader()
        choice = several or loader not in (npz, npy)  # arrays with several labels keep them: the goal refuses these
        open_question = self.multilabel is None and "multilabel" in ACCEPTED[loader] and choice
        return self.model_copy(update={"multilabel": several}) if open_question else self

    def _loader(self) -> Loader:
        loader = find_loader(self)
        accepted = ACCEPTED[loader]
        usual = {"target": TARGETS.get(loader, "classes")}  # what the loader does anyway
        foreign = [
            name for name, value in self if value not in (None, usual.get(name)) and name not in (*_COMMON, *accepted)
        ]
        if foreign:
            options = ", ".join(accepted)
            raise OptionError(f"the option {foreign[0]!r} does not apply to {self.path!r}: its options are {options}")
        return loader


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
    values = {"path": str(path), "stream": stream or None, **options}
    declared = check_keywords(load, DataOptions, values)
    with showing(progress):
        return declared.open() if stream else declared.load()


def find_loader(source: DataFields) -> Loader:
    """The loader for the data at `source.path`."""
    path, kind = source.path, source.kind
    for prefix, loader in ((DEMO, demo), (CIFAR10C, cifar10c)):
        if path.startswith(prefix):
            return loader
    file = Path(path)
    if file.suffix.lower() in PICKLED or is_pickled_cifar(file):
        raise DataError(f"{path!r} is a pickle, which can run any code when loaded: save it as .npz with x and y")
    if by_target := _by_target(source):
        return by_target
    if file.is_dir():
        return _folder_loader(file, kind)
    if file.with_name(file.name + ".hea").is_file():
        return wfdb_records
    regular(file, "file or folder")
    if file.suffix.lower() not in BY_ENDING:
        raise DataError(f"cannot tell what {path!r} is: expected a folder or a file ending in {', '.join(BY_ENDING)}")
    return BY_ENDING[file.suffix.lower()]


def _by_target(source: DataFields) -> Loader | None:
    """The loader of boxes or maps, if the options ask for it, or the folder holds annotations and no labels of another kind."""
    folder, table = source.location, source.labels or ""
    if folder.suffix.lower() in (".npz", ".npy"):
        return None  # arrays hold every kind of target
    if source.target == "map" or (source.target is None and (source.masks is not None or source.trimap)):
        return maps
    if source.target == "boxes" or (source.target is None and table.endswith(".json")):
        return boxes
    if source.target is not None or table or (folder / "labels.csv").is_file():
        return None
    if has_boxes(folder):
        return boxes
    return maps if folder.is_dir() and has_maps(folder) else None


def _folder_loader(folder: Path, kind: Kind | None) -> Loader:
    """The loader for the contents of the folder."""
    for recognised, loader in ((is_ptbxl, ptbxl), (is_cinc2017, cinc2017)):
        if recognised(folder):
            return loader
    endings = endings_below(folder)
    for ending, loader in ((".parquet", parquet), (".tar", webdataset)):
        if ending in endings and not endings & set(IMAGES):
            return loader
    if ".hea" in endings and kind in (None, "signal") and is_cinc2020(folder):
        return cinc2020
    pictures = endings & {*IMAGES, *VIDEOS}
    if endings & {*NIFTI, *DICOM} and kind != "signal" and not pictures:
        return volumes
    if endings & set(SOUNDS) and ".hea" not in endings and (kind == "signal" or (kind is None and not pictures)):
        return audio
    kinds = [name for name, (usual, _) in BY_KIND.items() if endings & set(usual)]
    if kind is not None and kind not in kinds:
        raise DataError(f"the folder {str(folder)!r} holds no {kind} files: expected {', '.join(BY_KIND[kind][0])}")
    if not kinds:
        kinds_read = "images, clips, sounds, volumes or WFDB records"
        raise DataError(f"the folder {str(folder)!r} holds no {kinds_read}: check the path")
    if kind is None and len(kinds) > 1:
        advice = f"pass kind, one of {', '.join(kinds)}"
        raise DataError(f"the folder {str(folder)!r} holds {' and '.join(kinds)} files: {advice}")
    return BY_KIND[kind or kinds[0]][1]
