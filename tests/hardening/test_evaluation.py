"""Measuring robustness: figures of a planted model, counted queries, and nothing measured twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from rlab.data.batch import UNBOUNDED, Batch
from rlab.errors import FolderError
from rlab.filters.palette import Palette
from rlab.hardening.evaluation import (
    all_filters,
    corruption_curves,
    distort,
    estimate_figures,
    measure_robustness,
)
from rlab.hardening.options import HardenOptions
from rlab.hardening.report import Hardened
from rlab.hardening.run import Splits, run_hardening
from rlab.progress import quiet
from rlab.results.result import AttackResult
from rlab.runs.options import make_attack
from rlab.storage.config import check
from rlab.victims.torch_module import TorchVictim
from tests.hardening.toys import PALETTE, Toy, evaluation, measured_toy, options, shortcut
from tests.helpers import PATCHES, RANKS, assert_same
from tests.noise import write_noise


@pytest.mark.parametrize("rank", RANKS)
def test_a_hardened_model_is_farther_from_flipping_on_the_same_samples(rank: int) -> None:
    measured = measured_toy(rank).measured
    before, after = measured["before"].figures, measured["after"].figures
    assert before["clean"].value == 1
    assert after["agent_l2"].value > before["agent_l2"].value
    assert before["transfer"].value == 0
    assert after["transfer"].value > 0.5
    assert before["l2_ratio"].value == 1 < after["l2_ratio"].value
    for each in measured.values():
        assert set(each.figures) >= {"square", "pgd", "corruptions", "held_out", "agent", "agent_queries"}
        assert len(each.curves["held_out"]) == 5


def test_measurements_are_reused_and_other_options_are_refused(tmp_path: Path) -> None:
    toy = shortcut(1, n=8)
    chosen = check(HardenOptions, options(1, epochs=1))

    def run(**attack: Any) -> Hardened:
        data = Splits(toy.batch, toy.test[:4], toy.test[4:])
        return run_hardening(toy.victim, data, chosen, evaluation(1, **attack), tmp_path / "run", quiet)

    first = run()
    Toy.seen.clear()
    again = run()
    assert Toy.seen == []  # no query was repeated
    stored = Hardened.load(tmp_path / "run")
    assert first.measured == again.measured == stored.measured
    assert first.history[1:] == stored.history[1:]
    assert first.attacks is not None
    for when in ("before", "after"):
        assert_same(first.attacks[when], AttackResult.load(tmp_path / "run" / when))
    with pytest.raises(FolderError):
        run(budget=40)


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
    figures = {"clean": np.array([[1.0, 0.0, 1.0, 1.0]]), "agent_l2": np.array([[1.0, 2.0, np.inf, np.nan]])}
    estimates = estimate_figures(figures)
    assert estimates["clean"].value == 0.75
    assert estimates["agent_l2"].value == 2.0


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
