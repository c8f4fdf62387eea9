from __future__ import annotations

import pytest

from rlab.benchmarking.config import Ladder, parse_ladder
from rlab.errors import InputError


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("times:1,1.25,2", ("flip", "x1.25", "x2")),
        ("l2:0.5,4", ("flip", "l2-0.5", "l2-4")),
        ("probability:0.5,0.1", ("flip", "p-0.5", "p-0.1")),
        ("flip", ("flip",)),
    ],
)
def test_a_ladder_names_its_levels_after_the_flip(text: str, names: tuple[str, ...]):
    assert parse_ladder(text).names == names


def test_text_and_ladder_are_inverse():
    for each in (Ladder(), Ladder("l2", (0.5, 2.0)), Ladder("probability", (0.3, 0.01))):
        assert parse_ladder(str(each)) == each


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("times:2,1.5", "to rise from one level to the next"),
        ("times:1.5,1.5", "to rise from one level to the next"),
        ("l2:3,1", "to rise from one level to the next"),
        ("probability:0.1,0.5", "to fall from one level to the next"),
        ("times:0.5,2", "between 1 and inf"),
        ("probability:1.5,0.5", "between 0 and 1"),
        ("l2:0,1", "between 0 and inf"),
        ("l2:1,nan", "to rise"),
        ("speed:1,2", "expected a ladder like"),
        ("times:", "expected a ladder like"),
        ("times:a,b", "expected a ladder like"),
    ],
)
def test_a_ladder_that_will_not_do_is_refused(text: str, sentence: str):
    with pytest.raises(InputError, match=sentence):
        parse_ladder(text)
