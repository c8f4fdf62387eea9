"""Attacks from papers on planted models whose answers are known: distances, directions, counts, refusals."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import rlab
from rlab.comparison import (
    NAMES,
    PEERS,
    AttackOutcome,
    Comparison,
    PeerContender,
    PolicyContender,
    SurrogateSet,
    parse_peer,
)
from rlab.comparison.libraries import parse_library_attack
from rlab.comparison.pixel_steps import bump
from rlab.comparison.recorder import QueryRecorder, run_recorded
from rlab.comparison.spaces import Bank, InPalette
from rlab.comparison.surrogate_steps import prior_share
from rlab.core.env import render
from rlab.core.grid import PatchGrid
from rlab.core.rng import sample_seeds
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.filters.palette import Palette
from rlab.options import AttackOptions
from rlab.policies.pixels.basis import cosines
from rlab.victims.torch_module import TorchVictim
from tests.command import rlab_command
from tests.helpers import inside

SHAPE = (3, 8, 8)
FLAT = 3 * 64


class Linear(nn.Module):
    """Two classes, the margin <w, x - 1/2> + margin with |w| = 4; counts the rows it sees."""

    def __init__(self, margin: float, seed: int = 0) -> None:
        super().__init__()
        weight = torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed))
        self.weight = nn.Parameter(4 * weight / weight.norm())
        self.margin, self.seen = margin, 0

    def forward(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        ahead = ((x - 0.5) * self.weight).flatten(1).sum(1) + self.margin
        return torch.stack([ahead, torch.zeros_like(ahead)], 1)


def greys(n: int = 3) -> Batch:
    """Images near one half, so that small steps stay inside the bounds; the models' class is 0."""
    draw = torch.Generator().manual_seed(1)
    return Batch(0.5 + 0.001 * torch.rand(n, *SHAPE, generator=draw), torch.zeros(n, dtype=torch.int64))


def contender(spec: str, *surrogates: nn.Module, reduce: bool = False, **options: Any) -> PeerContender:
    declared = AttackOptions.model_validate({"surrogate": surrogates or None, **options})
    return parse_peer(spec, declared, SurrogateSet(declared), reduce)


def attack(
    spec: str, victim: nn.Module, *surrogates: nn.Module, budget: int = 40, n: int = 3, **more: Any
) -> AttackOutcome:
    return contender(spec, *surrogates, **more)(
        TorchVictim(victim, outputs="logits"), greys(n), budget, more.get("seed", 0)
    )


def boundaries(model: Linear, n: int = 3) -> list[float]:
    """The least L2 that flips each image."""
    ahead = model(greys(n).x)
    least: list[float] = ((ahead[:, 0] - ahead[:, 1]) / 4).tolist()
    return least


# --- known distances --------------------------------------------------------------------------------------------------


def test_gfcs_with_the_victim_as_surrogate_walks_straight_to_the_boundary() -> None:
    model = Linear(margin=2.0)
    found = attack("gfcs@0.16", model, Linear(margin=2.0))
    for least, distance, queries in zip(boundaries(model), found.l2.tolist(), found.queries.tolist(), strict=True):
        steps = math.ceil(least / 0.16)
        assert queries == steps
        assert distance == pytest.approx(0.16 * steps, rel=1e-4)


def test_gfcs_goes_on_where_gradients_do_not_help() -> None:
    """A surrogate blind to what the victim sees: after its gradient, forth and back, nothing is left but chance."""
    blind = Linear(margin=2.0)
    found = attack("gfcs", Linear(margin=0.3), blind, Linear(margin=0.3, seed=5), budget=30)
    assert found.succeeded.all()
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


