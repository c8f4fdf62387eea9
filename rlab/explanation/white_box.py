"""White-box baselines for any rank: integrated gradients, and class activation maps at the last convolution's features."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rlab.errors import InputError
from rlab.explanation.base import ExplanationTask, Method, mean_fill
from rlab.explanation.black_box import captum
from rlab.explanation.maps import resize, to_unit
from rlab.victims.base import Victim
from rlab.victims.torch_module import TorchVictim, arrange, tensor_scores

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
ROWS = 256


def raw_outputs(victim: Victim, x: Tensor) -> Tensor:
    """x (n, c, *size) -> what the module itself answers (n, k), in the graph."""
    assert isinstance(victim, TorchVictim)  # checked before a white-box method is drawn
    return tensor_scores(victim.model(arrange(x, victim.normalise, victim.layout).to(victim.dtype)))


@dataclass(frozen=True)
class IntegratedGradients(Method):
    """Gradients along the straight way from the sample's mean to the sample; absolute values summed over channels.

    Sundararajan et al. 2017, https://arxiv.org/abs/1703.01365.
    """

    name = "integrated_gradients"
    gradients = True
    together = 4
    steps: int = 50

    def draw(self, task: ExplanationTask) -> Tensor:
        baseline = mean_fill(task.x0).expand_as(task.x0).contiguous()
        attribution = captum().IntegratedGradients(lambda x: raw_outputs(task.victim, x))
        maps = attribution.attribute(task.x0, baseline, task.labels, n_steps=self.steps, internal_batch_size=64)
        task.charge(self.steps)
        return torch.as_tensor(maps).detach().abs().sum(1)


@dataclass(frozen=True)
class LayerCall:
    """A layer and which of its calls in one forward pass: modules such as an activation may be called many times."""

    module: nn.Module
    call: int


@contextmanager
def hooked(modules: Sequence[nn.Module], hook: Callable[..., Tensor | None]) -> Iterator[None]:
    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def last_features(victim: TorchVictim, x: Tensor) -> LayerCall:
    """Where the last convolution's features are complete: after the norm and activation that follow it."""
    last: LayerCall | None = None
    shape: torch.Size | None = None
    calls: dict[nn.Module, int] = {}

    def watch(module: nn.Module, inputs: Any, output: Any) -> None:
        nonlocal last, shape
        calls[module] = calls.get(module, 0) + 1
        spread = isinstance(output, Tensor) and output.dim() == x.dim() and output[0, 0].numel() > 1
        if spread and (isinstance(module, CONVOLUTIONS) or output.shape == shape):
            last, shape = LayerCall(module, calls[module]), output.shape

    with hooked(list(victim.model.modules()), watch), torch.no_grad():
        raw_outputs(victim, x[:1])
    if last is None:
        raise InputError(
            "class activation maps need a convolution whose output keeps the input's axes, and the model has none: "
            "leave gradcam, gradcam++, ablationcam and scorecam out"
        )
    return last


def features(victim: Victim, x: Tensor, layer: LayerCall, without: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """x (n, c, *size) -> features (n, channels, *coarse) and raw outputs (n, k), with a channel (n,) of each row silenced."""
    kept: list[Tensor] = []

    def keep(module: nn.Module, inputs: Any, output: Tensor) -> Tensor | None:
        kept.append(output)
        if without is None or len(kept) != layer.call:
            return None
        changed = output.clone()
        changed[torch.arange(len(x), device=x.device), without] = 0
        return changed

    with hooked([layer.module], keep):
        outputs = raw_outputs(victim, x)
    return kept[layer.call - 1], outputs


class ActivationMap(Method):
    """The features weighed by channel, negative parts cut off, brought to the input's size."""

    gradients = True

    @abstractmethod
    def weights(self, task: ExplanationTask, layer: LayerCall, a: Tensor, outputs: Tensor) -> Tensor:
        """Features a (n, channels, *coarse), raw outputs (n, k) -> (n, channels)."""

    def draw(self, task: ExplanationTask) -> Tensor:
        assert isinstance(task.victim, TorchVictim)
        layer = last_features(task.victim, task.x0)
        with torch.enable_grad():
            a, outputs = features(task.victim, task.x0.detach().clone().requires_grad_(), layer)
        task.charge(1)
        weights = self.weights(task, layer, a, outputs)
        maps = (a.detach() * weights.view(*weights.shape, *(1,) * (a.dim() - 2))).sum(1)
        return resize(maps.clamp(min=0).float(), task.size)


def _gradient(task: ExplanationTask, a: Tensor, outputs: Tensor) -> Tensor:
    """Of the class's raw output by the features."""
    return torch.autograd.grad(outputs.gather(1, task.labels[:, None]).sum(), a)[0]


@dataclass(frozen=True)
class GradCam(ActivationMap):
    """A channel's weight is its mean gradient. Selvaraju et al. 2017, https://arxiv.org/abs/1610.02391."""

    name = "gradcam"

    def weights(self, task: ExplanationTask, layer: LayerCall, a: Tensor, outputs: Tensor) -> Tensor:
        return _gradient(task, a, outputs).flatten(2).mean(2)


@dataclass(frozen=True)
class GradCamPlusPlus(ActivationMap):
    """Only rising gradients count, each weighed by its share. Chattopadhay et al. 2018, https://arxiv.org/abs/1710.11063."""

    name = "gradcam++"

    def weights(self, task: ExplanationTask, layer: LayerCall, a: Tensor, outputs: Tensor) -> Tensor:
        gradient = _gradient(task, a, outputs).flatten(2)
        below = 2 * gradient**2 + a.detach().flatten(2).sum(2, keepdim=True) * gradient**3
        alpha = torch.where(gradient != 0, gradient**2 / torch.where(below != 0, below, 1.0), 0.0)
        return (alpha * gradient.clamp(min=0)).sum(2)


@dataclass(frozen=True)
class AblationCam(ActivationMap):
    """A channel's weight is how far the class's raw output falls without it, as a share of that output.

    Desai and Ramaswamy 2020, https://arxiv.org/abs/1912.00349. One forward pass a channel.
    """

    name = "ablationcam"

    @torch.no_grad()
    def weights(self, task: ExplanationTask, layer: LayerCall, a: Tensor, outputs: Tensor) -> Tensor:
        start = outputs.gather(1, task.labels[:, None])
        left = torch.empty(len(task), a.shape[1], device=a.device)
        for rows, channels in task.questions(a.shape[1], ROWS):
            _, answers = features(task.victim, task.x0[rows], layer, channels)
            left[rows, channels] = answers.gather(1, task.labels[rows][:, None]).squeeze(1).float()
        task.charge(a.shape[1])
        return (start - left) / torch.where(start.abs() > 1e-6, start.abs(), 1.0)


@dataclass(frozen=True)
class ScoreCam(ActivationMap):
    """A channel's weight is the class's probability when only what the channel covers is shown, after a softmax.

    Wang et al. 2020, https://arxiv.org/abs/1910.01279. One query a channel.
    """

    name = "scorecam"

    @torch.no_grad()
    def weights(self, task: ExplanationTask, layer: LayerCall, a: Tensor, outputs: Tensor) -> Tensor:
        fill, probability = mean_fill(task.x0), torch.empty(len(task), a.shape[1], device=a.device)
        for rows, channels in task.questions(a.shape[1], ROWS):
            shown = to_unit(resize(a[rows, channels].float(), task.size))[:, None]
            x = fill[rows] + shown * (task.x0[rows] - fill[rows])
            probability[rows, channels] = task.victim.probabilities(task.ask(x, rows))
        return probability.softmax(1)
