"""Methods from captum, with queries counted by the same meter: Kernel SHAP, LIME and occlusion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from rlab.errors import MissingExtra, optional
from rlab.explanation.base import ExplanationTask, Method, removed
from rlab.explanation.maps import even_grid, mean_fill, raise_patches

AT_ONCE = 64  # rows per batch in captum


def captum() -> Any:
    """captum's attribution methods, from the extra 'explain'."""
    return optional("captum.attr", MissingExtra("captum", "explain"))


@dataclass(frozen=True)
class Line(Method):
    """The coefficients of a linear model of the output on random sets of patches, which captum weights."""

    attribution: ClassVar[str]  # captum's name
    samples: int = 700  # queried sets
    along: int = 8  # patches per axis
    remove: str = "mean"

    def most(self, size: tuple[int, ...]) -> int:
        return 1 + self.samples

    def draw(self, task: ExplanationTask) -> Tensor:
        grid, fill = even_grid(task.size, self.along), removed(task, self.remove)
        patches = grid.expand(torch.arange(len(grid), device=fill.device).float()[None])[:, None].long()
        weights = []
        for row, seed in enumerate(task.seeds.tolist()):
            whose = torch.tensor(row, device=fill.device)
            fit = getattr(captum(), self.attribution)
            method = fit(lambda x, whose=whose: task.probability(x, whose.expand(len(x))))
            with torch.random.fork_rng():  # captum uses torch's global generator
                torch.manual_seed(seed % 2**63)
                coefficients = method.attribute(
                    task.x0[row : row + 1],
                    baselines=fill[row : row + 1],
                    feature_mask=patches,
                    n_samples=self.samples,
                    perturbations_per_eval=AT_ONCE,
                    return_input_shape=False,
                )
            weights.append(coefficients.flatten())
        return raise_patches(torch.stack(weights).float(), grid)


@dataclass(frozen=True)
class KernelShap(Line):
    """Sets weighted by Shapley's kernel, and least squares. Lundberg and Lee 2017, https://arxiv.org/abs/1705.07874."""

    name = "kernel_shap"
    attribution = "KernelShap"


@dataclass(frozen=True)
class Lime(Line):
    """Sets near the input count most, and the lasso selects few patches. Ribeiro et al. 2016, https://arxiv.org/abs/1602.04938."""

    name = "lime"
    attribution = "Lime"


@dataclass(frozen=True)
class CaptumOcclusion(Method):
    """captum's occlusion: windows two patches long move by one patch; a point is the mean over windows that hide it."""

    name = "captum_occlusion"
    along: int = 14  # steps of the window per axis

    def most(self, size: tuple[int, ...]) -> int:
        return 2 + len(even_grid(size, self.along))  # captum also queries the clean input

    def draw(self, task: ExplanationTask) -> Tensor:
        sides, channels = even_grid(task.size, self.along).patch, task.x0.shape[1]
        window = (channels, *(min(2 * s, n) for s, n in zip(sides, task.size, strict=True)))
        every, fill = torch.arange(len(task), device=task.x0.device), mean_fill(task.x0).expand_as(task.x0).contiguous()
        occlusion = captum().Occlusion(lambda x: task.query(x, every.repeat(len(x) // len(task))))
        maps = occlusion.attribute(task.x0, window, (channels, *sides), fill, perturbations_per_eval=8)
        return torch.as_tensor(maps).detach().mean(1)
