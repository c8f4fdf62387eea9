"""Weights in eight bits, so that the repository stays small.

A matrix or convolution becomes int8 with one float16 scale for each output channel, stored as NAME and NAME:scale; everything else
is float16. Networks of `expanding` read such files with any loader, `rlab` included. Accuracy in half precision and in eight bits,
on CIFAR-10 test images 0-1999, on 112 test clips, where no prediction changed, and on every third beat of DS2:

vit .8355 .8360, all_conv .8695 .8695, inverted .8975 .8970, robust_all_conv .7425 .7435, mixer .8665 .8645, c3d .9286 .9286, tsn
.8393 .8393, tsm .8839 .8839, slowfast .9375 .9375, ecg_cnn .8699 .8691, ecg_resnet .8602 .8619. Hardened networks stay in half
precision: their accuracy holds too, but the distances that `benchmarks.harden --quick` measures on a few images moved by a tenth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

SCALE = ":scale"
P = ParamSpec("P")


def compact(weights: Mapping[str, Tensor], eight_bits: bool = True) -> dict[str, Tensor]:
    """Weights as they are stored, on the CPU; half precision throughout without `eight_bits`."""
    stored: dict[str, Tensor] = {}
    for name, value in weights.items():
        plain = value.detach().cpu()
        if eight_bits and name.endswith("weight") and plain.dim() > 1:
            scale = (plain.flatten(1).abs().amax(1).float() / 127).clamp(min=2**-24).half()
            whole = (plain.float() / _beside(scale, plain)).round().clamp(-127, 127)
            stored |= {name: whole.to(torch.int8).contiguous(), name + SCALE: scale}
        else:
            stored[name] = (plain.half() if plain.is_floating_point() else plain).contiguous()
    return stored


def save(net: nn.Module, path: Path, about: Mapping[str, str], eight_bits: bool = True) -> None:
    """Write a network's weights, with notes on its training in the header."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(compact(net.state_dict(), eight_bits), path, metadata=dict(about))


def expanded(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights that a network takes, from stored ones."""
    plain = {name: value for name, value in weights.items() if not name.endswith(SCALE)}
    scales = {name: weights[name + SCALE] for name in plain if name + SCALE in weights}
    return plain | {name: plain[name].float() * _beside(scale, plain[name]) for name, scale in scales.items()}


def _beside(scale: Tensor, weight: Tensor) -> Tensor:
    return scale.float().view(-1, *(1,) * (weight.dim() - 1))


def _expand(net: nn.Module, weights: dict[str, Tensor], *rest: Any) -> None:
    """Called by torch with its own copy of the weights, before it loads them."""
    held = expanded(weights)
    weights.clear()
    weights.update(held)


def expanding(factory: Callable[P, nn.Module]) -> Callable[P, nn.Module]:
    """The factory, whose networks also load weights in eight bits."""

    @wraps(factory)
    def made(*args: P.args, **options: P.kwargs) -> nn.Module:
        net = factory(*args, **options)
        net.register_load_state_dict_pre_hook(_expand)
        return net

    return made
