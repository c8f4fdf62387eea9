"""Baselines that the captum library brings, for any rank: integrated gradients and its sliding-window occlusion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlab.errors import MissingExtra
from rlab.explanation.base import Case, Method
from rlab.explanation.black import plain_fill
from rlab.explanation.maps import even_grid
from rlab.victims.torch_module import TorchVictim, arrange, tensor_scores


def _captum() -> Any:
    try:
        import captum.attr
    except ImportError as error:
        raise MissingExtra("captum", "explain") from error
    return captum.attr


@dataclass(frozen=True)
class IntegratedGradients(Method):
    """Gradients along the straight way from the sample's mean to the sample; absolute values summed over channels.

    Sundararajan et al. 2017, https://arxiv.org/abs/1703.01365.
    """

    name = "integrated_gradients"
    gradients = True
    together = 4
    steps: int = 50

    def draw(self, case: Case) -> Tensor:
        victim = case.victim
        assert isinstance(victim, TorchVictim)

        def forward(x: Tensor) -> Tensor:
            return tensor_scores(victim.model(arrange(x, victim.normalise, victim.layout).to(victim.dtype)))

        baseline = plain_fill(case.x0).expand_as(case.x0).contiguous()
        found: Tensor = (
            _captum()
            .IntegratedGradients(forward)
            .attribute(case.x0, baselines=baseline, target=case.labels, n_steps=self.steps, internal_batch_size=64)
        )
        case.charge(self.steps)
        return found.detach().abs().sum(1)


@dataclass(frozen=True)
class CaptumOcclusion(Method):
    """captum's occlusion: windows of two patches' length that move by one, each point the mean of those that hide it."""

    name = "captum_occlusion"
    along: int = 14  # steps of the window on every axis

    def draw(self, case: Case) -> Tensor:
        sides, channels = even_grid(case.size, self.along).patch, case.x0.shape[1]
        every = torch.arange(len(case), device=case.x0.device)

        def forward(x: Tensor) -> Tensor:
            samples = every.repeat(len(x) // len(case))
            return case.belief(case.ask(x, samples), samples)

        window = tuple(min(2 * side, length) for side, length in zip(sides, case.size, strict=True))
        found: Tensor = (
            _captum()
            .Occlusion(forward)
            .attribute(
                case.x0,
                sliding_window_shapes=(channels, *window),
                strides=(channels, *sides),
                baselines=plain_fill(case.x0).expand_as(case.x0).contiguous(),
                perturbations_per_eval=8,
            )
        )
        return found.detach().mean(1)
