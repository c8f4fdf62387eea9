"""Figures of requirements against ones counted by hand on planted results."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from rlab.auditing.found import Found
from rlab.auditing.judge import Outcome, judge
from rlab.auditing.manifest import Done, Rows
from rlab.auditing.requirements import parse_rule
from rlab.core.distances import NAMES
from rlab.core.result import AttackResult, Setting, Status

WON, LOST, SKIPPED = Status.SUCCEEDED, Status.SPENT, Status.SKIPPED


def planted() -> AttackResult:
    """Six samples: cats 0-2 (two flipped), dogs 3-5 (one flipped, one spent, one wrong before)."""
    nan = torch.full((6,), math.nan)
    final = {name: nan.clone() for name in NAMES}
    final["l2"] = torch.tensor([1.0, 2.0, 0.0, 4.0, 0.0, 0.0])
    final["snr_db"] = torch.tensor([30.0, 20.0, math.inf, 10.0, math.inf, math.inf])
    final["l0_patches"] = torch.tensor([1.0, 2.0, 0.0, 3.0, 0.0, 0.0])
    before = torch.tensor([[0.9, 0.1]] * 3 + [[0.2, 0.8]] * 2 + [[0.7, 0.3]])
    counts = torch.zeros(6, 4, dtype=torch.int64)
    counts[:, 0] = torch.tensor([5, 10, 50, 20, 50, 1])
    setting = Setting(
        (2, 2), (1, 1), ("blur@1", "noise@0.1", "noise@0.2"), "untargeted", "random", 50, (0.0, 1.0), 0, ("cat", "dog")
    )
    return AttackResult(
        setting=setting, ids=tuple("abcdef"), labels=torch.tensor([0, 0, 0, 1, 1, 1]),
        status=(WON, WON, LOST, WON, LOST, SKIPPED), queries=counts, before=before, after=1 - before, flip=final, final=final,
        assignment=torch.tensor([[1, 0, 0, 0], [2, 1, 0, 0], [0] * 4, [3, 3, 2, 0], [0] * 4, [0] * 4], dtype=torch.uint8),
        original=torch.zeros(6, 1, 2, 2), perturbed=torch.zeros(6, 1, 2, 2), seconds=torch.zeros(6), seeds=torch.zeros(6).long(),
    )  # fmt: skip


def measured(text: str, result: AttackResult | None = None) -> Outcome:
    found = Found({"attack": Done(Rows(model=136))}, {}, attack=result or planted())
    return judge([parse_rule(text)], found, "own")[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("success below 1%", 3 / 5),
        ("success below 1% at SNR 20 dB", 2 / 5),
        ("success below 1% at SNR 25 dB", 1 / 5),
        ("success below 1% at L2 1.5", 1 / 5),
        ("success below 1% within 10 queries", 2 / 5),
        ("success below 1% for class cat", 2 / 3),
        ("success below 1% for class 1", 1 / 2),
        ("success below 1% under noise", 2 / 5),
        ("success below 1% under noise for class cat within 10 queries", 1 / 3),
        ("clean accuracy at least 1%", 5 / 6),
        ("clean accuracy for class dog at least 1%", 2 / 3),
        ("median L2 at least 1", 2.0),
        ("median L2 under blur at least 1", 1.5),
        ("median SNR at most 1 dB", 20.0),
        ("median queries at least 1", 10.0),
        ("median patches at least 1", 2.0),
        ("queries at most 136", 136.0),
    ],
)
def test_figures_are_those_counted_by_hand(text: str, value: float) -> None:
    assert measured(text).measured.value == pytest.approx(value)


def test_a_limit_itself_meets_at_most_and_not_below() -> None:
    assert measured("success at most 60%").passed
    assert not measured("success below 60%").passed
    assert measured("queries at most 136").passed
    assert not measured("queries below 136").passed


def test_where_nothing_flipped_every_distance_is_farther_than_any() -> None:
    none = replace(planted(), status=(LOST,) * 5 + (SKIPPED,))
    assert measured("median L2 at least 1000", none).passed
    assert not measured("median L2 at most 1000", none).passed
    assert measured("median SNR at most 5 dB", none).passed
    assert measured("success at most 0%", none).passed


def test_what_was_not_measured_does_not_pass() -> None:
    skipped = replace(planted(), status=(SKIPPED,) * 6)
    for text in ("success at most 100%", "success at least 0%", "median L2 at least 0"):
        one = measured(text, skipped)
        assert not one.passed
        assert "none of these samples right" in str(one)
    found = Found({}, {"attack": "the doctor found errors"}, attack=None)
    left = judge([parse_rule("success at most 100%")], found, "own")[0]
    assert not left.passed
    assert "the doctor found errors" in str(left)


def test_hardening_is_told_as_a_difference() -> None:
    figures = {
        "before": {"clean": {"value": 0.9}, "agent_l2": {"value": 1.0}},
        "after": {"clean": {"value": 0.85}, "agent_l2": {"value": "inf"}},
    }
    found = Found({"harden": Done()}, {}, harden=figures)
    lost, gone, far, absent = judge(
        [parse_rule(text) for text in (
            "clean accuracy lost by hardening at most 4%", "clean accuracy after hardening at least 85%",
            "median L2 gained by hardening at least 3", "accuracy under pgd after hardening at least 0%",
        )], found, "own")  # fmt: skip
    assert lost.measured.value == pytest.approx(0.05)
    assert not lost.passed
    assert gone.passed
    assert far.passed
    assert not absent.passed
