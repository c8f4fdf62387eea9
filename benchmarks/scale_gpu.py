"""Attack wall time over the victim's own forward time for the same rows, on a GPU, and where the rest goes.

    python -m benchmarks.scale --only gpu --device cuda

The victim has the layers of a ResNet-50 and random weights. It is timed on the very row counts the attack asked for, with inputs
that are on the device already. Attacks are of 200 queries a sample and of 20: what is done once for a sample (its transfers, the
palette, the verification) counts ten times as much in the latter. The profile is a run of 20 in which every part waits for the
device, so its sum is larger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

import rlab
from rlab.core import attack as flow
from rlab.core import env
from rlab.core.attack import Attack
from rlab.core.result import AttackResult
from rlab.core.trace import Trace
from rlab.filters.palette import Palette
from rlab.options import make_attack
from rlab.policies import belief
from rlab.policies.belief import policy as belief_policy
from rlab.priors.trained import TrainedPrior

BUDGETS = {200: 1, 20: 3}  # queries a sample, and how often it is measured
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
            nn.init.constant_(part.body[-1].weight, 0.2)  # type: ignore[arg-type]  # else values grow with the depth
    return net


class Counted(nn.Module):
    """Notes how many rows each call has."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.calls = net, list[int]()

    def forward(self, x: Tensor) -> Tensor:
        self.calls.append(len(x))
        answer: Tensor = self.net(x)
        return answer


def gpu_rows(
    device: str, samples: int = 512, budgets: Mapping[int, int] = BUDGETS, side: int = 224, **model: Any
) -> dict[str, Any]:
    """Of the first budget, and the ratio of the others; `model` are further options of the victim."""
    torch.manual_seed(0)
    victim_net = Counted(resnet50()).eval()
    usual = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225), "outputs": "logits"}
    victim = rlab.TorchVictim(victim_net, device=device, **usual | model)  # type: ignore[arg-type]
    x = torch.rand(samples, 3, side, side)
    batch = rlab.Batch(x, victim(x).argmax(1).cpu())
    wait = _waiting(victim.device)

    def attack_within(budget: int) -> None:
        victim_net.calls.clear()
        attack = make_attack(batch, policy="auto", budget=budget, until="budget", chunk=samples)
        assert int(attack(victim, batch).queries.sum()) == sum(victim_net.calls)

    def forward(calls: Sequence[int]) -> None:
        for rows in calls:
            victim._predict(inputs[:rows])

    least = min(budgets)
    attack_within(least)  # after it kernels are chosen and memory is there
    inputs = x[: max(victim_net.calls)].to(victim.device)
    forward(list(victim_net.calls))
    figures, medians = dict[str, Any](), dict[int, tuple[float, float, list[int]]]()
    for budget, repeats in budgets.items():
        pairs = []
        for _ in range(repeats):
            taken = _timed(lambda budget=budget: attack_within(budget), wait)  # type: ignore[misc]
            calls = list(victim_net.calls)
            pairs.append((taken, _timed(lambda calls=calls: forward(calls), wait), calls))  # type: ignore[misc]
        medians[budget] = sorted(pairs, key=lambda pair: pair[0] / pair[1])[repeats // 2]
        figures[f"gpu_over_forward_{budget}"] = medians[budget][0] / medians[budget][1]
        figures[f"gpu_over_forward_{budget}_each"] = [round(own / bare, 4) for own, bare, _ in pairs]
    seconds, alone, calls = medians[next(iter(budgets))]
    with _parts(wait) as parts:
        whole = _timed(lambda: attack_within(least), wait)
    profile = {name: round(taken, 4) for name, taken in parts.most_common()}
    profile["the rest"] = round(whole - sum(parts.values()), 4)
    for name, taken in profile.items():
        print(f"{taken:8.3f} s  {taken / whole:6.1%}  {name}")
    memory = torch.cuda.max_memory_allocated(device) / 2**30 if victim.device.type == "cuda" else None
    return {
        "gpu_over_forward": seconds / alone,
        **figures,
        "gpu_attack_seconds": seconds,
        "gpu_forward_seconds": alone,
        "gpu_rows": sum(calls),
        "gpu_calls": len(calls),
        "gpu_rows_per_second": sum(calls) / seconds,
        "gpu_device": torch.cuda.get_device_name(device) if victim.device.type == "cuda" else device,
        "gpu_peak_memory_gib": memory,
        "gpu_profile_seconds": profile,
    }


def _waiting(device: torch.device) -> Callable[[], None]:
    return torch.cuda.synchronize if device.type == "cuda" else (lambda: None)


def _timed(call: Callable[[], Any], wait: Callable[[], None]) -> float:
    wait()
    began = perf_counter()
    call()
    wait()
    return perf_counter() - began


@contextmanager
def _parts(wait: Callable[[], None]) -> Iterator[Counter[str]]:
    """Seconds of each part of an attack, without those of parts within it."""
    seconds, inner = Counter[str](), [0.0]

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            values = list[Any]()
            inner.append(0.0)
            taken = _timed(lambda: values.append(function(*arguments, **options)), wait)
            seconds[name] += taken - inner.pop()
            inner[-1] += taken
            return values[0]

        return call

    places = (
        ("check of the palette", flow, "check_palette"), ("bank", Palette, "bank"),
        ("prior's directions", TrainedPrior, "directions"), ("geometry", belief_policy, "make_geometry"),
        ("begin", belief.BeliefPolicy, "begin"), ("observe", belief_policy, "observe"),
        ("evidence", belief_policy, "evidence"), ("effects", belief.BeliefPolicy, "believe"),
        ("rule", belief_policy, "follow_rule"), ("render", env, "render"), ("model", rlab.TorchVictim, "_predict"),
        ("scores and counting", rlab.TorchVictim, "__call__"), ("step", env.AttackEnv, "step"), ("trace", Trace, "note"),
        ("rows that leave", flow, "_in_order"), ("reading", flow, "read_ahead"), ("joining", AttackResult, "join"),
        ("verify", Attack, "verify"), ("search, its transfers", Attack, "search"),
    )  # fmt: skip
    patches = [patch.object(where, name, timed(label, getattr(where, name))) for label, where, name in places]
    for each in patches:
        each.start()
    try:
        yield seconds
    finally:
        for each in patches:
            each.stop()
