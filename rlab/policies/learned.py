"""The learned agent as a policy: value every change, take the best set, and explore more the longer nothing helps."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

from rlab.core.env import IF_BETTER, Proposal, State, Task
from rlab.core.rng import uniform
from rlab.errors import InputError
from rlab.policies.base import Policy, legal_adds
from rlab.policies.features import Features, fixed, moving, pack, unpack
from rlab.policies.qmap import QMap, QMapConfig, best_set
from rlab.runs.aliases import renamed

VERSION = 2  # of agent files


@dataclass(frozen=True)
class LearnedPolicy(Policy):
    """`restraint` lowers the value of what was tried before; `noise` is how much chance each failure in a row adds,
    in units of the spread of the values."""

    network: QMap = field(repr=False)
    name: str = "agent"
    restraint: float = 0.1
    noise: float = 0.1
    most: int | None = None  # patches a step may change at most
    restore: bool = True  # whether it may take changes back; the two below are there to measure what they are worth
    feedback: bool = True  # whether it sees what its tries brought
    l2_penalty: float = 0.0

    def __post_init__(self) -> None:
        if self.most is not None and (not isinstance(self.most, int) or self.most < 1):
            raise InputError(f"expected most, the patches a step may change, to be at least 1, got {self.most!r}")

    def __str__(self) -> str:
        return f"agent {self.name}"

    def begin(self, state: State, task: Task) -> Tensor:
        """Failures in a row, the last margin, then the fixed features."""
        if task.grid.rank != self.network.config.rank:
            kinds = ("signals", "images", "video")
            raise InputError(
                f"the agent {self.name!r} was trained for {kinds[self.network.config.rank - 1]}, "
                f"but the data are {kinds[task.grid.rank - 1]}"
            )
        self.network.to(state.x.device)
        own = self._look(state, task)
        return torch.cat([torch.zeros(len(state), 1, device=state.x.device), state.margin[:, None], own], 1)

    @torch.no_grad()
    def propose(self, state: State, task: Task) -> Proposal:
        failures = torch.where(state.margin < state.memory[:, 1], 0.0, state.memory[:, 0] + 1)
        failures = torch.where(state.step == 0, 0.0, failures)
        seen = self._seen(state, task)
        q = self.network(seen).float()
        q = q - self.restraint * state.tried[:, None]
        q = q + self._chance(state, failures, q)
        legal = legal_adds(state)
        legal[:, 0] &= self.restore
        q = q.masked_fill(~legal[:, None], -torch.inf)
        most = len(task.grid) if self.most is None else self.most
        counts = tuple(min(count, most) for count in self.network.config.counts(len(task.grid)))
        plane, entry, patch = best_set(q, counts)
        assignment = write(state.assignment, entry, patch)
        memory = torch.cat([failures[:, None], state.margin[:, None], state.memory[:, 2:]], 1)
        return Proposal(assignment, torch.full_like(plane, IF_BETTER), memory)

    @torch.no_grad()
    def values(self, state: State, task: Task) -> Tensor:
        """(n, f + 1, p): what it expects of each single change as things stand; asks nothing."""
        if not self.network.config.heads:
            return self.network(self._seen(state, task))[:, 0].float()
        lean = self._fixed(state, task)["projection"].mean(2).flatten(2)
        return F.pad(lean, (0, 0, 1, 0))

    @torch.no_grad()
    def contribution(self, state: State, task: Task) -> Tensor:
        """What the margin fell by, shared among the held patches by how far they go along the compass's directions."""
        if not self.network.config.heads:
            return super().contribution(state, task)
        lean = self._fixed(state, task)["projection"].mean(2).flatten(2).clamp(min=0)  # (n, f, p)
        held = state.assignment[:, None]
        share = F.pad(lean, (0, 0, 1, 0)).gather(1, held).squeeze(1) + 1e-3 * (state.assignment != 0)
        fallen = (state.margin0 - state.margin)[:, None]
        return fallen * share / share.sum(1, keepdim=True).clamp(min=1e-9)

    @torch.no_grad()
    def _look(self, state: State, task: Task) -> Tensor:
        """The fixed features, a few rows at a time: the compass needs more memory than the rest."""
        config, compass = self.network.config, self.network.compass
        return torch.cat([pack(fixed(part, task.grid, config.channels, compass)) for part in _parts(state, 64)])

    def _chance(self, state: State, failures: Tensor, q: Tensor) -> Tensor:
        """Gumbel noise that grows with failures, in every plane and between them: a stuck row ends up trying everything."""
        planes, entries, patches = q.shape[1:]
        draw = uniform(state.seed, state.step, planes + entries * patches)
        gumbel = -(-(draw.clamp(min=1e-7)).log()).log()
        within = gumbel[:, planes:].view(-1, 1, entries, patches) * q.flatten(2).std(2)[:, :, None, None]
        best = q.flatten(2).amax(2)
        between = (gumbel[:, :planes] * best.std(1, keepdim=True))[:, :, None, None]
        return (within + between) * (self.noise * failures).view(-1, 1, 1, 1)

    def _seen(self, state: State, task: Task) -> Features:
        if not self.feedback:
            blank = torch.zeros_like(state.feedback)
            state = replace(state, feedback=blank, tried=blank)
        return moving(state, task, self.network.config.channels) | self._fixed(state, task)

    def _fixed(self, state: State, task: Task) -> Features:
        return unpack(state.memory[:, 2:], task, self.network.config.channels, self.network.config.heads)


