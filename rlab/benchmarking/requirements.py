"""Metrics, requirements and verdicts, for audits and for `rlab benchmark run --require`."""

from __future__ import annotations

import difflib
import math
import operator
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from rlab.errors import OptionError
from rlab.stats import Estimate
from rlab.storage.config import Options

Stage = Literal["doctor", "attack", "detect", "corrupt", "explain", "benchmark", "harden"]  # in the order of an audit
Quantity = int | float | str  # 0.2, '20%', '0.1 mV'
_QUANTITY = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*(%|[A-Za-zµ]*)\s*", re.I)


@dataclass(frozen=True)
class Metric:
    """A figure that you can require: the stage that measures it, its kind, and the keys that narrow it down."""

    stage: Stage | Literal["audit"]
    kind: Literal["share", "score", "number"] = "number"  # shares and scores are at most 1; shares are shown in percent
    keys: tuple[str, ...] = ()
    unit: str | None = ""  # unit that a limit may have; None: the data's own
    unbroken: float = math.nan  # the median if nothing flipped

    def shown(self, value: float) -> str:
        """A measured value for display."""
        if not math.isfinite(value):
            return "nothing" if math.isnan(value) else "∞" if value > 0 else "−∞"
        if self.kind == "share":
            return f"{value:.1%}"
        return f"{value:,.0f}" if value == round(value) else f"{value:.3g}"


