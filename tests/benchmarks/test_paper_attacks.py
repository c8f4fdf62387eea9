"""Attacks from papers on linear models: known distances, directions and counts."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import rlab
from benchmarks.peers.attacks import PEERS, STRENGTHS
from benchmarks.peers.contender import function
from benchmarks.peers.functions import square_min
from benchmarks.peers.pixel_steps import bump
from benchmarks.peers.surrogate_steps import prior_share
from benchmarks.peers.trial import InPalette
from rlab.comparison import parse_library
from rlab.core.env import render
from rlab.core.grid import PatchGrid
from rlab.core.rng import sample_seeds
from rlab.data.batch import Batch
from rlab.errors import DataError, OptionError
from rlab.filters.palette import Palette
from rlab.policies.pixels.basis import cosines
from rlab.victims.torch_module import TorchVictim
from tests.benchmarks.linear import Linear, attack, boundaries, contender, greys
from tests.helpers import inside

IMAGES = sorted(STRENGTHS.keys() - {"geo_trap"})  # which needs clips


def test_gfcs_with_the_victim_as_surrogate_walks_straight_to_the_boundary() -> None:
    model = Linear(margin=2.0)
    result = attack("gfcs@0.16", model, Linear(margin=2.0))
    for least, distance, queries in zip(boundaries(model), result.l2.tolist(), result.queries.tolist(), strict=True):
        steps = math.ceil(least / 0.16)
        assert queries == 1 + steps  # the clean prediction is the first
        assert distance == pytest.approx(0.16 * steps, rel=1e-4)


def test_gfcs_continues_when_gradients_do_not_help() -> None:
    """Diversified directions may still help, unless the surrogate's gradient is zero."""
    result = attack("gfcs", Linear(margin=0.3), Linear(margin=2.0), Linear(margin=0.3, seed=5), budget=30)
    assert result.succeeded.all()
    assert not attack("gfcs", Linear(margin=2.0), Blind(), budget=30).succeeded.any()


class Blind(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        ahead = 0.0 * x.flatten(1).sum(1) + 1.0
        return torch.stack([ahead, torch.zeros_like(ahead)], 1)


@pytest.mark.parametrize("spec", ["ensemble_pgd", "bases"])
def test_one_query_flips_if_the_radius_is_beyond_the_boundary(spec: str) -> None:
    model = Linear(margin=2.0)
    least = boundaries(model)
    beyond = attack(f"{spec}@{max(least) + 0.001:.4f}", model, Linear(margin=2.0), budget=1)
    assert beyond.succeeded.all()
    assert beyond.l2.tolist() == pytest.approx([max(least) + 0.001] * 3, abs=1e-4)
    assert not attack(f"{spec}@{min(least) - 0.001:.4f}", model, Linear(margin=2.0), budget=1).succeeded.any()


def test_ensemble_pgd_makes_one_query_and_its_ladder_finds_the_boundary() -> None:
    model = Linear(margin=2.0)
    once = attack("ensemble_pgd@0.1", model, Linear(margin=2.0))
    assert once.queries.tolist() == [2, 2, 2]
    ladder = attack("ensemble_pgd_min@0.2", model, Linear(margin=2.0))
    assert ladder.l2.tolist() == pytest.approx(boundaries(model), rel=2e-3)
    assert int(ladder.queries.max()) < 20  # it stops on its own


def test_bases_finds_the_surrogate_that_resembles_the_victim() -> None:
    model, others = Linear(margin=2.0), [Linear(margin=2.0, seed=seed) for seed in (7, 8)]
    radius = max(boundaries(model)) * 1.1
    assert not attack(f"ensemble_pgd@{radius}", model, *others, Linear(margin=2.0)).succeeded.any()
    result = attack(f"bases@{radius}", model, *others, Linear(margin=2.0), budget=60)
    assert result.succeeded.all()
    assert int(result.queries.min()) > 2


def test_simba_ods_and_prgf_reach_the_boundary_step_by_step() -> None:
    model = Linear(margin=0.8)
    for spec in ("simba_ods@0.05", "prgf@0.05"):
        result = attack(spec, model, Linear(margin=0.8), budget=200)
        assert result.succeeded.all()
        assert (result.l2 < torch.tensor(boundaries(model)) + 0.051).all()


def test_prgf_without_a_useful_prior_estimates_the_gradient() -> None:
    result = attack("prgf@0.1", Linear(margin=0.8), Linear(margin=0.8, seed=5), budget=400, n=2)
    assert result.succeeded.all()


def test_the_weight_of_prgfs_prior() -> None:
    """It is 0 and 1 at the ends of the theorem's range, and continuous between."""
    d, q = 3072, 50
    low, high = 1 / (d + 2 * q - 2), (2 * q - 1) / (d + 2 * q - 2)
    share = prior_share(
        torch.tensor([0.0, low * 1.0001, 0.5 * (low + high), high * 0.9999, 0.5], dtype=torch.float64), d, q
    )
    assert share[[0, 4]].tolist() == [0.0, 1.0]
    assert share[1] == pytest.approx(0.0, abs=1e-3)
    assert 0 < share[2] < 1
    assert share[3] == pytest.approx(1.0, abs=1e-2)


def test_simba_dct_steps_are_cosines() -> None:
    basis = cosines(8, torch.device("cpu")).double()
    torch.testing.assert_close(basis @ basis.T, torch.eye(8, dtype=torch.float64))
    seen: list[Tensor] = []

    class Watching(Linear):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x.detach().clone())
            return super().forward(x)

    attack("simba_dct@0.05", Watching(margin=2.0), budget=10, n=1)
    for x in seen[1:11]:
        coefficients = basis @ (x[0] - greys(1).x[0]).double() @ basis.T
        torch.testing.assert_close(coefficients / 0.05, (coefficients / 0.05).round(), atol=1e-3, rtol=0)
        assert (coefficients[:, 2:, :].abs() < 1e-5).all()  # low frequencies first: a quarter of each side
        assert (coefficients[:, :, 2:].abs() < 1e-5).all()


