"""Attack wall time over the victim's own forward time for the same rows, on a GPU.

The victim has the layers of a ResNet-50 and random weights. It is timed on the same row counts as in the attack, with inputs
that are already on the device. Attacks have 200 queries for each sample, and 20: work done once for a sample (transfers, the
palette, the verification) counts ten times as much in the latter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

import rlab
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack

BUDGETS = {200: 1, 20: 3}  # queries for each sample, and repeats
STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))  # inner channels and blocks of a ResNet-50


class Bottleneck(nn.Module):
    def __init__(self, channels: int, inner: int, stride: int) -> None:
        super().__init__()
        outer = 4 * inner
        self.body = nn.Sequential(
            nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, outer, 1, bias=False), nn.BatchNorm2d(outer),
        )  # fmt: skip
        self.short: nn.Module = nn.Identity()
        if channels != outer or stride > 1:
            self.short = nn.Sequential(nn.Conv2d(channels, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.short(x))


def resnet50(classes: int = 1000) -> nn.Module:
    """https://arxiv.org/abs/1512.03385, with the stride in the 3 x 3 convolution, as published weights have it."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    ]  # fmt: skip
    channels = 64
    for stage, (inner, blocks) in enumerate(STAGES):
        for block in range(blocks):
            layers.append(Bottleneck(channels, inner, 2 if stage and not block else 1))
            channels = 4 * inner
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
    for part in net.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
        if isinstance(part, Bottleneck):
            nn.init.constant_(part.body[-1].weight, 0.2)  # type: ignore[arg-type]  # otherwise values grow with the depth
    return net


class Counted(nn.Module):
    """Count the rows of each call."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.calls = net, list[int]()

    def forward(self, x: Tensor) -> Tensor:
        self.calls.append(len(x))
        scores: Tensor = self.net(x)
        return scores


def gpu_rows(
    device: str, samples: int = 512, budgets: Mapping[int, int] = BUDGETS, side: int = 224, **model: Any
) -> dict[str, Any]:
    """Figures of the first budget, and the ratios of all; `model` are further options of the victim."""
    torch.manual_seed(0)
    victim_net = Counted(resnet50()).eval()
    usual = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225), "outputs": "logits"}
    victim = rlab.TorchVictim(victim_net, device=device, **usual | model)
    x = torch.rand(samples, 3, side, side)
    batch = rlab.Batch(x, victim(x).argmax(1).cpu())
    wait = torch.cuda.synchronize if victim.device.type == "cuda" else (lambda: None)

    def attack_within(budget: int) -> None:
        victim_net.calls.clear()
        attack = make_attack(batch, policy="auto", budget=budget, until="budget", chunk=samples)
        assert int(run_attack(attack, victim, batch).queries.sum()) == sum(victim_net.calls)

    def forward(calls: Sequence[int]) -> None:
        for rows in calls:
            victim._predict(inputs[:rows])

    attack_within(min(budgets))  # warm up
    inputs = x[: max(victim_net.calls)].to(victim.device)
    forward(list(victim_net.calls))
    figures, medians = dict[str, Any](), list[tuple[float, float, list[int]]]()
    for budget, repeats in budgets.items():
        pairs = []
        for _ in range(repeats):
            taken = _timed(partial(attack_within, budget), wait)
            calls = list(victim_net.calls)
            pairs.append((taken, _timed(partial(forward, calls), wait), calls))
        medians.append(sorted(pairs, key=lambda pair: pair[0] / pair[1])[repeats // 2])
        figures[f"gpu_over_forward_{budget}"] = medians[-1][0] / medians[-1][1]
        figures[f"gpu_over_forward_{budget}_each"] = [round(own / bare, 4) for own, bare, _ in pairs]
    (seconds, alone, calls), cuda = medians[0], victim.device.type == "cuda"
    figures |= {"gpu_over_forward": seconds / alone, "gpu_attack_seconds": seconds, "gpu_forward_seconds": alone}
    figures |= {"gpu_rows": sum(calls), "gpu_calls": len(calls), "gpu_rows_per_second": sum(calls) / seconds}
    figures["gpu_peak_memory_gib"] = torch.cuda.max_memory_allocated(device) / 2**30 if cuda else None
    return figures | {"gpu_device": torch.cuda.get_device_name(device) if cuda else device}


def _timed(call: Callable[[], Any], wait: Callable[[], None]) -> float:
    wait()
    began = perf_counter()
    call()
    wait()
    return perf_counter() - began
