"""Facts about an attack that make its result readable without the model and the data."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter

from rlab.core.channels import group_names
from rlab.core.distances import Measure
from rlab.core.grid import PatchGrid
from rlab.core.status import Status as Status
from rlab.predictions.kinds import Prediction


@dataclass(frozen=True)
class Learned:
    """The simulator that an attack used: its students, and the queries that were spent only to learn."""

    students: int
    answers: int  # that the students learned from
    agreement: float  # with the model, on inputs kept aside
    queries: int
    here: bool  # whether the queries were spent in this run, or before it
    used: bool = True  # whether they agree often enough to be of use

    def __str__(self) -> str:
        when = "in" if self.here else "before"
        learned = f"{self.students} students of {self.answers:,} answers agree with the model on {self.agreement:.0%}"
        out = "" if self.used else ", too few to be of use: the search left them out"
        return f"{self.queries:,} queries {when} this run; {learned} of inputs kept aside{out}"


@dataclass(frozen=True)
class Setting:
    """Facts about an attack that make its result readable without the model and the data."""

    size: tuple[int, ...]
    patch: tuple[int, ...]
    palette: tuple[str, ...]
    goal: str
    policy: str
    budget: int
    bounds: tuple[float, float]
    seed: int
    classes: tuple[str, ...] = ()
    unit: str = ""
    rate: float | None = None
    leads: tuple[str, ...] = ()
    distance: Measure = "l2"  # the distance that the attack minimised
    learned: Learned | None = None  # the simulator, if the attack used one that learned from the model's answers
    target: Prediction = "classes"  # what the model predicts
    channels: tuple[int, ...] = ()  # the group of each channel as in the grid; () if all channels go together

    @property
    def grid(self) -> PatchGrid:
        return PatchGrid(self.size, self.patch, self.channels)

    @property
    def groups(self) -> tuple[str, ...]:
        """The name of each group of channels, such as V1-V3; () if all channels go together."""
        return group_names(self.grid.groups, self.leads)

    @property
    def bounded(self) -> bool:
        """Whether values have bounds: distances are then of values in [0, 1], else in the data's unit (see `measure`)."""
        return all(map(math.isfinite, self.bounds))

    @property
    def l2_unit(self) -> str:
        """The unit of an L2 distance with a leading space, or an empty string."""
        return "" if self.bounded or not self.unit else f" {self.unit}"

    def format_distance(self, distance: float) -> str:
        """Format a distance of the minimised kind, with its unit if it has one."""
        if not math.isfinite(distance):
            return "–" if math.isnan(distance) else "∞"
        return (f"{distance:,.0f}" if distance >= 1000 else f"{distance:.3g}") + (
            "" if self.distance == "l0" else self.l2_unit
        )

    def to_json(self) -> str:
        """Serialise to JSON, which has no infinity: open bounds become null."""
        return json.dumps(asdict(self) | {"bounds": [b if math.isfinite(b) else None for b in self.bounds]})

    @classmethod
    def from_json(cls, text: str) -> Setting:
        plain = json.loads(text).items()
        values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in plain}
        low, high = values["bounds"]
        values["bounds"] = (-math.inf if low is None else low, math.inf if high is None else high)
        return TypeAdapter(cls).validate_python(values)
