"""What can be required of a model: every metric, the stage that measures it, and how its values are read and shown."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

Quantity = int | float | str  # 0.2, '20%', '0.1 mV'
_QUANTITY = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*(%|[A-Za-zµ]*)\s*", re.I)


@dataclass(frozen=True)
class Metric:
    """What can be required: who measures it, how it is read, and which keys say what it is of."""

    stage: Literal["doctor", "attack", "explain", "benchmark", "harden", "audit"]
    kind: Literal["share", "score", "number"] = "number"  # shares and scores are at most 1, shares are shown in percent
    keys: tuple[str, ...] = ()
    unit: str | None = ""  # that a limit may carry; None: the data's own
    unbroken: float = math.nan  # a median where nothing flipped: farther than any attack went

    def shown(self, value: float) -> str:
        """A measured value as people read it."""
        if not math.isfinite(value):
            return "nothing" if math.isnan(value) else "∞" if value > 0 else "−∞"
        if self.kind == "share":
            return f"{value:.1%}"
        return f"{value:,.0f}" if value == round(value) else f"{value:.3g}"


_SAMPLES = ("class", "distortion")
_SCORES = ("dice", "iou", "pointing", "energy", "deletion", "insertion", "stability")
_MEASURED = ("attack", "square", "pgd", "corruptions", "held_out_filters")  # before and after hardening
METRICS: dict[str, Metric] = {
    "errors": Metric("doctor"),
    "warnings": Metric("doctor"),
    "success": Metric("attack", "share", (*_SAMPLES, "at")),
    "clean_accuracy": Metric("attack", "share", ("class",)),
    "median_queries": Metric("attack", "number", _SAMPLES, unbroken=math.inf),
    "median_l2": Metric("attack", "number", _SAMPLES, None, math.inf),
    "median_snr": Metric("attack", "number", _SAMPLES, "dB", -math.inf),
    "median_patches": Metric("attack", "number", _SAMPLES, unbroken=math.inf),
    **{name: Metric("explain", "score", ("method",)) for name in _SCORES},
    "sanity": Metric("explain", "number", ("method",)),
    "accuracy": Metric("benchmark", "share", ("model", "level", "distortion")),
    "area": Metric("benchmark", "score", ("model",)),
    "mismatches": Metric("benchmark"),
    "queries": Metric("audit"),
}
HARDENED: dict[str, Metric] = {  # where the key `when` is given
    "clean_accuracy": Metric("harden", "share", ("when",)),
    **{f"accuracy_under_{name}": Metric("harden", "share", ("when",)) for name in _MEASURED},
    "median_l2": Metric("harden", "number", ("when",), None, math.inf),
}


def quantity(value: Quantity) -> tuple[float, str]:
    """'20%' -> 0.2 and '%', '0.1 mV' -> 0.1 and 'mV', 3 -> 3.0 and ''."""
    match = _QUANTITY.fullmatch(str(value))
    if match is None:
        raise ValueError(f"expected a number, a percentage or a number with its unit, got {value!r}")
    return float(match[1]) / (100 if match[2] == "%" else 1), match[2]


def check_unit(name: str, unit: str, allowed: str | None) -> None:
    """Refuses a unit other than the allowed one; None allows that of any data."""
    if unit and (unit == "%" if allowed is None else unit.lower() != allowed.lower()):
        raise ValueError(f"{unit!r} is not a unit of {name}: leave it out{f' or write {allowed}' if allowed else ''}")
