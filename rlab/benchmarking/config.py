"""The options of a benchmark: an attack, the models to attack, and a ladder of severities."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from rlab.benchmarking.formats import FormatName, usual_format
from rlab.data.batch import Samples
from rlab.data.load import DEMO, FILES, DataOptions
from rlab.errors import OptionError
from rlab.redact import split_address
from rlab.runs.options import AttackOptions
from rlab.runs.sharing import WorkerOptions
from rlab.storage.names import exact, file_name
from rlab.victims.options import ModelOptions

LadderKind = Literal["times", "l2", "severity"]
SetKind = Literal["each", "free"]
FLIP, ORIGINAL = "flip", "original"
ORIGINALS = "originals"  # folder
SEVERITIES = (1.0, 2.0, 3.0, 4.0, 5.0)
_PREFIX: dict[LadderKind, str] = {"times": "x", "l2": "l2-", "severity": "s"}
_FORM = "a ladder such as times:1.25,1.5,2 (multiples of the flip's L2), l2:1,2,4, severity:1..5 or flip"


@dataclass(frozen=True)
class LadderLevel:
    """One level; `target` is the multiple or the L2 to reach, None for the flip."""

    name: str
    kind: str
    target: float | None = None


@dataclass(frozen=True)
class Ladder:
    """Values from mild to severe: multiples of the flip's L2, absolute L2, or severities."""

    kind: LadderKind = "times"
    values: tuple[float, ...] = (1.25, 1.5, 2.0)
    distances: tuple[float, ...] = ()  # L2 of each severity, once it is known

    def __post_init__(self) -> None:
        if not all(math.isfinite(v) for v in self.values) or not all(a < b for a, b in pairwise(self.values)):
            rise = "expected the ladder's values to rise from level to level"
            raise OptionError(f"{rise}, got {str(self)!r}: put the mildest first")
        if self.kind == "severity" and not set(self.values) <= set(SEVERITIES):
            raise OptionError(f"expected severities from 1 to 5, such as severity:1..5, got {str(self)!r}")
        mildest = min(self.values, default=1.0)
        if mildest < 1 if self.kind == "times" else mildest <= 0:
            least = "of at least 1" if self.kind == "times" else "above 0"
            raise OptionError(f"expected values {least} in {str(self)!r}, got {mildest:g}")

    def __str__(self) -> str:
        return f"{self.kind}:{','.join(map(exact, self.values))}" if self.values else FLIP

    @property
    def levels(self) -> tuple[LadderLevel, ...]:
        """All levels but the flip; times:1 is the flip itself."""
        pairs = zip(self.values, self.distances or self.values, strict=True)
        levels = (LadderLevel(f"{_PREFIX[self.kind]}{exact(v)}", self.kind, target) for v, target in pairs)
        return tuple(level for level in levels if level.name != "x1")

    def measured(self, reach: float) -> Ladder:
        """With the L2 of each severity: severity s is s/6 of the palette's reach."""
        return replace(self, distances=tuple(v / 6 * reach for v in self.values)) if self.kind == "severity" else self

    @property
    def absolute(self) -> bool:
        """Whether the levels are distances that are equal for every sample."""
        return self.kind in ("l2", "severity") and bool(self.values)

    @property
    def names(self) -> tuple[str, ...]:
        return (FLIP, *(level.name for level in self.levels))


def parse_ladder(text: str) -> Ladder:
    """Parse a ladder such as 'times:1.25,1.5,2', or 'flip' for no further level; the inverse of `str(ladder)`."""
    kind, _, values = text.partition(":")
    if text == FLIP:
        return Ladder("times", ())
    if kind not in get_args(LadderKind) or not values:
        raise OptionError(f"expected {_FORM}, got {text!r}")
    words = values.split(",")
    if kind == "severity" and len(ends := values.split("..")) == 2 and all(end.strip().isdigit() for end in ends):
        words = list(map(str, range(int(ends[0]), min(int(ends[1]), 6) + 1)))
    try:
        severities = tuple(map(float, words))
    except ValueError:
        raise OptionError(f"expected {_FORM}, got {text!r}") from None
    return Ladder(kind, severities)  # type: ignore[arg-type]  # checked above


class BenchmarkOptions(WorkerOptions, AttackOptions):
    """The options of `rlab benchmark make`; None means a default for the kind of data, `model` is short for one of `models`."""

    models: dict[str, ModelOptions] = Field(default_factory=dict, description="models to attack, by their names")
    data: DataOptions | None = Field(None, description="data to make the benchmark from")
    ladder: str = Field(str(Ladder()), description="levels: times:1.25,1.5,2, l2:1,2,4, severity:1..5 or flip")
    sets: SetKind = Field("each", description="each (one set per model) or free (no model) (default: each)")
    steps: int = Field(40, ge=1, description="maximum queries per sample and level beyond the flip")
    lead: float = Field(0.05, ge=0, description="log-probability by which the wrong class must lead")
    reach: float | None = Field(
        None, gt=0, description="largest L2 on the distance axis (default: the palette's reach)"
    )
    format: FormatName | None = Field(None, description="file format: png, npz or mp4 (default: by the kind of data)")

    @model_validator(mode="before")
    @classmethod
    def _one_model(cls, values: Any) -> Any:
        if not isinstance(values, Mapping) or "model" not in values:
            return values
        single, others = values["model"], values.get("models") or {}
        if not isinstance(others, Mapping):
            raise ValueError("expected 'models:' to map names to models")
        spec = single.get("name", "") if isinstance(single, Mapping) else getattr(single, "name", single)
        shared = {key: value for key, value in values.items() if key != "model"}
        return shared | {"models": {folder_name(str(spec)): single, **others}}

    @field_validator("ladder", mode="before")
    @classmethod
    def _ladder(cls, value: Any) -> Any:
        return str(parse_ladder(str(value)))

    def filled(self, batch: Samples) -> tuple[Self, dict[str, Any]]:
        """The options with all defaults for these data, and the defaults alone."""
        whole, defaulted = super().filled(batch)
        if whole.format is None:
            path = "" if self.data is None else self.data.path
            from_files = bool(path) and not path.startswith(DEMO) and Path(path).suffix.lower() not in FILES
            defaulted |= {"format": usual_format(batch, from_files)}
        return whole.model_copy(update=defaulted), defaulted


def folder_name(spec: str, taken: Collection[str] = ()) -> str:
    """'demo:digits' -> 'demo-digits', the path of a file -> its name; a number makes it unique."""
    if spec.startswith(("http://", "https://")):
        return file_name(split_address(spec)[2], taken)
    return file_name(Path(spec).name if Path(spec).exists() else spec, taken)
