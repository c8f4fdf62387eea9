"""The two agents as a policy: a new clip or model needs no training.

The longer nothing helps, the more random proposals become, up to half of them random tubes. `adapt=k` spends the first k queries
of every clip on trying coarse tubes, whose effects the agents then see as feedback.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from rlab.core.batched import Rows
from rlab.core.env import Accept, Proposal, State, Task
from rlab.core.rng import uniform
from rlab.errors import DataError, OptionError
from rlab.papers.video import saliency, view
from rlab.papers.video.choices import Hierarchy
from rlab.papers.video.pair import Pair, draws_needed, written
from rlab.papers.video.view import FixedView, MobileNet, View, look
from rlab.policies.base import Policy

_WILD = 6  # draws of a random tube


@dataclass(frozen=True)
class PairState(Rows):
    """What the two agents remember."""

    failures: Tensor  # (n,) proposals since the margin last fell
    margin: Tensor  # (n,) at the last proposal
    fixed: FixedView


@dataclass(frozen=True)
class PairPolicy(Policy[PairState]):
    """`temperature` divides the agents' logits; `wild` is how fast the share of random tubes grows with failures."""

    needs: ClassVar[tuple[str, ...]] = ("two trained agents",)
    network: Pair = field(repr=False)
    name: str = "clips"
    temperature: float = 0.5
    wild: float = 0.03
    distortion_weight: float | None = None  # cost of one unit of MAP in a choice; default: the agents' own
    adapt: int = 0  # tries before the first change
    temporal: bool = True  # False keeps every frame
    by_region: bool = True  # False restores single patches only
    levels: int | None = None  # fewer than the agent was trained with
    mobilenet: MobileNet | None = field(default=None, repr=False)
    l2_penalty: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.adapt, int) or self.adapt < 0:
            raise OptionError(f"expected adapt, a number of queries, from 0 up, got {self.adapt!r}")
        if not self.temperature > 0:
            raise OptionError(f"expected temperature above 0, got {self.temperature!r}")
        if not 0 <= self.wild <= 1:
            raise OptionError(f"expected wild, a share of proposals, from 0 to 1, got {self.wild!r}")
        if self.distortion_weight is not None and not self.distortion_weight >= 0:
            raise OptionError(
                f"expected distortion_weight, what a unit of MAP costs, from 0 up, got {self.distortion_weight!r}"
            )
        most = self.network.config.levels
        if self.levels is not None and not 1 <= self.levels <= most:
            raise OptionError(f"the agent {self.name!r} was trained with {most} levels of patches, got {self.levels!r}")
        if self.network.config.encoder == "mobilenet" and self.mobilenet is None:
            raise OptionError(
                f"the agent {self.name!r} sees frames through MobileNet-V2: name its weights, "
                f"agent.safetensors(mobilenet='mobilenet_v2.safetensors')"
            )

    def __str__(self) -> str:
        return f"agent {self.name}"

    def least_steps(self, task: Task) -> int:
        return self.adapt + 1

    def begin(self, state: State, task: Task) -> PairState:
        check_grid(task, self.name)
        self.network.to(state.x.device)
        return PairState(torch.zeros_like(state.margin), state.margin, self._fixed(state, task))

    def _fixed(self, state: State, task: Task) -> FixedView:
        return fixed_view(self.network, state, task, self.mobilenet)

    @torch.no_grad()
    def propose(self, state: State, memory: PairState, task: Task) -> Proposal[PairState]:
        failures = self._failures(state, memory)
        hierarchy = self.network.hierarchy(task.grid, self.levels)
        seen = memory.fixed.seen(state, task)
        count = draws_needed(hierarchy, task.grid.shape[0])
        draw = uniform(state.seed, state.step, count + _WILD)
        temperature = (self.temperature * (1 + 0.2 * failures)).clamp(max=max(4.0, self.temperature))
        act = self.network.act(seen, hierarchy, draw[:, :count], temperature, self.distortion_weight)
        kept = act.kept if self.temporal else torch.ones_like(act.kept)
        assignment = written(state.assignment, kept, act.choice.region, act.choice.entry)
        random = random_tubes(state, task, hierarchy, draw[:, count + 1 :])
        share = (self.wild * (failures - 3)).clamp(0, 0.5)
        assignment = torch.where((draw[:, count] < share)[:, None], random, assignment)
        rule = torch.full((len(state),), Accept.IF_BETTER, device=assignment.device)
        if self.adapt:
            looking = state.step < self.adapt
            assignment = torch.where(looking[:, None], self._look(state, task, seen, hierarchy), assignment)
            rule = torch.where(looking, Accept.IF_FLIPPED, rule)
        return Proposal(assignment, rule, PairState(failures, state.margin, memory.fixed))

    def _failures(self, state: State, memory: PairState) -> Tensor:
        """(n,) proposals since the margin last fell."""
        fell = (state.margin < memory.margin) | (state.step <= self.adapt)
        return torch.where(fell, 0.0, memory.failures + 1)

    def _look(self, state: State, task: Task, seen: View, hierarchy: Hierarchy) -> Tensor:
        """Step j looks at the entry j, then the next, on the coarse cell thought best over all frames, then the next best."""
        member = hierarchy.members[0].to(state.x.device)
        effect = self.network.spatial.see(seen).effect[:, :, 1:].amax(2).sum(1)  # (n, q)
        order = (effect @ member.T.to(effect.dtype)).argsort(dim=1, descending=True, stable=True)
        turn = (state.step // task.entries) % len(member)
        region = member[order.gather(1, turn[:, None]).squeeze(1)]
        kept = torch.ones(len(state), task.grid.shape[0], dtype=torch.bool, device=region.device)
        entry = (1 + state.step % task.entries)[:, None].expand_as(kept)
        return written(state.assignment, kept, region[:, None].expand(-1, kept.shape[1], -1), entry)

    def regions(self, task: Task) -> tuple[Tensor, ...]:
        """Coarse cells over all frames, over ever shorter runs of frames, and on single frames."""
        t = task.grid.shape[0]
        cell = self.network.hierarchy(task.grid, 1).members[0].to(torch.uint8).argmax(0)  # (q,)
        runs = [length for length in (t, t // 2, t // 4, 1) if length] if self.by_region else []
        frame = torch.arange(t)
        return tuple((frame[:, None] // n * (cell.max() + 1) + cell).flatten() for n in dict.fromkeys(runs))

    @torch.no_grad()
    def contribution(self, state: State, task: Task) -> Tensor:
        """Prediction and feedback in equal parts, each scaled to the total drop in margin."""
        effect = self.network.spatial.see(self._fixed(state, task).seen(state, task)).effect[:, :, 0].flatten(1)
        distorted = state.assignment != 0
        taken = (state.margin0 - state.margin).clamp(min=0)[:, None]
        foreseen = (-effect).clamp(min=0).masked_fill(~distorted, 0) + 1e-6 * distorted
        felt = super().contribution(state, task).clamp(min=0).masked_fill(~distorted, 0) + 1e-6 * distorted
        parts = [part / part.sum(1, keepdim=True).clamp(min=1e-12) for part in (foreseen, felt)]
        return taken * (parts[0] + parts[1]) / 2


def check_grid(task: Task, name: str) -> None:
    """Refuse data that are not video."""
    if task.grid.kind != "video":
        raise DataError(f"the agent {name!r} was trained for video, but this is {task.grid.kind} data")


def fixed_view(network: Pair, state: State, task: Task, mobilenet: MobileNet | None = None) -> FixedView:
    config, grid = network.config, task.grid
    unit = state.x0 / state.scale.view(-1, *(1,) * (state.x0.dim() - 1))
    if mobilenet is not None:
        mobilenet.to(state.x.device)
    frames = look(unit, grid.shape[0], config.channels, mobilenet)
    hints = saliency.over(saliency.of_clips(unit), grid) if config.hints else None
    with torch.no_grad():
        return view.fixed(state, grid, config.channels, frames, hints, network.compass)


def random_tubes(state: State, task: Task, hierarchy: Hierarchy, draw: Tensor) -> Tensor:
    """(n, p): a random run of frames, a random cell of a random level, a random entry; always some change. draw (n, 5)."""
    t = task.grid.shape[0]
    length = (t ** draw[:, 0]).round().clamp(1, t)  # short runs as often as long ones
    first = (draw[:, 1] * (t - length + 1)).floor()
    at = torch.arange(t, device=draw.device)
    kept = (at >= first[:, None]) & (at < (first + length)[:, None])
    region = torch.zeros(len(state), hierarchy.members[0].shape[1], dtype=torch.bool, device=draw.device)
    level = (draw[:, 2] * hierarchy.levels).long()
    for number, member in enumerate(hierarchy.members):
        cell = member.to(draw.device)[(draw[:, 3] * len(member)).long()]
        region = torch.where((level == number)[:, None], cell, region)
    entry = (draw[:, 4] * (task.entries + 1)).long()
    wide = region[:, None].expand(-1, t, -1)
    proposed = written(state.assignment, kept, wide, entry[:, None].expand_as(kept))
    idle = (proposed == state.assignment).all(1)
    other = ((entry + 1) % (task.entries + 1))[:, None].expand_as(kept)
    return torch.where(idle[:, None], written(state.assignment, kept, wide, other), proposed)
