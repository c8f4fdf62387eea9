"""What a result needs to be read without the model or the data at hand."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from typing import Any

from pydantic import TypeAdapter

from rlab.core.distances import Measure
from rlab.core.grid import PatchGrid
from rlab.core.status import Status as Status


@dataclass(frozen=True)
class Setting:
    """What a result needs to be read without the model or the data at hand."""

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
    distance: Measure = "l2"  # what was kept small

    @property
    def grid(self) -> PatchGrid:
        return PatchGrid(self.size, self.patch)

    @property
    def bounded(self) -> bool:
        """Distances of bounded data are of values in [0, 1], others in the data's own unit: see `measure`."""
        return all(map(math.isfinite, self.bounds))

    @property
    def l2_unit(self) -> str:
        """What stands behind an L2, after a space; '' where there is nothing to say."""
        return "" if self.bounded or not self.unit else f" {self.unit}"

    def told(self, distance: float) -> str:
        """A distance of the kind that was kept small, as it is shown: with its unit, where it has one."""
        if not math.isfinite(distance):
            return "–" if math.isnan(distance) else "∞"
        return f"{distance:.3g}" + ("" if self.distance == "l0" else self.l2_unit)

    def to_json(self) -> str:
        """JSON knows no infinity: open bounds are written as null."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return json.dumps(values | {"bounds": [b if math.isfinite(b) else None for b in self.bounds]})

    @classmethod
    def from_json(cls, text: str) -> Setting:
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in json.loads(text).items()
        }
        low, high = values["bounds"]
        values["bounds"] = (-math.inf if low is None else low, math.inf if high is None else high)
        return TypeAdapter(cls).validate_python(values)
