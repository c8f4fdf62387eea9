"""Attacks on models that return only labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from benchmarks.attacks import flips
from benchmarks.data import cifar_test
from benchmarks.peers.cases import contender
from benchmarks.raw import Curves
from rlab.data.batch import Batch
from rlab.policies.pixels import PixelPolicy
from rlab.priors.base import NoPrior
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack
from rlab.victims.base import Victim

OURS, UNTRAINED, PEER, SURFREE = "labels", "labels, nothing trained", "hopskipjump", "surfree"
VICTIMS, SAMPLES, QUERIES = ("vgg", "wide_resnet"), 100, (20, 50, 100, 200, 500, 1000)
QUICK_IMAGES, QUICK_QUERIES = 4, 500
Run = Callable[[Victim, Batch, int], Curves]  # budget


def ours(trained: bool = True) -> Run:
    def run(victim: Victim, batch: Batch, budget: int) -> Curves:
        # The clean prediction and the verification of the flip are not counted.
        attack = make_attack(batch, palette="pixels", budget=budget + 2, until="budget", chunk=len(batch))
        if not trained:
            assert isinstance(attack.policy, PixelPolicy)
            attack = replace(attack, policy=replace(attack.policy, opening=NoPrior()))
        return flips(run_attack(attack, victim, batch), uncounted=1)

    return run


def peer(spec: str) -> Run:
    def run(victim: Victim, batch: Batch, budget: int) -> Curves:
        outcome = contender(spec, ())(victim, batch, budget + 2, 0)
        pairs = zip(outcome.improvements, outcome.attacked.tolist(), strict=True)
        return tuple(tuple((q - 1, far) for q, far in curve) for curve, attacked in pairs if attacked)

    return run


ROWS: Mapping[str, Run] = {OURS: ours(), UNTRAINED: ours(trained=False), PEER: peer(PEER), SURFREE: peer(SURFREE)}


def curves(row: str, load: Callable[[], Victim], samples: int, budget: int) -> Curves:
    """Attack a victim whose scores are hidden."""
    return ROWS[row](load().read_as(outputs="labels"), cifar_test(samples), budget)