def test_ensemble_pgd_asks_once_and_its_ladder_finds_the_boundary() -> None:
    model = Linear(margin=2.0)
    once = attack("ensemble_pgd@0.1", model, Linear(margin=2.0))
    assert once.queries.tolist() == [1, 1, 1]
    ladder = attack("ensemble_pgd_min@0.2", model, Linear(margin=2.0))
    assert ladder.l2.tolist() == pytest.approx(boundaries(model), rel=2e-3)
    assert int(ladder.queries.max()) < 20  # it ends by itself


def test_bases_finds_the_surrogate_that_is_like_the_victim() -> None:
    model, others = Linear(margin=2.0), [Linear(margin=2.0, seed=seed) for seed in (7, 8)]
    radius = max(boundaries(model)) * 1.1
    assert not attack(f"ensemble_pgd@{radius}", model, *others, Linear(margin=2.0)).succeeded.any()
    found = attack(f"bases@{radius}", model, *others, Linear(margin=2.0), budget=60)
    assert found.succeeded.all()
    assert int(found.queries.min()) > 1


def test_simba_ods_and_prgf_reach_the_boundary_step_by_step() -> None:
    model = Linear(margin=0.8)
    for spec in ("simba_ods@0.05", "prgf@0.05"):
        found = attack(spec, model, Linear(margin=0.8), budget=200)
        assert found.succeeded.all()
        assert (found.l2 < torch.tensor(boundaries(model)) + 0.051).all()


def test_prgf_without_a_useful_prior_estimates_the_gradient() -> None:
    found = attack("prgf@0.1", Linear(margin=0.8), Linear(margin=0.8, seed=5), budget=400, n=2)
    assert found.succeeded.all()


def test_how_far_prgf_leans_on_its_prior() -> None:
    """At the ends of the theorem's range it is 0 and 1, and continuous between."""
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


def test_squares_radius_falls() -> None:
    model = Linear(margin=0.8)
    found = attack("square_min@1.5", model, budget=150)
    assert found.succeeded.all()
    assert found.queries.tolist() == [150] * 3
    for flips in found.improvements:
        distances = [distance for _, distance in flips]
        assert len(distances) > 3
        assert all(later <= 0.8001 * before for before, later in pairwise(distances))
    assert float(bump(5).norm()) == pytest.approx(1.0)
    assert float(bump(6).sum()) == pytest.approx(0.0, abs=1e-6)


def test_hopskipjump_comes_near_the_boundary_by_labels_alone() -> None:
    model = Linear(margin=2.0)
    found = attack("hopskipjump", model, budget=1500)
    assert found.succeeded.all()
    assert found.queries.tolist() == [1500] * 3
    assert model.seen == found.rows == 3 * 1500 + 6  # the clean predictions, and the flips once more
    least = torch.tensor(boundaries(model))
    assert ((found.l2 >= 0.999 * least) & (found.l2 < 1.5 * least)).all()
    told = contender("hopskipjump")(TorchVictim(model, outputs="labels"), greys(), 300, 0)
    assert told.l2.tolist() == attack("hopskipjump", model, budget=300).l2.tolist()


def test_hopskipjump_is_that_of_foolbox() -> None:
    """On the same plane, the median L2 within 500 queries; foolbox finds its first flip otherwise."""
    pytest.importorskip("foolbox")
    model = Linear(margin=2.0)
    ours = attack("hopskipjump", model, budget=500, n=5)
    theirs = parse_library_attack("foolbox:hop_skip_jump")(TorchVictim(model, outputs="logits"), greys(5), 500, 0)
    assert float(ours.l2.median()) == pytest.approx(float(theirs.l2.median()), rel=0.25)


# --- inside a palette -------------------------------------------------------------------------------------------------


