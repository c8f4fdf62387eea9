"""A palette is a list of filters with severities. Applied once to an input, it gives the bank that proposals draw from."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from rlab.errors import OptionError
from rlab.filters.base import FAMILIES, GRADIENTS, Chance, Filter, as_filter, from_path, snr_db
from rlab.filters.named import Distortion
from rlab.filters.palettes import VOLTS, members, needs_more
from rlab.storage.config import did_you_mean
from rlab.storage.names import exact
from rlab.storage.outside import short

DECIBEL = "dB"
PIXELS = "pixels"  # the palette without filters, in which every value is free
_SEVERITY = re.compile(r"(?P<number>[-+.0-9e]+)(?P<unit>[A-Za-zµ]*)$")
_ON_SIGNALS = {"dead_pixel": "dropout"}  # filters that have another name on signals
Spec = str | Distortion | Filter | Callable[..., Tensor]
Round = Callable[[Tensor], Tensor]  # (b, c, *size) -> the same shape, values within the bounds
_SPEC = re.compile(r"(?P<name>.+?)(@(?P<severities>[-+.0-9][-+.0-9e,A-Za-zµ]*))?(\*(?P<draws>\d+))?$")
_KINDS = ("signals", "images", "video")  # by rank, from 1
MOST, _LONGEST = 255, 1000  # limits on the entries of a palette and the characters of a spec
_DECIBELS = 200.0  # the largest absolute SNR
_IN_CACHE, _ON_DEVICE = 2**20, 2**28  # bytes of inputs filtered at once, on the CPU and on other devices
_ROUNDING = 1e-5  # how far scaled values may exceed 0..1


@dataclass(frozen=True)
class Entry:
    """One filter at one severity; `draw` numbers the draws of a random filter.

    The severity is in the filter's own measure or in `unit`: dB of SNR, or a unit `factor` times as large as the data's.
    """

    filter: Filter
    severity: float
    draw: int = 0
    unit: str = ""
    factor: float = 1.0

    @property
    def name(self) -> str:
        roll = f"#{self.draw + 1}" if self.draw else ""
        return f"{self.filter.name}@{exact(self.severity)}{self.unit or self.filter.unit}{roll}"

    @property
    def called_with(self) -> float:
        """The severity passed to the filter: 1 if the result is scaled to a unit."""
        return 1.0 if self.unit else self.severity

    def __call__(self, x: Tensor, scale: Tensor, generator: Chance) -> Tensor:
        """Distort scaled inputs x: (b, c, *size), where 1 stands for `scale` (b, 1, ...) in the data's unit."""
        changed = self.filter.at_scale(scale)(x, self.called_with, generator)
        if not self.unit:
            return changed
        if self.unit == DECIBEL:
            return x + (changed - x) * strength(snr_db(x, changed) - self.severity).view_as(scale)
        return x + (changed - x) * (self.severity * self.factor / scale)


