"""A palette is filters at severities. Applied once to an input it gives the bank that every proposal is cut from."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from rlab.errors import InputError
from rlab.filters.base import FAMILIES, GRADIENTS, Chance, Filter, as_filter, from_path
from rlab.filters.snr import snr_db
from rlab.storage.outside import short

DECIBEL = "dB"
PIXELS = "pixels"  # the palette that is no filter: every value is free
_SEVERITY = re.compile(r"(?P<number>[-+.0-9e]+)(?P<unit>[A-Za-zµ]*)$")
_VOLTS = {"V": 1.0, "mV": 1e-3, "uV": 1e-6, "µV": 1e-6}
Spec = str | Filter | Callable[..., Tensor]
_SPEC = re.compile(r"(?P<name>.+?)(@(?P<severities>[-+.0-9][-+.0-9e,A-Za-zµ]*))?(\*(?P<draws>\d+))?$")
_KINDS = ("signals", "images", "video")  # by rank, from 1
MOST, _LONGEST = 255, 1000  # entries of a palette, characters of a spec
_DECIBELS = 200.0  # the largest SNR, and the smallest below zero
_IN_CACHE, _ON_DEVICE = 2**20, 2**28  # bytes of inputs that are filtered at once, on a CPU and elsewhere
_ROUNDING = 1e-5  # how far scaled values may lie outside 0..1 and still count as inside


@dataclass(frozen=True)
class Entry:
    """One filter at one severity; `draw` tells apart several rolls of a random filter.

    The severity is in the filter's own measure, or in `unit`: dB of SNR, or a unit `factor` times as large as the data's.
    """

    filter: Filter
    severity: float
    draw: int = 0
    unit: str = ""
    factor: float = 1.0

    @property
    def name(self) -> str:
        roll = f"#{self.draw + 1}" if self.draw else ""
        return f"{self.filter.name}@{self.severity:g}{self.unit or self.filter.unit}{roll}"

    @property
    def called_with(self) -> float:
        """The severity the filter itself hears; what is in a unit is scaled from severity 1."""
        return 1.0 if self.unit else self.severity

    def __call__(self, x: Tensor, scale: Tensor, generator: Chance) -> Tensor:
        """x: (b, c, *size) as filters see it, one of it being `scale` (b, 1, ...) of the data's unit -> distorted."""
        changed = self.filter.at_scale(scale)(x, self.called_with, generator)
        if not self.unit:
            return changed
        if self.unit == DECIBEL:
            return x + (changed - x) * _strength(snr_db(x, changed) - self.severity).view_as(scale)
        return x + (changed - x) * (self.severity * self.factor / scale)


@dataclass(frozen=True)
class Palette:
    entries: tuple[Entry, ...]

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
        """Specs: 'name', 'name@0.1', 'name@0.1,0.3*2' (two severities, two draws each), 'name@20dB' (SNR), 'name@0.3mV'
        (in the data's `unit`), 'module:function', function. `rate` is for filters that know frequencies; `own` are further
        ones by name, made for these data."""
        entries = [entry for spec in specs for entry in _entries(spec, rank, channels, rate, unit, own or {})]
        if not entries:
            raise InputError("expected at least one filter in the palette, got none")
        if len(entries) > MOST:
            raise InputError(f"expected at most {MOST} palette entries, got {len(entries)}: name fewer of them")
        return cls(tuple(entries))

    def bank(self, x: Tensor, bounds: tuple[float, float], seeds: Sequence[int]) -> Tensor:
        """x: (b, c, *size) -> (b, f + 1, c, *size), entry 0 the input. A sample's draws depend on its seed alone."""
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
        """Writes entries 1..f of a bank (b, f + 1, c, *size) whose entry 0 is the input; one seed for all rows."""
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
            bank[:, index + 1] = (changed * scale + shift).clamp(*bounds)
            if entry.unit and not torch.isfinite(bank[:, index + 1]).all():
                raise entry.filter.error(f"goes beyond all numbers at {entry.severity:g} {entry.unit}: ask for less")


def _together(entry: Entry) -> bool:
    """Whether rows can be filtered at once; a severity in a unit is scaled by sums over a sample, whose last bits may differ."""
    return entry.filter.rowwise and not entry.unit


def _generators(seeds: Sequence[int], index: int, device: torch.device) -> tuple[Generator, ...]:
    """Of the palette's entry `index`, one a seed."""
    return tuple(Generator(device).manual_seed((seed * 1_000_003 + index) % 2**63) for seed in seeds)


class FreePixels(Palette):
    """No filters: an attack may give every value any other. A bank is the input alone."""

    def __init__(self) -> None:
        super().__init__(())

    @property
    def names(self) -> tuple[str, ...]:
        return (PIXELS,)


def refuse_pixels(specs: Sequence[Spec] | None, who: str) -> None:
    """For what is made of patches and filters: `who` is said in the sentence."""
    if tuple(specs or ()) == (PIXELS,):
        raise InputError(f"{who} is made of filters, and the palette is {PIXELS!r}, free values: name filters")


def bounded(bounds: tuple[float, float]) -> bool:
    return math.isfinite(bounds[1] - bounds[0])


