"""Options of an attack that choose its students: those of an earlier learning, or new ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, InstanceOf, field_serializer, field_validator, model_validator

from rlab.errors import OptionError
from rlab.learning.simulator import Simulator, read_simulator, simulator_path
from rlab.runs.palette_options import parse_numbers
from rlab.storage.config import Accepts, Options

FEWEST_QUERIES = 32  # to learn from
BOUNDARIES = (256, 1024, 4096)  # samples after which students are trained again, if the user names none
_FORMS = f"a number of queries from {FEWEST_QUERIES} up, from:RUN,RUN, or stages:256,1024"


@dataclass(frozen=True)
class Learning:
    """Where the answers come from that students learn from; one of three."""

    queries: int = 0  # to spend before the attack
    runs: tuple[str, ...] = ()  # folders of earlier attacks
    stages: tuple[int, ...] = ()  # samples of this run after which students learn from all its answers so far

    @classmethod
    def parse(cls, text: str) -> Learning:
        how, _, rest = text.partition(":")
        if how == "stages":
            edges = parse_numbers(rest, "numbers of samples like stages:256,1024") if rest else BOUNDARIES
            if any(later <= edge for edge, later in pairwise((0, *edges))):
                raise ValueError("expected growing numbers of samples from 1 up, like stages:256,1024")
            return cls(stages=edges)
        if how == "from" and rest:
            return cls(runs=tuple(rest.split(",")))
        if text == "off":
            raise ValueError("a run learns only if it is told to: leave out learn='off'")
        if not text.isdecimal() or int(text) < FEWEST_QUERIES:
            raise ValueError(f"expected {_FORMS}")
        return cls(queries=int(text))


class LearningOptions(Options):
    """Where the students of an attack come from."""

    removed: ClassVar[Mapping[str, str]] = {"stages": "use --learn stages:256,1024, or learn='stages:256,1024'"}

    simulator: str | InstanceOf[Simulator] | None = Field(
        None,
        description="folder or file of `rlab learn`: students of the model, which are used like surrogates and cost no queries",
    )
    learn: Annotated[str | None, Accepts(int | str | None)] = Field(
        None,
        description="train students of the model: a number of queries to spend on it before the attack; from:RUN,RUN for the "
        "answers of earlier attacks; stages or stages:256,1024 for the run's own answers, after these numbers of samples "
        "(default: none)",
    )

    @field_validator("simulator")
    @classmethod
    def _file(cls, value: str | Simulator | None) -> str | Simulator | None:
        """Accept the folder that holds the file."""
        return str(simulator_path(Path(value))) if isinstance(value, str) else value

    @field_validator("learn", mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        """Accept a number."""
        text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        if isinstance(text, str):
            Learning.parse(text)
        return text

    @model_validator(mode="after")
    def _one_simulator(self) -> Self:
        if self.simulator is not None and self.learn is not None:
            raise ValueError("'simulator' names students that exist, and 'learn' makes new ones: leave out one")
        return self

    @field_serializer("simulator", when_used="json")
    def _in_memory(self, simulator: str | Simulator | None) -> str | None:
        return f"in memory, {simulator.digest}" if isinstance(simulator, Simulator) else simulator

    @property
    def learning(self) -> Learning:
        return Learning() if self.learn is None else Learning.parse(self.learn)

    def read_simulator(self) -> Simulator | None:
        """Return the simulator, if these options have one."""
        if self.learn is not None and self.simulator is None and not self.learning.stages:
            raise OptionError("learn is only for `rlab attack`: run `rlab learn`, and pass its folder as simulator")
        return read_simulator(Path(self.simulator)) if isinstance(self.simulator, str) else self.simulator
