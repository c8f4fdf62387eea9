"""The method belief: planted models with known effects, valid intervals, counts, every rank, bad input."""

from dataclasses import replace

import pytest
import torch

import rlab
from rlab.core.grid import PatchGrid
from rlab.core.setting import Status
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.explanation.belief import moved_boxes, place
from rlab.explanation.effects import REGIONS, Effects
from rlab.explanation.maps import hiding_bank
from rlab.explanation.regression import average, hypotheses, kernel, next_contrast
from rlab.explanation.run import explain_flip, parse_method
from rlab.victims import CallableVictim
from tests.explanation.test_methods import case
from tests.helpers import RANKS

STRETCHES = 13  # regions of a signal


def planted(answer):
    """Signals of alternating ones and zeros; `answer` maps the remaining share of each stretch (m, 13) to P(class 0)."""

    def model(x):
        there = torch.as_tensor(x)[:, 0].reshape(len(x), STRETCHES, 20)
        p = answer(there.diff(dim=2).abs().mean(2)).clamp(1e-6, 1 - 1e-6)
        return torch.stack([p, 1 - p], 1)

    x = (torch.arange(260) % 2).float().expand(2, 1, 260)
    return CallableVictim(model, outputs="probabilities"), Batch(
        x=x.clone(), y=torch.zeros(2, dtype=torch.int64), rate=20.0
    )