def refuse_outside(kind: Filter, changed: Tensor) -> None:
    """Refuses scaled values (b, c, *size) beyond 0..1, but for rounding."""
    low, high = float(changed.amin()), float(changed.amax())
    if low < -_ROUNDING or high > 1 + _ROUNDING:
        reach = f"up to {high:.4g}" if high > 1 + _ROUNDING else f"down to {low:.4g}"
        raise kind.error(f"returned values {reach} for inputs in [0, 1]: clamp its result, or set clip=True on it")


def unit_scale(x: Tensor, bounds: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """Shift and scale (b, 1, ...) that filters work in: the bounds where there are any, else a sample's amplitude."""
    each = (len(x), *(1,) * (x.dim() - 1))
    if bounded(bounds):
        return x.new_full(each, bounds[0]), x.new_full(each, bounds[1] - bounds[0])
    flat = x.flatten(1)
    span = flat.amax(1) - flat.amin(1)
    return x.new_zeros(each), torch.where(span > 0, span, 1.0).view(each)  # a flat line has no amplitude of its own


def _strength(decibels: Tensor) -> Tensor:
    """What to multiply a change by that is so much too weak; 0 where nothing changed or there is no signal."""
    return torch.where(decibels.isfinite(), 10 ** (decibels / 20), 0.0)


def _entries(
    spec: Spec, rank: int, channels: int, rate: float | None, unit: str, own: Mapping[str, Filter]
) -> list[Entry]:
    if not isinstance(spec, str):
        return [Entry(kind := _fitting(as_filter(spec), rank).at_rate(rate), kind.default_severity)]
    match = _SPEC.match(spec) if len(spec) <= _LONGEST else None
    if match is None or len(match["draws"] or "") > len(str(MOST)):
        raise unclear(spec)
    filters = [_fitting(kind, rank).at_rate(rate) for kind in find(match["name"], channels, own)]
    draws = int(match["draws"] or 1)
    if draws < 1:
        raise InputError(f"expected at least one draw of a filter, got {spec!r}")
    return [
        replace(entry, draw=draw)
        for kind in filters
        for entry in read_severities(match["severities"], kind, unit, spec)
        for draw in range(draws)
    ]


def read_severities(text: str | None, kind: Filter, unit: str, spec: str) -> list[Entry]:
    """'20dB', '0.1,0.3mV' (one unit for both), '0.1,0.3', None for the default; `unit` is that of the data."""
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
    asked = part["unit"] or last
    if asked != DECIBEL and not 0 < value < math.inf:
        raise InputError(f"expected a severity above 0, got {part.group()} in {spec!r}")
    if asked == DECIBEL and abs(value) > _DECIBELS:
        raise InputError(f"expected an SNR within {_DECIBELS:g} dB, got {part.group()} in {spec!r}")
    if asked in ("", kind.unit):
        if value > kind.most:
            raise kind.error(f"takes a severity up to {kind.most:g}, got {part.group()} in {spec!r}")
        return Entry(kind, value)
    if not kind.additive:
        own = f"in {kind.unit}" if kind.unit else "without a unit"
        advice = f"{asked} is for filters that add something to the signal, see `rlab filters`"
        raise kind.error(f"takes its severity {own}, got {spec!r}: {advice}")
    return Entry(kind, value, unit=asked, factor=1.0 if asked == DECIBEL else _factor(asked, unit, spec))


def _factor(asked: str, unit: str, spec: str) -> float:
    """How many of the data's units an `asked` is."""
    if asked == unit:
        return 1.0
    if asked in _VOLTS and unit in _VOLTS:
        return _VOLTS[asked] / _VOLTS[unit]
    own = f"are in {unit}" if unit else "have no known unit"
    raise InputError(f"the severity of {spec!r} is in {asked}, but the data {own}: give it in dB or without a unit")


def by_gradient(spec: Spec) -> bool:
    """Whether it needs surrogates."""
    return isinstance(spec, str) and re.split(r"[@*]", spec)[0] in GRADIENTS


def unclear(spec: str) -> InputError:
    forms = "'gaussian_noise', 'gaussian_noise@0.1' or 'my_module:my_filter'"
    return InputError(f"expected a filter like {forms}, got {short(spec)}")


def _fitting(kind: Filter, rank: int) -> Filter:
    if rank not in kind.ranks:
        fits = " and ".join(_KINDS[r - 1] for r in sorted(kind.ranks))
        raise kind.error(f"is for {fits}, but the data are {_KINDS[rank - 1]}: leave it out")
    return kind


def find(name: str, channels: int, own: Mapping[str, Filter] | None = None) -> tuple[Filter, ...]:
    """The filters a name stands for: one of `own`, a family, one member of a family, or 'module:function'."""
    if own and name in own:
        return (own[name],)
    if name in GRADIENTS:
        raise InputError(
            f"the filter {name!r} follows the gradients of surrogates, and none is named: pass --surrogate timm:resnet18, "
            "my_module:net or another torch model of yours"
        )
    if name == PIXELS:
        raise InputError(f"the palette {PIXELS!r} is for attacks and comparisons, alone: name filters here")
    if ":" in name:
        return (from_path(name),)
    if name in FAMILIES:
        return FAMILIES[name](channels)
    members = {kind.name: kind for family in FAMILIES.values() for kind in family(channels)}
    if name in members:
        return (members[name],)
    near = difflib.get_close_matches(name, [*FAMILIES, *members, *GRADIENTS], n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise InputError(
        f"unknown filter {short(name)}.{hint} `rlab filters` lists them all; your own is 'module:function'"
    )
