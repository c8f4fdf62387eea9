"""How an attack comes by students of its model: those of an earlier learning, of queries spent first, or of its own answers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, InstanceOf, field_serializer, field_validator, model_validator

from rlab.errors import OptionError
from rlab.learning.simulator import Simulator, read_simulator, simulator_path
from rlab.runs.palette_options import parse_numbers
from rlab.storage.config import Accepts, Options

FEWEST_QUERIES = 32  # to learn from


class LearningOptions(Options):
    """Where the students of an attack come from."""

    simulator: str | InstanceOf[Simulator] | None = Field(
        None,
        description="folder or file of `rlab learn`: students of the model, which are used like surrogates and cost no queries",
    )
    learn: int | Literal["off"] | None = Field(
        None,
        description="queries to spend on learning a simulator of the model before the attack, or off (default: none; long runs "
        "on a GPU with few queries per sample learn from their own answers)",
    )
    stages: Annotated[tuple[int, ...] | None, Accepts(int | str | Sequence[int] | None)] = Field(
        None,
        description="learn from the run's own answers, after the clean queries and after these numbers of samples, e.g. 256,1024 "
        "(default: 256,1024,4096 in long runs on a GPU with few queries per sample)",
    )

    @field_validator("simulator")
    @classmethod
    def _file(cls, value: str | Simulator | None) -> str | Simulator | None:
        """Accept the folder that holds the file."""
        return str(simulator_path(Path(value))) if isinstance(value, str) else value

    @field_validator("learn")
    @classmethod
    def _count(cls, value: int | str | None) -> int | str | None:
        if isinstance(value, int) and value < FEWEST_QUERIES:
            raise ValueError(f"expected off or at least {FEWEST_QUERIES} queries")
        return value

    @field_validator("stages", mode="before")
    @classmethod
    def _boundaries(cls, value: Any) -> Any:
        """Accept 256, '256,1024' or a list of growing numbers."""
        numbers = parse_numbers(value, "numbers of samples like 256,1024")
        stages = (numbers,) if isinstance(numbers, int) else numbers
        listed = isinstance(stages, list | tuple) and all(isinstance(edge, int) for edge in stages)
        if listed and any(later <= edge for edge, later in pairwise((0, *stages))):
            raise ValueError("expected growing numbers of samples from 1 up")
        return stages

    @model_validator(mode="after")
    def _one_simulator(self) -> Self:
        if self.simulator is not None and isinstance(self.learn, int):
            raise ValueError("'simulator' names students that exist, and 'learn' makes new ones: leave out one")
        if self.stages is not None and (self.simulator is not None or self.learn is not None):
            other = "simulator" if self.simulator is not None else "learn"
            raise ValueError(f"'stages' makes students of the run's own answers: leave out {other!r}")
        return self

    @field_serializer("simulator", when_used="json")
    def _in_memory(self, simulator: str | Simulator | None) -> str | None:
        return f"in memory, {simulator.digest}" if isinstance(simulator, Simulator) else simulator

    def read_simulator(self) -> Simulator | None:
        """Return the simulator, if these options have one."""
        if isinstance(self.learn, int) and self.simulator is None:
            raise OptionError("learn is only for `rlab attack`: run `rlab learn`, and pass its folder as simulator")
        return read_simulator(Path(self.simulator)) if isinstance(self.simulator, str) else self.simulator

    def trusted(self, simulator: Simulator | None) -> Simulator | None:
        """Return the simulator if its students agree with the model often enough; stages have judged their own."""
        return simulator if simulator is None or self.stages is not None or not simulator.weak else None