_SAMPLES = ("class", "distortion")
_SCORES = ("dice", "iou", "pointing", "energy", "deletion", "insertion", "stability")
_WHOLE, _WHEN = ("map50", "map", "miou"), (("clean_", ()), ("", ("at",)))
_MEASURED = ("attack", "square", "pgd", "corruptions", "held_out_filters")  # accuracies before and after hardening
METRICS: dict[str, Metric] = {
    "errors": Metric("doctor"),
    "warnings": Metric("doctor"),
    "success": Metric("attack", "share", (*_SAMPLES, "at")),
    "clean_accuracy": Metric("attack", "share", ("class",)),
    "median_queries": Metric("attack", "number", _SAMPLES, unbroken=math.inf),
    "median_l2": Metric("attack", "number", _SAMPLES, None, math.inf),
    "median_snr": Metric("attack", "number", _SAMPLES, "dB", -math.inf),
    "median_patches": Metric("attack", "number", _SAMPLES, unbroken=math.inf),
    # of all samples together: untouched, and with the flips of the attack, or those within the bound of `at`
    **{f"{when}{name}": Metric("attack", "score", keys) for name in _WHOLE for when, keys in _WHEN},
    **{f"{when}mae": Metric("attack", "number", keys, None) for when, keys in _WHEN},
    "detection": Metric("detect", "share", (*_SAMPLES, "at")),
    "corruption_accuracy": Metric("corrupt", "share", ("distortion", "level")),
    **{name: Metric("explain", "score", ("method",)) for name in _SCORES},
    "sanity": Metric("explain", "number", ("method",)),
    "accuracy": Metric("benchmark", "share", ("model", "level", "distortion")),
    "area": Metric("benchmark", "score", ("model",)),
    "flip_distance": Metric("benchmark", "number", ("model",), None),
    "mismatches": Metric("benchmark"),
    "queries": Metric("audit"),
}
HARDENED: dict[str, Metric] = {  # for requirements with the key `when`
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
    """Refuse any unit but the allowed one; None allows any unit of data."""
    if unit and (unit == "%" if allowed is None else unit.lower() != allowed.lower()):
        raise ValueError(f"{unit!r} is not a unit of {name}: leave it out{f' or write {allowed}' if allowed else ''}")


HOLDS = {"below": operator.lt, "at_most": operator.le, "above": operator.gt, "at_least": operator.ge}
_LEVEL = re.compile(r"original|flip|(x|l2-|s)[\d.e+-]+")
# YAML reads a class called 3 as a number
Name = Annotated[str, BeforeValidator(lambda name: str(name) if isinstance(name, int | float) else name)]


class Requirement(Options, populate_by_name=True, serialize_by_alias=True):
    """One of `below`, `at_most`, `above` and `at_least` is the limit; the other keys narrow down the metric."""

    metric: str
    class_: Name | None = Field(None, alias="class")
    method: str | None = None
    model: str | None = None
    level: Name | None = None
    distortion: str | None = None
    when: Literal["before hardening", "after hardening", "gained by hardening", "lost by hardening"] | None = None
    at: dict[Literal["snr", "l2", "queries"], Quantity] | None = Field(None, min_length=1)
    below: Quantity | None = None
    at_most: Quantity | None = None
    above: Quantity | None = None
    at_least: Quantity | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Requirement:
        metrics = HARDENED if self.when else METRICS
        if self.metric not in metrics:
            near = difflib.get_close_matches(self.metric, metrics, n=1)
            more = "" if self.when else f"; with 'when: after hardening' they are {', '.join(HARDENED)}"
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ValueError(f"unknown metric {self.metric!r}: {hint}the metrics are {', '.join(metrics)}{more}")
        limits = [name for name in HOLDS if getattr(self, name) is not None]
        if len(limits) != 1:
            raise ValueError(f"expected exactly one of {', '.join(HOLDS)}, got {' and '.join(limits) or 'none'}")
        foreign = [key for key in self.details if key not in self.figure.keys]
        if foreign:
            raise ValueError(f"{foreign[0]!r} does not apply to {self.metric}: leave it out")
        if self.metric == "accuracy" and self.level is None and self.distortion is None:
            raise ValueError("accuracy needs a level or a distortion: add 'level: flip' or 'distortion: gaussian_blur'")
        if self.metric == "detection":
            self._check_detection()
        share = self.figure.kind != "number"
        check_unit(self.metric, self.unit, "%" if share else self.figure.unit)
        if share and not -1 <= self.limit <= 1:
            raise ValueError(f"{self.metric} is a share: write a percentage up to 100% or a number between 0 and 1")
        for kind, bound in (self.at or {}).items():
            check_unit(kind, quantity(bound)[1], {"snr": "dB", "l2": None, "queries": ""}[kind])
        return self

    def _check_detection(self) -> None:
        if self.class_ is None or self.distortion is None:
            missing = "class: MI" if self.class_ is None else "distortion: muscle_noise"
            raise ValueError(f"detection is about one class under one distortion: add '{missing}'")
        if foreign := [kind for kind in self.at or {} if kind != "snr"]:
            raise ValueError(f"detection makes no search, so {foreign[0]!r} does not apply: write 'at: {{snr: 12dB}}'")

    @property
    def details(self) -> dict[str, Any]:
        """All keys except the metric and the limit."""
        return self.model_dump(exclude={"metric", *HOLDS}, exclude_none=True)

    @property
    def figure(self) -> Metric:
        return (HARDENED if self.when else METRICS)[self.metric]

    @property
    def relation(self) -> str:
        return next(name for name in HOLDS if getattr(self, name) is not None)

    @property
    def limit(self) -> float:
        return quantity(getattr(self, self.relation))[0]

    @property
    def unit(self) -> str:
        return quantity(getattr(self, self.relation))[1]

    def __str__(self) -> str:
        """The requirement as a phrase."""
        words = {"class": "for class ", "when": "", "level": "at ", "distortion": "under "}
        parts = [f"{words.get(key, 'of ')}{value}" for key, value in self.details.items() if key != "at"]
        parts += [f"at {kind} {bound}" for kind, bound in (self.at or {}).items()]
        names = [name.replace("_", " ") for name in (self.metric, self.relation)]
        return " ".join([names[0], *parts, names[1], f"{getattr(self, self.relation)}"])


UNDECIDED = "too few samples to say"


@dataclass(frozen=True)
class Verdict:
    """A requirement and the measured figure. NaN does not pass, and the note says why there is no figure.

    A figure whose 95% interval contains the limit does not pass either: the requirement is not shown to hold.
    """

    requirement: Requirement
    value: float
    samples: int = 0
    note: str = ""
    low: float = math.nan  # ends of the interval, if the figure has one
    high: float = math.nan

    @classmethod
    def of(cls, requirement: Requirement, measured: Estimate, samples: int, note: str = "") -> Verdict:
        return cls(requirement, measured.value, samples, note, measured.low, measured.high)

    def _holds(self, value: float) -> bool:
        return bool(HOLDS[self.requirement.relation](value, self.requirement.limit))  # false for NaN

    @property
    def undecided(self) -> bool:
        """Whether the interval contains the limit; a limit of 0% or 100% is about these samples only, so it never does."""
        if self.requirement.figure.kind == "share" and self.requirement.limit in (0.0, 1.0):
            return False
        return not math.isnan(self.low) and self._holds(self.low) != self._holds(self.high)

    @property
    def passed(self) -> bool:
        return self._holds(self.value) and not self.undecided

    @property
    def word(self) -> str:
        return UNDECIDED if self.undecided else "passes" if self.passed else "fails"

    @property
    def shown(self) -> str:
        """The measured figure, with its interval in brackets."""
        value, low, high = map(self.requirement.figure.shown, (self.value, self.low, self.high))
        return value if math.isnan(self.low) else f"{value} [{low}, {high}]"

    def __str__(self) -> str:
        note = f" ({self.note})" if self.note else ""
        return f"{self.word}: {self.requirement}, measured {self.shown}{note}"


def parse_requirement(text: str) -> Requirement:
    """Parse the short form: 'x1.5=0.3', 'gaussian_blur=0.5', or 'resnet:flip=0.1' for one model."""
    what, _, value = text.rpartition("=")
    model, _, name = what.rpartition(":")
    try:
        if not name or not 0 <= quantity(value)[0] <= 1:
            raise ValueError(text)
        key = "level" if _LEVEL.fullmatch(name) else "distortion"
        return Requirement.model_validate({"metric": "accuracy", key: name, "model": model or None, "at_least": value})
    except ValueError:
        form = "flip=0.2 or gaussian_blur=0.5, with an accuracy between 0 and 1"
        raise OptionError(f"expected a requirement such as {form}, got {text!r}") from None
