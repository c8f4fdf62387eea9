"""A filter is a function of a batch, a severity and a generator. Bring your own: any such function of yours will do."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Generator, Tensor

from rlab.errors import InputError
from rlab.guard import contained, import_named

Apply = Callable[[Tensor, float, Generator], Tensor]
Chance = Generator | tuple[Generator, ...]  # one for all rows, or each row's own
Function = TypeVar("Function", bound=Callable[..., Tensor])
SIGNALS, PICTURES, CLIPS = frozenset({1}), frozenset({2, 3}), frozenset({3})  # ranks
SEVERITIES = (0.1, 0.2, 0.3, 0.5, 0.8)  # of a filter that names none
BEYOND = 10  # times the strongest severity of its ladder is the most a filter is asked for


@dataclass(frozen=True)
class Filter:
    """One kind of distortion.

    `apply(x, severity, generator)` takes x: (b, c, *size) and returns the same shape. Values arrive scaled: 0..1 is the
    data's range where it has bounds, and 1 is the sample's own peak-to-peak amplitude where it has none.
    """

    name: str
    apply: Apply
    severities: tuple[float, ...] = SEVERITIES  # graded, weakest first
    ranks: frozenset[int] = frozenset({1, 2, 3})
    clip: bool = False  # cut the result to the data's bounds, as a sensor does; a filter that does not must stay inside
    about: str = ""  # one line for `rlab filters`: what it imitates, and what severity means
    default: float | None = None  # the severity where none is named; None is the middle one of the ladder
    unit: str = ""  # of the severity, where it has one of its own, e.g. "ms"
    additive: bool = False  # adds severity times something, so a severity may also be in dB of SNR or the data's unit
    rated: bool = False  # `apply` also takes `rate`, the samples a second, as a keyword
    scaled: bool = False  # `apply` also takes `scale` (b, 1, ...), what 1 is in the data's unit, as a keyword
    least_rate: float = 0.0  # samples a second; data that have no more cannot carry it
    source: Filter | None = None  # the filter as it was registered, where this one was bound to a rate
    # Every value by itself or by its neighbours, and chance by `draw`: rows of one batch may then have generators of their own,
    # and are the same to the bit as one after the other.
    rowwise: bool = False

    def __post_init__(self) -> None:
        ladder = self.severities
        numbers = all(isinstance(severity, int | float) and 0 < severity < math.inf for severity in ladder)
        if not ladder or not numbers or not all(weak < strong for weak, strong in pairwise(ladder)):
            raise InputError(f"expected severities of the filter {self.name!r} above 0 and weakest first, got {ladder}")

    @property
    def default_severity(self) -> float:
        return self.severities[len(self.severities) // 2] if self.default is None else self.default

    @property
    def most(self) -> float:
        """The largest severity that may be asked for: far beyond the ladder a blur takes hours and the rest says nothing."""
        return math.inf if self.severities is SEVERITIES else BEYOND * self.severities[-1]

    def __call__(self, x: Tensor, severity: float, generator: Chance) -> Tensor:
        """`apply`, held to its contract on every sample: same shape and type, finite values, x as it was."""
        version = x._version  # which torch counts up with every change in place
        try:
            with contained():
                result: object = self.apply(x, severity, generator)  # type: ignore[arg-type]  # `rowwise` takes both
        except (InputError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # the user's own function, which may raise anything
            tried = f"failed on inputs of shape {tuple(x.shape)} at severity {severity:g}"
            what = f"{type(error).__name__}: {error}; expected a function (x, severity, generator) -> x"
            raise self.error(f"{tried} with {what}") from error
        if not isinstance(result, Tensor):
            raise self.error(f"returned {type(result).__name__}: expected a torch tensor")
        if result.shape != x.shape:
            raise self.error(f"returned shape {tuple(result.shape)} for inputs of {tuple(x.shape)}")
        if result.dtype != x.dtype:
            raise self.error(f"returned {result.dtype} for inputs of {x.dtype}: end with .to(x)")
        if result.device != x.device:
            raise self.error(f"returned values on {result.device} for inputs on {x.device}: end with .to(x)")
        if x._version != version:
            raise self.error("changed its input in place: work on x.clone()")
        if not torch.isfinite(result).all():
            raise self.error("returned NaN or infinite values for finite inputs")
        return result

    def error(self, why: str) -> InputError:
        """What is wrong with this filter, as an error to raise."""
        return InputError(f"the filter {self.name!r} {why}")

    def at_rate(self, rate: float | None) -> Filter:
        """This filter for data of `rate` samples a second; itself where it does not ask or nobody knows."""
        if not self.rated or rate is None:
            return self
        if rate <= self.least_rate:
            need = f"needs more than {self.least_rate:g} samples a second, the data have {rate:g}"
            raise self.error(f"{need}: load them at a higher rate or leave it out")
        asking: Callable[..., Tensor] = self.apply
        return replace(self, apply=partial(asking, rate=rate), source=self)

    def at_scale(self, scale: Tensor) -> Filter:
        """This filter for inputs of which 1 is `scale` (b, 1, ...) of the data's unit; itself where it does not ask."""
        asking: Callable[..., Tensor] = self.apply
        return replace(self, apply=partial(asking, scale=scale), source=self.source or self) if self.scaled else self


