"""Requirements on a report: so much accuracy at a level or under a distortion, or the model does not pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlab.benchmarking.run import BenchmarkReport
from rlab.errors import InputError


@dataclass(frozen=True)
class Requirement:
    """At least `accuracy` at a level, or on files whose main distortion is the named filter; `model` '' is every model."""

    what: str
    accuracy: float
    model: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.accuracy <= 1:
            raise InputError(f"expected an accuracy between 0 and 1 for {self.what!r}, got {self.accuracy:g}")


@dataclass(frozen=True)
class Verdict:
    model: str
    set: str
    what: str
    required: float
    accuracy: float
    samples: int

    @property
    def passed(self) -> bool:
        return self.accuracy >= self.required

    def __str__(self) -> str:
        word = "passes" if self.passed else "fails"
        return f"{self.model} {word} {self.what} on {self.set}: accuracy {self.accuracy:.1%} of at least {self.required:.1%}"


def parse_requirement(text: str) -> Requirement:
    """'x1.5=0.3', 'gaussian_blur=0.5', or for one model 'resnet:flip=0.1'."""
    what, equals, value = text.rpartition("=")
    model, _, named = what.rpartition(":")
    try:
        if not equals or not named:
            raise ValueError(text)
        return Requirement(named, float(value), model)
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"expected a requirement like flip=0.2 or gaussian_blur=0.5, got {text!r}") from None


def check_requirements(report: BenchmarkReport, requirements: Sequence[Requirement]) -> list[Verdict]:
    """A verdict for every model and set a requirement concerns; what it names must exist."""
    levels = list(dict.fromkeys(row["level"] for row in report.levels))
    filters = list(dict.fromkeys(row["distortion"] for row in report.distortions))
    verdicts = []
    for one in requirements:
        if one.model and one.model not in report.models:
            raise InputError(f"the requirement names the model {one.model!r}: there are {', '.join(report.models)}")
        if one.what not in (*levels, *filters):
            raise InputError(
                f"the requirement names an unknown level or distortion {one.what!r}: the levels are {', '.join(levels)}, "
                f"the distortions {', '.join(filters)}"
            )
        for model in (one.model,) if one.model else report.models:
            verdicts += _judge(report, one, model, one.what in levels)
    return verdicts


def _judge(report: BenchmarkReport, one: Requirement, model: str, is_level: bool) -> list[Verdict]:
    found = []
    for curve in report.curves:
        if is_level:
            rows = [(r["accuracy"], r["samples"]) for r in report.levels
                    if (r["set"], r["model"], r["level"]) == (curve.name, model, one.what)]  # fmt: skip
        else:
            rows = [(r["accuracy"], r["samples"]) for r in report.distortions
                    if (r["set"], r["model"], r["distortion"]) == (curve.name, model, one.what)]  # fmt: skip
        count = sum(samples for _, samples in rows)
        if count:
            mean = sum(accuracy * samples for accuracy, samples in rows) / count
            found.append(Verdict(model, curve.name, one.what, one.accuracy, mean, count))
    return found
