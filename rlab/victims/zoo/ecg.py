"""Three plain networks for ECG beats (b, leads, time) -> (b, classes), of different families, for any length of beat.

Each begins by scaling every lead of a beat by its own mean and spread: patients differ in both more than classes do.
The prior for signals that ships was trained with the first two (benchmarks/weights/ecg_*.safetensors, beats of MIT-BIH).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from rlab.errors import InputError

BEAT_MEAN, BEAT_STD = (-0.3,), (0.5,)  # mV, about those of lead MLII in the MIT-BIH records to train on
BEAT_CLASSES = 5  # N, S, V, F, Q of ANSI/AAMI EC57


def beat_cnn(leads: int = 1, classes: int = BEAT_CLASSES) -> nn.Module:
    """Four convolutions with max pooling; where in the beat a feature lies is kept in eighths. 67,000 parameters."""
    _check(leads, classes)
    layers: list[nn.Module] = []
    widths = (leads, 24, 32, 48, 64)
    for inner, outer, kernel in zip(widths, widths[1:], (11, 9, 7, 5), strict=False):
        layers += [*_unit(inner, outer, kernel), nn.ReLU(), nn.MaxPool1d(2)]
    head = [nn.Flatten(), nn.Dropout(0.3), nn.Linear(64 * 8, 64), nn.ReLU(), nn.Linear(64, classes)]
    return nn.Sequential(nn.InstanceNorm1d(leads), *layers, nn.AdaptiveAvgPool1d(8), *head)


class BeatResidual(nn.Module):
    """Two convolutions beside a shortcut, a 1-wide convolution where the shape changes."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(*_unit(inner, outer, 7, stride), nn.ReLU(), *_unit(outer, outer, 7))
        self.short = nn.Identity() if inner == outer else nn.Sequential(*_unit(inner, outer, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        return relu(self.body(x) + self.short(x))


def beat_resnet(leads: int = 1, classes: int = BEAT_CLASSES) -> nn.Module:
    """A residual network (https://arxiv.org/abs/1512.03385) in one dimension, six blocks, global average. 137,000 parameters."""
    _check(leads, classes)
    sizes = ((16, 16, 1), (16, 16, 1), (16, 32, 2), (32, 32, 1), (32, 64, 2), (64, 64, 1))
    head = [nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Dropout(0.3), nn.Linear(64, classes)]
    stem = [nn.InstanceNorm1d(leads), *_unit(leads, 16, 15, 2), nn.ReLU()]
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


def beat_transformer(leads: int = 1, classes: int = BEAT_CLASSES) -> nn.Module:
    """A small transformer encoder (https://arxiv.org/abs/1706.03762). 100,000 parameters."""
    _check(leads, classes)
    return BeatTransformer(leads, classes)


BEAT_NETS: dict[str, Callable[[], nn.Module]] = {
    "cnn": beat_cnn,
    "resnet": beat_resnet,
    "transformer": beat_transformer,
}


def positions(length: int, width: int) -> Tensor:
    """(length, width): sines and cosines of wavelengths from 2 pi to 10,000 times that."""
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000) / width))
    angles = torch.arange(length)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], 2).flatten(1)


def _unit(inner: int, outer: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv1d(inner, outer, kernel, stride, kernel // 2, bias=False), nn.BatchNorm1d(outer)]


def _check(leads: int, classes: int) -> None:
    if leads < 1 or classes < 2:
        raise InputError(f"expected at least 1 lead and 2 classes, got {leads} and {classes}")
