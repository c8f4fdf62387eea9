"""Measuring robustness: figures of a planted model, counted queries, and nothing measured twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

from rlab.data.batch import UNBOUNDED, Batch
from rlab.filters.palette import Palette
from rlab.hardening.evaluation import (
    RobustnessMeasurement,
    all_filters,
    corruption_curves,
    distort,
    measure_before_after,
    measure_robustness,
)
from rlab.hardening.trainable import fitting_threads
from rlab.runs.options import make_attack
from rlab.storage.files import write_tree
from rlab.victims.torch_module import TorchVictim
from tests.hardening.toys import PALETTE, evaluation, measured_toy, shortcut
from tests.helpers import PATCHES, RANKS, assert_same
from tests.noise import write_noise
from tests.results.plots.fixtures import CASES, make_result


@pytest.mark.parametrize("rank", RANKS)
def test_a_hardened_model_is_farther_from_flipping_on_the_same_samples(rank: int) -> None:
    _, measured = measured_toy(rank)
    before, after = measured["before"], measured["after"]
    assert before.figures["clean"].mean() == 1
    assert np.nanmedian(after.figures["agent_l2"]) > np.nanmedian(before.figures["agent_l2"])
    assert before.attack is not None
    assert before.figures["transfer"][before.attack.succeeded.numpy()].max() == 0
    assert np.nanmean(after.figures["transfer"]) > 0.5
    assert before.estimates(before)["l2_ratio"].value == 1 < after.estimates(before)["l2_ratio"].value
    for measurement in measured.values():
        assert set(measurement.figures) >= {"square", "pgd", "corruptions", "held_out", "agent", "agent_queries"}
        assert measurement.curves["held_out"].shape == (5, 8)


def test_measurements_are_reused_and_repeated_for_other_options(tmp_path: Path) -> None:
    hardened, _ = measured_toy(1)
    test = shortcut(1, n=8).test[:4]
    first = measure_before_after(hardened, test, evaluation(1), tmp_path)
    rows = hardened.original.rows.total() + hardened.victim.rows.total()
    again = measure_before_after(hardened, test, evaluation(1), tmp_path)
    assert hardened.original.rows.total() + hardened.victim.rows.total() == rows  # no query was repeated
    for when, measurement in first.items():
        read_back = again[when]
        assert read_back.rows == measurement.rows > 0
        for part in ("figures", "curves"):
            kept = getattr(read_back, part)
            assert list(kept) == list(getattr(measurement, part))
            for name, values in getattr(measurement, part).items():
                np.testing.assert_array_equal(values, kept[name])
        assert measurement.attack is not None
        assert read_back.attack is not None
        assert_same(measurement.attack, read_back.attack)
    measure_before_after(hardened, test, evaluation(1, budget=40), tmp_path)
    assert hardened.original.rows.total() + hardened.victim.rows.total() > rows


def test_a_limit_on_attacked_samples_is_spread_over_the_classes() -> None:
    test = shortcut(1, n=8).test
    by_class = test[test.y.argsort(stable=True).tolist()]
    few = evaluation(1).model_copy(update={"attacked": 4})
    assert few.few(by_class).y.tolist() == [0, 0, 1, 1]
    measurement = measure_robustness(shortcut(1, n=8).victim, by_class, few)
    assert {name: len(measurement.figures[name]) for name in ("agent", "square", "transfer")} == dict.fromkeys(
        ("agent", "square", "transfer"), 4
    )
    assert len(measurement.figures["clean"]) == len(test)


def test_rows_of_a_measurement_are_counted() -> None:
    toy = shortcut(1, n=8)
    measurement = measure_robustness(toy.victim, toy.test[:6], evaluation(1))
    assert measurement.attack is not None
    filters = len(all_filters(1, 2))
    fixed = 6 + 6 * 5 * filters + 6 + 6 + 6 * 2 + 6  # clean, corruptions, transfer, pgd: clean, steps, end
    assert measurement.rows == toy.victim.rows.total()
    square = measurement.rows - fixed - int(measurement.attack.queries.sum())
    assert 6 <= square <= 6 * 10


def test_a_distortion_of_the_whole_input_is_the_filter_itself() -> None:
    batch = shortcut(2, n=4).batch
    whole = distort(Palette.of(["illuminate+@0.2"], 2, 3), batch, 0, torch.device("cpu"))
    torch.testing.assert_close(whole, (batch.x + 0.2).clamp(0, 1))


def test_figures_are_means_and_distances_are_medians() -> None:
    figures = {"clean": np.array([1.0, 0.0, 1.0, 1.0]), "agent_l2": np.array([1.0, 2.0, np.inf, np.nan])}
    estimates = RobustnessMeasurement(figures, {}, 0).estimates()
    assert estimates["clean"].value == 0.75
    assert estimates["agent_l2"].value == 2.0


@pytest.mark.parametrize(("values", "inside"), [(16, 1), (2**14, 3)])
def test_small_models_use_one_thread(values: int, inside: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        victim = TorchVictim(torch.nn.Linear(values, 2), bounds=(0, 1))
        with fitting_threads(victim, Batch(torch.zeros(1, 1, values), torch.zeros(1, dtype=torch.int64), ("a",))):
            assert torch.get_num_threads() == inside
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_a_stored_measurement_does_not_depend_on_the_clock(tmp_path: Path) -> None:
    """The names of its files are digests, so two runs would have other files."""
    attack = make_result(next(iter(CASES.values())))
    for name, seconds in (("quick", 0.1), ("slow", 9.0)):
        measured = RobustnessMeasurement({}, {}, 0, replace(attack, seconds=torch.full_like(attack.seconds, seconds)))
        write_tree(tmp_path / name, measured.tree())
    assert (tmp_path / "quick").read_bytes() == (tmp_path / "slow").read_bytes()


def test_filters_that_are_not_built_in_count_as_those_of_the_palette(tmp_path: Path) -> None:
    toy = shortcut(1, n=8)
    test = replace(toy.test[:4], rate=360.0)
    palette = (f"nstdb:{write_noise(tmp_path)}@0dB",)
    attack = make_attack(test, palette=palette, patch=PATCHES[1], budget=5)
    curves = corruption_curves(toy.victim, test, attack.palette, 0)
    assert curves["corruptions"].shape == curves["held_out"].shape == (5, 4)
    named = corruption_curves(toy.victim, test, Palette.of(PALETTE, 1, 1), 0)
    assert named["held_out"].shape == (5, 4)


def test_corruptions_know_the_rate_of_the_data() -> None:
    """Mains hum has 50 Hz at 500 samples per second too: the model sees nothing but this frequency."""
    seen: list[float] = []

    class Peak(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            strongest = torch.fft.rfft(x[:, 0]).abs()[:, 1:].mean(0).argmax() + 1
            seen.append(float(strongest) * 500 / x.shape[2])
            return x[:, 0, :2]

    batch = Batch(torch.zeros(2, 1, 1000), torch.zeros(2, dtype=torch.int64), bounds=UNBOUNDED, rate=500.0, unit="mV")
    victim, palette = TorchVictim(Peak(), bounds=UNBOUNDED), Palette.of(["powerline_hum50"], 1, 1, 500.0, "mV")
    with mock.patch("rlab.hardening.evaluation.all_filters", return_value=[palette.entries[0].filter.source]):
        corruption_curves(victim, batch, palette, 0)
    assert set(seen) == {50.0}
