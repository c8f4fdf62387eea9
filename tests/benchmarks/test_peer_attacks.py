"""Attacks from papers on few pixels, on clips, by labels and by a process: what they change, and their distances."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.peers.sparse import divisor
from rlab.data.batch import Batch
from rlab.victims.torch_module import TorchVictim
from tests.benchmarks.linear import Linear, attack, boundaries, contender, greys


class Watching(Linear):
    """Keeps every row it gets."""

    def __init__(self, margin: float) -> None:
        super().__init__(margin)
        self.rows: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.rows.append(x.detach().clone())
        return super().forward(x)


def test_sparse_rs_changes_so_many_pixels_to_corners_and_never_gets_worse() -> None:
    model = Watching(margin=0.8)
    assert attack("sparse_rs@6", model, budget=80).succeeded.any()
    best = torch.full((1,), torch.inf)
    single = Watching(margin=50.0)  # beyond reach, so that every step is seen
    attack("sparse_rs@6", single, budget=30, n=1)
    kept = torch.stack([rows[0] for rows in single.rows[1:]])
    changed = kept != greys(1).x[0]
    assert changed.any(1).flatten(1).sum(1).tolist() == [6] * 30
    assert set(kept[changed].tolist()) <= {0.0, 1.0}
    margins = (single(kept)[:, 0]).tolist()
    places = [set(each.any(0).flatten().nonzero().flatten().tolist()) for each in changed]
    at = places[0]
    for place, margin in zip(places, margins, strict=True):
        assert len(at & place) >= 5  # each step exchanges one pixel of the best so far
        at, best = (place, torch.tensor([margin])) if margin < best else (at, best)


def test_the_schedule_of_sparse_rs_is_the_papers_stretched_to_the_budget() -> None:
    assert [divisor(step, 10_000) for step in (0, 1, 50, 51, 200, 201, 8000, 8001)] == [1, 2, 2, 4, 4, 5, 15, 20]
    assert divisor(100, 100) == 20


def test_patch_rs_changes_one_opaque_square_inside_the_image() -> None:
    model = Watching(margin=50.0)
    attack("patch_rs@4", model, budget=25, n=1)
    corners = set()
    for x in (rows[0] for rows in model.rows[1:]):
        down, across = ((x != greys(1).x[0]).any(0).any(axis).nonzero().flatten() for axis in (1, 0))
        assert [int(down[-1] - down[0]), int(across[-1] - across[0])] == [3, 3]
        corners.add((int(down[0]), int(across[0])))
        assert set(x[:, down[0] : down[-1] + 1, across[0] : across[-1] + 1].flatten().tolist()) <= {0.0, 1.0}
    assert len(corners) > 1  # it moves
    assert attack("patch_rs@6", Linear(margin=0.8), budget=80).succeeded.any()


def test_pbo_trusts_a_surrogate_that_is_right_and_learns_from_answers_where_it_is_wrong() -> None:
    model = Linear(margin=2.0)
    beyond = 1.02 * max(boundaries(model))
    right = attack(f"pbo@{beyond}", model, Linear(margin=2.0), budget=1)
    assert right.succeeded.all()
    near = attack(f"pbo@{3 * beyond}", model, Linear(margin=2.0, seed=3), Linear(margin=2.0), budget=12)
    wrong = attack(f"pbo@{3 * beyond}", model, Linear(margin=2.0, seed=3), budget=12)
    assert near.succeeded.all()
    assert int(near.queries.max()) < 12
    assert not wrong.succeeded.all() or int(wrong.queries.min()) > int(near.queries.max())


def test_bases_keeps_every_value_within_its_bound_and_finds_the_right_surrogate() -> None:
    others = [Linear(margin=2.0, seed=seed) for seed in (7, 8)]
    model = Watching(margin=2.0)
    least = float(2.0 / model.weight.detach().abs().sum())  # the smallest bound that flips
    result = attack(f"bases_linf@{1.2 * least}", model, *others, Linear(margin=2.0), budget=60)
    assert result.succeeded.all()
    assert int(result.queries.min()) > 2
    assert all(float((x - greys(len(x)).x).abs().max()) < 1.201 * least for x in model.rows if len(x) == 3)
    assert not attack(f"bases_linf@{0.9 * least}", Linear(margin=2.0), Linear(margin=2.0), budget=9).succeeded.any()


def test_surfree_comes_nearer_by_labels_alone() -> None:
    model = Linear(margin=2.0)
    by_labels = contender("surfree")(TorchVictim(model, outputs="labels"), greys(2), 122, 0)
    assert by_labels.l2.tolist() == attack("surfree", model, budget=120, n=2).l2.tolist()
    least = torch.tensor(boundaries(model, 2))
    halved = [flips[0][0] + 10 for flips in by_labels.improvements]  # queries until noise has been bisected
    start = torch.tensor([float(by_labels.best_within(at)[i]) for i, at in enumerate(halved)])
    assert ((by_labels.l2 >= 0.999 * least) & (by_labels.l2 < 0.9 * start)).all()


class Plane(nn.Module):
    """The margin <w, x - 1/2> + 0.4 with w of length 4: every value counts alike, in the right half with this sign."""

    def __init__(self, sign: float) -> None:
        super().__init__()
        weight = torch.ones(1, 16, 16)
        weight[..., 8:] *= sign
        self.weight = nn.Parameter(weight / 4)

    def forward(self, x: Tensor) -> Tensor:
        ahead = ((x - 0.5) * self.weight).flatten(1).sum(1) + 0.4
        return torch.stack([ahead, torch.zeros_like(ahead)], 1)


def test_vbad_rectifies_the_patches_where_the_surrogate_is_wrong() -> None:
    """A step along the surrogate's gradient changes nothing, because half of its patches have the wrong sign."""
    batch = Batch(torch.full((2, 1, 16, 16), 0.5), torch.zeros(2, dtype=torch.int64))
    for spec, wins in (("ensemble_pgd@1", False), ("vbad@0.1", True)):
        result = contender(spec, Plane(-1.0))(TorchVictim(Plane(1.0), outputs="logits"), batch, 60, 0)
        assert result.succeeded.tolist() == [wins] * 2
    assert int(result.queries.min()) > 11  # the clean one, ten for an estimate, then a step


