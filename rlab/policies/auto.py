"""What ships with the package, and the policy `auto`: the belief search with the shipped prior for the data at hand."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from torch import Tensor

from rlab.core.goals import Goal
from rlab.data.kinds import Kind, kind_of
from rlab.errors import OptionError
from rlab.policies.base import Policy
from rlab.policies.belief import Belief
from rlab.priors.base import NoPrior, Prior
from rlab.priors.file import read_header, read_prior
from rlab.priors.trained import TrainedPrior
from rlab.storage.config import named_keywords

SMALL = 96  # pixels of the longer side of the images that the prior for images was trained for, at most
_ASSETS = ("prior_", "agent_")  # how the names of these files begin
_KINDS = {"prior": "direction prior", "dual_action": "dual-action agent", "two_agents": "two agents"}
_NAMES: dict[Kind, str] = {"signal": "signals", "image": "images"}


def shipped() -> dict[str, str]:
    """The file of each shipped prior or agent, by its name."""
    assets = sorted(entry.name for entry in (files("rlab") / "assets").iterdir())
    return {name.removesuffix(".safetensors").rpartition("_")[2]: name for name in assets if name.startswith(_ASSETS)}


def shipped_path(name: str) -> AbstractContextManager[Path]:
    return as_file(files("rlab") / "assets" / shipped()[name])


def card(name: str) -> dict[str, Any]:
    """Which data and models a shipped file was trained on, which it never saw, and the command that made it."""
    with shipped_path(name) as path:
        header = read_header(path)
    return {"kind": _KINDS.get(header.kind, header.kind), **header.about}


@cache
def shipped_prior(name: str) -> TrainedPrior:
    with shipped_path(name) as path:
        return read_prior(path)[0]


def fitting(shape: tuple[int, ...]) -> str | None:
    """The name of the shipped prior for inputs of this shape (c, *size); None if no prior was trained for them."""
    kind = kind_of(shape[1:])
    name = None if kind == "image" and max(shape[1:]) > SMALL else _NAMES.get(kind)
    return name if name in shipped() and shipped_prior(name).fits(shape) else None


@dataclass(frozen=True)
class ShippedPrior(Prior):
    """The shipped prior that fits the data, none if none fits."""

    def __str__(self) -> str:
        return "trained"

    def suited(self, shape: tuple[int, ...]) -> Prior:
        name = fitting(shape)
        return NoPrior() if name is None else shipped_prior(name)

    def directions(self, x: Tensor, y: Tensor, scale: Tensor, goal: Goal) -> Tensor | None:
        return self.suited(tuple(x.shape[1:])).directions(x, y, scale, goal)


_PRIORS: dict[str, type[Prior]] = {"none": NoPrior, "trained": ShippedPrior}


def make_prior(name: str) -> Prior:
    """'none', 'trained' (the shipped prior for the data) or a file of `rlab train`."""
    if name in _PRIORS:
        return _PRIORS[name]()
    if not name.endswith(".safetensors"):
        raise OptionError(
            f"expected prior to be {', '.join(_PRIORS)} or a .safetensors file of rlab train, got {name!r}"
        )
    return read_prior(Path(name))[0]


@named_keywords
@dataclass(frozen=True)
class Auto(Belief):
    """The default policy: the belief search with the shipped prior that fits the data, or with none if none fits."""

    prior: Prior = field(default_factory=ShippedPrior, repr=False)


def is_auto(policy: Policy[Any]) -> bool:
    """Whether a policy is `auto`, which picks its prior by the data."""
    return isinstance(policy, Auto) and isinstance(policy.prior, ShippedPrior)
