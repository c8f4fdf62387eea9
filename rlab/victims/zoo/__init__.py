"""Small networks: one for signals, images and clips, used by the demo, and the ResNets for CIFAR-10."""

from __future__ import annotations

import json
from importlib.resources import as_file, files

from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import pad, relu

from rlab.errors import InputError
from rlab.victims.torch_module import TorchVictim

DEMOS = ("digits", "ecg", "clips")
# Features of signals are longer than those of images, and so are the kernels.
_CONVOLUTIONS: dict[int, tuple[type[nn.Conv1d | nn.Conv2d | nn.Conv3d], int]] = {
    1: (nn.Conv1d, 7),
    2: (nn.Conv2d, 3),
    3: (nn.Conv3d, 3),
}
_GROUPS = 4


class SmallCNN(nn.Module):
    """Four convolutions (three halve the size), global average, linear: (b, c, *size) -> (b, k)."""

    def __init__(self, rank: int, channels: int, classes: int, width: int) -> None:
        super().__init__()
        conv, kernel = _CONVOLUTIONS[rank]
        widths = (channels, width, 2 * width, 2 * width, 4 * width)
        layers: list[nn.Module] = []
        for inner, outer, stride in zip(widths, widths[1:], (1, 2, 2, 2), strict=False):
            layers += [conv(inner, outer, kernel, stride, kernel // 2), nn.GroupNorm(_GROUPS, outer), nn.ReLU()]
        self.features = nn.Sequential(*layers)
        self.linear = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.linear(self.features(x).flatten(2).mean(2))
        return scores


def small_cnn(rank: int, channels: int, classes: int, width: int = 16) -> nn.Module:
    """A classifier of a few ten thousand parameters for signals (rank 1), images (2) or clips (3)."""
    if rank not in _CONVOLUTIONS:
        raise InputError(f"expected rank 1, 2 or 3 for signals, images or clips, got {rank}")
    if width < _GROUPS or width % _GROUPS:
        raise InputError(f"expected a width that is a multiple of {_GROUPS}, got {width}")
    return SmallCNN(rank, channels, classes, width)


def demo_victim(name: str, device: str | None = None) -> TorchVictim:
    """The victim that ships with the demo data `name`: digits, ecg or clips."""
    if name not in DEMOS:
        raise InputError(f"unknown demo model {name!r}: expected one of {', '.join(DEMOS)}")
    with as_file(files("rlab") / "assets" / f"demo_{name}.safetensors") as path:
        with safe_open(path, "pt") as file:  # the header holds the network's shape, mean, std and bounds as JSON
            about = {key: json.loads(text) for key, text in file.metadata().items()}
        model = small_cnn(about["rank"], about["channels"], about["classes"], about["width"])
        model.load_state_dict(load_file(path))
    low, high = about["bounds"]
    return TorchVictim(model, mean=about["mean"], std=about["std"], bounds=(low, high), device=device)


class PlainShortcut(nn.Module):
    """Two 3x3 convolutions and a shortcut without parameters, "option A": subsample, pad channels with zeros."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outer)
        self.stride, self.extra = stride, (outer - inner) // 2

    def forward(self, x: Tensor) -> Tensor:
        short = x[..., :: self.stride, :: self.stride]
        short = pad(short, (0, 0, 0, 0, self.extra, self.extra)) if self.extra else short
        return relu(self.bn2(self.conv2(relu(self.bn1(self.conv1(x))))) + short)


class CifarResNet(nn.Module):
    """He et al. 2016, section 4.2 (https://arxiv.org/abs/1512.03385): (b, 3, 32, 32) -> (b, classes)."""

    def __init__(self, blocks: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16, blocks, 1)
        self.layer2 = _stage(16, 32, blocks, 2)
        self.layer3 = _stage(32, 64, blocks, 2)
        self.linear = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = relu(self.bn1(self.conv1(x)))
        scores: Tensor = self.linear(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))
        return scores


def _stage(inner: int, outer: int, blocks: int, stride: int) -> nn.Sequential:
    rest = [PlainShortcut(outer, outer, 1) for _ in range(blocks - 1)]
    return nn.Sequential(PlainShortcut(inner, outer, stride), *rest)


def cifar_resnet(depth: int = 20, classes: int = 10) -> nn.Module:
    """ResNet-20, -32, -44, -56, ...: three stages of (depth - 2) / 6 blocks, 16, 32 and 64 wide."""
    if depth < 8 or (depth - 2) % 6:
        raise InputError(f"expected a depth of 6 n + 2, such as 20, 32 or 56, got {depth}")
    return CifarResNet((depth - 2) // 6, classes)