def draw(of: Callable[..., Tensor], shape: tuple[int, ...], chance: Chance, dtype: torch.dtype) -> Tensor:
    """`of`, torch.rand or torch.randn, of this shape, whose first axis are rows."""
    if isinstance(chance, Generator):
        return of(shape, generator=chance, device=chance.device, dtype=dtype)
    own = [of((1, *shape[1:]), generator=each, device=each.device, dtype=dtype) for each in chance]
    return torch.cat(own)


# Filters that need models of the user's, which are made where these are loaded (`rlab.priors.gradients`).
GRADIENTS = {
    "fgsm": "one step against the gradient of the surrogates' margins; severity is its size, a share of the range",
    "pgd": "ten steps against the gradients of the surrogates' margins; severity is the most any value changes by",
}
# A family is one name for several filters, e.g. illuminate for brighter and darker; it may depend on the channels.
Family = Callable[[int], tuple[Filter, ...]]
FAMILIES: dict[str, Family] = {}


def register(family: str | Filter, members: Family | None = None) -> None:
    """Makes a filter, or a family of them, available by name."""
    if isinstance(family, Filter):
        alone = (family,)
        FAMILIES[family.name] = lambda channels: alone
    else:
        assert members is not None
        FAMILIES[family] = members


def built_in(severities: tuple[float, ...], about: str, **fields: Any) -> Callable[[Function], Function]:
    """Registers the function below as a filter of its name; `fields` are further ones of `Filter`."""

    def add(apply: Function) -> Function:
        register(Filter(apply.__name__, apply, severities, about=about, **fields))
        return apply

    return add


def built_in_pair(severities: tuple[float, ...], more: str, less: str, **fields: Any) -> Callable[[Function], Function]:
    """Registers the function below, which takes a `sign`, as the filters name+ (about: `more`) and name- (`less`)."""

    def add(apply: Function) -> Function:
        name = apply.__name__
        pair = tuple(
            Filter(f"{name}{mark}", partial(apply, sign=sign), severities, clip=True, about=about, **fields)
            for mark, sign, about in (("+", 1, more), ("-", -1, less))
        )
        register(name, lambda channels: pair)
        return apply

    return add


def from_path(path: str) -> Filter:
    """'package.module:function' -> a filter; the function may also be a Filter already."""
    module_name, _, attribute = path.partition(":")
    try:
        with contained():
            function = getattr(import_named(module_name), attribute)
    except Exception as error:  # the user's own module runs here and may raise anything
        raise InputError(f"cannot load the filter {path!r}: {type(error).__name__}: {error}") from error
    return as_filter(function)


def as_filter(function: object) -> Filter:
    """A Filter as it is; a plain function becomes one, with `.severities`, `.ranks`, `.clip`, ... if it carries them."""
    if isinstance(function, Filter):
        return function
    if not callable(function):
        raise InputError(f"expected a filter function (x, severity, generator) -> x, got {type(function).__name__}")
    name = getattr(function, "__name__", type(function).__name__)
    severities, ranks = getattr(function, "severities", SEVERITIES), getattr(function, "ranks", (1, 2, 3))
    if not all(isinstance(listed, list | tuple | set | frozenset) for listed in (severities, ranks)):
        raise InputError(f"expected lists as severities and ranks of the filter {name!r}, got {severities} and {ranks}")
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