@dataclass(frozen=True)
class Palette:
    """The filters and severities that an attack may use."""

    entries: tuple[Entry, ...]
    rounded: Round | None = None  # rounds distorted inputs, e.g. to what a file can hold

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.entries)

    @classmethod
    def of(
        cls,
        specs: Sequence[Spec],
        rank: int,
        channels: int,
        rate: float | None = None,
        unit: str = "",
        own: Mapping[str, Filter] | None = None,
    ) -> Palette:
        """Build a palette from specs: 'name', 'name@0.1', 'name@0.1,0.3*2' (two severities, two draws each), 'name@20dB' (SNR),
        'name@0.3mV' (in the data's `unit`), 'module:function', `Distortion("gaussian_noise", 0.1)`, a function, or 'clinical',
        'recorder' or 'paper' for a whole palette. Filters that depend on frequency use `rate`; `own` holds further filters by
        name, built for these data."""
        own = own or {}
        single = [one for spec in specs for one in members(spec, rank, rate, unit, own)]
        entries = [entry for spec in single for entry in _entries(spec, rank, channels, rate, unit, own)]
        if not entries:
            raise OptionError("expected at least one filter in the palette, got none")
        if len(entries) > MOST:
            raise OptionError(f"expected at most {MOST} palette entries, got {len(entries)}: name fewer filters")
        return cls(tuple(entries))

    def bank(self, x: Tensor, bounds: tuple[float, float], seeds: Sequence[int]) -> Tensor:
        """x: (b, c, *size) -> (b, f + 1, c, *size), where entry 0 is the input. The draws of a sample depend only on its seed."""
        out = x[:, None].repeat(1, len(self) + 1, *(1,) * (x.dim() - 1))
        size = max(1, (_IN_CACHE if x.device.type == "cpu" else _ON_DEVICE) // x[0].nbytes)
        for at in range(0, len(x), size):
            own = [_generators(seeds[at : at + size], index, x.device) for index in range(len(self))]
            self._fill(out[at : at + size], bounds, own, _together)
        for row, seed in zip(out.unsqueeze(1), seeds, strict=True):
            alone = [_generators([seed], index, x.device)[0] for index in range(len(self))]
            self._fill(row, bounds, alone, lambda entry: not _together(entry))
        return out

    def fill(self, bank: Tensor, bounds: tuple[float, float], seed: int) -> None:
        """Write entries 1..f of a bank (b, f + 1, c, *size) whose entry 0 is the input, with one seed for all rows."""
        one = [_generators([seed], index, bank.device)[0] for index in range(len(self))]
        self._fill(bank, bounds, one, lambda entry: True)

    def _fill(
        self, bank: Tensor, bounds: tuple[float, float], chance: Sequence[Chance], which: Callable[[Entry], bool]
    ) -> None:
        entries = [(index, entry) for index, entry in enumerate(self.entries) if which(entry)]
        if not entries:
            return
        x0 = bank[:, 0].to(torch.promote_types(bank.dtype, torch.float32))
        shift, scale = unit_scale(x0, bounds)
        unit = (x0 - shift) / scale
        for index, entry in entries:
            changed = entry(unit, scale, chance[index])
            if bounded(bounds) and not entry.filter.clip:
                refuse_outside(entry.filter, changed)
            values = (changed * scale + shift).clamp(*bounds)
            bank[:, index + 1] = values if self.rounded is None else self.rounded(values)
            if entry.unit and not torch.isfinite(bank[:, index + 1]).all():
                raise entry.filter.error(f"overflows at {entry.severity:g} {entry.unit}: choose a weaker severity")


def _together(entry: Entry) -> bool:
    """Whether rows can share a batch; scaling to a unit sums over a sample, and batching can change the last bits of the sum."""
    return entry.filter.rowwise and not entry.unit


def _generators(seeds: Sequence[int], index: int, device: torch.device) -> tuple[Generator, ...]:
    """One generator per seed, for the palette entry `index`."""
    return tuple(Generator(device).manual_seed((seed * 1_000_003 + index) % 2**63) for seed in seeds)


class FreePixels(Palette):
    """A palette without filters: an attack may set every value freely, and the bank holds only the input."""

    def __init__(self, rounded: Round | None = None) -> None:
        super().__init__((), rounded)

    @property
    def names(self) -> tuple[str, ...]:
        return (PIXELS,)


def refuse_pixels(specs: Sequence[Spec] | None, who: str) -> None:
    """Raise an error if the palette is free pixels and `who`, named in the sentence, needs filters."""
    if tuple(specs or ()) == (PIXELS,):
        raise OptionError(f"{who} needs filters, but the palette is {PIXELS!r}: name filters")


def bounded(bounds: tuple[float, float]) -> bool:
    return math.isfinite(bounds[1] - bounds[0])


def refuse_outside(kind: Filter, changed: Tensor) -> None:
    """Raise an error if scaled values (b, c, *size) lie outside 0..1 by more than rounding."""
    low, high = float(changed.amin()), float(changed.amax())
    if low < -_ROUNDING or high > 1 + _ROUNDING:
        reach = f"up to {high:.4g}" if high > 1 + _ROUNDING else f"down to {low:.4g}"
        raise kind.error(f"returned values {reach} for inputs in [0, 1]: clamp its result or set clip=True")


def unit_scale(x: Tensor, bounds: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """Shift and scale (b, 1, ...) of the values that filters receive: from the bounds, or from the amplitude of each sample."""
    each = (len(x), *(1,) * (x.dim() - 1))
    if bounded(bounds):
        return x.new_full(each, bounds[0]), x.new_full(each, bounds[1] - bounds[0])
    flat = x.flatten(1)
    span = flat.amax(1) - flat.amin(1)
    return x.new_zeros(each), torch.where(span > 0, span, 1.0).view(each)  # a flat line has no amplitude


def strength(decibels: Tensor) -> Tensor:
    """Factor that strengthens a change by `decibels`; 0 if nothing changed or there is no signal."""
    return torch.where(decibels.isfinite(), 10 ** (decibels / 20), 0.0)


def _entries(
    spec: Spec, rank: int, channels: int, rate: float | None, unit: str, own: Mapping[str, Filter]
) -> list[Entry]:
    spec = str(spec) if isinstance(spec, Distortion) else spec
    if not isinstance(spec, str):
        return [Entry(kind := _fitting(as_filter(spec), rank).at_rate(rate), kind.default_severity)]
    match = _SPEC.match(spec) if len(spec) <= _LONGEST else None
    if match is None or len(match["draws"] or "") > len(str(MOST)):
        raise unclear(spec)
    name = _ON_SIGNALS.get(match["name"], match["name"]) if rank == 1 else match["name"]
    filters = [_fitting(kind, rank).at_rate(rate) for kind in find(name, channels, own)]
    draws = int(match["draws"] or 1)
    if draws < 1:
        raise OptionError(f"expected at least one draw of a filter, got {spec!r}")
    return [
        replace(entry, draw=draw)
        for kind in filters
        for entry in read_severities(match["severities"], kind, unit, spec)
        for draw in range(draws)
    ]


def read_severities(text: str | None, kind: Filter, unit: str, spec: str) -> list[Entry]:
    """Read '20dB', '0.1,0.3mV' (the unit counts for both), '0.1,0.3' or None (default); `unit` is the unit of the data."""
    if text is None:
        return [Entry(kind, kind.default_severity)]
    parts = [_SEVERITY.match(part) for part in text.split(",")]
    last = parts[-1]["unit"] if parts[-1] else ""
    return [_read(part, last, kind, unit, spec) for part in parts]


def _read(part: re.Match[str] | None, last: str, kind: Filter, unit: str, spec: str) -> Entry:
    try:
        value = float(part["number"]) if part else math.nan
    except ValueError:
        value = math.nan
    if part is None or math.isnan(value):
        raise unclear(spec)
    given = part["unit"] or last
    if given != DECIBEL and not 0 < value < math.inf:
        raise OptionError(f"expected a severity above 0, got {part.group()} in {spec!r}")
    if given == DECIBEL and abs(value) > _DECIBELS:
        raise OptionError(f"expected an SNR within ±{_DECIBELS:g} dB, got {part.group()} in {spec!r}")
    if given in ("", kind.unit):
        kind.check_level(value)
        if value > kind.most:
            raise kind.error(f"takes a severity up to {kind.most:g}, got {part.group()} in {spec!r}")
        return Entry(kind, value)
    if not kind.additive:
        own = f"in {kind.unit}" if kind.unit else "without a unit"
        advice = f"only filters that add to the signal accept {given}, see `rlab filters`"
        raise kind.error(f"takes its severity {own}, got {spec!r}: {advice}")
    return Entry(kind, value, unit=given, factor=1.0 if given == DECIBEL else _factor(given, unit, spec))


def _factor(given: str, unit: str, spec: str) -> float:
    """The size of the unit `given` in units of the data."""
    if given == unit:
        return 1.0
    if given in VOLTS and unit in VOLTS:
        return VOLTS[given] / VOLTS[unit]
    own = f"are in {unit}" if unit else "have no known unit"
    raise OptionError(f"the severity of {spec!r} is in {given}, but the data {own}: use dB or no unit")


def by_gradient(spec: Spec) -> bool:
    """Whether the filter needs surrogate models."""
    return isinstance(spec, str) and re.split(r"[@*]", spec)[0] in GRADIENTS


def unclear(spec: str) -> OptionError:
    """Return the error for a spec that cannot be parsed."""
    forms = "'gaussian_noise', 'gaussian_noise@0.1' or 'my_module:my_filter'"
    return OptionError(f"expected a filter like {forms}, got {short(spec)}")


def _fitting(kind: Filter, rank: int) -> Filter:
    if rank not in kind.ranks:
        fits = " and ".join(_KINDS[r - 1] for r in sorted(kind.ranks))
        raise kind.error(f"is for {fits}, but the data are {_KINDS[rank - 1]}: remove it")
    return kind


def find(name: str, channels: int, own: Mapping[str, Filter] | None = None) -> tuple[Filter, ...]:
    """The filters with this name: one of `own`, a family, a member of a family, or 'module:function'."""
    if own and name in own:
        return (own[name],)
    if lack := needs_more(name):
        raise OptionError(lack)
    if name == PIXELS:
        lone = "takes no filters beside it: name pixels alone, or only filters"
        raise OptionError(f"the palette {PIXELS!r} is for attacks and comparisons, and {lone}")
    if ":" in name:
        return (from_path(name),)
    if name in FAMILIES:
        return FAMILIES[name](channels)
    members = {kind.name: kind for family in FAMILIES.values() for kind in family(channels)}
    if name in members:
        return (members[name],)
    hint = did_you_mean(name, [*FAMILIES, *members, *GRADIENTS, PIXELS])
    advice = "Run `rlab filters` for a list, or pass your own as 'module:function'"
    raise OptionError(f"unknown filter {short(name)}.{hint} {advice}")