def test_a_push_is_followed_by_the_entries_that_gain_most_for_their_cost() -> None:
    grid = PatchGrid((4, 4), (2, 2))
    x = torch.full((1, 1, 4, 4), 0.5)
    bank = torch.stack([x[:, 0:1] * 0 + 0.5, x + 0.1, x - 0.1], 1)
    space = InPalette(Bank(bank, grid))
    push = torch.zeros(1, 1, 4, 4)
    push[..., :2, :2], push[..., 2:, 2:] = 1.0, -0.5  # patch 0 wants up, patch 3 down, half as much
    every = torch.tensor([0])
    one, both = (space.within(every, push, torch.tensor([radius])) for radius in (0.2, 0.3))
    torch.testing.assert_close(one, render(bank, torch.tensor([[1, 0, 0, 0]]), grid))
    torch.testing.assert_close(both, render(bank, torch.tensor([[1, 0, 0, 2]]), grid))


@pytest.mark.parametrize("spec", sorted(name for name in NAMES if name.endswith("+palette")))
def test_inside_a_palette_every_row_is_an_assignment(spec: str) -> None:
    rows: list[Tensor] = []

    class Watching(Linear):
        def forward(self, x: Tensor) -> Tensor:
            rows.append(x.detach().clone())
            return super().forward(x)

    palette = ["illuminate@0.3", "dead_pixel@1.0"]
    found = attack(spec, Watching(margin=0.8), Linear(margin=0.8), n=1, palette=palette, patch=4, reduce=True)
    assert found.succeeded.all()
    batch, seen = greys(1), torch.cat(rows[1:])
    bank = Palette.of(palette, 2, 3).bank(batch.x, (0.0, 1.0), sample_seeds(0, 0, 1).tolist())[0]
    for x in seen:
        for box in map(PatchGrid((8, 8), (4, 4)).box, range(4)):
            near = [(x[inside(box)] - entry[inside(box)]).abs().max() for entry in bank]
            assert min(near) < 1e-6


# --- counting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduce", [False, True])
@pytest.mark.parametrize("spec", sorted(NAMES))
def test_every_row_is_counted_and_none_beyond_the_budget(spec: str, reduce: bool) -> None:
    model, budget = Linear(margin=0.8), 7
    victim = TorchVictim(model, outputs="logits")
    asked = contender(spec, Linear(margin=0.8, seed=3), Linear(margin=0.8), reduce=reduce, patch=4)
    found = asked(victim, greys(), budget, 0)
    assert found.rows == victim.rows.total() == model.seen
    assert int(found.queries.sum()) == victim.rows["search"] + victim.rows["cleanup"]
    assert int(found.queries.max()) <= budget
    assert victim.rows["verify"] == 3 + int(found.succeeded.sum())
    assert (victim.rows["cleanup"] > 0) == (
        reduce and PEERS[spec.partition("+")[0]].until == "flip" and bool(found.succeeded.any())
    )
    for flips, distance in zip(found.improvements, found.l2.tolist(), strict=True):
        assert [at for at, _ in flips] == sorted(at for at, _ in flips)
        assert not flips or flips[-1][1] == pytest.approx(distance, rel=1e-5)


@pytest.mark.parametrize("spec", sorted(PEERS))
def test_seeds_decide_and_samples_do_not_depend_on_each_other(spec: str) -> None:
    surrogates = Linear(margin=0.8, seed=3), Linear(margin=0.8)
    one, same = (attack(spec, Linear(margin=0.8), *surrogates, budget=12) for _ in "ab")
    assert replace(one, seconds=0.0).plain() == replace(same, seconds=0.0).plain()
    alone = attack(spec, Linear(margin=0.8), *surrogates, budget=12, n=1)
    assert alone.queries[0] == one.queries[0]


def test_reducing_halves_the_way_to_the_original() -> None:
    model = Linear(margin=2.0)
    plain, reduced = (attack("ensemble_pgd@2", model, Linear(margin=2.0), reduce=r) for r in (False, True))
    assert plain.queries.tolist() == [1] * 3
    assert reduced.queries.tolist() == [11] * 3
    assert reduced.l2.tolist() == pytest.approx(boundaries(model), abs=2 / 2**10)
    assert reduced.best_within(1).tolist() == pytest.approx(plain.l2.tolist())


