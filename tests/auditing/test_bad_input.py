"""Whatever is wrong with a declared audit is one sentence, before any model is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlab.auditing import make_audit_config
from rlab.auditing.job import prepare
from rlab.errors import InputError, VictimError
from tests.auditing.cases import declared

BAD: list[tuple[dict[str, Any], str]] = [
    ({"atack": {}}, "unknown key 'atack' in the audit. Did you mean 'attack'\\?"),
    ({"attack": {"bugdet": 3}}, "unknown key 'attack.bugdet' in the audit. Did you mean 'budget'\\?"),
    ({"harden": {"epochs": 1}}, "section 'harden' has no 'data'"),
    ({"requirements": []}, "the audit has no requirements"),
    ({"benchmark": {"ladder": "times:2,1.5"}}, "put the mildest first"),
    ({"explain": {"methods": ["credt"]}}, "Did you mean 'credit'"),
    ({"benchmark": {"models": {"demo-digits": "demo:digits"}}}, "which is the audited model itself"),
    (
        {"requirements": ["success below 20% under rain"]},
        "unknown distortion 'rain': there are gaussian_noise, dead_pixel",
    ),
    (
        {"requirements": ["accuracy at x9 at least 20%"]},
        "unknown level or distortion 'x9': there are original, flip, x1.5, gaussian_noise",
    ),
    ({"requirements": ["x9=0.1"]}, "unknown level or distortion 'x9'"),
    ({"requirements": ["accuracy of other at flip at least 2%"]}, "unknown model 'other': there are demo-digits"),
    ({"requirements": ["success below 9% for class unicorn"]}, "unknown class, or one without samples, 'unicorn'"),
    ({"requirements": ["deletion of rise below 0.5"]}, "unknown method 'rise': there are occlusion, middle"),
    ({"requirements": ["dice of middle above 0.5"]}, "cannot be judged: the data have no ground truth"),
    ({"requirements": ["stability of middle above 0.5"]}, "set 'checks: true'"),
    ({"requirements": ["clean accuracy after hardening above 1%"]}, "the stage 'harden', which this audit leaves out"),
    ({"requirements": ["median L2 at least 1 mV"]}, "counts in mV, the data in no unit"),
    (
        {"explain": False, "requirements": ["deletion below 0.5"]},
        "declare the section 'explain:' or drop the requirement",
    ),
    ({"data": "nowhere/at-all"}, "stopped at loading the data: there is no file or folder"),
    ({"model": "no_such_module:net"}, "stopped at loading the model: "),
    ({"benchmark": {"models": {"b": "no_such_module:net"}}}, "stopped at loading the model 'b' of the benchmark"),
    ({"palette": ["rain"]}, "stopped at loading the data: unknown filter 'rain'"),
    ({"attack": {"goal": "win"}}, "expected a goal like"),
    ({"benchmark": {"goal": "below:0.2"}}, "set 'benchmark: false'"),
]


@pytest.mark.parametrize(("more", "why"), BAD, ids=lambda one: str(one)[:50])
def test_bad_input_is_one_sentence(more: dict[str, Any], why: str, tmp_path: Path) -> None:
    with pytest.raises((InputError, VictimError), match=why) as refused:
        prepare(make_audit_config(declared(**more)), tmp_path / "out")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("section", ["model", "data", "requirements"])
def test_a_missing_section_is_named(section: str) -> None:
    values = declared()
    del values[section]
    with pytest.raises(InputError, match=f"the audit has no '{section}': declare it"):
        make_audit_config(values)


def test_nothing_is_asked_before_everything_is_checked(tmp_path: Path) -> None:
    job = prepare(make_audit_config(declared()), tmp_path / "out")
    assert job.victim.rows.total() == 0
