"""The critic: how likely a candidate flips the victim, from what the simulator's networks and the belief say of it.

It corrects the forecast of `Trust`, the analytic rule: untrained, it changes nothing. What it reads holds for any number of
networks, any kind of data, palette, distance and goal: margins are in units of the initial margin, distances are ratios.
Shapes: n samples, c candidates, s networks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rlab.core.batched import Rows
from rlab.errors import ModelError
from rlab.priors.file import fill, read_weights, write_weights

CRITIC = "critic"  # a kind of file
OF_NETWORK, OF_CANDIDATE = 4, 13  # numbers that describe what one network says, and a candidate
WIDTH = 32
MOST = 1.5  # largest change of the forecast's log standard deviation


@dataclass(frozen=True)
class Evidence(Rows):
    """What is known of each candidate before it is queried."""

    of_network: Tensor  # (n, c, s, OF_NETWORK)
    of_candidate: Tensor  # (n, c, OF_CANDIDATE)
    mean: Tensor  # (n, c) the analytic forecast of the margin
    deviation: Tensor  # (n, c) its standard deviation


class Critic(nn.Module):
    """Evidence -> mean and standard deviation (n, c) of the victim's margin."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Linear(OF_NETWORK + OF_CANDIDATE, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU()
        )
        self.candidate = nn.Sequential(
            nn.Linear(WIDTH + OF_CANDIDATE, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU()
        )
        self.out = nn.Linear(WIDTH, 2)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, evidence: Evidence) -> tuple[Tensor, Tensor]:
        of_network, of_candidate = evidence.of_network, evidence.of_candidate
        both = torch.cat([of_network, of_candidate[:, :, None].expand(-1, -1, of_network.shape[2], -1)], 3)
        pooled = self.network(both).mean(2)
        shift, scale = self.out(self.candidate(torch.cat([pooled, of_candidate], 2))).unbind(2)
        return evidence.mean + shift, evidence.deviation * scale.clamp(-MOST, MOST).exp()


def analytic(evidence: Evidence) -> tuple[Tensor, Tensor]:
    """The forecast as it is."""
    return evidence.mean, evidence.deviation


def save_critic(critic: Critic, path: Path, card: Mapping[str, Any]) -> None:
    write_weights(path, CRITIC, critic.state_dict(), {}, card)


def read_critic(path: Path) -> Critic:
    """The critic in a file of `save_critic`."""
    header, weights = read_weights(path)
    if header.kind != CRITIC:
        raise ModelError(f"expected {path} to hold a critic, got kind {header.kind!r}")
    return fill(Critic, weights, path).requires_grad_(False)