def test_the_radius_of_square_falls() -> None:
    model = Linear(margin=0.8)
    result = attack("square_min@1.5", model, budget=150)
    assert result.succeeded.all()
    assert result.queries.tolist() == [151] * 3
    for flips in result.improvements:
        distances = [distance for _, distance in flips]
        assert len(distances) > 3
        assert all(later <= 0.8001 * before for before, later in pairwise(distances))
    assert float(bump(5).norm()) == pytest.approx(1.0)
    assert float(bump(6).sum()) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.slow
def test_hopskipjump_comes_near_the_boundary_by_labels_alone() -> None:
    model = Linear(margin=2.0)
    result = attack("hopskipjump", model, budget=1500)
    assert result.succeeded.all()
    assert result.queries.tolist() == [1501] * 3
    assert model.seen == result.rows == 3 * 1500 + 6  # the clean predictions, and a verification per flip
    least = torch.tensor(boundaries(model))
    assert ((result.l2 >= 0.999 * least) & (result.l2 < 1.5 * least)).all()
    by_labels = contender("hopskipjump")(TorchVictim(model, outputs="labels"), greys(), 302, 0)
    assert by_labels.l2.tolist() == attack("hopskipjump", model, budget=300).l2.tolist()


def test_hopskipjump_agrees_with_foolbox() -> None:
    """The median L2 within 500 queries; foolbox finds its first flip in another way."""
    pytest.importorskip("foolbox")
    model = Linear(margin=2.0)
    ours = attack("hopskipjump", model, budget=500, n=5)
    theirs = parse_library("foolbox:hop_skip_jump")(TorchVictim(model, outputs="logits"), greys(5), 502, 0)
    assert float(ours.l2.median()) == pytest.approx(float(theirs.l2.median()), rel=0.25)


def test_the_palette_follows_a_push_with_the_entries_that_gain_most_for_their_cost() -> None:
    grid = PatchGrid((4, 4), (2, 2))
    x = torch.full((1, 1, 4, 4), 0.5)
    bank = torch.stack([x[:, 0:1] * 0 + 0.5, x + 0.1, x - 0.1], 1)
    space = InPalette(bank, grid)
    push = torch.zeros(1, 1, 4, 4)
    push[..., :2, :2], push[..., 2:, 2:] = 1.0, -0.5  # patch 0 wants up, patch 3 down, half as much
    every = torch.tensor([0])
    one, both = (space.within(every, push, torch.tensor([radius])) for radius in (0.2, 0.3))
    torch.testing.assert_close(one, render(bank, torch.tensor([[1, 0, 0, 0]]), grid))
    torch.testing.assert_close(both, render(bank, torch.tensor([[1, 0, 0, 2]]), grid))


@pytest.mark.parametrize("spec", sorted(name for name in STRENGTHS if name.endswith("+palette")))
def test_inside_a_palette_every_row_is_an_assignment(spec: str) -> None:
    rows: list[Tensor] = []

    class Watching(Linear):
        def forward(self, x: Tensor) -> Tensor:
            rows.append(x.detach().clone())
            return super().forward(x)

    palette = ["illuminate@0.3", "dead_pixel@1.0"]
    result = attack(spec, Watching(margin=0.8), Linear(margin=0.8), n=1, palette=palette, patch=4, reduce=True)
    assert result.succeeded.all()
    batch, seen = greys(1), torch.cat(rows[1:])
    bank = Palette.of(palette, 2, 3).bank(batch.x, (0.0, 1.0), sample_seeds(0, 0, 1).tolist())[0]
    for x in seen:
        for box in map(PatchGrid((8, 8), (4, 4)).box, range(4)):
            near = [(x[inside(box)] - entry[inside(box)]).abs().max() for entry in bank]
            assert min(near) < 1e-6


