"""A filter is a function of a batch, a severity and a generator; you can pass any such function."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Generator, Tensor

from rlab.errors import InputError, MissingExtra, OptionError
from rlab.filters.named import ABOUT
from rlab.guard import contained, import_named

Apply = Callable[[Tensor, float, Generator], Tensor]
Chance = Generator | tuple[Generator, ...]  # one for all rows, or one per row
Function = TypeVar("Function", bound=Callable[..., Tensor])
SIGNALS, PICTURES, CLIPS = frozenset({1}), frozenset({2, 3}), frozenset({3})  # ranks
SEVERITIES = (0.1, 0.2, 0.3, 0.5, 0.8)  # of a filter that declares none
BEYOND = 10  # a severity may be at most this many times the strongest one a filter declares


@dataclass(frozen=True)
class Filter:
    """One kind of distortion.

    `apply(x, severity, generator)` takes x: (b, c, *size) and returns the same shape. Values arrive scaled: 0..1 is the
    range of bounded data; for unbounded data 1 is the peak-to-peak amplitude of the sample.
    """

    name: str
    apply: Apply
    severities: tuple[float, ...] = SEVERITIES  # in increasing order
    ranks: frozenset[int] = frozenset({1, 2, 3})
    clip: bool = False  # clip the result to the data's bounds, as a sensor does; otherwise it must stay inside them
    about: str = ""  # one line for `rlab filters`: what it imitates and what the severity means
    default: float | None = None  # default severity; None stands for the middle of `severities`
    unit: str = ""  # unit of the severity, if any, e.g. "ms"
    additive: bool = False  # adds severity times a pattern, so severities in dB of SNR or in the data's unit work too
    rated: bool = False  # `apply` also takes the keyword `rate`, in samples per second
    scaled: bool = False  # `apply` also takes the keyword `scale` (b, 1, ...): the value of 1 in the data's unit
    whole: bool = False  # happens to a whole record, never to a part of it
    least_rate: float = 0.0  # samples per second; the data must have a higher rate
    source: Filter | None = None  # the registered filter, if this one is bound to a rate
    # Each row depends on itself alone and draws its random numbers with `draw`. Rows can then share a batch, each with its
    # own generator, and give exactly the result of filtering them one by one.
    rowwise: bool = False
    levels: bool = False  # a severity is one of these levels of a published definition; a higher one may change less

    def __post_init__(self) -> None:
        ladder = self.severities
        numbers = all(isinstance(severity, int | float) and 0 < severity < math.inf for severity in ladder)
        if not ladder or not numbers or not all(weak < strong for weak, strong in pairwise(ladder)):
            raise self.error(f"needs severities above 0 in increasing order, got {ladder}")

    @property
    def default_severity(self) -> float:
        return self.severities[len(self.severities) // 2] if self.default is None else self.default

    @property
    def most(self) -> float:
        """The largest severity allowed: far beyond the declared ones a blur takes hours and other filters destroy the input."""
        return math.inf if self.severities is SEVERITIES else BEYOND * self.severities[-1]

    def __call__(self, x: Tensor, severity: float, generator: Chance) -> Tensor:
        """Run `apply` and check its result: same shape and type, finite values, x unchanged."""
        self.check_level(severity)
        version = x._version  # torch increments it with every in-place change
        try:
            with contained():
                result: object = self.apply(x, severity, generator)  # type: ignore[arg-type]  # `rowwise` filters take both
        except (InputError, MissingExtra, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # the user's function may raise anything
            call = f"inputs of shape {tuple(x.shape)} at severity {severity:g}"
            cause = f"{type(error).__name__}: {error}; expected a function (x, severity, generator) -> x"
            raise self.error(f"failed on {call} with {cause}") from error
        if not isinstance(result, Tensor):
            raise self.error(f"returned {type(result).__name__}: return a torch tensor")
        if result.shape != x.shape:
            raise self.error(f"returned shape {tuple(result.shape)} for inputs of shape {tuple(x.shape)}")
        if result.dtype != x.dtype:
            raise self.error(f"returned {result.dtype} for {x.dtype} inputs: end with .to(x)")
        if result.device != x.device:
            raise self.error(f"returned values on {result.device} for inputs on {x.device}: end with .to(x)")
        if x._version != version:
            raise self.error("changed its input in place: work on x.clone()")
        if not torch.isfinite(result).all():
            raise self.error("returned NaN or infinite values for finite inputs")
        return result

    def check_level(self, severity: float) -> None:
        """Raise an error if the filter has levels and the severity is none of them."""
        if self.levels and severity not in self.severities:
            ends = f"{self.severities[0]:g} to {self.severities[-1]:g}"
            raise self.error(f"takes a level, a whole number from {ends}, got {severity:g}: name one of these")

    def error(self, why: str) -> OptionError:
        """Return an error that says what is wrong with this filter."""
        return OptionError(f"the filter {self.name!r} {why}")

    def at_rate(self, rate: float | None) -> Filter:
        """This filter for data at `rate` samples per second; unchanged if it needs no rate or the rate is unknown."""
        if not self.rated or rate is None:
            return self
        if rate <= self.least_rate:
            need = f"needs more than {self.least_rate:g} samples per second, but the data have {rate:g}"
            raise self.error(f"{need}: load the data at a higher rate or remove the filter")
        apply: Callable[..., Tensor] = self.apply
        return replace(self, apply=partial(apply, rate=rate), source=self)

    def at_scale(self, scale: Tensor) -> Filter:
        """This filter for inputs where 1 stands for `scale` (b, 1, ...) in the data's unit; unchanged if it needs no scale."""
        apply: Callable[..., Tensor] = self.apply
        return replace(self, apply=partial(apply, scale=scale), source=self.source or self) if self.scaled else self


