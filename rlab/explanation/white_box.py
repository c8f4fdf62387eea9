"""White-box baselines for any rank: integrated gradients, and class activation maps of the last convolution.

captum has only Grad-CAM of these, and reads a layer's last call: not the features if the head reuses the activation.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rlab.errors import ModelError
from rlab.explanation.base import Count, Drawn, ExplanationTask
from rlab.explanation.black_box import captum
from rlab.explanation.maps import mean_fill, resize, to_unit
from rlab.victims.torch_module import TorchVictim

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
ROWS, AT_ONCE = 256, 4  # rows per batch; samples at once on the way from the mean


def integrated_gradients(task: ExplanationTask, *, steps: Count = 50) -> Drawn:
    """Gradients on the line from the sample's mean to the sample; absolute values summed over channels.

    Sundararajan et al. 2017, https://arxiv.org/abs/1703.01365.
    """
    parts = []
    for rows in torch.arange(len(task), device=task.x0.device).split(AT_ONCE):
        x0 = task.x0[rows]
        attribution = captum().IntegratedGradients(
            lambda x, rows=rows: task.forward(x, rows.repeat(len(x) // len(rows)))
        )
        baseline = mean_fill(x0).expand_as(x0).contiguous()
        parts.append(attribution.attribute(x0, baseline, task.labels[rows], n_steps=steps, internal_batch_size=64))
    by_lead = torch.cat(parts).detach().abs().float()
    return Drawn(by_lead.sum(1), by_lead=by_lead if len(task.batch.leads) > 1 else None)


@dataclass(frozen=True)
class LayerCall:
    """A layer and the number of its call in one forward pass: an activation may be called many times."""

    module: nn.Module
    call: int


def last_features(task: ExplanationTask, x: Tensor) -> tuple[LayerCall, Tensor, Tensor]:
    """Find the last convolution's features, after its norm and activation, in one forward pass.

    x (n, c, *size) -> the layer, its features (n, channels, *coarse) and the raw outputs (n, k).
    """
    last: tuple[LayerCall, Tensor] | None = None
    calls: dict[nn.Module, int] = {}

    def watch(module: nn.Module, inputs: Any, output: Any) -> None:
        nonlocal last
        calls[module] = calls.get(module, 0) + 1
        spread = isinstance(output, Tensor) and output.dim() == x.dim() and output[0, 0].numel() > 1
        if spread and (isinstance(module, CONVOLUTIONS) or (last is not None and output.shape == last[1].shape)):
            last = LayerCall(module, calls[module]), output

    assert isinstance(task.victim, TorchVictim)
    with ExitStack() as hooks:
        for module in task.victim.model.modules():
            hooks.enter_context(module.register_forward_hook(watch))
        outputs = task.forward(x, torch.arange(len(x)))
    if last is None:
        raise ModelError(
            "class activation maps need a convolution whose output keeps the input's axes, and the model has none: "
            "omit gradcam, gradcam++, ablationcam and scorecam"
        )
    return *last, outputs


def silenced(task: ExplanationTask, rows: Tensor, layer: LayerCall, channels: Tensor) -> Tensor:
    """Raw outputs (m, k) of the samples `rows` (m,), each with one channel (m,) of the layer set to zero."""
    calls = 0

    def silence(module: nn.Module, inputs: Any, output: Tensor) -> Tensor | None:
        nonlocal calls
        calls += 1
        if calls != layer.call:
            return None
        changed = output.clone()
        changed[torch.arange(len(rows), device=output.device), channels] = 0
        return changed

    with layer.module.register_forward_hook(silence):
        return task.forward(task.x0[rows], rows)


Weights = Callable[[ExplanationTask, LayerCall, Tensor, Tensor], Tensor]


def activation_map(weights: Weights, task: ExplanationTask) -> Tensor:
    """The features weighted by channel, clipped at zero and resized to the input.

    `weights`: task, layer, features a (n, channels, *coarse), raw outputs (n, k) -> (n, channels).
    """
    with torch.enable_grad():
        layer, a, outputs = last_features(task, task.x0.detach().clone().requires_grad_())
    by_channel = weights(task, layer, a, outputs)
    maps = (a.detach() * by_channel.view(*by_channel.shape, *(1,) * (a.dim() - 2))).sum(1)
    return resize(maps.clamp(min=0).float(), task.size)


def _gradient(task: ExplanationTask, a: Tensor, outputs: Tensor) -> Tensor:
    """(n, channels, points): gradient of the class's raw output with respect to the features."""
    return torch.autograd.grad(outputs.gather(1, task.labels[:, None]).sum(), a)[0].flatten(2)


def gradcam(task: ExplanationTask, layer: LayerCall, a: Tensor, outputs: Tensor) -> Tensor:
    """A channel's weight is its mean gradient. Selvaraju et al. 2017, https://arxiv.org/abs/1610.02391."""
    return _gradient(task, a, outputs).mean(2)


def gradcam_plus_plus(task: ExplanationTask, layer: LayerCall, a: Tensor, outputs: Tensor) -> Tensor:
    """Only positive gradients count, weighted by place. Chattopadhay et al. 2018, https://arxiv.org/abs/1710.11063."""
    gradient = _gradient(task, a, outputs)
    below = 2 * gradient**2 + a.detach().flatten(2).sum(2, keepdim=True) * gradient**3
    alpha = torch.where(gradient != 0, gradient**2 / torch.where(below != 0, below, 1.0), 0.0)
    return (alpha * gradient.clamp(min=0)).sum(2)


@torch.no_grad()
def ablationcam(task: ExplanationTask, layer: LayerCall, a: Tensor, outputs: Tensor) -> Tensor:
    """A channel's weight is the relative drop of the class's raw output without it, by one forward pass.

    Desai and Ramaswamy 2020, https://arxiv.org/abs/1912.00349.
    """
    start = outputs.gather(1, task.labels[:, None])

    def without(rows: Tensor, channels: Tensor) -> Tensor:
        return silenced(task, rows, layer, channels).gather(1, task.labels[rows][:, None]).squeeze(1)

    left = task.answers(a.shape[1], without, ROWS)
    return (start - left) / torch.where(start.abs() > 1e-6, start.abs(), 1.0)


@torch.no_grad()
def scorecam(task: ExplanationTask, layer: LayerCall, a: Tensor, outputs: Tensor) -> Tensor:
    """A channel's weight is the class's probability when only the channel's area shows, by one query, after a softmax.

    Wang et al. 2020, https://arxiv.org/abs/1910.01279.
    """
    fill = mean_fill(task.x0)

    def shown(rows: Tensor, channels: Tensor) -> Tensor:
        visible, hidden = to_unit(resize(a[rows, channels].float(), task.size)), fill[rows]
        return task.probability(hidden + visible[:, None] * (task.x0[rows] - hidden), rows)

    return task.answers(a.shape[1], shown, ROWS).softmax(1)


CAMS: dict[str, Weights] = {
    "gradcam": gradcam,
    "gradcam++": gradcam_plus_plus,
    "ablationcam": ablationcam,
    "scorecam": scorecam,
}
