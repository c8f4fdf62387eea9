"""Requirements: how they are read, why some are refused, and what the relations mean."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlab.benchmarking.requirements import HARDENED, HOLDS, METRICS, Requirement, Verdict, parse_requirement
from rlab.benchmarking.run import classes_of
from rlab.core.goals import Untargeted
from rlab.errors import InputError, OptionError
from rlab.storage.config import check

READ: list[tuple[dict[str, Any], float, str]] = [
    ({"metric": "success", "at": {"snr": "20dB"}, "below": "20%"}, 0.2, "success at snr 20dB below 20%"),
    ({"metric": "success", "at": {"l2": 1.0}, "at_most": 0.5}, 0.5, "success at l2 1.0 at most 0.5"),
    ({"metric": "success", "class": 3, "distortion": "fog", "below": 1}, 1.0, "success for class 3 under fog below 1"),
    ({"metric": "median_l2", "class": "V", "at_least": "0.1 mV"}, 0.1, "median l2 for class V at least 0.1 mV"),
    ({"metric": "median_snr", "at_most": "25 dB"}, 25.0, "median snr at most 25 dB"),
    ({"metric": "accuracy", "model": "robust", "level": "x1.5", "at_least": "40%"}, 0.4, "accuracy of robust at x1.5 at least 40%"),
    ({"metric": "dice", "method": "rise", "above": 0.5}, 0.5, "dice of rise above 0.5"),
    ({"metric": "median_l2", "when": "lost by hardening", "at_most": 1}, 1, "median l2 lost by hardening at most 1"),
]  # fmt: skip
INVALID: list[tuple[dict[str, Any], str]] = [
    ({"metric": "success"}, "expected exactly one of below, at_most, above, at_least, got none"),
    ({"metric": "success", "below": 0.2, "at_most": 0.2}, "got below and at_most"),
    ({"metric": "sucess", "below": 0.2}, "unknown metric 'sucess': did you mean 'success'"),
    ({"metric": "accuracy_under_pgd", "below": 0.2}, "with 'when: after hardening'"),
    ({"metric": "success", "when": "after hardening", "below": 0.2}, "unknown metric 'success'"),
    ({"metric": "success", "below": "200%"}, "success is a share"),
    ({"metric": "success", "below": 20}, "success is a share"),
    ({"metric": "success", "below": "much"}, "expected a number, a percentage or a number with its unit"),
    ({"metric": "median_l2", "at_least": "5%"}, "'%' is not a unit of median_l2"),
    ({"metric": "clean_accuracy", "at_least": "90 dB"}, "'dB' is not a unit of clean_accuracy"),
    ({"metric": "success", "at": {"queries": "10 dB"}, "below": 0.2}, "'dB' is not a unit of queries"),
    ({"metric": "success", "level": "flip", "below": 0.2}, "'level' does not apply to success"),
    ({"metric": "accuracy", "at_least": 0.3}, "accuracy needs a level or a distortion"),
    ({"metric": "success", "clas": "V", "below": 0.2}, "unknown key 'clas' in the requirement. Did you mean 'class'"),
    ({"metric": "success", "at": {}, "below": 0.2}, "at least 1 item"),
]


@pytest.mark.parametrize(("fields", "limit", "text"), READ, ids=lambda case: str(case)[:60])
def test_fields_are_read_and_written_back(fields: dict[str, Any], limit: float, text: str) -> None:
    requirement = check(Requirement, fields)
    assert requirement.limit == pytest.approx(limit)
    assert str(requirement) == text
    assert check(Requirement, requirement.plain()) == requirement


@pytest.mark.parametrize(("fields", "why"), INVALID, ids=lambda case: str(case)[:60])
def test_an_invalid_requirement_is_one_sentence(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why) as refused:
        check(Requirement, fields, "the requirement")
    assert "\n" not in str(refused.value)


def test_every_metric_can_be_required() -> None:
    for when, metrics in ((None, METRICS), ("after hardening", HARDENED)):
        for name, metric in metrics.items():
            values = {"level": "flip", "class": "MI", "distortion": "muscle_noise"}
            needed = {key: value for key, value in values.items() if key in metric.keys}
            requirement = check(Requirement, {"metric": name, "when": when, **needed, "at_most": 1})
            assert requirement.figure is metric


@given(st.sampled_from(sorted(HOLDS)), st.floats(0, 1), st.floats(0, 1))
def test_a_relation_means_what_it_says(relation: str, limit: float, value: float) -> None:
    truth = {"below": value < limit, "at_most": value <= limit, "above": value > limit, "at_least": value >= limit}
    requirement = Requirement.model_validate({"metric": "success", relation: limit})
    assert Verdict(requirement, value).passed == truth[relation]
    assert not Verdict(requirement, float("nan")).passed


def test_the_short_form_is_the_same_requirement() -> None:
    fields = {"metric": "accuracy", "model": "resnet", "level": "flip", "at_least": "0.1"}
    assert parse_requirement("resnet:flip=0.1") == check(Requirement, fields)
    levels = ("original", "flip", "x1.5", "l2-0.05", "s3")
    assert tuple(parse_requirement(f"{level}=0.1").level for level in levels) == levels
    assert parse_requirement("snow=0.1").distortion == "snow"
    assert parse_requirement("gaussian_blur=50%").distortion == "gaussian_blur"
    assert parse_requirement("l2-0.5=0.3").level == "l2-0.5"
    for text in ("flip", "flip=much", "=0.5", "flip=20"):
        with pytest.raises(OptionError):
            parse_requirement(text)


def test_nan_is_not_a_class() -> None:
    scores = torch.tensor([[0.0, -1.0], [math.nan, -1.0], [math.nan, math.nan]])
    assert classes_of(scores).tolist() == [0, -1, -1]
    assert Untargeted().correct(scores, torch.zeros(3, dtype=torch.int64)).tolist() == [True, False, False]
