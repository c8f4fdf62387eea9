"""An attack of your own in a comparison: a policy, or a function (recorder, rows), as an object or as 'my_module:my_attack'."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

from torch import Tensor

from rlab.comparison.outcome import AttackOutcome, Contender
from rlab.comparison.recorder import QueryRecorder, check_unit, failing, run_recorded
from rlab.core.rng import seeded_globals
from rlab.data.batch import Batch
from rlab.errors import OptionError
from rlab.policies import policy_spec
from rlab.policies.base import Policy
from rlab.progress import Progress, quiet
from rlab.victims.base import Victim

Function = Callable[[QueryRecorder, Tensor], object]
OWN = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")  # MODULE:NAME


@dataclass(frozen=True)
class OwnContender(Contender):
    """A function of the user that asks a recorder; it attacks one sample at a time."""

    name: str
    function: Function

    @property
    def needs(self) -> tuple[str, ...]:
        return ("what your code uses",)

    def check(self, batch: Batch, budget: int) -> None:
        check_unit(batch)

    def __call__(
        self, victim: Victim, batch: Batch, budget: int, seed: int, progress: Progress = quiet
    ) -> AttackOutcome:
        def run(recorder: QueryRecorder, rows: Tensor) -> None:
            with failing(self.name, recorder.x):
                self.function(recorder, rows)

        with seeded_globals(seed):
            return run_recorded(victim, batch, budget, run, "budget", progress=progress)


def own_attack(thing: object) -> Policy[Any] | OwnContender:
    """A policy, also from its class, or the contender of a function; given as an object or as MODULE:NAME."""
    name, found = (thing if isinstance(thing, str) else own_name(thing)), thing
    if isinstance(thing, str):
        try:
            found = resolve_name(thing)
        except (ImportError, AttributeError, ValueError) as error:
            raise OptionError(f"cannot import the attack {thing!r}: {error}") from error
    if isinstance(found, type) and issubclass(found, Policy):
        found = found()
    if isinstance(found, Policy):
        return found
    if not callable(found) or isinstance(found, type):
        raise OptionError(f"expected an attack as a policy or a function (recorder, rows), got {type(found).__name__}")
    try:
        inspect.signature(found).bind(None, None)
    except TypeError:
        wanted = f"expected the attack {name} to be a function (recorder, rows)"
        raise OptionError(f"{wanted}, got other parameters") from None
    return OwnContender(name, found)


def own_name(thing: object) -> str:
    """How tables name an attack that was passed as an object."""
    if isinstance(thing, Policy) and " object at 0x" not in (spec := policy_spec(thing)):
        return spec
    return str(getattr(thing, "__name__", type(thing).__name__))
