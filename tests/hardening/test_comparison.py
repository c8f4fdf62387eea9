"""Comparison of hardening methods: ours is best on the toy, files are written, nothing is measured twice."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch

from rlab.core.goals import Untargeted
from rlab.errors import DataError, FolderError, InputError, OptionError
from rlab.hardening.comparison import HardeningComparison, compare_hardening, parse_method
from rlab.hardening.options import HardenOptions
from rlab.hardening.report import COLUMNS
from rlab.hardening.run import Splits
from tests.hardening.toys import Toy, evaluation, options, shortcut


def comparison(folder: Path, attacked: int = 8, shift: float = 0.0) -> HardeningComparison:
    toy = shortcut(1, n=48)
    with torch.no_grad():
        next(toy.victim.model.parameters()).add_(shift)
    declared = {
        "methods": ("unchanged", "fgsm", "ours"),
        "seeds": (0, 1),
        "harden": options(1, training_batch=16, adversary_budget=7),
        "evaluation": evaluation(1).model_copy(update={"attacked": attacked}),
    }
    return compare_hardening(toy.victim, Splits(toy.batch, toy.test[:12], toy.test), declared, folder)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[HardeningComparison, Path]:
    folder = tmp_path_factory.mktemp("compared")
    with pytest.MonkeyPatch.context() as fewer:
        fewer.setattr("rlab.hardening.evaluation.LEVELS", 2)
        return comparison(folder), folder


@pytest.mark.slow
def test_ours_is_farther_from_flipping_than_the_baselines(compared: tuple[HardeningComparison, Path]) -> None:
    result, _ = compared
    ours, unchanged, fgsm = (result.methods[name] for name in ("ours", "unchanged", "fgsm"))
    assert ours["agent_l2"].value > fgsm["agent_l2"].value
    assert ours["agent_l2"].value > unchanged["agent_l2"].value
    assert unchanged["l2_ratio"].value == 1.0
    assert ours["clean"].value >= unchanged["clean"].value - 0.07


def test_a_comparison_writes_a_table_and_files(compared: tuple[HardeningComparison, Path]) -> None:
    result, folder = compared
    rows = list(csv.DictReader((folder / "results.csv").open()))
    assert {row["method"] for row in rows} == set(result.methods)
    stored = HardeningComparison.load(folder)
    assert (stored.seeds, stored.methods) == (result.seeds, result.methods)
    assert (folder / "ours-0" / "hardened.safetensors").exists()
    table = result.table()
    assert [row[0] for row in table.rows] == list(result.methods)
    assert {len(row) for row in table.rows} == {1 + len(COLUMNS)}


def test_a_resumed_comparison_measures_nothing_twice(compared: tuple[HardeningComparison, Path]) -> None:
    result, folder = compared

    Toy.seen.clear()
    assert comparison(folder) == result
    assert Toy.seen == []
    with pytest.raises(FolderError):
        comparison(folder, attacked=7)
    with pytest.raises(FolderError):
        comparison(folder, shift=0.01)  # another model


def test_methods_by_name() -> None:
    toy = shortcut(1, n=8)
    chosen, goal = HardenOptions.model_validate({}), Untargeted()
    method = parse_method("pgd_l2@0.5", chosen, toy.batch, goal)
    assert method is not None
    assert (method.adversary.radius, method.adversary.norm, method.adversary.steps) == (0.5, "l2", 5)  # type: ignore[union-attr]
    assert parse_method("ours", chosen, toy.batch, goal) == chosen
    augmix = parse_method("augmix", chosen, toy.batch, goal)
    assert augmix is not None
    assert (augmix.views, augmix.distorted_weight, augmix.consistency) == (2, 0.0, "jsd")
    assert parse_method("unchanged", chosen, toy.batch, goal) is None


@pytest.mark.parametrize(
    ("methods", "samples", "error", "sentence"),
    [
        (("unchanged", "magic"), 8, OptionError, "unknown method 'magic'"),
        (("ours",), 8, OptionError, "expected 'unchanged' among the methods"),
        (("unchanged",), 1, DataError, "at least two test samples"),
    ],
)
def test_an_impossible_comparison_is_refused(
    methods: tuple[str, ...], samples: int, error: type[InputError], sentence: str
) -> None:
    toy = shortcut(1, n=8)
    with pytest.raises(error, match=sentence):
        compare_hardening(toy.victim, Splits(toy.batch, toy.test[:samples]), {"methods": methods})