def draw(sampler: Callable[..., Tensor], shape: tuple[int, ...], chance: Chance, dtype: torch.dtype) -> Tensor:
    """Draw with `sampler` (torch.rand or torch.randn) a tensor of this shape; the first axis counts the rows."""
    if isinstance(chance, Generator):
        return sampler(shape, generator=chance, device=chance.device, dtype=dtype)
    return torch.cat([sampler((1, *shape[1:]), generator=row, device=row.device, dtype=dtype) for row in chance])


def snr_db(x0: Tensor, x: Tensor) -> Tensor:
    """Decibels (b,) of the signal x0 without its mean against the change x - x0, both (b, c, *size); infinite without a change."""
    signal = (x0 - x0.flatten(2).mean(2).view(*x0.shape[:2], *(1,) * (x0.dim() - 2))).flatten(1)
    return 20 * torch.log10(signal.norm(dim=1) / (x - x0).flatten(1).norm(dim=1))


# Filters that need the user's surrogate models; `rlab.priors.gradients` builds them.
GRADIENTS = {name: ABOUT[name] for name in ("fgsm", "pgd")}
# A family is one name for several filters, e.g. illuminate for brighter and darker. It may depend on the number of channels.
Family = Callable[[int], tuple[Filter, ...]]
FAMILIES: dict[str, Family] = {}


def register(family: str | Filter, members: Family | None = None) -> None:
    """Make a filter, or a family of filters, available by name."""
    if isinstance(family, Filter):
        alone = (family,)
        FAMILIES[family.name] = lambda channels: alone
    else:
        assert members is not None
        FAMILIES[family] = members


def built_in(severities: tuple[float, ...], **fields: Any) -> Callable[[Function], Function]:
    """Register the decorated function as a filter under its name; `fields` sets further fields of `Filter`."""

    def add(apply: Function) -> Function:
        register(Filter(apply.__name__, apply, severities, about=ABOUT[apply.__name__], **fields))
        return apply

    return add


added = partial(built_in, ranks=SIGNALS, clip=True, additive=True, rated=True)  # adds a pattern to a signal


def built_in_pair(severities: tuple[float, ...], **fields: Any) -> Callable[[Function], Function]:
    """Register the decorated function, which takes a `sign`, as the filters name+ and name-."""

    def add(apply: Function) -> Function:
        name = apply.__name__
        pair = tuple(
            Filter(f"{name}{mark}", partial(apply, sign=sign), severities, clip=True, about=ABOUT[name], **fields)
            for mark, sign in (("+", 1), ("-", -1))
        )
        register(name, lambda channels: pair)
        return apply

    return add


def from_path(path: str) -> Filter:
    """'package.module:function' -> a filter; the attribute may be a function or a `Filter`."""
    module_name, _, attribute = path.partition(":")
    try:
        with contained():
            function = getattr(import_named(module_name), attribute)
    except Exception as error:  # the user's module runs here and may raise anything
        raise OptionError(f"cannot load the filter {path!r}: {type(error).__name__}: {error}") from error
    return as_filter(function)


def as_filter(function: object) -> Filter:
    """Turn a function into a `Filter`, using its attributes `severities`, `ranks`, `clip`, ... if it has them."""
    if isinstance(function, Filter):
        return function
    if not callable(function):
        raise OptionError(f"expected a filter function (x, severity, generator) -> x, got {type(function).__name__}")
    name = getattr(function, "__name__", type(function).__name__)
    severities, ranks = getattr(function, "severities", SEVERITIES), getattr(function, "ranks", (1, 2, 3))
    if not all(isinstance(listed, list | tuple | set | frozenset) for listed in (severities, ranks)):
        raise OptionError(f"the filter {name!r} needs lists of severities and ranks, got {severities} and {ranks}")
    return Filter(
        name=name,
        apply=function,
        severities=tuple(severities),
        ranks=frozenset(ranks),
        clip=bool(getattr(function, "clip", False)),
        additive=bool(getattr(function, "additive", False)),
        rated=bool(getattr(function, "rated", False)),
        about=(function.__doc__ or "").strip().split("\n")[0],
    )