@pytest.mark.parametrize("reduce", [False, True])
@pytest.mark.parametrize("spec", IMAGES)
def test_every_row_is_counted_and_none_beyond_the_budget(spec: str, reduce: bool) -> None:
    model, budget = Linear(margin=0.8), 7
    victim = TorchVictim(model, outputs="logits")
    peer = contender(spec, Linear(margin=0.8, seed=3), Linear(margin=0.8), reduce=reduce, patch=4)
    result = peer(victim, greys(), budget, 0)
    assert result.rows == victim.rows.total() == model.seen
    assert int(result.queries.sum()) == victim.rows["search"] + victim.rows["cleanup"]
    assert int(result.queries.max()) <= budget - 1  # the last one is for the verification
    assert victim.rows["verify"] == int(result.succeeded.sum())
    assert (victim.rows["cleanup"] > 0) == (
        reduce and PEERS[spec.partition("+")[0]].until == "flip" and bool(result.succeeded.any())
    )
    for flips, distance in zip(result.improvements, result.l2.tolist(), strict=True):
        assert [at for at, _ in flips] == sorted(at for at, _ in flips)
        assert not flips or flips[-1][1] == pytest.approx(distance, rel=1e-5)


@pytest.mark.parametrize("spec", sorted(PEERS.keys() - {"geo_trap"}))
def test_seeds_decide_and_samples_do_not_depend_on_each_other(spec: str) -> None:
    surrogates = Linear(margin=0.8, seed=3), Linear(margin=0.8)
    one, same = (attack(spec, Linear(margin=0.8), *surrogates, budget=12) for _ in "ab")
    assert (one.queries.tolist(), one.improvements) == (same.queries.tolist(), same.improvements)
    alone = attack(spec, Linear(margin=0.8), *surrogates, budget=12, n=1)
    assert alone.queries[0] == one.queries[0]


def test_bisection_ends_at_the_boundary() -> None:
    model = Linear(margin=2.0)
    plain, reduced = (attack("ensemble_pgd@2", model, Linear(margin=2.0), reduce=r) for r in (False, True))
    assert plain.queries.tolist() == [2] * 3
    assert reduced.queries.tolist() == [12] * 3
    assert reduced.l2.tolist() == pytest.approx(boundaries(model), abs=2 / 2**10)
    assert reduced.best_within(2).tolist() == pytest.approx(plain.l2.tolist())


UNBOUNDED = replace(greys(), bounds=(-math.inf, math.inf))


@pytest.mark.parametrize(
    ("spec", "surrogates", "data", "error", "words"),
    [
        ("gfcs", (), greys(), OptionError, "gradients of surrogates"),
        ("gfsc", (), greys(), OptionError, "Did you mean 'gfcs'"),
        ("square_min", (), rlab.load("demo:ecg", limit=2), DataError, "images with bounds"),
        ("square_min", (), UNBOUNDED, DataError, "images with bounds"),
    ],
)
def test_attacks_that_are_refused_before_the_first_query(
    spec: str, surrogates: tuple[nn.Module, ...], data: Batch, error: type[Exception], words: str
) -> None:
    victim = TorchVictim(Linear(margin=2.0), outputs="logits")
    with pytest.raises(error, match=words):
        contender(spec, *surrogates)(victim, data, 10, 0)
    assert victim.rows.total() == 0


def test_attacks_say_what_they_need() -> None:
    needs = {spec: contender(spec, reduce=True).needs for spec in ("gfcs", "square_min", "gfcs+palette", "surfree")}
    assert needs == {
        "gfcs": ("scores", "surrogates' gradients", "free pixels", "reduced by bisection"),
        "square_min": ("scores", "free pixels"),
        "gfcs+palette": ("scores", "surrogates' gradients", "a palette", "reduced by bisection"),
        "surfree": ("labels", "free pixels"),
    }


def test_attacks_run_as_functions_in_a_comparison() -> None:
    model, surrogate = Linear(margin=0.8), TorchVictim(Linear(margin=0.8), outputs="logits")
    attacks: list[Any] = [square_min, "benchmarks.peers.functions:square_min", function("gfcs", (surrogate,))]
    options: dict[str, Any] = {"palette": ["illuminate@0.3"], "patch": 4, "budget": 40, "progress": False}
    made = rlab.compare(TorchVictim(model, outputs="logits"), greys(), policies="random", attacks=attacks, **options)
    one, same, guided = list(made.outcomes.values())[1:]
    assert list(made.outcomes)[1:] == ["square_min", "benchmarks.peers.functions:square_min", "gfcs"]
    assert one.l2.tolist() == same.l2.tolist()
    assert one.succeeded.all()
    assert guided.succeeded.all()
    with pytest.raises(OptionError, match="needs the gradients of surrogates"):
        function("gfcs")
