"""What comes with the package: `auto`, the belief search with the trained prior for the data at hand, and `agents` for clips."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from torch import Tensor

from rlab.core.env import Proposal, State, Task
from rlab.core.goals import Goal
from rlab.core.grid import PatchGrid
from rlab.errors import InputError
from rlab.policies.agent_file import load_policy
from rlab.policies.base import Policy
from rlab.policies.belief import BeliefPolicy
from rlab.policies.video import PairPolicy
from rlab.priors.base import NoPrior, Prior
from rlab.priors.file import read_header, read_prior
from rlab.priors.trained import TrainedPrior
from rlab.storage.config import check_options, did_you_mean

SMALL = 96  # pixels: the longer side up to which an image is a small one
_ASSETS = ("prior_", "agent_", "controller")  # what the names of files begin with, demos apart
_KINDS = {"prior": "direction prior", "clips": "pair of agents"}


def shipped() -> dict[str, str]:
    """The file of each prior or agent that is there, by its name."""
    assets = sorted(entry.name for entry in (files("rlab") / "assets").iterdir())
    return {name.removesuffix(".safetensors").rpartition("_")[2]: name for name in assets if name.startswith(_ASSETS)}


def card(name: str) -> dict[str, Any]:
    """Which data and models a prior or an agent was trained on, what it never saw, and by which command."""
    with as_file(files("rlab") / "assets" / shipped()[name]) as path:
        header = read_header(path)
    return {"kind": _KINDS.get(header.kind, header.kind), **header.about}


@cache
def shipped_prior(name: str) -> TrainedPrior:
    with as_file(files("rlab") / "assets" / shipped()[name]) as path:
        return read_prior(path)[0]


@cache
def shipped_pair() -> PairPolicy:
    with as_file(files("rlab") / "assets" / shipped()["clips"]) as path:
        policy = load_policy(path)
    assert isinstance(policy, PairPolicy)
    return policy


def fitting(shape: tuple[int, ...]) -> str | None:
    """The name of the prior for inputs of this shape (c, *size); None where none was trained for them."""
    size = shape[1:]
    name = ("signals", "images" if max(size) <= SMALL else "photos", "clips")[len(size) - 1]
    return name if name in shipped() and shipped_prior(name).fits(shape) else None


class ShippedPrior(Prior):
    """The prior that comes with the package for data like those at hand, none where there is none."""

    def __str__(self) -> str:
        return "trained"

    def suited(self, shape: tuple[int, ...]) -> Prior:
        name = fitting(shape)
        return NoPrior() if name is None else shipped_prior(name)

    def directions(self, x: Tensor, y: Tensor, scale: Tensor, goal: Goal) -> Tensor | None:
        return self.suited(tuple(x.shape[1:])).directions(x, y, scale, goal)


_PRIORS: dict[str, type[Prior]] = {"none": NoPrior, "trained": ShippedPrior}


def make_prior(name: str) -> Prior:
    """'none', 'trained' (the shipped one for the data) or a file of `rlab train`."""
    if name in _PRIORS:
        return _PRIORS[name]()
    if not name.endswith(".safetensors"):
        raise InputError(
            f"expected prior to be {', '.join(_PRIORS)} or a .safetensors file of rlab train, got {name!r}"
        )
    return read_prior(Path(name))[0]


@dataclass(frozen=True)
class AutoPolicy(Policy):
    """The belief search with the shipped prior that fits the data, none for clips. `options` are the belief's."""

    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "auto"

    def propose(self, state: State, task: Task) -> Proposal:
        raise InputError(
            "'auto' stands for several policies: ask for the one that is suited to a grid, AutoPolicy.suited"
        )

    def suited(self, grid: PatchGrid) -> BeliefPolicy:
        """Clips get no prior: along the directions that the two agents see by, C3D's first flips took twice the queries."""
        return self.belief() if grid.rank < 3 else BeliefPolicy(**self.options)

    def belief(self) -> BeliefPolicy:
        """The belief search, whatever the data are."""
        return BeliefPolicy(prior=ShippedPrior(), **self.options)


def make_auto(**options: Any) -> AutoPolicy:
    """'auto' and its options, refused here if the belief search does not take them."""
    known = sorted({option.name for option in fields(BeliefPolicy)} - {"prior"})
    if unknown := sorted(set(options) - set(known)):
        hint = did_you_mean(unknown[0], known, 0.6)
        raise InputError(f"the policy 'auto' does not take the options {unknown[0]}.{hint} It has {', '.join(known)}")
    check_options(BeliefPolicy, options, "the policy 'auto'")
    return AutoPolicy(options)


def make_agents(**options: Any) -> PairPolicy:
    """'agents': the temporal and the spatial agent for clips that come with the package, and their options."""
    known = sorted({option.name for option in fields(PairPolicy)} - {"network", "name", "mobilenet"})
    if unknown := sorted(set(options) - set(known)):
        hint = did_you_mean(unknown[0], known, 0.6)
        raise InputError(f"the policy 'agents' does not take the options {unknown[0]}.{hint} It has {', '.join(known)}")
    if "clips" not in shipped():
        raise InputError("no agents for clips come with this rlab: name the file of some, agent.safetensors")
    check_options(PairPolicy, options, "the policy 'agents'")
    return replace(shipped_pair(), **options)
