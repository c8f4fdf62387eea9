"""Filters from functions and paths."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from rlab.errors import OptionError
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
    assert as_filter(one) is one


def test_a_function_may_carry_its_options():
    def mine(x, severity, generator):
        return x

    mine.severities, mine.ranks, mine.clip = [1, 2, 3], [2], True  # type: ignore[attr-defined]
    one = as_filter(mine)
    assert (one.severities, one.ranks, one.clip) == ((1, 2, 3), frozenset({2}), True)


def test_the_default_severity_is_the_middle_one_or_the_declared_one():
    assert Filter("mine", halve, (0.1, 0.2, 0.9)).default_severity == 0.2
    assert Filter("mine", halve, (0.1, 0.2, 0.9), default=0.9).default_severity == 0.9


@pytest.mark.parametrize("ladder", [(), (0.0, 0.1), (0.2, 0.1), (0.1, 0.1), (0.1, float("inf")), (float("nan"),)])
def test_severities_must_increase_from_above_zero(ladder: tuple[float, ...]):
    with pytest.raises(OptionError):
        Filter("mine", halve, ladder)


SOURCE = """
from rlab.filters import Filter
def dim(x, severity, generator): return x * (1 - severity)
ready = Filter('ready', dim, severities=(0.5,))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_filters.py").write_text(SOURCE)
    (tmp_path / "broken_filters.py").write_text("def f(:\n")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("folder")
def test_from_path_finds_functions_and_filters_in_the_working_directory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.path", ["elsewhere"])
    assert from_path("my_own_filters:dim").name == "dim"
    assert from_path("my_own_filters:ready").severities == (0.5,)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("no_such_module:f", "ModuleNotFoundError"),
        ("math:no_such_function", "AttributeError"),
        (":f", "cannot load the filter ':f'"),
        ("broken_filters:f", "SyntaxError"),
        ("math:pi", r"\(x, severity, generator\) -> x, got float"),
    ],
)
def test_errors_of_from_path(path: str, sentence: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.path", [*sys.path])
    with pytest.raises(OptionError, match=sentence):
        from_path(path)
