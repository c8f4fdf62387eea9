"""A severity as people say it: a number in the filter's own measure, decibels of SNR, or the data's unit."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from rlab.errors import InputError
from rlab.filters.base import Filter

DECIBEL = "dB"
_ONE = re.compile(r"(?P<number>[-+.0-9e]+)(?P<unit>[A-Za-zµ]*)$")
_VOLTS = {"V": 1.0, "mV": 1e-3, "uV": 1e-6, "µV": 1e-6}


@dataclass(frozen=True)
class Severity:
    """`unit` is '' for the filter's own measure, dB, or a unit of the data; `factor` times the value is in the data's."""

    value: float
    unit: str = ""
    factor: float = 1.0


def read_severities(text: str, one: Filter, unit: str, spec: str) -> list[Severity]:
    """'20dB', '0.1,0.3mV' (one unit for both), '0.1,0.3'; `unit` is that of the data."""
    parts = [_ONE.match(part) for part in text.split(",")]
    last = parts[-1]["unit"] if parts[-1] else ""
    return [_read(part, last, one, unit, spec) for part in parts]


def _read(part: re.Match[str] | None, last: str, one: Filter, unit: str, spec: str) -> Severity:
    try:
        value = float(part["number"]) if part else math.nan
    except ValueError:
        value = math.nan
    if part is None or math.isnan(value):
        raise unclear(spec)
    said = part["unit"] or last
    if said != DECIBEL and not 0 < value < math.inf:
        raise InputError(f"expected a severity above 0, got {part.group()} in {spec!r}")
    if said in ("", one.unit):
        return Severity(value)
    if not one.additive:
        own = f"in {one.unit}" if one.unit else "without a unit"
        raise InputError(
            f"the filter {one.name!r} takes its severity {own}, got {spec!r}: "
            f"{said} is for filters that add something to the signal, see `rlab filters`"
        )
    return Severity(value, said, 1.0 if said == DECIBEL else _factor(said, unit, spec))


def _factor(said: str, unit: str, spec: str) -> float:
    """The data's units in one `said`."""
    if said == unit:
        return 1.0
    if said in _VOLTS and unit in _VOLTS:
        return _VOLTS[said] / _VOLTS[unit]
    known = f"are in {unit}" if unit else "have no known unit"
    raise InputError(f"the severity of {spec!r} is in {said}, but the data {known}: give it in dB or without a unit")


def unclear(spec: str) -> InputError:
    return InputError(
        f"expected a filter like 'gaussian_noise', 'gaussian_noise@0.1' or 'my_module:my_filter', got {spec!r}"
    )