def test_rows_of_one_sample_in_one_question_are_cut_at_its_budget() -> None:
    model = Linear(margin=2.0)
    victim = TorchVictim(model, outputs="logits")

    def run(recorder: QueryRecorder, rows: Tensor) -> None:
        samples = torch.tensor([1, 0, 1, 1, 0, 1])
        scores = recorder.ask(recorder.x[samples], samples)
        assert scores.isnan().any(1).tolist() == [False, False, False, True, False, True]

    found = run_recorded(victim, greys(2), 2, run, together=2)
    assert found.queries.tolist() == [2, 2]
    assert victim.rows["search"] == 4


# --- what is refused, and what rows say -------------------------------------------------------------------------------


class Rounded(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([x.detach().flatten(1).sum(1), torch.ones(len(x))], 1)


def test_bad_surrogates_are_refused_before_the_first_query() -> None:
    victim = TorchVictim(Linear(margin=2.0), outputs="logits")
    for surrogates, says in (((), "surrogate"), ((Rounded(),), "gradient")):
        with pytest.raises(InputError, match=says):
            contender("gfcs", *surrogates)(victim, greys(), 10, 0)
    assert victim.rows.total() == 0
    with pytest.raises(InputError, match="gfcs"):
        contender("gfsc")


def test_data_that_are_no_bounded_images_are_refused() -> None:
    with pytest.raises(InputError, match="images with bounds"):
        contender("square_min").check(rlab.load("demo:ecg")[:2], 10)
    with pytest.raises(InputError, match="images with bounds"):
        contender("square_min").check(replace(greys(), bounds=(-math.inf, math.inf)), 10)


def test_rows_say_what_attacks_need(tmp_path: Path) -> None:
    model, surrogate = TorchVictim(Linear(margin=0.8), outputs="logits"), Linear(margin=0.8)
    options: dict[str, Any] = {
        "policies": "auto,random",
        "surrogate": surrogate,
        "reduce": True,
        "patch": 4,
        "budget": 12,
    }
    found = rlab.compare(
        model, greys(), attacks="gfcs square_min gfcs+palette", palette=["illuminate@0.3"], out=tmp_path, **options
    )
    needs = {
        "auto": ("scores", "surrogates' gradients", "a palette"),
        "random": ("scores", "a palette"),
        "gfcs": ("scores", "surrogates' gradients", "free pixels", "reduced by bisection"),
        "square_min": ("scores", "free pixels"),
        "gfcs+palette": ("scores", "surrogates' gradients", "a palette", "reduced by bisection"),
    }
    assert dict(found.needs) == needs
    assert "a trained prior where one ships" in PolicyContender(AttackOptions()).needs
    assert PolicyContender(AttackOptions(policy="agents")).needs == ("scores", "two trained agents", "a palette")
    assert dict(Comparison.load(tmp_path).needs) == needs


def test_the_command_asks_for_surrogates_in_one_sentence(tmp_path: Path) -> None:
    said = rlab_command(
        "compare", "demo:digits", "demo:digits", "--attacks", "gfcs", "--limit", "2", "--out", tmp_path / "c"
    )
    assert said.code == 2
    assert "Traceback" not in said.err
    assert "--surrogate" in " ".join(said.err.split())


def test_on_free_pixels_ours_alone_stands_beside_the_others(tmp_path: Path) -> None:
    said = rlab_command("compare", "demo:digits", "demo:digits", "--limit", 2, "--budget", 8, "--palette", "pixels",
                        "--attacks", "square_min", "--out", tmp_path / "free", "--json", "-q")  # fmt: skip
    assert said.code == 0, said.err
    assert list(json.loads(said.out)["attacks"]) == ["auto", "square_min"]
    refused = rlab_command("compare", "demo:digits", "demo:digits", "--palette", "pixels", "--policies", "auto,square")
    assert refused.code == 2
