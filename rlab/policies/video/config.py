"""The shape of the two agents: what stands in an agent's file beside its weights."""

from __future__ import annotations

from dataclasses import dataclass

from rlab.errors import InputError
from rlab.policies.video.encoder import ENCODERS, Encoder, depth_of
from rlab.policies.video.hierarchy import Hierarchy
from rlab.policies.video.view import CELLS, CHANGE_MAPS


@dataclass(frozen=True)
class PairConfig:
    channels: int = 3
    width: int = 32
    entry_width: int = 16
    blocks: int = 2
    levels: int = 2
    coarse: int = 4  # cells along each side of a frame at the first level
    encoder: Encoder = "small"
    temporal: bool = True  # without it every frame is kept, and there is one agent
    hints: bool = False  # whether objectness and motion are seen too; they then need OpenCV wherever the agent is used
    heads: int = 0  # directions of the compass both agents see by; 0 is no compass
    compass_width: int = 16
    compass_levels: int = 3
    shrink: int = 2
    thrift: float = 0.0  # what a unit of MAP costs when a change is chosen, as a share of the first margin

    def __post_init__(self) -> None:
        Hierarchy((1, 1), self.coarse, self.levels)
        if self.encoder not in ENCODERS:
            raise InputError(f"expected encoder to be one of {', '.join(ENCODERS)}, got {self.encoder!r}")

    @property
    def depth(self) -> int:
        """Numbers a frame."""
        return depth_of(self.encoder, self.channels)

    @property
    def changes(self) -> int:
        """Maps of what an entry would change: its mean, power and size, and how far it goes along each direction."""
        return CHANGE_MAPS + self.heads

    @property
    def wide(self) -> int:
        """Maps of cells."""
        return self.channels * CELLS * CELLS + 2 * self.hints
