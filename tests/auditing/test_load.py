"""A bad audit file is a one-line error before any model is queried."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlab.auditing.load import load_audit
from rlab.auditing.stages import marks
from rlab.errors import InputError, VictimError
from tests.auditing.cases import audit_options, declared

BAD: list[tuple[dict[str, Any], str]] = [
    ({"explian": {}}, "unknown key 'explian' in the audit. Did you mean 'explain'\\?"),
    ({"bugdet": 3}, "unknown key 'bugdet' in the audit. Did you mean 'budget'\\?"),
    ({"harden": {"epochs": 1}}, "the audit has no 'harden.data'"),
    ({"benchmark": {"ladder": "times:2,1.5"}}, "put the mildest first"),
    ({"benchmark": {"data": "demo:digits"}}, "omit 'benchmark.data'"),
    ({"explain": {"methods": ["belif"]}}, "Did you mean 'belief'"),
    ({"benchmark": {"models": {"b": "demo:digits"}}}, "omit 'benchmark.models', and grade further models"),
    ({"benchmark": {"against": "all"}}, "grade further models on its benchmark"),
    ({"benchmark": {"folder": "runs/made"}}, "grade the model on an existing benchmark with `rlab benchmark run"),
    ({"data": "nowhere/at-all"}, "stopped at loading the data: there is no file or folder"),
    ({"model": "no_such_module:net"}, "stopped at loading the model: "),
    ({"palette": ["rain"]}, "stopped at loading the data: unknown filter 'rain'"),
    ({"goal": "win"}, "expected a goal like"),
    ({"goal": "below:0.2"}, "set 'benchmark: false'"),
    ({"attack": {"budget": 3}}, "the section 'attack' is gone"),
    ({"benchmark": {"sets": "free"}}, "omit 'sets'"),
    ({"benchmark": {"sets": "free"}}, "omit 'sets'"),
    (
        {"explain": False, "requirements": [{"metric": "deletion", "below": 0.5}]},
        "declare the section 'explain:' or drop the requirement",
    ),
]
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"metric": "success", "distortion": "rain", "below": 0.2}, "unknown distortion 'rain': there are gaussian_noise, dead_pixel"),
    ({"metric": "accuracy", "level": "x9", "at_least": 0.2}, "unknown level 'x9': there are original, flip, x1.5"),
    ({"metric": "accuracy", "model": "other", "level": "flip", "at_least": 0.2}, "unknown model 'other': there are demo-digits"),
    ({"metric": "success", "class": "unicorn", "below": 0.1}, "unknown class, or one without samples, 'unicorn'"),
    ({"metric": "deletion", "method": "rise", "below": 0.5}, "unknown method 'rise': there are occlusion, middle"),
    ({"metric": "dice", "method": "middle", "above": 0.5}, "cannot be checked: the data have no ground truth"),
    ({"metric": "stability", "method": "middle", "above": 0.5}, "set 'checks: true'"),
    ({"metric": "clean_accuracy", "when": "after hardening", "above": "1%"}, "the audit skips the stage 'harden'"),
    ({"metric": "median_l2", "at_least": "1 mV"}, "is in mV, the data in no unit"),
    ({"metric": "success", "at": {"l2": "1 mV"}, "below": 0.5}, "is in mV, the data in no unit"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "why"), [*BAD, *(({"requirements": [one]}, why) for one, why in WRONG)], ids=lambda one: str(one)[:60]
)
def test_bad_input_is_a_one_line_error(more: dict[str, Any], why: str, tmp_path: Path) -> None:
    with pytest.raises((InputError, VictimError), match=why) as refused:
        load_audit(audit_options(declared(**more)), tmp_path / "out")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("section", ["model", "data"])
def test_a_missing_section_is_named(section: str) -> None:
    values = declared()
    del values[section]
    with pytest.raises(InputError) as refused:
        audit_options(values)
    assert f"'{section}'" in str(refused.value)


def test_nothing_is_queried_before_everything_is_checked(tmp_path: Path) -> None:
    audit = load_audit(audit_options(declared()), tmp_path / "out")
    assert audit.victim.rows.total() == 0
    assert marks(audit).keys() == {"doctor", "attack", "explain", "benchmark"}
