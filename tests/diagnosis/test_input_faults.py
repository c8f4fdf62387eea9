"""Inputs that a sound model does not expect, or data that are wrong: the doctor must find each fault and no other."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rlab.data.batch import UNBOUNDED, Batch
from rlab.data.take import Take
from rlab.diagnosis import Severity
from rlab.victims.reading import Normalise
from rlab.victims.torch_module import TorchVictim
from tests.diagnosis.cases import (
    BYTES,
    CIFAR10,
    COLOURS,
    HALF,
    IMAGENET,
    MNIST,
    RANKS,
    SIZES,
    WIDE,
    Case,
    Nearest,
    biased,
    chain,
    check,
    counted,
    function,
    noisy,
    normalised,
    only_classes,
    parameters,
    plain,
    prototypes,
    samples,
    signals,
    sound,
    torch_victim,
    viewing,
    waves,
)


def symmetric() -> Tensor:
    """Prototypes of which four read the same with reversed channels."""
    same = torch.tensor([(0.2, 0.5, 0.2), (0.5, 0.2, 0.5), (0.8, 0.5, 0.8), (0.5, 0.8, 0.5)])
    return torch.cat([COLOURS[:4], same])[:, :, None, None].repeat(1, 1, *SIZES[2])


def copies(rank: int) -> Batch:
    batch = samples(rank)
    return Batch(torch.cat([batch.x, batch.x[:5]]), torch.cat([batch.y, batch.y[:5]]))


def one_class(**take: Any) -> Batch:
    """Six samples of one class, selected as `take` says."""
    return replace(samples(2)[[i for i in range(48) if i % 8 == 2]], take=Take(**take))


def with_constant(*place: int) -> Batch:
    batch = samples(2)
    x = batch.x.clone()
    x[place] = 0.5
    return Batch(x, batch.y, ids=tuple(f"s{i}" for i in range(48)))


LAST = {rank: prototypes(rank).movedim(1, -1).contiguous() for rank in RANKS}
FRAMES = prototypes(3).transpose(1, 2).contiguous()
CASES: dict[str, Case] = {
    # --- sound
    "a range of its own": Case(lambda r: TorchVictim(sound(r), bounds=UNBOUNDED), ranks=(1,)),
    "trained on ImageNet": Case(lambda r: normalised(sound(r, IMAGENET), IMAGENET)),
    "trained on ImageNet, bytes": Case(
        lambda r: normalised(sound(r, IMAGENET), IMAGENET.within(WIDE), bounds=WIDE), batch=lambda r: samples(r, bounds=WIDE)
    ),
    "a function that normalises": Case(lambda r: function(IMAGENET, sound(r, IMAGENET))),
    "a model that normalises": Case(lambda r: torch_victim(chain(IMAGENET, sound(r, IMAGENET))), ranks=RANKS),
    "certain without a reason": Case(lambda r: TorchVictim(biased(reverse=True)), batch=lambda r: only_classes(4)),
    "signals": Case(lambda r: TorchVictim(Nearest(waves()), bounds=UNBOUNDED), batch=lambda r: signals()),
    "standardised signals": Case(
        lambda r: TorchVictim(Nearest(waves() / waves().std(2, keepdim=True), 0.1), bounds=UNBOUNDED),
        batch=lambda r: signals(gain=math.sqrt(2)),
    ),
    "frames first": Case(lambda r: TorchVictim(Nearest(FRAMES), layout="frames_first"), ranks=(3,)),
    # --- scale and normalisation
    "wants bytes": Case(lambda r: TorchVictim(sound(r, BYTES)), "error bounds", "0 to 255", ranks=RANKS),
    "wants -1 to 1": Case(lambda r: TorchVictim(sound(r, HALF)), "error bounds", "mean=0.5, std=0.5", ranks=RANKS),
    "wants ImageNet": Case(
        lambda r: TorchVictim(sound(r, IMAGENET)), "error normalisation",
        "mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225) to TorchVictim", ranks=RANKS,
    ),
    "wants CIFAR-10": Case(
        lambda r: TorchVictim(sound(r, CIFAR10)), "error normalisation",
        "mean=(0.4914, 0.4822, 0.4465), std=(0.247, 0.2435, 0.2616) to TorchVictim", ranks=RANKS,
    ),
    "wants MNIST": Case(
        lambda r: TorchVictim(sound(r, MNIST, 1)), "error normalisation", "mean=0.1307, std=0.3081",
        batch=lambda r: samples(r, 1),
    ),
    "mean and std in other units": Case(
        lambda r: normalised(sound(r, IMAGENET), IMAGENET, bounds=WIDE), "error normalisation",
        "mean=(123.7, 116.3, 103.5), std=(58.4, 57.12, 57.38)", batch=lambda r: samples(r, bounds=WIDE),
    ),
    "wants 0 to 1": Case(
        lambda r: TorchVictim(sound(r), bounds=WIDE), "error bounds", "pass mean=0, std=255",
        batch=lambda r: samples(r, bounds=WIDE),
    ),
    "normalised by victim and model": Case(
        lambda r: normalised(chain(IMAGENET, sound(r, IMAGENET)), IMAGENET), "error normalisation",
        "omit mean and std in TorchVictim", ranks=RANKS,
    ),
    "normalised twice in a function": Case(
        lambda r: function(IMAGENET, IMAGENET, sound(r, IMAGENET)), "error normalisation", "only once"
    ),
    "a function that should normalise": Case(
        lambda r: function(sound(r, IMAGENET)), "error normalisation", "to CallableVictim"
    ),
    "wants larger units": Case(
        lambda r: TorchVictim(Nearest(1000 * waves(), 0.02e6), bounds=UNBOUNDED), "error bounds", "std=0.001",
        batch=lambda r: signals(),
    ),
    "wants smaller units": Case(
        lambda r: TorchVictim(Nearest(waves() / 1000, 0.02e-6), bounds=UNBOUNDED), "error bounds", "std=1000",
        batch=lambda r: signals(),
    ),
    "wants standardised signals": Case(
        lambda r: TorchVictim(Nearest(waves() / waves().std(2, keepdim=True), 0.1), bounds=UNBOUNDED),
        "error normalisation", "standardise each sample", batch=lambda r: signals(gain=3, offset=7),
    ),
    "divided twice": Case(
        plain, "error bounds", "255", batch=lambda r: Batch(samples(r).x / 255, samples(r).y), queries=0
    ),
    "bounds too wide": Case(
        lambda r: TorchVictim(sound(r), bounds=WIDE), "error bounds", "bounds=(0, 1)",
        batch=lambda r: Batch(samples(r).x, samples(r).y, bounds=WIDE),
    ),
    "data wider than the model": Case(
        plain, "error bounds", "bounds=(-inf, inf)", ranks=(1,), queries=0,
        batch=lambda r: Batch(samples(r).x, samples(r).y, bounds=UNBOUNDED),
    ),
    "model wider than the data": Case(
        lambda r: TorchVictim(sound(r), bounds=(-1.0, 2.0)), "warning bounds", ranks=(1,)
    ),
    # --- channels and layout
    "reversed channels": Case(
        lambda r: torch_victim(chain(lambda x: x.flip(1), sound(r))), "error channel-order", ranks=RANKS
    ),
    "reversed channels and scale": Case(  # the right scale alone brings back four classes
        lambda r: torch_victim(chain(lambda x: x.flip(1), Nearest(255 * symmetric(), 0.02 * 255**2))),
        "error bounds, error channel-order", batch=lambda r: Batch(*noisy(symmetric())),
    ),
    "prefers reversed channels": Case(
        lambda r: TorchVictim(biased(reverse=False)), "warning channel-order", "24 of 24", batch=lambda r: only_classes(4)
    ),
    "wants frames first": Case(
        lambda r: TorchVictim(Nearest(FRAMES)), "error layout", "pass layout='frames_first' to TorchVictim",
        ranks=(3,), queries=17,
    ),
    "wants frames first, normalised": Case(
        lambda r: TorchVictim(Nearest(FRAMES), mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)), "error layout",
        "layout='frames_first'", ranks=(3,),
    ),
    "wants channels first": Case(
        lambda r: TorchVictim(sound(r), layout="frames_first"), "error layout", "pass layout='channels_first'", ranks=(3,)
    ),
    "a function that wants frames first": Case(
        lambda r: function(Nearest(FRAMES)), "error layout", "pass layout='frames_first' to CallableVictim", ranks=(3,)
    ),
    "reshapes frames first": Case(
        lambda r: TorchVictim(viewing(Nearest(FRAMES), tuple(FRAMES.shape[1:]))), "error layout",
        "-M layout=frames_first", ranks=(3,), queries=13 * 16,
    ),
    "reshapes channels first": Case(
        lambda r: TorchVictim(viewing(sound(r), tuple(prototypes(r).shape[1:])), layout="frames_first"),
        "error layout", "-M layout=channels_first", ranks=(3,), queries=13 * 16,
    ),
    "wants channels last": Case(
        lambda r: normalised(Nearest(LAST[r]), IMAGENET), "error layout", "-M layout=channels_last", ranks=(1, 2)
    ),
    "wants colour": Case(
        lambda r: TorchVictim(chain(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(48, 9))), "error layout", "-D channels=3",
        batch=lambda r: samples(r, 1),
    ),
    "wants grey": Case(
        lambda r: TorchVictim(chain(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(48, 9))), "error layout", "-D channels=1"
    ),
    # --- data
    "one class": Case(
        plain, "warning one-class", "more data or another split", batch=lambda r: one_class()
    ),
    "one class among the first": Case(
        plain, "warning one-class", "-D order=spread", batch=lambda r: one_class(limit=6, order="first")
    ),
    "one class of a limit that is spread": Case(
        plain, "warning one-class", "more data or another split", batch=lambda r: one_class(limit=6)
    ),
    "one class by chance": Case(
        plain, "warning one-class", "leave out shuffle", batch=lambda r: one_class(limit=6, shuffle=True)
    ),
    "copies": Case(plain, "warning duplicates", "5 of 53", batch=copies),
    "a constant channel": Case(plain, "note flat", "s7", batch=lambda r: with_constant(7, 1)),
}  # fmt: skip


@pytest.mark.parametrize(("case", "rank"), parameters(CASES))
def test_each_fault_has_its_finding(case: Case, rank: int) -> None:
    check(case, rank)


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("trained_on", [None, HALF, BYTES])
def test_a_sound_model_is_healthy_for_few_queries(rank: int, channels: int, trained_on: Normalise | None) -> None:
    mean, std = (None, None) if trained_on is None else (trained_on.mean, trained_on.std)
    report = counted(TorchVictim(sound(rank, trained_on, channels), mean=mean, std=std), samples(rank, channels))
    assert (report.findings, report.accuracy, report.healthy) == ((), 1, True)
    assert report.queries <= 16 * 4


@pytest.mark.parametrize("batch", [with_constant(7), Batch(samples(2).x * 0.04, samples(2).y)])
def test_a_constant_sample_and_narrow_values_are_among_the_findings(batch: Batch) -> None:
    found = [one for one in counted(plain(2), batch).findings if one.name in ("flat", "bounds")]
    assert found[-1].level is Severity.WARNING
    assert "s7" in found[-1].what or "3.9%" in found[-1].what


@pytest.mark.parametrize(("gain", "unit", "right"), [(1000, "mV", "uV"), (1, "uV", "mV"), (0.001, "mV", "V")])
def test_heights_that_no_ecg_has(gain: float, unit: str, right: str) -> None:
    batch = replace(signals(gain), rate=100.0, unit=unit)
    victim = TorchVictim(Nearest(gain * waves(), 0.2 * gain**2), bounds=UNBOUNDED)
    (finding,) = counted(victim, batch).findings
    assert (finding.name, finding.flag) == ("unit", f"-D unit={right}")
    victim = TorchVictim(Nearest(gain * waves(), 0.2 * gain**2), bounds=UNBOUNDED)
    assert not counted(victim, replace(batch, unit=right)).findings
