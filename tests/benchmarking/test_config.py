"""One declaration: the configuration of an attack is also one of a benchmark."""

from __future__ import annotations

from typing import Any

import pytest

from rlab.benchmarking.config import BenchmarkOptions, Ladder, parse_ladder
from rlab.core import defaults
from rlab.errors import InputError
from rlab.runs.options import AttackOptions, RunOptions
from rlab.runs.sharing import WorkerOptions
from rlab.storage.config import check
from tests.helpers import make_batch

FILE: dict[str, Any] = {
    "model": "demo:digits",
    "data": "demo:digits",
    "palette": "gaussian_noise@0.2",
    "l2_penalty": 0.3,
}


@pytest.mark.parametrize(
    "more", [{}, {"l2_penalty": 0.2, "policy": "square"}, {"accept": "always", "patience": 3, "seed": 9}]
)
def test_a_file_of_an_attack_is_one_of_a_benchmark_and_gives_the_same_attack(more: dict[str, Any]):
    values, batch = FILE | more, make_batch(2, 4)
    options = check(BenchmarkOptions, values)
    assert options.build(batch) == check(RunOptions, values).build(batch)
    assert list(options.models) == ["demo-digits"]
    assert options.models["demo-digits"].name == "demo:digits"


def test_no_option_of_an_attack_is_declared_again():
    own = set(BenchmarkOptions.__annotations__)
    assert not own & set(AttackOptions.model_fields)
    assert set(BenchmarkOptions.model_fields) == set(AttackOptions.model_fields) | set(WorkerOptions.model_fields) | own


def test_one_model_and_several_can_be_named_together():
    values = FILE | {"model": {"name": "demo:digits", "chunk": 4}, "models": {"other": "demo:ecg"}}
    options = check(BenchmarkOptions, values)
    assert {name: model.name for name, model in options.models.items()} == {
        "demo-digits": "demo:digits",
        "other": "demo:ecg",
    }
    assert check(BenchmarkOptions, options.plain()) == options


def test_defaults_follow_from_the_data():
    batch = make_batch(2, 4)
    options, defaulted = check(BenchmarkOptions, {}).filled(batch)
    assert set(defaulted) == {"palette", "patch", "budget", "format"}
    assert (options.format, options.budget) == ("png", defaults.BUDGETS["image"])
    assert parse_ladder(options.ladder) == Ladder()


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"ladder": "times:2,1"}, "mildest first"),
        ({"stepps": 3}, "Did you mean 'steps'"),
        ({"models": {"a": {"name": "demo:digits", "men": 1}}}, "models.a.men"),
        ({"lead": -1}, "'lead'"),
        ({"format": "tiff"}, "'format'"),
    ],
)
def test_an_invalid_option_is_named(values: dict[str, Any], word: str):
    with pytest.raises(InputError, match=word):
        check(BenchmarkOptions, values)
