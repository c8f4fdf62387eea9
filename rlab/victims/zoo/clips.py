"""The four video networks sized to train from a few hundred clips in minutes, and as victims with their weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import nn

from rlab.errors import InputError
from rlab.victims.torch_module import TorchVictim
from rlab.victims.weights import load_weights
from rlab.victims.zoo.clip_c3d import C3D
from rlab.victims.zoo.clip_frames import FrameNet
from rlab.victims.zoo.clip_slowfast import SlowFast

CLIP_MEAN, CLIP_STD = (0.45,) * 3, (0.225,) * 3
CLIP_FRAMES, CLIP_SIZE = 16, (72, 96)  # what the compact networks are trained at


def c3d_small(classes: int = 6) -> nn.Module:
    """C3D a quarter as wide, 1.8 million parameters: (b, 3, t, h, w) -> (b, classes)."""
    return C3D(classes, width=16, hidden=128, compact=True)


def tsn_small(classes: int = 6) -> nn.Module:
    """TSN on a ResNet-18 of width 24, 1.6 million parameters: (b, 3, t, h, w) -> (b, classes)."""
    return FrameNet(classes, (2, 2, 2, 2), width=24, bottleneck=False)


def tsm_small(classes: int = 6) -> nn.Module:
    """TSM on the same network as `tsn_small`: (b, 3, t, h, w) -> (b, classes)."""
    return FrameNet(classes, (2, 2, 2, 2), width=24, bottleneck=False, shifts=True)


def slowfast_small(classes: int = 6) -> nn.Module:
    """SlowFast of width 16, 1.4 million parameters, 4 of 16 frames slow: (b, 3, t, h, w) -> (b, classes), t / 4 whole."""
    return SlowFast(classes, (2, 2, 2, 2), width=16, narrow=4, alpha=4)


CLIP_NETS: dict[str, Callable[[int], nn.Module]] = {
    "c3d": c3d_small,
    "tsn": tsn_small,
    "tsm": tsm_small,
    "slowfast": slowfast_small,
}


def clip_victim(weights: str | Path, device: str | None = None) -> TorchVictim:
    """A compact network with weights of `python -m benchmarks.train_clips`, whose header tells network and classes."""
    path = Path(weights)
    about = _header(path)
    if not _tells(about):
        raise InputError(
            f"{path} does not tell its network and classes: expected a file of python -m benchmarks.train_clips"
        )
    net = load_weights(CLIP_NETS[about["net"]](len(about["classes"].split(","))), path)
    return TorchVictim(net, mean=CLIP_MEAN, std=CLIP_STD, outputs="logits", device=device)


def is_clip_net(path: Path) -> bool:
    """Whether the file is one that `clip_victim` reads."""
    return path.suffix == ".safetensors" and _tells(_header(path))


def _tells(about: Mapping[str, str]) -> bool:
    return about.get("net") in CLIP_NETS and bool(about.get("classes"))


def _header(path: Path) -> dict[str, str]:
    if not path.is_file():
        raise InputError(f"there is no file {str(path)!r}: train it with python -m benchmarks.train_clips")
    try:
        with safe_open(path, "pt") as file:
            return dict(file.metadata() or {})
    except SafetensorError as error:
        raise InputError(f"cannot read {path} as safetensors: {error}") from error
