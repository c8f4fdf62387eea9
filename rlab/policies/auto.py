"""The agents that come with the package, and `auto`, which takes the one for the data at hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib.resources import as_file, files
from typing import Any

from torch import Tensor

from rlab.core.env import Proposal, State, Task
from rlab.core.grid import PatchGrid
from rlab.errors import InputError
from rlab.policies.base import Policy
from rlab.policies.learned import LearnedPolicy, load_policy, read_agent
from rlab.policies.square import SquarePolicy
from rlab.policies.video import PairPolicy, is_pair, load_pair, read_pair

SMALL = 96  # pixels: the longer side up to which an image is a small one


def shipped() -> list[str]:
    """Names of the agents that are there."""
    found = (entry.name for entry in (files("rlab") / "assets").iterdir())
    return sorted(n.removeprefix("agent_").removesuffix(".safetensors") for n in found if n.startswith("agent_"))


def card(name: str) -> dict[str, Any]:
    """What the agent was trained on, by which configuration, and how it did on validation."""
    with as_file(files("rlab") / "assets" / f"agent_{name}.safetensors") as path:
        return read_pair(path)[1] if is_pair(path) else read_agent(path)[1]


@cache
def load_shipped(name: str) -> LearnedPolicy | PairPolicy:
    with as_file(files("rlab") / "assets" / f"agent_{name}.safetensors") as path:
        return load_pair(path) if is_pair(path) else load_policy(path)


def fitting(grid: PatchGrid) -> str | None:
    """The name of the agent for inputs of this rank and size; None where none is there."""
    name = {1: "signals", 2: "images" if max(grid.size) <= SMALL else "photos", 3: "clips"}[grid.rank]
    return name if name in shipped() else None


@dataclass(frozen=True)
class AutoPolicy(Policy):
    """The shipped agent that fits the data's rank and size, `square` where there is none; `options` are the agent's own."""

    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "auto"

    def begin(self, state: State, task: Task) -> Tensor:
        return self.suited(task.grid).begin(state, task)

    def propose(self, state: State, task: Task) -> Proposal:
        return self.suited(task.grid).propose(state, task)

    def contribution(self, state: State, task: Task) -> Tensor:
        return self.suited(task.grid).contribution(state, task)

    def regions(self, task: Task) -> Sequence[Tensor]:
        return self.suited(task.grid).regions(task)

    def suited(self, grid: PatchGrid) -> Policy:
        name = fitting(grid)
        if name is not None:
            agent = load_shipped(name)
            if other := set(self.options) - {one.name for one in fields(agent)}:
                raise InputError(f"the agent {name!r} has no option {sorted(other)[0]!r}")
            return replace(agent, **self.options)
        if self.options:
            raise InputError(
                f"no agent ships for these data, so that 'auto' is 'square', which has no option {next(iter(self.options))!r}"
            )
        return SquarePolicy()


def auto(**options: Any) -> AutoPolicy:
    """'auto' and its options, refused here if no agent takes them."""
    known = {one.name for kind in (LearnedPolicy, PairPolicy) for one in fields(kind)}
    unknown = set(options) - (known - {"network", "name", "mobilenet"})
    if unknown:
        raise TypeError(sorted(unknown)[0])
    return AutoPolicy(options)
