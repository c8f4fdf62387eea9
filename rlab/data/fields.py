"""Options of data in Python, in files and on the command line: what all loaders read, and what several of them share.

Each loader declares its options as a class of its own, beside it; a loader gets no other options than those of its class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PositiveFloat, PositiveInt, model_validator

from rlab.data.files import Place
from rlab.data.kinds import Kind
from rlab.data.take import Order, Take
from rlab.errors import DataError
from rlab.predictions.kinds import Prediction
from rlab.storage.config import Bounds, Options

UNIT = (0.0, 1.0)
MOST_FRAMES = 10_000  # of a clip


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


def _rising(bounds: Bounds | None) -> Bounds | None:
    if bounds is not None and not bounds[0] < bounds[1]:
        raise ValueError("expected the lower bound first")
    return bounds


Side = Annotated[int, Field(ge=1, le=16_384)]  # pixels
Size = Side | tuple[Side, Side]
Channels = Literal[1, 3]
Resizing = Literal["crop", "stretch", "pad"]
Scaling = Literal["record", "window"]
Text = Annotated[str, BeforeValidator(str)]  # YAML reads the record 100 as a number
OneOrMore = BeforeValidator(lambda given: str(given).split(",") if isinstance(given, str | int) else given)
# Options that loaders of several kinds have
Range = Annotated[
    Bounds | None, AfterValidator(_rising), Field(description="range of values (default: none for signals)")
]
Labels = Annotated[
    str | None,
    Field(description="file with a name and label per line; for arrays and signals: one label per line"),
]
Column = Annotated[str | None, Field(description="column name; for signals also '0' (first) or '-1' (last)")]
Split = Annotated[str | None, Field(description="split: train or test, if the source has them; PTB-XL also has val")]
Several = Annotated[
    bool | None,
    Field(description="PTB-XL, CinC 2020, arrays: several labels per sample, or only one (default: by the model)"),
]
Frames = Annotated[
    PositiveInt | None, Field(le=MOST_FRAMES, description="video: frames (default: 16); volumes: slices")
]
Rate = Annotated[PositiveFloat | None, Field(description="signals: rate in Hz; WFDB and sounds are resampled to it")]
Window = Annotated[PositiveFloat | None, Field(description="WFDB, sounds: window length in seconds")]
Leads = Annotated[
    tuple[str, ...] | None,
    OneOrMore,
    Field(description="WFDB: leads to use (default: those that all records share); arrays: names of the channels"),
]


class Selection(Options):
    """Where samples are, and which of them to read. None stands for the default of the loader."""

    holds: ClassVar[tuple[Prediction, ...]] = ("classes",)  # what may be true of the samples; the first is the default

    path: str = Field(
        description="file, folder, WFDB record, demo:digits, demo:ecg, demo:clips or cifar10c:FOLDER/fog@3"
    )
    kind: Kind | None = Field(None, description="kind of data, if a folder holds several or an array is ambiguous")
    target: Prediction | None = Field(
        None,
        description="what to predict: classes, boxes, map (a class per pixel) or numbers (arrays: default classes)",
    )
    limit: PositiveInt | None = Field(None, description="maximum number of samples, spread over the classes")
    order: Order = Field(
        "spread", description="what a limit selects: samples spread over the classes (default), or first"
    )
    shuffle: bool = Field(False, description="shuffle the samples; a limit then selects random ones")
    seed: int = Field(0, ge=0, description="random seed of the selection (default: 0)")
    stream: bool | None = Field(None, description="attacks: read one chunk at a time (default: above 64 MB)")

    @model_validator(mode="before")
    @classmethod
    def _named(cls, values: Any) -> Any:
        return {"path": values} if isinstance(values, str) else values

    @property
    def location(self) -> Path:
        return Path(self.path)

    @cached_property
    def _listed(self) -> Place:
        return Place(self.location)

    @property
    def place(self) -> Place:
        """What the path holds; a folder is listed once for these options and their copies."""
        return self._listed if self._listed.path == self.location else Place(self.location)

    @property
    def take(self) -> Take:
        """The choice of samples."""
        return Take(self.limit, self.shuffle, self.seed, self.order)


class Named(Selection):
    """Samples whose labels may be names."""

    classes: str | tuple[str, ...] | None = Field(
        None, description="class names by index, or a file, one name per line"
    )

    def facts(self, classes: Sequence[str] = ()) -> dict[str, Any]:
        """What these options say of samples with these class names; without `classes` in the options, names give the numbers."""
        numbered = bool(classes) and self.classes is None
        return {"classes": tuple(classes), "numbered": numbered, "take": self.take, "target": self.target or "classes"}


class Labelled(Named):
    """Samples whose labels are in a table."""

    holds: ClassVar[tuple[Prediction, ...]] = ("classes", "numbers")

    labels: Labels = None
    label_column: Column = None


class Sized(Named):
    """Images, clips and volumes."""

    size: Size | None = Field(None, description="images, video: resize to this side or (height, width)")
    resize: Resizing | None = Field(None, description="images: crop the centre (default), stretch, or pad with grey")
    bounds: Range = None


class Pictures(Sized):
    """Encoded images."""

    channels: Channels | None = Field(None, description="images: 3 for colour, 1 for grey")


class SignalOptions(Named):
    """Arrays and tables, most of them of signals."""

    holds: ClassVar[tuple[Prediction, ...]] = ("classes", "boxes", "map", "numbers")

    labels: Labels = None
    bounds: Range = None
    rate: Rate = None
    unit: str | None = Field(None, max_length=20, description="arrays of signals: unit of the values, e.g. mV")
    leads: Leads = None


class EcgOptions(Named):
    """WFDB records."""

    window: Window = None
    rate: Rate = None
    leads: Leads = None
    records: Annotated[tuple[Text, ...] | None, OneOrMore] = Field(
        None, description="WFDB: record names (default: all)"
    )
    scaling: Scaling | None = Field(None, description="WFDB: standardise each lead over the record or the window")
