"""One door to all data: looks at what a path is and calls the loader for it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt, model_validator

from rlab.data.arrays import Bounds, npy, npz
from rlab.data.batch import Batch, Kind
from rlab.data.cifar import cifar10, is_cifar, is_pickled_cifar
from rlab.data.cinc2017 import cinc2017, is_cinc2017
from rlab.data.embedded import embedded
from rlab.data.files import endings_below
from rlab.data.images import IMAGES, Channels, Size, image_folder
from rlab.data.ptbxl import is_ptbxl, ptbxl
from rlab.data.signals import csv_signals
from rlab.data.take import Take
from rlab.data.video import VIDEOS, Sampling, video_folder
from rlab.data.wfdb_read import Scaling
from rlab.data.wfdb_records import wfdb_records
from rlab.errors import InputError
from rlab.runs.config import Options, check

Loader = Callable[..., Batch]
DEMO = "demo:"
PICKLED = (".pkl", ".pickle", ".pt", ".pth", ".joblib")
BY_ENDING: dict[str, Loader] = {
    ".npz": npz,
    ".npy": npy,
    ".csv": csv_signals,
    ".tsv": csv_signals,
    ".txt": csv_signals,
    ".bin": cifar10,
    ".hea": wfdb_records,
    ".dat": wfdb_records,
}
BY_KIND: dict[Kind, tuple[tuple[str, ...], Loader]] = {
    "image": (IMAGES, image_folder),
    "video": (VIDEOS, video_folder),
    "signal": ((".hea",), wfdb_records),
}


class DataOptions(Options):
    """A source of samples. What is None is left to the loader; an option that a loader does not have is refused."""

    path: str = Field(description="a file, a folder, a WFDB record, or demo:digits, demo:ecg, demo:clips")
    kind: Kind | None = Field(
        None, description="where a folder holds several kinds, or an array's axes could mean two things"
    )
    labels: str | None = Field(
        None, description="a file: name and label a line, or one label a line in the samples' order"
    )
    label_column: str | None = Field(None, description="a header's name; for signals also '0' (first) or '-1' (last)")
    classes: str | tuple[str, ...] | None = Field(None, description="names by index, or a text file with one a line")
    bounds: Bounds | None = Field(
        None, description="the range the values may take; signals have none unless one is given"
    )
    limit: PositiveInt | None = Field(None, description="at most so many samples")
    shuffle: bool = Field(False, description="draw them at random with the data's seed in place of the first ones")
    seed: int = 0
    split: str | None = Field(None, description="train or test, where the source has them; PTB-XL has val as well")
    size: Size | None = Field(None, description="images, video: the side to resize to, or (height, width)")
    channels: Channels | None = Field(None, description="images: 3 for colour, 1 for grey")
    frames: PositiveInt | None = Field(None, description="video: how many frames of a clip, 16 where not said")
    sampling: Sampling | None = Field(None, description="video: uniform over the clip, or dense from its middle")
    fold: PositiveInt | None = Field(None, description="video: which of the official splits, 1 where not said")
    splits: str | None = Field(None, description="video: the folder of the official splits' lists")
    groups: int | str | None = Field(None, description="video: groups of UCF-101 such as 4-7")
    rate: PositiveFloat | None = Field(None, description="signals: samples a second; WFDB records are resampled to it")
    scaling: Scaling | None = Field(
        None, description="WFDB: mean 0 and deviation 1 of each lead, over record or window"
    )
    multilabel: bool | None = Field(None, description="PTB-XL: several labels a record, or only records that have one")
    beats: bool | None = Field(None, description="WFDB: beats, or windows end to end")
    window: PositiveFloat | None = Field(None, description="WFDB: seconds")
    leads: tuple[str, ...] | None = Field(None, description="WFDB: by name; those all records share where not said")
    records: tuple[Annotated[str, BeforeValidator(str)], ...] | None = Field(
        None, description="WFDB: by name; all otherwise"
    )

    @model_validator(mode="before")
    @classmethod
    def _named(cls, values: Any) -> Any:
        return {"path": values} if isinstance(values, str) else values

    def options(self) -> dict[str, Any]:
        """What was asked for beyond path, kind and which samples to take."""
        common = {"path", "kind", "limit", "shuffle", "seed"}
        return {key: value for key, value in self if value is not None and key not in common}

    def load(self) -> Batch:
        """Reads the samples."""
        loader = find_loader(self.path, self.kind)
        accepted = inspect.signature(loader).parameters
        options = self.options() | ({"kind": self.kind} if self.kind and "kind" in accepted else {})
        foreign = [name for name in options if name not in accepted]
        if foreign:
            rest = ", ".join(name for name in accepted if name not in ("path", "name", "take"))
            raise InputError(f"the option {foreign[0]!r} is not for {self.path!r}: its options are {rest}")
        take = Take(limit=self.limit, shuffle=self.shuffle, seed=self.seed)
        return loader(self.path.removeprefix(DEMO), take=take, **options)


def load(path: str | Path, **options: Any) -> Batch:
    """Samples from a file, a folder or `demo:NAME`; the options are the fields of `DataOptions`."""
    return check(DataOptions, {"path": str(path), **options}, f"the data {str(path)!r}").load()


def find_loader(path: str, kind: Kind | None = None) -> Loader:
    """The loader for what lies at `path`."""
    if path.startswith(DEMO):
        return embedded
    place = Path(path)
    if place.suffix.lower() in PICKLED or is_pickled_cifar(place):
        raise InputError(
            f"{path!r} is a pickle, which could run any code when read: save it as .npz with x and y "
            f"(for CIFAR-10, get the binary version, whose files end in .bin)"
        )
    if place.is_dir():
        return _folder_loader(place, kind)
    if place.with_name(place.name + ".hea").is_file():
        return wfdb_records
    if not place.exists():
        raise InputError(f"there is no file or folder {path!r}: check the path")
    if place.suffix.lower() not in BY_ENDING:
        raise InputError(f"cannot tell what {path!r} is: expected a folder or a file ending in {', '.join(BY_ENDING)}")
    return BY_ENDING[place.suffix.lower()]


def _folder_loader(folder: Path, kind: Kind | None) -> Loader:
    """By what the folder holds: CIFAR-10 batches, images, clips or WFDB records."""
    for known, loader in ((is_cifar, cifar10), (is_ptbxl, ptbxl), (is_cinc2017, cinc2017)):
        if known(folder):
            return loader
    endings = endings_below(folder)
    held = [one for one, (known, _) in BY_KIND.items() if endings & set(known)]
    if kind is not None and kind not in held:
        raise InputError(f"the folder {str(folder)!r} holds no {kind} files: expected {', '.join(BY_KIND[kind][0])}")
    if not held:
        raise InputError(
            f"the folder {str(folder)!r} holds no images, clips, WFDB records or CIFAR-10 batches: check the path"
        )
    if kind is None and len(held) > 1:
        raise InputError(
            f"the folder {str(folder)!r} holds {' and '.join(held)} files: pass kind, one of {', '.join(held)}"
        )
    return BY_KIND[kind or held[0]][1]
