"""White-box baselines of the class activation family for any rank, at the last convolution with its norm and activation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rlab.errors import InputError
from rlab.explanation.base import Case, Method
from rlab.explanation.maps import resize, to_unit
from rlab.victims.torch_module import TorchVictim, arrange, tensor_scores

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
ROWS = 256


@dataclass(frozen=True)
class Place:
    """A layer and which of its calls in one forward pass: modules such as an activation may be called many times."""

    module: nn.Module
    call: int


@contextmanager
def hooked(hooks: list[Any]) -> Iterator[None]:
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def last_features(victim: TorchVictim, x: Tensor) -> Place:
    """Where the last convolution's features are complete: after the norm and activation that follow it."""
    found: Place | None = None
    shape: torch.Size | None = None
    calls: dict[nn.Module, int] = {}

    def watch(module: nn.Module, inputs: Any, output: Any) -> None:
        nonlocal found, shape
        calls[module] = calls.get(module, 0) + 1
        spread = isinstance(output, Tensor) and output.dim() == x.dim() and output[0, 0].numel() > 1
        if spread and (isinstance(module, CONVOLUTIONS) or output.shape == shape):
            found, shape = Place(module, calls[module]), output.shape

    parts = list(victim.model.modules())
    with hooked([part.register_forward_hook(watch) for part in parts]), torch.no_grad():
        victim.model(arrange(x[:1], victim.normalise, victim.layout).to(victim.dtype))
    if found is None:
        raise InputError(
            "class activation maps need a convolution whose output keeps the input's axes, and the model has none: "
            "leave gradcam, gradcam++, ablationcam and scorecam out"
        )
    return found


def features(victim: TorchVictim, x: Tensor, place: Place) -> tuple[Tensor, Tensor]:
    """x (n, c, *size) -> features (n, channels, *coarse) and raw outputs (n, k), both in the graph."""
    kept: list[Tensor] = []

    def keep(module: nn.Module, inputs: Any, output: Tensor) -> None:
        kept.append(output)

    with hooked([place.module.register_forward_hook(keep)]), torch.enable_grad():
        inputs = x.detach().clone().requires_grad_()
        outputs = tensor_scores(victim.model(arrange(inputs, victim.normalise, victim.layout).to(victim.dtype)))
    return kept[place.call - 1], outputs


class ActivationMap(Method):
    """The features weighed by channel, negative parts cut off, brought to the input's size."""

    gradients = True

    @abstractmethod
    def weights(self, case: Case, victim: TorchVictim, place: Place, a: Tensor, outputs: Tensor) -> Tensor:
        """Features a (n, channels, *coarse), raw outputs (n, k) -> (n, channels)."""

    def draw(self, case: Case) -> Tensor:
        victim = case.victim
        assert isinstance(victim, TorchVictim)
        place = last_features(victim, case.x0)
        a, outputs = features(victim, case.x0, place)
        case.charge(1)
        weights = self.weights(case, victim, place, a, outputs)
        return resize(weigh(a.detach(), weights).clamp(min=0).float(), case.size)


def weigh(a: Tensor, weights: Tensor) -> Tensor:
    """(n, channels, *coarse), (n, channels) -> (n, *coarse)."""
    return (a * weights.view(*weights.shape, *(1,) * (a.dim() - 2))).sum(1)


def _gradient(case: Case, a: Tensor, outputs: Tensor) -> Tensor:
    """Of the class's raw output by the features."""
    return torch.autograd.grad(outputs.gather(1, case.labels[:, None]).sum(), a)[0]


@dataclass(frozen=True)
class GradCam(ActivationMap):
    """A channel's weight is its mean gradient. Selvaraju et al. 2017, https://arxiv.org/abs/1610.02391."""

    name = "gradcam"

    def weights(self, case: Case, victim: TorchVictim, place: Place, a: Tensor, outputs: Tensor) -> Tensor:
        return _gradient(case, a, outputs).flatten(2).mean(2)


@dataclass(frozen=True)
class GradCamPlusPlus(ActivationMap):
    """Only rising gradients count, each weighed by its share. Chattopadhay et al. 2018, https://arxiv.org/abs/1710.11063."""

    name = "gradcam++"

    def weights(self, case: Case, victim: TorchVictim, place: Place, a: Tensor, outputs: Tensor) -> Tensor:
        slope, held = _gradient(case, a, outputs).flatten(2), a.detach().flatten(2)
        below = 2 * slope**2 + held.sum(2, keepdim=True) * slope**3
        alpha = torch.where(slope != 0, slope**2 / torch.where(below != 0, below, 1.0), 0.0)
        return (alpha * slope.clamp(min=0)).sum(2)


@dataclass(frozen=True)
class AblationCam(ActivationMap):
    """A channel's weight is how far the class's raw output falls without it, as a share of that output.

    Desai and Ramaswamy 2020, https://arxiv.org/abs/1912.00349. One forward pass a channel.
    """

    name = "ablationcam"

    def weights(self, case: Case, victim: TorchVictim, place: Place, a: Tensor, outputs: Tensor) -> Tensor:
        start = outputs.detach().gather(1, case.labels[:, None])
        left = torch.empty(len(case), a.shape[1], device=a.device)
        for channels in torch.arange(a.shape[1], device=a.device).split(max(1, ROWS // len(case))):
            rows = torch.arange(len(case), device=a.device).repeat_interleave(len(channels))
            without = channels.repeat(len(case))
            answers = _ablated(victim, place, case.x0[rows], without)
            left[rows, without] = answers.gather(1, case.labels[rows][:, None]).squeeze(1).float()
        case.charge(a.shape[1])
        return (start - left) / torch.where(start.abs() > 1e-6, start.abs(), 1.0)


@torch.no_grad()
def _ablated(victim: TorchVictim, place: Place, x: Tensor, channel: Tensor) -> Tensor:
    """Raw outputs (m, k) with one channel (m,) of the features set to zero in each row."""
    calls = 0

    def silence(module: nn.Module, inputs: Any, output: Tensor) -> Tensor | None:
        nonlocal calls
        calls += 1
        if calls != place.call:
            return None
        changed = output.clone()
        changed[torch.arange(len(x), device=x.device), channel] = 0
        return changed

    with hooked([place.module.register_forward_hook(silence)]):
        return tensor_scores(victim.model(arrange(x, victim.normalise, victim.layout).to(victim.dtype)))


@dataclass(frozen=True)
class ScoreCam(ActivationMap):
    """A channel's weight is the class's probability when only what the channel covers is shown, after a softmax.

    Wang et al. 2020, https://arxiv.org/abs/1910.01279. One query a channel.
    """

    name = "scorecam"

    @torch.no_grad()
    def weights(self, case: Case, victim: TorchVictim, place: Place, a: Tensor, outputs: Tensor) -> Tensor:
        hidden = case.x0.flatten(2).mean(2).view(*case.x0.shape[:2], *(1,) * len(case.size))
        found = torch.empty(len(case), a.shape[1], device=a.device)
        for channels in torch.arange(a.shape[1], device=a.device).split(max(1, ROWS // len(case))):
            rows = torch.arange(len(case), device=a.device).repeat_interleave(len(channels))
            which = channels.repeat(len(case))
            shown = to_unit(resize(a[rows, which].detach().float(), case.size))[:, None]
            x = hidden[rows] + shown * (case.x0[rows] - hidden[rows])
            found[rows, which] = victim.probabilities(case.belief(case.ask(x, rows), rows))
        return found.softmax(1)
