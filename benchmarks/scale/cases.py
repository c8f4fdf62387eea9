"""The parts of `benchmarks.scale`, and the attack that workers share."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from benchmarks.victims.residual import cifar_resnet
from rlab.runs.options import RunOptions
from rlab.storage.config import check

LATENCY = 0.05  # seconds, of the HTTP model
CONCURRENCY = 32
PARTS = ("http", "workers", "memory")
CHUNKS, SAMPLES, BUDGET = 10, 8, 40  # of the workers' attack: chunks, samples in each, queries for each sample


def net() -> nn.Module:
    """The workers' model: a ResNet-20 with random weights."""
    torch.manual_seed(0)
    return cifar_resnet(20).eval()


def options(folder: Path) -> RunOptions:
    values = {
        "model": "benchmarks.scale.cases:net", "data": str(folder / "data.npz"), "policy": "square", "budget": BUDGET,
        "until": "budget", "chunk": SAMPLES, "palette": ["gaussian_noise@0.01"], "patch": 8,
    }  # fmt: skip
    return check(RunOptions, values)
