"""Networks for ECG beats (b, leads, time) -> (b, classes).

`cnn`, `resnet` and `transformer` take windows of 2 s around a beat in mV; `train_beats.py` trains them. Such a window shows the
R peaks before and after, which distinguish S from N beats. Each net starts with a mean over neighbouring samples (360 to 60
a second) and scales a window by its own mean and spread. The first layer is the same in all three, so a training
computes it once. `beat_cnn` and `beat_resnet` take beats of any length; the prior for signals was trained with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from benchmarks.victims.compact import expanding

WINDOW = 2.0  # seconds, 720 samples
MERGED = 3  # samples, in the first layer of every net
BEAT_MEAN, BEAT_STD = (-0.3,), (0.5,)  # mV, about those of lead MLII in the MIT-BIH records to train on
BEAT_CLASSES = 5  # N, S, V, F, Q of ANSI/AAMI EC57


@expanding
def beat_cnn(leads: int = 1, classes: int = BEAT_CLASSES) -> nn.Module:
    """Four convolutions with max pooling; where in the beat a feature lies is kept in eighths. 67,000 parameters."""
    layers: list[nn.Module] = []
    widths = (leads, 24, 32, 48, 64)
    for inner, outer, kernel in zip(widths, widths[1:], (11, 9, 7, 5), strict=False):
        layers += [*_conv(inner, outer, kernel), nn.ReLU(), nn.MaxPool1d(2)]
    head = [nn.Flatten(), nn.Dropout(0.3), nn.Linear(64 * 8, 64), nn.ReLU(), nn.Linear(64, classes)]
    return nn.Sequential(nn.InstanceNorm1d(leads), *layers, nn.AdaptiveAvgPool1d(8), *head)


class BeatResidual(nn.Module):
    """Two convolutions beside a shortcut, a 1-wide convolution where the shape changes."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(*_conv(inner, outer, 7, stride), nn.ReLU(), *_conv(outer, outer, 7))
        self.short = nn.Identity() if inner == outer else nn.Sequential(*_conv(inner, outer, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        return relu(self.body(x) + self.short(x))


@expanding
def beat_resnet(leads: int = 1, classes: int = BEAT_CLASSES) -> nn.Module:
    """A residual network (https://arxiv.org/abs/1512.03385) in one dimension, six blocks, global average. 137,000 parameters."""
    sizes = ((16, 16, 1), (16, 16, 1), (16, 32, 2), (32, 32, 1), (32, 64, 2), (64, 64, 1))
    head = [nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Dropout(0.3), nn.Linear(64, classes)]
    stem = [nn.InstanceNorm1d(leads), *_conv(leads, 16, 15, 2), nn.ReLU()]
    return nn.Sequential(*stem, *(BeatResidual(*size) for size in sizes), *head)


class BeatTransformer(nn.Module):
    """Stretches of 16 samples, 8 apart, as tokens with fixed positions; attention; the mean of the tokens decides."""

    def __init__(self, leads: int, classes: int, width: int = 64, depth: int = 3) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.InstanceNorm1d(leads), nn.Conv1d(leads, width, 16, 8, 4))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.1, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Dropout(0.3), nn.Linear(width, classes))

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).transpose(1, 2)
        scores: Tensor = self.head(self.blocks(tokens + positions(*tokens.shape[1:]).to(tokens)).mean(1))
        return scores


def positions(length: int, width: int) -> Tensor:
    """(length, width): sines and cosines of wavelengths from 2 pi to 10,000 times that."""
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000) / width))
    angles = torch.arange(length)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], 2).flatten(1)


def _conv(inner: int, outer: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv1d(inner, outer, kernel, stride, kernel // 2, bias=False), nn.BatchNorm1d(outer)]


def _unit(inner: int, outer: int, kernel: int) -> list[nn.Module]:
    return [*_conv(inner, outer, kernel, 2), nn.ReLU()]


def _of_windows(*layers: nn.Module) -> nn.Module:
    """360 samples a second become 60."""
    return nn.Sequential(nn.AvgPool1d(MERGED), nn.AvgPool1d(2), *layers)


@expanding
def cnn() -> nn.Module:
    """Three strided convolutions and two dense layers, 85,000 parameters."""
    body = [*_unit(1, 24, 9), *_unit(24, 48, 7), *_unit(48, 64, 5)]
    head = [nn.Dropout(0.3), nn.Linear(64 * 15, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, BEAT_CLASSES)]
    return _of_windows(nn.InstanceNorm1d(1), *body, nn.Flatten(), *head)


@expanding
def resnet() -> nn.Module:
    """A strided convolution and two residual blocks, 44,000 parameters."""
    body = [*_unit(1, 16, 9), BeatResidual(16, 32, 2), BeatResidual(32, 48, 2)]
    return _of_windows(nn.InstanceNorm1d(1), *body, nn.Flatten(), nn.Dropout(0.3), nn.Linear(48 * 15, BEAT_CLASSES))


@expanding
def transformer() -> nn.Module:
    """Stretches of 0.27 s, 0.13 s apart, as tokens; two layers of attention, 68,000 parameters."""
    return _of_windows(BeatTransformer(1, BEAT_CLASSES, depth=2))


BEAT_NETS: dict[str, Callable[[], nn.Module]] = {"cnn": cnn, "resnet": resnet, "transformer": transformer}
