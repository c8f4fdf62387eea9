"""Two networks published for CIFAR-10, which tests and benchmarks measure with."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import pad, relu

from rlab.errors import InputError

CIFAR_RESNET_MEAN, CIFAR_RESNET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CNN_A_MEAN, CNN_A_STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


class _Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut without parameters, "option A": subsample, pad channels with zeros."""

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
    return nn.Sequential(_Block(inner, outer, stride), *(_Block(outer, outer, 1) for _ in range(blocks - 1)))


def cifar_resnet(depth: int = 20, classes: int = 10) -> nn.Module:
    """ResNet-20, -32, -44, -56, ...: three stages of (depth - 2) / 6 blocks, 16, 32 and 64 wide."""
    if depth < 8 or (depth - 2) % 6:
        raise InputError(f"expected a depth of 6 n + 2, such as 20, 32 or 56, got {depth}")
    return CifarResNet((depth - 2) // 6, classes)


def cnn_a() -> nn.Module:
    """The small certified-training network "CNN-A": (b, 3, 32, 32) -> (b, 10)."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 4, 2, 1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 4, 2, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(2048, 100),
        nn.ReLU(),
        nn.Linear(100, 10),
    )
