"""Options of a benchmark: its models, defaults and ladders, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from rlab.benchmarking.config import BenchmarkOptions, Ladder, parse_ladder
from rlab.core import defaults
from rlab.errors import InputError, OptionError
from rlab.storage.config import check
from tests.helpers import make_batch


def test_one_model_and_several_can_be_named_together():
    values = {"data": "demo:digits", "model": {"name": "demo:digits", "chunk": 4}, "models": {"other": "demo:ecg"}}
    options = check(BenchmarkOptions, values)
    named = {name: model.name for name, model in options.models.items()}
    assert named == {"demo-digits": "demo:digits", "other": "demo:ecg"}
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


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("times:1,1.25,2", ("flip", "x1.25", "x2")),
        ("l2:0.5,4", ("flip", "l2-0.5", "l2-4")),
        ("severity:2..4", ("flip", "s2", "s3", "s4")),
        ("flip", ("flip",)),
    ],
)
def test_a_ladder_names_its_levels_and_survives_its_text(text: str, names: tuple[str, ...]):
    ladder = parse_ladder(text)
    assert ladder.names == names
    assert parse_ladder(str(ladder)) == ladder
    assert check(BenchmarkOptions, {"ladder": text}).ladder == check(BenchmarkOptions, {"ladder": ladder}).ladder


def test_the_text_of_a_ladder():
    assert str(Ladder("l2", (1.0, 2.0))) == "l2:1,2"
    assert str(Ladder("times", ())) == "flip"
    assert str(parse_ladder("severity:1..5")) == "severity:1,2,3,4,5"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("times:2,1.5", "to rise from level to level"),
        ("times:1.5,1.5", "to rise from level to level"),
        ("l2:3,1", "to rise from level to level"),
        ("l2:1,nan", "to rise from level to level"),
        ("severity:2,1", "to rise from level to level"),
        ("times:0.5,2", "of at least 1"),
        ("l2:0,1", "above 0"),
        ("severity:0..5", "severities from 1 to 5"),
        ("severity:1..6", "severities from 1 to 5"),
        ("severity:1.5", "severities from 1 to 5"),
        ("speed:1,2", "expected a ladder such as"),
        ("times:", "expected a ladder such as"),
        ("times:a,b", "expected a ladder such as"),
        ("severity:", "expected a ladder such as"),
        ("severity:1..x", "expected a ladder such as"),
        ("confidence:0.9,flip,0.1", "expected a ladder such as"),
    ],
)
def test_an_invalid_ladder_is_refused(text: str, sentence: str):
    with pytest.raises(OptionError, match=sentence):
        parse_ladder(text)
