"""The language of requirements: what is understood, and the sentence for what is not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlab.auditing.requirements import RELATIONS, parse_rule
from rlab.auditing.words import FIGURES
from rlab.errors import InputError

READ: dict[str, dict[str, Any]] = {
    "success below 20% at SNR 20 dB": {"relation": "below", "limit": 0.2, "within": ("snr", 20.0)},
    "success at most 0.5 at L2 1.0": {"relation": "at most", "limit": 0.5, "within": ("l2", 1.0)},
    "success < 90% within 50 queries": {"relation": "below", "limit": 0.9, "within": ("queries", 50.0)},
    "success for class atrial premature below 50%": {"classed": "atrial premature", "limit": 0.5},
    'success below 5% for class "at rest" under gaussian_noise': {"classed": "at rest", "distortion": "gaussian_noise"},
    "median L2 at least 1.0": {"relation": "at least", "limit": 1.0},
    "median L2 >= 0.1 mV for class normal": {"limit": 0.1, "unit": "mV", "classed": "normal"},
    "median SNR is at most 25 dB": {"relation": "at most", "limit": 25.0},
    "clean accuracy at least 90%": {"limit": 0.9, "moment": ""},
    "accuracy at flip x1.5 at least 40%": {"what": "x1.5", "limit": 0.4},
    "accuracy at flip at least 40%": {"what": "flip"},
    "accuracy at level l2-2 more than 40%": {"what": "l2-2", "relation": "above"},
    "accuracy of robust under gaussian_blur at least 40%": {"what": "gaussian_blur", "named": "robust"},
    "x1.5=0.3": {"what": "x1.5", "limit": 0.3, "relation": "at least"},
    "robust:flip=0.1": {"what": "flip", "named": "robust"},
    "area of robust at least 0.3": {"named": "robust", "limit": 0.3},
    "benchmark: no mismatches": {"relation": "at most", "limit": 0.0},
    "doctor: no errors": {"relation": "at most", "limit": 0.0},
    "warnings at most 2": {"limit": 2.0},
    "deletion of credit below 0.3": {"named": "credit"},
    "clean accuracy after hardening at least 88%": {"moment": "after", "limit": 0.88},
    "clean accuracy lost by hardening at most 1%": {"moment": "lost by", "limit": 0.01},
    "accuracy under attack gained by hardening at least 5%": {"moment": "gained by"},
    "queries at most 100000": {"limit": 100_000.0},
}
STAGES = {
    "success below 20% at SNR 20 dB": "attack", "clean accuracy at least 90%": "attack", "x1.5=0.3": "benchmark",
    "deletion of credit below 0.3": "explain", "clean accuracy after hardening at least 88%": "harden",
    "queries at most 100000": "audit", "doctor: no errors": "doctor",
}  # fmt: skip


@pytest.mark.parametrize("text", READ)
def test_a_requirement_is_read(text: str) -> None:
    rule = parse_rule(text)
    assert {name: getattr(rule, name) for name in READ[text]} == READ[text]
    assert rule.figure.stage == STAGES.get(text, rule.figure.stage)
    assert rule.text == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("success", "it has no limit"),
        ("", "it has no limit"),
        ("sucess below 20%", "the figures are errors, warnings, success"),
        ("success below 200%", "success is a share"),
        ("success below 20", "success is a share"),
        ("median L2 at least 5%", "median l2 is not a share"),
        ("clean accuracy at least 90 dB", "'dB' is not a unit"),
        ("success below 20% at flip", "'at flip' says nothing about success"),
        ("success below 20% please", "'please' is not a unit|says nothing"),
        ("accuracy at least 30%", "say where"),
        ("attack: area at least 0.2", "is a figure of the stage 'benchmark', not of 'attack'"),
        ("success under a under b below 1%", "one too many"),
        ("x1.5=much", "expected a requirement like"),
    ],
)
def test_what_is_not_understood_is_one_sentence(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why) as refused:
        parse_rule(text)
    assert "\n" not in str(refused.value)


@given(st.sampled_from(sorted(RELATIONS)), st.floats(0, 1), st.floats(0, 1))
def test_a_relation_means_what_it_says(word: str, limit: float, value: float) -> None:
    rule = parse_rule(f"success {word} {limit:.6f}")
    limit = round(limit, 6)
    truth = {"below": value < limit, "at most": value <= limit, "above": value > limit, "at least": value >= limit}
    assert rule.holds(value) == truth[RELATIONS[word]]


def test_every_figure_can_be_required() -> None:
    for name, figure in FIGURES.items():
        where = " at flip" if "what" in figure.details else ""
        assert parse_rule(f"{name}{where} at most 1").figure is figure
