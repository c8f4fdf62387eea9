"""fgsm and pgd of a surrogate as palette entries: what they do to values, whom they ask, where they are named."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import rlab
from rlab.benchmarking import make_benchmark, run_benchmark, verify_benchmark
from rlab.core.goals import Untargeted
from rlab.data.batch import UNBOUNDED, Batch
from rlab.errors import InputError
from rlab.filters import Entry, Palette
from rlab.filters.palette import unit_scale
from rlab.priors.gradients import gradient_filters
from rlab.priors.surrogates import load_surrogates
from rlab.runs.options import make_attack
from rlab.victims import TorchVictim
from tests.command import rlab_command
from tests.filters.samples import Waves, millivolts, seeded, surrogates
from tests.priors.test_surrogates import Line

OPTIONS: dict[str, Any] = {"palette": ["fgsm@0.05,0.1", "dead_pixel@0.5"], "patch": 2, "budget": 25}


@pytest.fixture
def batch() -> Batch:
    x = 0.3 + 0.4 * torch.rand(6, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    return Batch(x=x, y=Line()(x).argmax(1))


def test_fgsm_is_one_step_against_the_gradient_in_every_value(batch: Batch):
    net = Line()
    prior = load_surrogates([net], batch)
    changed = gradient_filters(prior, batch.bounds)["fgsm"](batch.x, 0.05, seeded())
    scores = net(batch.x)
    top, second = scores.topk(2).indices.unbind(1)
    against = -(net.weight[:, top] - net.weight[:, second]).T.sign().view_as(batch.x)
    assert torch.allclose(changed, batch.x + 0.05 * against, atol=1e-6)


def test_pgd_stays_within_its_severity_and_lowers_the_margin_more_than_chance(batch: Batch):
    net = TorchVictim(Line(), outputs="logits")
    prior = load_surrogates([net], batch)
    changed = gradient_filters(prior, batch.bounds)["pgd"](batch.x, 0.05, seeded())
    assert float((changed - batch.x).abs().max()) <= 0.05 + 1e-6
    goal = Untargeted()
    noise = batch.x + 0.05 * (2 * torch.rand(batch.x.shape, generator=seeded()) - 1)
    assert (goal.margin(net(changed), batch.y) < goal.margin(net(noise), batch.y)).all()


def test_the_surrogate_of_signals_sees_values_in_their_own_unit():
    seen = []

    class Watched(Waves):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x.detach().clone())
            return super().forward(x)

    prior = surrogates(UNBOUNDED)
    prior.surrogates[0].model = Watched()
    x = 7 * millivolts()
    palette = Palette((Entry(gradient_filters(prior, UNBOUNDED)["fgsm"], 0.01),))
    bank = palette.bank(x, UNBOUNDED, [0, 1, 2])
    assert torch.allclose(torch.cat(seen[::2]), x, rtol=1e-4)
    step = (bank[:, 1] - x).abs() / unit_scale(x, UNBOUNDED)[1]
    assert step.max() == pytest.approx(0.01, rel=1e-2)


@pytest.mark.parametrize("policy", [pytest.param("auto", marks=pytest.mark.slow), "square"])
def test_an_attack_places_its_steps_by_patches_and_asks_the_victim_no_more(policy: str, batch: Batch):
    victim, surrogate = TorchVictim(Line(), outputs="logits"), TorchVictim(Line(seed=4), outputs="logits")
    result = rlab.attack(victim, batch, surrogate=surrogate, policy=policy, **OPTIONS)
    assert result.setting.palette[:2] == ("fgsm@0.05", "fgsm@0.1")
    assert "Line" in result.setting.policy
    assert sum(victim.rows.values()) == int(result.queries.sum())
    assert set(surrogate.rows) == {"surrogate"}
    assert (result.queries.sum(1) <= 25).all()
    bank = make_attack(batch, surrogate=surrogate, **OPTIONS).palette.bank(batch.x, batch.bounds, [0] * 6)
    assert torch.allclose((bank[:, 2] - batch.x).abs(), torch.full_like(batch.x, 0.1), atol=1e-6)


def test_without_a_surrogate_the_command_says_so_and_writes_nothing(tmp_path: Path):
    for command in (("attack",), ("benchmark", "make")):
        words = ("demo:digits", "demo:digits", "--palette", "fgsm@0.03", "--out", tmp_path / "r")
        said = rlab_command(*command, *words)
        assert said.code == 2
        assert "--surrogate" in said.err
        assert "Traceback" not in said.err
        assert not (tmp_path / "r").exists()


def test_the_doctor_looks_at_them_where_a_surrogate_is_named():
    words = ("doctor", "demo:digits", "demo:digits", "--palette", "pgd@0.03", "--limit", 8)
    assert rlab_command(*words, "--surrogate", "demo:digits").code == 0
    assert rlab_command(*words).code == 2


def test_a_benchmark_names_the_surrogate_in_its_card_and_is_graded_without_it(batch: Batch, tmp_path: Path):
    victim = TorchVictim(Line(), outputs="logits")
    made = make_benchmark(
        {"v": victim}, batch, tmp_path / "b", ladder="times:1.5", format="npz", surrogate=Line(seed=4), **OPTIONS
    )
    card = (made.folder / "README.md").read_text()
    assert "fgsm@0.05" in card
    assert "| surrogates | `Line` |" in card
    assert verify_benchmark(made, {"v": victim}).holds
    assert run_benchmark([made], {"v": victim}).levels


def test_severities_are_read_as_of_any_filter(batch: Batch):
    own = gradient_filters(None, batch.bounds)
    assert Palette.of(["pgd@0.01,0.02", "fgsm"], 2, 1, own=own).names == ("pgd@0.01", "pgd@0.02", "fgsm@0.02")
    with pytest.raises(InputError, match="above 0"):
        Palette.of(["pgd@-1"], 2, 1, own=own)
    with pytest.raises(InputError, match="up to"):
        Palette.of([f"fgsm@{math.pi}"], 2, 1, own=own)
