"""The severities of a benchmark: the flip, and levels beyond it that each sample is taken to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

from rlab.errors import InputError

Kind = Literal["times", "l2", "probability"]
FLIP, ORIGINAL = "flip", "original"
_PREFIX: dict[Kind, str] = {"times": "x", "l2": "l2-", "probability": "p-"}
_FORM = "a ladder like times:1.25,1.5,2 (of the flip's L2), l2:1,2,4 or probability:0.5,0.25,0.1 (of the true class)"


@dataclass(frozen=True)
class LadderLevel:
    """One rung beyond the flip."""

    kind: Kind
    value: float

    @property
    def name(self) -> str:
        return f"{_PREFIX[self.kind]}{self.value:g}"


@dataclass(frozen=True)
class Ladder:
    """Values from mild to severe: multiples of the flip's L2, absolute L2, or thresholds of the true class's probability."""

    kind: Kind = "times"
    values: tuple[float, ...] = (1.25, 1.5, 2.0)

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InputError(f"expected {_FORM}, got the kind {self.kind!r}")
        severity = [-v for v in self.values] if self.kind == "probability" else list(self.values)
        if not all(math.isfinite(v) for v in self.values) or not all(a < b for a, b in pairwise(severity)):
            way = "fall" if self.kind == "probability" else "rise"
            raise InputError(
                f"expected the ladder's values to {way} from one level to the next, got {str(self)!r}: put the mildest first"
            )
        low, high = {"times": (1.0, math.inf), "l2": (0.0, math.inf), "probability": (0.0, 1.0)}[self.kind]
        wrong = [v for v in self.values if not (low < v < high or v == 1.0 == low)]
        if wrong:
            raise InputError(f"expected values between {low:g} and {high:g} in {str(self)!r}, got {wrong[0]:g}")

    def __str__(self) -> str:
        return f"{self.kind}:{','.join(f'{v:g}' for v in self.values)}" if self.values else FLIP

    @property
    def levels(self) -> tuple[LadderLevel, ...]:
        """Beyond the flip; once the flip's L2 is the flip itself."""
        return tuple(LadderLevel(self.kind, v) for v in self.values if not (self.kind == "times" and v == 1.0))

    @property
    def names(self) -> tuple[str, ...]:
        return (FLIP, *(level.name for level in self.levels))


def parse_ladder(text: str) -> Ladder:
    """'times:1.25,1.5,2' -> a ladder; 'flip' has no level beyond the flip. The inverse of a ladder's str."""
    kind, _, values = text.partition(":")
    if text == FLIP:
        return Ladder("times", ())
    if kind not in get_args(Kind) or not values:
        raise InputError(f"expected {_FORM}, got {text!r}")
    try:
        severities = tuple(float(value) for value in values.split(","))
    except ValueError:
        raise InputError(f"expected {_FORM}, got {text!r}") from None
    return Ladder(kind, severities)  # type: ignore[arg-type]  # checked above
