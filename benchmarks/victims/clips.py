"""Compact video networks that train in minutes, and their weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from safetensors import safe_open
from torch import nn

from benchmarks.victims.clip_nets import C3D, FrameNet, SlowFast
from benchmarks.victims.compact import expanding
from rlab.errors import ModelError
from rlab.victims.torch_module import TorchVictim
from rlab.victims.weights import load_weights

CLIP_MEAN, CLIP_STD = (0.45,) * 3, (0.225,) * 3


@expanding
def c3d_small(classes: int = 6) -> nn.Module:
    """C3D at a quarter of its width, 1.8 million parameters: (b, 3, t, h, w) -> (b, classes)."""
    return C3D(classes, width=16, hidden=128, compact=True)


@expanding
def tsn_small(classes: int = 6) -> nn.Module:
    """TSN on a ResNet-18 of width 24, 1.6 million parameters: (b, 3, t, h, w) -> (b, classes)."""
    return FrameNet(classes, (2, 2, 2, 2), width=24, bottleneck=False)


@expanding
def tsm_small(classes: int = 6) -> nn.Module:
    """TSM on the same network as `tsn_small`: (b, 3, t, h, w) -> (b, classes)."""
    return FrameNet(classes, (2, 2, 2, 2), width=24, bottleneck=False, shifts=True)


@expanding
def slowfast_small(classes: int = 6) -> nn.Module:
    """SlowFast of width 16, 1.4 million parameters, every fourth frame slow: (b, 3, t, h, w) -> (b, classes)."""
    return SlowFast(classes, (2, 2, 2, 2), width=16, narrow=4, alpha=4)


CLIP_NETS: dict[str, Callable[[int], nn.Module]] = {
    "c3d": c3d_small, "tsn": tsn_small, "tsm": tsm_small, "slowfast": slowfast_small,
}  # fmt: skip


def clip_victim(weights: str | Path, device: str | None = None) -> TorchVictim:
    """A compact network from a file of `benchmarks.victims.train_clips`, whose header names network and classes."""
    path = Path(weights)
    if not path.is_file():
        raise ModelError(f"no such file: {path}")
    with safe_open(path, "pt") as file:
        about = dict(file.metadata() or {})
    if about.get("net") not in CLIP_NETS or not about.get("classes"):
        raise ModelError(f"{path} names no network and classes: expected a file of benchmarks.victims.train_clips")
    net = load_weights(CLIP_NETS[about["net"]](len(about["classes"].split(","))), path)
    return TorchVictim(net, mean=CLIP_MEAN, std=CLIP_STD, outputs="logits", device=device)
