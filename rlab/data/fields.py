"""Options of a data source, in Python, in files and on the command line, and the choice of samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt, field_validator, model_validator

from rlab.data.kinds import Kind
from rlab.data.take import Order, Take
from rlab.errors import DataError
from rlab.predictions.kinds import Prediction
from rlab.storage.config import Bounds, Options


def check_room(count: int, shape: Sequence[int]) -> None:
    """Raise an error if float32 samples (count, *shape) exceed the free memory of this machine."""
    need, free = 4 * count * math.prod(shape), free_bytes()
    if free is not None and need > free:
        memory = f"need {need / 1e9:.1f} GB of memory, but {free / 1e9:.1f} GB are free"
        raise DataError(f"{count} samples of shape {tuple(shape)} {memory}: pass a limit or a smaller size")


def free_bytes() -> int | None:
    """Free memory in bytes, if the system reports it."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return None


Size = int | tuple[int, int]
Channels = Literal[1, 3]
Sampling = Literal["uniform", "dense"]
Scaling = Literal["record", "window"]
Resizing = Literal["crop", "stretch", "pad"]
Axes = Literal["channels_first", "channels_last"]
Objects = Literal["each", "largest", "all"]
Text = Annotated[str, BeforeValidator(str)]  # YAML reads the record 100 as a number
OneOrMore = BeforeValidator(lambda given: str(given).split(",") if isinstance(given, str | int) else given)
UNIT = (0.0, 1.0)
MOST_FRAMES, MOST_SIDE = 10_000, 16_384  # limits on the frames of a clip and the side of an image in pixels


class DataFields(Options):
    """A source of samples. None stands for the default of the loader; a loader refuses options it does not have."""

    path: str = Field(
        description="file, folder, WFDB record, demo:digits, demo:ecg, demo:clips or cifar10c:FOLDER/fog@3"
    )
    kind: Kind | None = Field(None, description="kind of data, if a folder holds several or an array is ambiguous")
    target: Prediction | None = Field(
        None,
        description="what to predict: classes, boxes, map (a class per pixel) or numbers (arrays: default classes)",
    )
    labels: str | None = Field(
        None, description="file with a name and label per line; for arrays and signals: one label per line"
    )
    label_column: str | None = Field(None, description="column name; for signals also '0' (first) or '-1' (last)")
    targets: str | None = Field(None, description="images: column with the class that --goal targeted:data aims at")
    classes: str | tuple[str, ...] | None = Field(
        None, description="class names by index, or a file, one name per line"
    )
    bounds: Bounds | None = Field(None, description="range of values (default: none for signals)")
    limit: PositiveInt | None = Field(None, description="maximum number of samples, spread over the classes")
    order: Order = Field(
        "spread", description="what a limit selects: samples spread over the classes (default), or first"
    )
    shuffle: bool = Field(False, description="shuffle the samples; a limit then selects random ones")
    seed: int = Field(0, ge=0, description="random seed of the selection (default: 0)")
    stream: bool | None = Field(None, description="attacks: read one chunk at a time (default: above 64 MB)")
    split: str | None = Field(None, description="split: train or test, if the source has them; PTB-XL also has val")
    size: Size | None = Field(None, description="images, video: resize to this side or (height, width)")
    resize: Resizing | None = Field(None, description="images: crop the centre (default), stretch, or pad with grey")
    objects: Objects | None = Field(
        None,
        description="boxes: a sample for each object (default), for the largest of each image, or for all together",
    )
    images: str | None = Field(None, description="boxes, maps: folder of the images (default: searched for)")
    masks: str | None = Field(None, description="maps: folder of mask files (default: masks, SegmentationClass, ...)")
    trimap: bool | None = Field(
        None, description="maps: masks mark object 1, background 2 and border 3, as in Oxford Pets"
    )
    channels: Channels | None = Field(None, description="images: 3 for colour, 1 for grey")
    frames: PositiveInt | None = Field(None, le=MOST_FRAMES, description="video: frames (default: 16); volumes: slices")
    slice: int | None = Field(None, ge=0, description="volumes, with kind=image: slice, from 0 (default: the middle)")
    sampling: Sampling | None = Field(None, description="video: sample frames uniformly or densely around the middle")
    fold: PositiveInt | None = Field(None, description="video: number of the official split (default: 1)")
    splits: str | None = Field(None, description="video: folder with the official split lists")
    folds: int | str | None = Field(None, description="PTB-XL: folds, e.g. 9 or 1-8 (folds share no patient)")
    groups: int | str | None = Field(None, description="video: groups of UCF-101, e.g. 4-7")
    layout: Axes | None = Field(
        None, description="arrays: channels_first or channels_last (default: by the shape, if it can be only one)"
    )
    rate: PositiveFloat | None = Field(None, description="signals: rate in Hz; WFDB and sounds are resampled to it")
    unit: str | None = Field(None, max_length=20, description="arrays of signals: unit of the values, e.g. mV")
    scaling: Scaling | None = Field(None, description="WFDB: standardise each lead over the record or the window")
    multilabel: bool | None = Field(
        None,
        description="PTB-XL, CinC 2020, arrays: several labels per sample, or only one (default: by the model)",
    )
    beats: bool | None = Field(None, description="WFDB: cut beats, or consecutive windows")
    window: PositiveFloat | None = Field(None, description="WFDB, sounds: window length in seconds")
    leads: Annotated[tuple[str, ...] | None, OneOrMore] = Field(
        None, description="WFDB: leads to use (default: those that all records share); arrays: names of the channels"
    )
    records: Annotated[tuple[Text, ...] | None, OneOrMore] = Field(
        None, description="WFDB: record names (default: all)"
    )

    @model_validator(mode="before")
    @classmethod
    def _named(cls, values: Any) -> Any:
        return {"path": values} if isinstance(values, str) else values

    @field_validator("bounds")
    @classmethod
    def _rising(cls, bounds: Bounds | None) -> Bounds | None:
        if bounds is not None and not bounds[0] < bounds[1]:
            raise ValueError("expected the lower bound first")
        return bounds

    @property
    def location(self) -> Path:
        return Path(self.path)

    @property
    def take(self) -> Take:
        """The choice of samples."""
        return Take(self.limit, self.shuffle, self.seed, self.order)

    def facts(self, classes: Sequence[str] = ()) -> dict[str, Any]:
        """What these options say of samples with these class names; without `classes` in the options, names give the numbers."""
        numbered = bool(classes) and self.classes is None
        return {"classes": tuple(classes), "numbered": numbered, "take": self.take, "target": self.target or "classes"}
