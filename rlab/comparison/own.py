"""An attack of your own in a comparison: a policy, or a function (recorder, rows), as an object or as 'my_module:my_attack'."""

from __future__ import annotations

import inspect
import re
from pkgutil import resolve_name
from typing import Any

from rlab.comparison.recorder import RecordedContender
from rlab.errors import OptionError
from rlab.policies import policy_spec
from rlab.policies.base import Policy

OWN = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")  # MODULE:NAME


def own_attack(thing: object) -> Policy[Any] | RecordedContender:
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
    return RecordedContender(name, found)


def own_name(thing: object) -> str:
    """How tables name an attack that was passed as an object."""
    if isinstance(thing, Policy) and " object at 0x" not in (spec := policy_spec(thing)):
        return spec
    return str(getattr(thing, "__name__", type(thing).__name__))
