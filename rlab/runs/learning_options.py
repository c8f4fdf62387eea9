"""Options of an attack that choose its students: those of an earlier learning, or new ones."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import Field, InstanceOf, field_serializer, field_validator, model_validator

from rlab.learning.simulator import Simulator, read_simulator, simulator_path
from rlab.runs.palette_options import parse_numbers
from rlab.storage.config import Options

BOUNDARIES = (256, 1024, 4096)  # samples after which students are trained again, if the user names none
_FORMS = "stages, or stages:256,1024; to learn before the attack, run `rlab learn` and pass its folder as simulator"


def parse_stages(text: str) -> tuple[int, ...]:
    """'stages:256,1024' -> numbers of samples, after which students learn from all answers of the run so far."""
    how, _, rest = text.partition(":")
    if how != "stages":
        raise ValueError(f"expected {_FORMS}")
    edges: tuple[int, ...] = parse_numbers(rest, "numbers of samples like stages:256,1024") if rest else BOUNDARIES
    if any(later <= edge for edge, later in pairwise((0, *edges))):
        raise ValueError("expected growing numbers of samples from 1 up, like stages:256,1024")
    return edges


class LearningOptions(Options):
    """Where the students of an attack come from."""

    removed: ClassVar[Mapping[str, str]] = {"stages": "use --learn stages:256,1024, or learn='stages:256,1024'"}

    simulator: str | InstanceOf[Simulator] | None = Field(
        None,
        description="folder or file of `rlab learn`: students of the model, which are used like surrogates and cost no queries",
    )
    learn: str | None = Field(
        None,
        description="stages or stages:256,1024: train students of the model on the run's own answers, after these numbers of "
        "samples (default: none)",
    )

    @field_validator("simulator")
    @classmethod
    def _file(cls, value: str | Simulator | None) -> str | Simulator | None:
        """Accept the folder that holds the file."""
        return str(simulator_path(Path(value))) if isinstance(value, str) else value

    @field_validator("learn", mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        if value is not None:
            parse_stages(str(value))
        return value

    @model_validator(mode="after")
    def _one_simulator(self) -> Self:
        if self.simulator is not None and self.learn is not None:
            raise ValueError("'simulator' names students that exist, and 'learn' makes new ones: leave out one")
        return self

    @field_serializer("simulator", when_used="json")
    def _in_memory(self, simulator: str | Simulator | None) -> str | None:
        return f"in memory, {simulator.digest}" if isinstance(simulator, Simulator) else simulator

    @property
    def stages(self) -> tuple[int, ...]:
        """The numbers of samples after which students learn; none if the run does not learn."""
        return () if self.learn is None else parse_stages(self.learn)

    def read_simulator(self) -> Simulator | None:
        """Return the simulator, if these options have one."""
        return read_simulator(Path(self.simulator)) if isinstance(self.simulator, str) else self.simulator
