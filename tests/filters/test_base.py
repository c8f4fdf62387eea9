from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from rlab.errors import InputError
from rlab.filters import Filter
from rlab.filters.base import as_filter, from_path


def halve(x, severity, generator):
    """Half as bright.

    More words that a list of filters has no room for.
    """
    return x * (1 - severity)


def test_a_function_becomes_a_filter():
    one = as_filter(halve)
    assert (one.name, one.about, one.clip, one.ranks) == ("halve", "Half as bright.", False, frozenset({1, 2, 3}))
    assert one.default_severity == 0.3
    assert torch.equal(one(torch.ones(1, 1, 4), 0.5, torch.Generator()), torch.full((1, 1, 4), 0.5))


def test_a_function_may_carry_its_options():
    def mine(x, severity, generator):
        return x

    mine.severities, mine.ranks, mine.clip = [1, 2, 3], [2], True  # type: ignore[attr-defined]
    one = as_filter(mine)
    assert (one.severities, one.ranks, one.clip) == ((1, 2, 3), frozenset({2}), True)


def test_a_filter_stays_itself():
    one = Filter("mine", halve)
    assert as_filter(one) is one


def test_default_severity_is_the_middle_one_or_the_one_named():
    assert Filter("mine", halve, (0.1, 0.2, 0.9)).default_severity == 0.2
    assert Filter("mine", halve, (0.1, 0.2, 0.9), default=0.9).default_severity == 0.9


@pytest.mark.parametrize("ladder", [(), (0.0, 0.1), (0.2, 0.1), (0.1, 0.1), (0.1, float("inf")), (float("nan"),)])
def test_a_ladder_rises_from_above_zero(ladder: tuple[float, ...]):
    with pytest.raises(InputError, match="severities of the filter 'mine' above 0 and weakest first"):
        Filter("mine", halve, ladder)


def test_something_else_is_refused():
    with pytest.raises(InputError, match=re.escape("(x, severity, generator) -> x, got int")):
        as_filter(3)


def test_from_path_finds_functions_and_filters_beside_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "my_own_filters.py").write_text(
        "from rlab.filters import Filter\n"
        "def dim(x, severity, generator): return x * (1 - severity)\n"
        "made = Filter('made', dim, severities=(0.5,))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["elsewhere"])
    assert from_path("my_own_filters:dim").name == "dim"
    assert from_path("my_own_filters:made").severities == (0.5,)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("no_such_module:f", "ModuleNotFoundError"),
        ("math:no_such_function", "AttributeError"),
        (":f", "cannot load the filter ':f'"),
        ("broken_filters:f", "SyntaxError"),
        ("math:pi", "got float"),
    ],
)
def test_from_path_says_what_is_wrong(path: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "broken_filters.py").write_text("def f(:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    with pytest.raises(InputError, match=said):
        from_path(path)
