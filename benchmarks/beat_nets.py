"""Three small networks for windows of 2 s around a beat (b, 1, time) in mV -> (b, 5); `train_ecg.py` trains them.

A window so wide shows the R peaks before and after: an S beat is told from N by coming early, and V by looking unlike its
neighbours. Each net begins with a mean over neighbouring samples (360 to 60 a second) and scales a window by its own
mean and spread; where in the window a feature lies is kept to the end. The first layer is the same mean in all of them, so
that it can be taken once for a whole training.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from rlab.victims.zoo.ecg import BEAT_CLASSES, BeatResidual, BeatTransformer

WINDOW = 2.0  # seconds, 720 samples
MERGED = 3  # samples, in the first layer of every net


def _unit(inner: int, outer: int, kernel: int) -> list[nn.Module]:
    return [nn.Conv1d(inner, outer, kernel, 2, kernel // 2, bias=False), nn.BatchNorm1d(outer), nn.ReLU()]


def cnn() -> nn.Module:
    """Three strided convolutions and two dense layers, 85,000 parameters."""
    body = [*_unit(1, 24, 9), *_unit(24, 48, 7), *_unit(48, 64, 5)]
    head = [nn.Dropout(0.3), nn.Linear(64 * 15, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, BEAT_CLASSES)]
    return nn.Sequential(nn.AvgPool1d(MERGED), nn.AvgPool1d(2), nn.InstanceNorm1d(1), *body, nn.Flatten(), *head)


def resnet() -> nn.Module:
    """A strided convolution and two residual blocks, 44,000 parameters."""
    body = [*_unit(1, 16, 9), BeatResidual(16, 32, 2), BeatResidual(32, 48, 2)]
    head = [nn.Flatten(), nn.Dropout(0.3), nn.Linear(48 * 15, BEAT_CLASSES)]
    return nn.Sequential(nn.AvgPool1d(MERGED), nn.AvgPool1d(2), nn.InstanceNorm1d(1), *body, *head)


def transformer() -> nn.Module:
    """Stretches of 0.27 s, 0.13 s apart, as tokens; two layers of attention, 68,000 parameters."""
    return nn.Sequential(nn.AvgPool1d(MERGED), nn.AvgPool1d(2), BeatTransformer(1, BEAT_CLASSES, depth=2))


BEAT_NETS: dict[str, Callable[[], nn.Module]] = {"cnn": cnn, "resnet": resnet, "transformer": transformer}