class Darker(nn.Module):
    """Flips once the left half of a clip is darker by 1 in all."""

    def forward(self, x: Tensor) -> Tensor:
        ahead = (x[..., : x.shape[-1] // 2] - 0.5).flatten(1).sum(1) + 1.0
        return torch.stack([ahead, torch.zeros_like(ahead)], 1)


def test_geo_trap_finds_a_clips_boundary_within_its_budget() -> None:
    batch = Batch(torch.full((2, 3, 4, 8, 8), 0.5), torch.zeros(2, dtype=torch.int64))
    victim = TorchVictim(Darker(), outputs="logits")
    result = contender("geo_trap@0.5", reduce=True)(victim, batch, 200, 0)
    assert result.succeeded.all()
    assert int(result.queries.sum()) == victim.rows["search"] + victim.rows["cleanup"]
    assert int(result.queries.max()) <= 200


def test_a_probe_of_geo_trap_is_one_frame_that_moves() -> None:
    seen: list[Tensor] = []

    class Seeing(Darker):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x.detach().clone())
            return super().forward(x)

    batch = Batch(torch.full((1, 3, 4, 16, 16), 0.5), torch.zeros(1, dtype=torch.int64))
    contender("geo_trap@0.5")(TorchVictim(Seeing(), outputs="logits"), batch, 4, 0)
    frames = (seen[1] - 0.5)[0].transpose(0, 1).flatten(1)
    alike = torch.corrcoef(frames)[0]
    assert float(alike[1]) > float(alike[3]) > 0.0  # the next frame differs less from the first than the last
    torch.testing.assert_close(seen[2] - 0.5, 0.5 - seen[1], atol=1e-6, rtol=0)  # then the opposite