def _parts(state: State, size: int) -> list[State]:
    rows = torch.arange(len(state), device=state.x.device)
    return [state[part] for part in rows.split(size)]


def write(assignment: Tensor, entry: Tensor, patch: Tensor) -> Tensor:
    """assignment (n, p) with entry (n, m) written at patch (n, m); -1 is nowhere."""
    spare = torch.cat([assignment, assignment[:, :1]], 1)
    spare.scatter_(1, torch.where(patch < 0, assignment.shape[1], patch), entry.clamp(min=0))
    return spare[:, :-1]


def save_agent(network: QMap, path: Path, about: dict[str, Any]) -> None:
    """One safetensors file in half precision; its header holds the network's shape and what it was trained on."""
    weights = {name: value.detach().half().cpu().contiguous() for name, value in network.state_dict().items()}
    header = {"version": VERSION, "network": asdict(network.config), "about": about}
    save_file(weights, path, metadata={"rlab": json.dumps(header)})


def read_agent(path: Path) -> tuple[QMap, dict[str, Any]]:
    """The network in evaluation mode, and what the file says of it."""
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("rlab", "null"))
            weights = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise InputError(f"there is no agent file {path}") from None
    except (OSError, SafetensorError, json.JSONDecodeError) as error:
        raise InputError(f"cannot read the agent {path}: {error}") from error
    if not isinstance(header, dict) or header.get("version") != VERSION:
        found = header.get("version") if isinstance(header, dict) else None
        raise InputError(
            f"{path} is an agent file of version {found}, this rlab reads version {VERSION}: train it again"
        )
    try:
        shape = header["network"]
        network = QMap(QMapConfig(**(shape | {"shares": tuple(shape["shares"])})))
        network.load_state_dict(weights)
    except (KeyError, TypeError, RuntimeError) as error:
        raise InputError(f"the weights in {path} do not fit the network its header describes") from error
    return network.eval(), renamed(header["about"])


def load_policy(path: Path, **options: Any) -> LearnedPolicy:
    """The agent in a file, ready to propose."""
    network, about = read_agent(path)
    priced = {"l2_penalty": float(about.get("l2_penalty", 0.0))} | options
    return LearnedPolicy(network, name=path.stem.removeprefix("agent_"), **priced)
