"""Free pixels: optima that are known, bounds, counts and budgets, the same bits again, folders that go on, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import rlab
from rlab.data.batch import UNBOUNDED, Batch
from rlab.errors import InputError
from rlab.policies.pixels.basis import make_basis
from rlab.results.result import AttackResult, Status
from rlab.runs.attack import run_attack
from rlab.runs.chunk_work import FinishedRows
from rlab.runs.options import make_attack
from rlab.victims import TorchVictim
from tests.helpers import CHANNELS, RANKS, SIZES, assert_same

CPU = torch.device("cpu")


class Line(nn.Module):
    """Three classes that are linear in the values; `waves` of them alone, where given, are looked at."""

    def __init__(self, shape: tuple[int, ...], seed: int = 0, waves: Tensor | None = None) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        weight = torch.randn(math.prod(shape), 3, generator=draw)
        if waves is not None:
            weight = make_basis(shape, CPU).vectors(waves).flatten(1).T @ weight[: len(waves)]
        self.weight, self.rows = nn.Parameter(4 * weight / weight.norm(dim=0)), 0

    def forward(self, x: Tensor) -> Tensor:
        self.rows += len(x)
        return ((x - 0.5).flatten(1)[:, None] * self.weight.T).sum(2)  # the same bits however many rows there are

    def distance(self, batch: Batch) -> Tensor:
        """(n,): L2 to the nearest boundary."""
        with torch.no_grad():
            scores = self(batch.x)
        gap = scores.gather(1, batch.y[:, None]) - scores
        normal = (self.weight[:, batch.y].T[:, None] - self.weight.T).norm(dim=2)
        return (gap / normal).masked_fill(normal == 0, math.inf).amin(1).detach()


def shape_of(rank: int) -> tuple[int, ...]:
    return (CHANNELS[rank], *SIZES[rank])


def make_case(rank: int = 2, n: int = 4, bounds: tuple[float, float] = UNBOUNDED, **options: Any) -> tuple[Line, Batch]:
    net = Line(shape_of(rank), **options)
    x = 0.3 + 0.4 * torch.rand(n, *shape_of(rank), generator=torch.Generator().manual_seed(1))
    return net, Batch(x=x, y=net(x).argmax(1), bounds=bounds)


def run(net: Line, batch: Batch, **options: Any) -> AttackResult:
    victim = TorchVictim(net, outputs="logits", bounds=batch.bounds)
    return rlab.attack(victim, batch, **{"palette": "pixels", "until": "budget", **options})


@pytest.mark.parametrize("rank", RANKS)
def test_a_surrogate_that_is_the_victim_leads_to_the_optimum_in_three_queries(rank: int) -> None:
    net, batch = make_case(rank)
    result = run(net, batch, surrogate=net, budget=5)
    assert set(result.status) == {Status.SUCCEEDED}
    best = net.distance(batch)
    assert (result.best_within(4) <= 1.01 * best).all()
    assert (result.final["l2"] >= best * (1 - 1e-4)).all()
    assert result.setting.palette == ("pixels",)
    assert result.setting.policy == "auto -> pixels with surrogates Line"


def test_without_surrogates_the_directions_that_matter_are_found() -> None:
    waves = torch.tensor([1, 8, 9, 10, 65])
    net, batch = make_case(waves=waves)
    result = run(net, batch, budget=150)
    assert (result.final["l2"] <= 1.5 * net.distance(batch)).all()


def test_a_surrogate_that_leads_astray_is_corrected_by_the_answers() -> None:
    net, batch = make_case(n=6)
    astray = [Line(shape_of(2), seed=seed) for seed in (1, 2)]
    with torch.no_grad():
        for other in astray:
            other.weight.copy_(0.3 * net.weight + 0.7 * other.weight)
    early, late = (run(net, batch, surrogate=astray, budget=budget).final["l2"] for budget in (6, 60))
    assert (late < 0.9 * early).all()


@pytest.mark.parametrize("led", [True, False])
def test_bounds_hold_budgets_are_exact_and_the_victim_is_counted_as_it_counts_itself(led: bool) -> None:
    net, batch = make_case(bounds=(0.25, 0.75))
    surrogate = [Line(shape_of(2), seed=5)] if led else None
    for budget in (3, 20):
        net.rows = 0
        result = run(net, batch, surrogate=surrogate, budget=budget)
        assert int(result.queries.sum()) == net.rows
        assert (result.queries.sum(1) <= budget).all()
        assert (result.queries.sum(1) >= budget - 1).all()  # no verification where nothing flipped
        assert result.perturbed.min() >= 0.25
        assert result.perturbed.max() <= 0.75
        changed = (result.perturbed != result.original).any(1).float()
        assert torch.equal(result.assignment != 0, result.setting.grid.total(changed) > 0)


@pytest.mark.parametrize("goal", ["targeted:1", "below:0.2"])
def test_other_goals(goal: str) -> None:
    net, batch = make_case(n=6)
    result = run(net, batch, surrogate=net, goal=goal, budget=12)
    assert result.attacked.any()
    assert result.succeeded[result.attacked].all()
    after = result.after[result.attacked]
    labels = batch.y[result.attacked]
    assert (after.argmax(1) == 1).all() if goal == "targeted:1" else (after.gather(1, labels[:, None]) < 0.2).all()


@pytest.mark.parametrize("led", [True, False])
def test_the_same_again_in_other_chunks_and_from_a_folder_that_was_stopped(led: bool, tmp_path: Path) -> None:
    net, batch = make_case(n=5, bounds=(0.0, 1.0))
    options: dict[str, Any] = {
        "palette": "pixels",
        "budget": 16,
        "surrogate": Line(shape_of(2), seed=3) if led else None,
    }
    whole = run(net, batch, chunk=5, **options)
    alone = run(net, batch, chunk=1, **options)
    for name in ("l2", "linf"):
        assert torch.allclose(whole.final[name], alone.final[name], rtol=1e-3)
    victim, attack = TorchVictim(net, outputs="logits"), make_attack(batch, chunk=2, **options)
    calls = 0

    def stop(told: Any) -> None:
        nonlocal calls
        calls += isinstance(told, FinishedRows)
        if calls == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_attack(attack, victim, batch, tmp_path / "run", {}, stop)
    resumed = run_attack(attack, victim, batch, tmp_path / "run", {})
    assert_same(resumed, run_attack(attack, victim, batch, tmp_path / "unbroken", {}))


def test_what_is_made_of_filters_refuses_free_values(tmp_path: Path) -> None:
    net, batch = make_case(bounds=(0.0, 1.0))
    victim = TorchVictim(net, outputs="logits")
    for options in (
        {"policy": "square"},
        {"policy": "auto(rivals=2)"},
        {"distance": "linf"},
        {"palette": ["pixels", "dead_pixel"]},
    ):
        with pytest.raises(InputError):
            make_attack(batch, **{"palette": "pixels", **options})
    with pytest.raises(InputError, match="pixels"):
        rlab.benchmark(victim, batch, tmp_path / "made", palette="pixels")
    with pytest.raises(InputError, match="pixels"):
        rlab.explain(victim, batch, method="mask", palette="pixels")
    with pytest.raises(InputError, match="pixels"):
        rlab.doctor(victim, batch, palette="pixels")
    assert not list(tmp_path.iterdir())
    assert net.rows == len(batch)


def test_the_basis_is_orthonormal() -> None:
    basis = make_basis((3, 4, 5), CPU)
    vectors = basis.vectors(torch.arange(60)).flatten(1)
    assert torch.allclose(vectors @ vectors.T, torch.eye(60), atol=1e-5)
    assert int(basis.band[0]) > int(basis.band[19])  # the channels' mean, from high frequencies to low
    assert basis.bands == len(basis.band.unique())
