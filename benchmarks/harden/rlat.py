"""RLAT: training against perturbations of the network's own features (Kireev et al. 2022, https://arxiv.org/abs/2103.02325).

The inputs and the outputs of chosen layers each move by one gradient step of a fixed length that raises the loss. The paper
derives this as a relaxation of training within a ball of LPIPS, and combines it with AugMix, as `benchmarks.harden` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Shifts = Mapping[str, Tensor]  # by layer; "" is the input


@contextmanager
def shifted(model: nn.Module, shifts: Callable[[str, Tensor], Tensor], layers: tuple[str, ...]) -> Iterator[None]:
    """Add `shifts(layer, output)` to the outputs of these layers inside the block."""

    def add(layer: str) -> Callable[[nn.Module, object, Tensor], Tensor]:
        return lambda module, inputs, output: output + shifts(layer, output)

    handles = [model.get_submodule(layer).register_forward_hook(add(layer)) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@dataclass(frozen=True)
class Rlat:
    """A training step for `HardenOptions.step`; `length` is the L2 of a layer's shift, as a share of its features' L2."""

    layers: tuple[str, ...] = ("bn1", "layer1", "layer2", "layer3")
    length: float = 0.02
    half: bool = True

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, optimizer: torch.optim.Optimizer) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.half and x.device.type == "cuda"):
            shifts = self.steps(model, x, y)
            with shifted(model, lambda layer, output: shifts[layer].to(output.dtype), self.layers):
                loss = F.cross_entropy(model(x + shifts[""]).float(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def steps(self, model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """The shift of the input and of each layer that raises the loss most to first order."""
        held = {"": torch.zeros_like(x, requires_grad=True)}
        sizes = {"": _length(x)}

        def zeros(layer: str, output: Tensor) -> Tensor:
            held[layer] = torch.zeros_like(output, requires_grad=True)
            sizes[layer] = _length(output.detach())
            return held[layer]

        model.eval()  # statistics of BatchNorm move once a step
        with torch.enable_grad(), shifted(model, zeros, self.layers):
            loss = F.cross_entropy(model(x + held[""]).float(), y, reduction="sum")
        slopes = torch.autograd.grad(loss, list(held.values()))
        model.train()
        return {
            layer: self.length * sizes[layer] * slope / _length(slope).clamp(min=1e-12)
            for layer, slope in zip(held, slopes, strict=True)
        }


def _length(x: Tensor) -> Tensor:
    """(n, 1, ...): the L2 of each row."""
    return x.flatten(1).float().norm(dim=1).view(-1, *(1,) * (x.dim() - 1))
