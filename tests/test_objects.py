"""Policies, goals and filters as objects are the same as their names, and have types, docstrings and completion."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import rlab
from rlab import filters
from rlab.corruptions import CLIPS, KINDS
from rlab.errors import OptionError
from rlab.filters.base import FAMILIES, GRADIENTS
from rlab.filters.named import ABOUT
from rlab.policies import BASELINES, parse_policy, policy_spec

POLICIES: dict[str, rlab.Policy[Any]] = {
    "square": rlab.Square(),
    "square(share=0.2)": rlab.Square(share=0.2),
    "random": rlab.Random(),
    "greedy(take=3)": rlab.Greedy(take=3),
    "belief": rlab.Belief(),
    "belief(temperature=0.2, rivals=3)": rlab.Belief(temperature=0.2, rivals=3),
    "auto": rlab.Auto(),
    "auto(shrink=0.5)": rlab.Auto(shrink=0.5),
}
GOALS: dict[str, rlab.Goal] = {
    "untargeted": rlab.Untargeted(),
    "targeted:3": rlab.Targeted(3),
    "below:0.2": rlab.Below(0.2),
    "multilabel:2": rlab.MultiLabel(2),
}
FILTERS = {
    "gaussian_noise": filters.Distortion("gaussian_noise"),
    "gaussian_noise@0.1": filters.Distortion("gaussian_noise", 0.1),
    "gaussian_noise@0.1,0.3*2": filters.Distortion("gaussian_noise", [0.1, 0.3], draws=2),
    "muscle_noise@20dB": filters.Distortion("muscle_noise", "20dB"),
    "c_fog@3": filters.Distortion("c_fog", 3),
}


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_and_its_name(name: str) -> None:
    assert parse_policy(name) == POLICIES[name]
    assert policy_spec(POLICIES[name]) == name
    assert policy_spec(name) == name


@pytest.mark.parametrize("name", GOALS)
def test_a_goal_and_its_name(name: str) -> None:
    assert str(GOALS[name]) == name


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_and_its_name(name: str) -> None:
    assert str(FILTERS[name]) == name


def test_every_filter_says_what_it_imitates() -> None:
    common = {f"c_{kind}" for kind in (*KINDS, *CLIPS)}
    assert {*ABOUT} | common == {*FAMILIES, *GRADIENTS}
    assert all("severity" in about for about in ABOUT.values())
    assert set(dir(filters)) == set(filters.__all__)


def test_an_attack_takes_objects_beside_names() -> None:
    def fade(x: Any, severity: float, generator: Any) -> Any:
        return x + severity * (0.5 - x)

    victim, batch = rlab.demo_victim("digits"), rlab.load("demo:digits", limit=4)
    objects: list[Any] = [filters.Distortion("gaussian_noise", 0.3), fade, "dead_pixel"]
    one = rlab.attack(victim, batch, palette=objects, policy=rlab.Square(share=0.2), goal=rlab.Targeted(3), budget=30)
    names: list[Any] = ["gaussian_noise@0.3", fade, "dead_pixel"]
    other = rlab.attack(victim, batch, palette=names, policy="square(share=0.2)", goal="targeted:3", budget=30)
    assert one.setting == other.setting
    assert (one.assignment == other.assignment).all()
    both = rlab.compare(victim, batch[:2], policies=[rlab.Square(share=0.2), "random"], palette=objects[:1], budget=5)
    assert list(both.outcomes) == ["square(share=0.2)", "random"]
    alone = rlab.attack(victim, batch, palette=filters.Distortion("gaussian_noise", 0.3), budget=3)
    assert alone.setting.palette == ("gaussian_noise@0.3",)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: rlab.Square(share=2), "share"),
        (lambda: rlab.Belief(prior="p.safetensors"), "pass its file as the policy"),  # type: ignore[arg-type]
        (lambda: rlab.Below(2), "probability"),
    ],
)
def test_wrong_values_are_option_errors(make: Any, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        make()


def test_dir_shows_the_public_names_and_nothing_else() -> None:
    assert dir(rlab) == sorted(rlab.__all__)
    assert len(set(rlab.__all__)) == len(rlab.__all__)


@pytest.mark.parametrize("name", [name for name in rlab.PUBLIC if inspect.isfunction(getattr(rlab, name))])
def test_what_a_public_function_returns_is_public(name: str) -> None:
    note = inspect.signature(getattr(rlab, name)).return_annotation
    words = str(note).replace("|", " ").replace("[", " ").replace("]", " ").replace(",", " ").split()
    classes = {word for word in words if word[0].isupper()} - {"None", "Path", "Samples", "Iterator"}
    assert classes <= set(rlab.PUBLIC)


@pytest.mark.parametrize("name", [*BASELINES, "auto"])
def test_policies_have_docstrings_and_signatures(name: str) -> None:
    kind = type(parse_policy(name))
    assert kind is getattr(rlab, name.capitalize())
    assert kind.__doc__
    assert not kind.__doc__.startswith(f"{kind.__name__}(")  # the one that dataclasses make