def test_a_linear_model_is_found_exactly_and_its_regions_are_settled():
    weights = torch.zeros(STRETCHES)
    weights[3], weights[9] = 0.5, -0.2
    victim, batch = planted(lambda there: 0.3 + there @ weights)
    explained = parse_method("belief(queries=300)")(victim, batch, batch.y)
    assert explained.effects is not None
    torch.testing.assert_close(explained.effects.mean, weights.expand(2, -1), atol=0.05, rtol=0)
    assert explained.effects.settled()[:, [3, 9]].all()
    assert (explained.maps.argmax(1) // 20 == 3).all()
    assert (explained.maps.argmin(1) // 20 == 9).all()
    lines = explained.effects.statements(0, "V")
    assert lines[0].startswith("removing 3.00-4.00 s alone lowers P(V) from 0.")
    assert any("raises P(V) from 0." in line for line in lines[:4])
    assert "on average" in lines[-1]


def test_the_sentences_tell_what_removing_a_region_alone_does():
    """Either of two regions is enough: on average both matter much, and neither alone; the interval holds other cuts."""
    victim, batch = planted(lambda there: 0.05 + 0.9 * (1 - (1 - there[:, 2]) * (1 - there[:, 7])) * there[:, 4])
    explained = parse_method("belief(queries=300)")(victim, batch, batch.y)
    found = explained.effects
    assert found is not None
    assert found.mean is not None
    assert float(found.mean[0, [2, 7]].min()) > 0.05
    blank = hiding_bank(batch.x, batch.bounds, [0, 0])[:, 1]
    for region in range(STRETCHES):
        x = batch.x.clone()
        x[..., 20 * region : 20 * region + 20] = blank[..., 20 * region : 20 * region + 20]
        drop = victim.probabilities(victim(batch.x))[:, 0] - victim.probabilities(victim(x))[:, 0]
        torch.testing.assert_close(found.effect[:, region], drop, atol=1e-4, rtol=0)
    best, *rest = found.statements(0, "V")
    assert best.startswith("removing 4.00-5.00 s alone")
    assert not any(f"removing {at}" in line and "alone" in line for at in ("2.00-3.00", "7.00-8.00") for line in rest)
    grid, held = PatchGrid((260,), (20,)), []
    for seed in range(3):  # other cuts of the same regions
        moves = 2 * torch.rand(STRETCHES, 2, generator=torch.Generator().manual_seed(seed)) - 1
        boxes = moved_boxes(grid, torch.arange(STRETCHES), moves)[:, None]
        after = victim.probabilities(
            victim(torch.lerp(batch.x[:1].expand_as(boxes), blank[:1].expand_as(boxes), boxes))
        )[:, 0]
        held.append((after >= found.low[0] - 1e-3) & (after <= found.high[0] + 1e-3))
    assert float(torch.cat(held).float().mean()) >= 0.85


def test_edges_of_boxes_move_by_parts_of_points():
    """Of 10 points, the first 5 begin half a point later and end half a point earlier."""
    box = moved_boxes(PatchGrid((10,), (5,)), torch.tensor([0]), torch.tensor([[1.0, -1.0]]))
    assert box.tolist() == [pytest.approx([0.5, 1, 1, 1, 0.5, 0, 0, 0, 0, 0])]


def test_both_parts_of_an_and_matter_and_nothing_else():
    victim, batch = planted(lambda there: 0.05 + 0.9 * there[:, 2] * there[:, 7])
    explained = parse_method("belief(queries=300)")(victim, batch, batch.y)
    assert explained.effects is not None
    assert explained.effects.mean is not None
    for effects in explained.effects.mean:
        assert set(effects.topk(2).indices.tolist()) == {2, 7}
        assert effects.topk(3).values[2] < 0.3 * effects.topk(2).values[1]


def test_ninety_percent_intervals_cover_ninety_percent():
    """With effects drawn from the prior and noisy answers, intervals cover the true effect at their nominal rate."""
    places, held, generator = PatchGrid((48,), (1,)), [], torch.Generator().manual_seed(0)
    root = torch.linalg.cholesky(kernel(places, 0.06) + 1e-6 * torch.eye(48, dtype=torch.float64))
    stretches = torch.eye(8, dtype=torch.float64).repeat_interleave(6, 1)
    for _ in range(60):
        effects = root @ torch.randn(48, generator=generator, dtype=torch.float64)
        contrast = torch.randint(0, 2, (80, 48), generator=generator).double() * 2 - 1
        drop = contrast @ effects + 4 * torch.randn(80, generator=generator, dtype=torch.float64)
        found = hypotheses(contrast, drop, [kernel(places, reach) for reach in (0.04, 0.06, 0.1)])
        mean, deviation = average(found, stretches)
        held.append((mean - stretches @ effects).abs() < 1.645 * deviation)
    assert 0.85 < float(torch.stack(held).double().mean()) < 0.95


def test_the_posterior_solves_the_normal_equations():
    generator = torch.Generator().manual_seed(1)
    contrast, drop = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((12, 5), (12,)))
    prior = kernel(PatchGrid((5,), (1,)), 0.3)
    for found in hypotheses(contrast, drop, [prior]):
        precision = torch.linalg.inv(prior) + contrast.T @ contrast / found.noise
        torch.testing.assert_close(found.mean, torch.linalg.solve(precision, contrast.T @ drop / found.noise))
        torch.testing.assert_close(found.covariance, torch.linalg.inv(precision))


def test_the_next_contrast_measures_what_is_least_known():
    covariance = torch.diag(torch.tensor([0.01, 1.0, 0.5], dtype=torch.float64))
    best, after = next_contrast(covariance, 0.1, torch.eye(3, dtype=torch.float64))
    assert best == 1
    assert float(after[1, 1]) == pytest.approx(1 - 1 / 1.1)


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("how", ["blur", "mean", "noise"])
def test_every_rank_and_way_to_remove(rank, how):
    victim, batch = case(rank, n=2)
    explained = parse_method(f"belief(queries=141, remove='{how}')")(victim, batch, batch.y)
    assert 130 <= int(explained.queries.max()) == int(explained.queries.min()) <= 141
    assert explained.deviation is not None
    assert explained.deviation.shape == explained.maps.shape
    assert (explained.deviation >= 0).all()
    assert explained.effects is not None
    assert len(explained.effects.parts[0][0]) > 0
    inside = batch.masks.flatten(1)
    sizes = [float(explained.maps.flatten(1).abs()[part].mean()) for part in (inside, ~inside)]
    assert sizes[0] > sizes[1]  # noise is texture too, so the sign may change


def test_more_queries_begin_like_fewer_and_reduce_the_deviation():
    victim, batch = case(1, n=1)
    rows = []

    def keep(x):
        rows.append(torch.as_tensor(x).clone())
        return victim.model(rows[-1]).detach()

    def run(queries):
        rows.clear()
        explained = parse_method(f"belief(queries={queries})")(CallableVictim(keep, outputs="logits"), batch)
        return torch.cat(rows), explained

    few, first = run(121)
    many, second = run(261)
    assert torch.equal(few[:33], many[:33])  # the clean input and the first round of pairs
    assert first.deviation is not None
    assert second.deviation is not None
    assert float(second.deviation.mean()) < float(first.deviation.mean())


def test_regions_join_and_are_settled_where_the_interval_excludes_zero():
    after, width = torch.tensor([[0.2, 0.4, 0.7, 0.5]]), torch.tensor([[0.4, 0.2, 0.1, 0.0]])
    parts, there = tuple((str(part),) for part in range(4)), torch.ones(1, 4, dtype=torch.bool)
    one = Effects(REGIONS, parts, torch.tensor([0.5]), after, after - width, after + width, there)
    both = Effects.cat([one, one])
    assert both.settled().tolist() == [[False, False, True, False]] * 2
    assert place(PatchGrid((4, 4), (2, 2)), 3) == "rows 2-3, columns 2-3"


def test_what_changed_at_a_flip_lies_where_the_attack_changed_something():
    victim, batch = rlab.demo_victim("digits"), rlab.load("demo:digits", limit=3)
    result = rlab.attack(victim, batch, palette=["dead_pixel@1.0"], patch=2, budget=200, policy="random")
    explained = explain_flip(result, victim, queries=201)
    flipped = result.succeeded.nonzero().flatten()
    assert explained.labels.tolist() == result.after[flipped].argmax(1).tolist()
    for effect, changed in zip(explained.maps, result.masks[flipped], strict=True):
        assert float(effect[changed].mean()) > abs(float(effect[~changed].mean()))
    unchanged = replace(result, status=tuple(Status.SPENT for _ in result.status))
    with pytest.raises(InputError):
        explain_flip(unchanged, victim)


def test_queries_decide_the_mask_of_a_small_image():
    """Four of 12 x 12 points decide: removing them removes the class, and showing them alone is enough."""
    x = torch.zeros(1, 1, 12, 12)
    x[0, 0, 2:4, 2:4] = 1.0

    def model(x):
        p = torch.as_tensor(x)[:, 0, 2:4, 2:4].mean((1, 2)).clamp(1e-6, 1 - 1e-6)
        return torch.stack([p, 1 - p], 1)

    victim = CallableVictim(model, outputs="probabilities")
    batch = Batch(x=x, y=torch.zeros(1, dtype=torch.int64))
    explained = parse_method("belief(queries=300, remove='mean')")(victim, batch, batch.y)
    assert explained.rule == "by queries"
    assert explained.mask[0, 2:4, 2:4].all()
    assert float(explained.mask.float().mean()) < 0.12
    assert int(explained.queries) <= 300
    by_share = parse_method("belief(queries=300)")(victim, batch, batch.y, rule="share:0.5")
    assert float(by_share.mask.float().mean()) == 0.5
