"""The belief against Gaussian conditioning by hand, and by brute force over every pixel."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, tensor

from rlab.core.grid import PatchGrid
from rlab.policies.belief.answers import Assumptions
from rlab.policies.belief.geometry import Geometry, make_geometry
from rlab.policies.belief.posterior import Posterior, choose, evidence, expected, kernel
from tests.helpers import RANKS
from tests.policies.belief.worlds import (
    ENTRIES,
    Hypothesis,
    Known,
    World,
    known_after,
    log_evidence,
    make_queries,
    make_world,
    nothing_known,
    posterior,
    prior,
)

DIRECTED: Hypothesis = (0.5, 0.7, 0.3, 1.25, 0.1)
UNDIRECTED: Hypothesis = (0.0, 0.0, 0.3, 1.25, 0.1)
SEVERAL: tuple[Hypothesis, ...] = (DIRECTED, (1.0, 1.0, 0.1, 1.25, 0.03), (0.2, 0.2, 0.03, 0.0, 0.2))


def mean_of(known: Known, model: Assumptions, hypothesis: Hypothesis = DIRECTED) -> Tensor:
    """(n, a, f, p): at temperature 0."""
    return drawn(known, model, hypothesis, temperature=0.0)


def drawn(
    known: Known, model: Assumptions, hypothesis: Hypothesis = DIRECTED, temperature: float = 1.0, seed: int = 0
) -> Tensor:
    geometry, answers = known.geometry, known.answers
    (n, f, p), dtype = geometry.cost.shape, geometry.cost.dtype
    count = f * p + geometry.projection.shape[2] + answers.regional.shape[2] + answers.drop.shape[1]
    normals = torch.randn(n, count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    belief = Posterior(geometry, answers, model, tensor(hypothesis, dtype=dtype).expand(n, 5))
    mean, deviation = belief.mean_and_deviation(normals.to(dtype))
    return mean + temperature * deviation[:, None]


def one_patch() -> Geometry:
    """One patch of two values; the entries change one value each, by 3 and by 4."""
    change = tensor([[[[3.0, 0.0]], [[0.0, 4.0]]]], dtype=torch.float64)
    return make_geometry(change, None, PatchGrid((2,), (2,)))


def test_one_query_by_hand() -> None:
    """sigma 0.1: entry 1's effect is N(0, 0.3^2), seen as 0.5 with a noise of variance 0.2^2 (1 + 0.5^2) = 0.05."""
    geometry, model = one_patch(), Assumptions(((0.0, 0.0, 0.1, 0.0, 0.2),), rho=0.0)
    known = nothing_known(geometry, model).after(model, tensor([[1]]), tensor([[0.5]]).double())
    assert kernel(known.answers, model, tensor(model.hypotheses)[None]).item() == pytest.approx(0.09 + 0.05)
    mean = mean_of(known, model, model.hypotheses[0])
    assert mean.flatten().tolist() == pytest.approx([0.09 / 0.14 * 0.5, 0.0])  # the entries have nothing in common
    assert evidence(known.answers, model).item() == pytest.approx(-0.5 * (0.25 / 0.14 + math.log(0.14)), rel=1e-6)


def test_two_queries_by_hand() -> None:
    """Both entries asked: each is conditioned on its own drop; asked twice, on the mean of both, with half the noise."""
    geometry, model = one_patch(), Assumptions(((0.0, 0.0, 0.1, 0.0, 0.2),), rho=0.0, curvature=0.0)
    start = nothing_known(geometry, model)
    known = start.after(model, tensor([[1]]), tensor([[0.5]]).double())
    both = known.after(model, tensor([[2]]), tensor([[-0.2]]).double())
    assert both.answers.inner.tolist() == [[[9, 0], [0, 16]]]
    mean = mean_of(both, model, model.hypotheses[0])
    assert mean.flatten().tolist() == pytest.approx([0.09 / 0.13 * 0.5, 0.16 / 0.20 * -0.2])
    twice = known.after(model, tensor([[1]]), tensor([[0.3]]).double())
    mean = mean_of(twice, model, model.hypotheses[0])
    assert mean.flatten().tolist() == pytest.approx([0.09 / (0.09 + 0.02) * 0.4, 0.0])


def test_a_lift_and_regions_by_hand() -> None:
    """The entry's whole mass lies in the one patch: its effect is mu + u, u ~ N(0, rho^2); the other entry knows nothing of it."""
    geometry = one_patch()
    model = Assumptions(((0.0, 0.0, 0.0, 1.25, 0.1),), (torch.zeros(1, dtype=torch.long),), rho=0.3, curvature=0.0)
    start = nothing_known(geometry, model)
    assert mean_of(start, model, model.hypotheses[0]).flatten().tolist() == [1.25, 1.25]
    known = start.after(model, tensor([[1]]), tensor([[0.25]]).double())
    assert expected(known.answers, tensor(model.hypotheses)[None]).item() == 1.25
    mean = mean_of(known, model, model.hypotheses[0])
    assert mean.flatten().tolist() == pytest.approx([1.25 - 0.09 / 0.10, 1.25])


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("k", [0, 1, 3])
@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-6), (torch.float32, 1e-3)])
def test_the_mean_is_that_of_brute_force_over_every_pixel(rank: int, k: int, dtype: torch.dtype, near: float) -> None:
    world, hypothesis = make_world(rank, k, dtype=dtype), DIRECTED if k else UNDIRECTED
    model = world.model(hypothesis)
    for count in (0, 1, 2, 6):
        queries = make_queries(world, count)
        mean = mean_of(known_after(world, model, queries), model, hypothesis)
        for row in range(2):
            wanted = prior(world, row, model, hypothesis)[0][None]
            if queries:
                wanted = posterior(world, row, model, hypothesis, queries)[0]
            torch.testing.assert_close(mean[row].flatten(1).double(), wanted, rtol=0, atol=near)


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("k", [0, 2])
def test_the_evidence_is_that_of_a_multivariate_normal(rank: int, k: int) -> None:
    world = make_world(rank, k)
    model = world.model(*SEVERAL)
    assert not evidence(known_after(world, model, []).answers, model).any()
    queries = make_queries(world, 5)
    weights = evidence(known_after(world, model, queries).answers, model)
    wanted = [[log_evidence(world, row, model, hypothesis, queries) for hypothesis in SEVERAL] for row in range(2)]
    torch.testing.assert_close(weights, tensor(wanted, dtype=torch.float64), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("k", [0, 2])
@pytest.mark.parametrize("queries", [0, 4])
def test_draws_have_the_mean_and_the_covariance_of_the_posterior(k: int, queries: int) -> None:
    world, hypothesis, count = make_world(2, k, n=1), DIRECTED if k else UNDIRECTED, 20_000
    model, asked = world.model(hypothesis), make_queries(world, queries, rivals=1)
    draws = drawn(known_after(world, model, asked)[torch.zeros(count, dtype=torch.long)], model, hypothesis).flatten(1)
    mean, cov = prior(world, 0, model, hypothesis)
    if asked:
        means, cov = posterior(world, 0, model, hypothesis, asked)
        mean = means[0]
    deviation = cov.diagonal().sqrt()
    error = (draws.mean(0) - mean) / (deviation / math.sqrt(count))
    assert error.abs().max() < 4.5
    seen, bound = torch.cov(draws.T), 5 * math.sqrt(2 / count)
    assert ((seen - cov) / (deviation[:, None] * deviation)).abs().max() < bound


def test_temperature_scales_the_deviation_and_zero_is_the_mean() -> None:
    world = make_world(1, 2)
    model, queries = world.model(DIRECTED), make_queries(world, 3)
    known = known_after(world, model, queries)
    mean, cool, warm = (drawn(known, model, temperature=t) for t in (0.0, 0.5, 1.0))
    torch.testing.assert_close(warm - mean, 2 * (cool - mean))
    assert (warm - mean).abs().max() > 0.01
    assert torch.equal(mean, drawn(known, model, temperature=0.0, seed=1))  # whatever the dice


@pytest.mark.parametrize("most", [1, 3])
def test_the_oldest_queries_are_forgotten_exactly(most: int) -> None:
    world = make_world(2, 2)
    model, queries = world.model(*SEVERAL), make_queries(world, 6)
    capped, last = known_after(world, model, queries, most), known_after(world, model, queries[-most:])
    assert capped.answers.queries == len(queries)
    capped = replace(capped, answers=replace(capped.answers, code=capped.answers.codes))
    for name, value in vars(capped.answers).items():
        torch.testing.assert_close(value, getattr(last.answers, name), msg=name)


def test_several_rivals_share_one_factorisation_and_are_what_each_is_alone() -> None:
    world = make_world(2, 2)
    model = world.model(*SEVERAL, curvature=0.0)  # else the noise is that of the rival that moved most
    queries = make_queries(world, 5, rivals=3)
    together, weights = known_after(world, model, queries), []
    mean, draw = mean_of(together, model), drawn(together, model)
    for rival in range(3):
        alone = known_after(world, model, [(assignment, drop[:, rival : rival + 1]) for assignment, drop in queries])
        torch.testing.assert_close(mean_of(alone, model)[:, 0], mean[:, rival])
        torch.testing.assert_close(drawn(alone, model)[:, 0], draw[:, rival])
        weights.append(evidence(alone.answers, model))
    torch.testing.assert_close(evidence(together.answers, model), torch.stack(weights).mean(0))


def test_the_models_own_noise_adds_to_every_hypothesis() -> None:
    """A noise of 0.3 beside a tau of 0.4 is a tau of 0.5."""
    world, calm = make_world(1, 1), (0.5, 0.7, 0.3, 1.25, 0.5)
    model, noisier = world.model(calm, curvature=0.0), world.model((*calm[:4], 0.4), curvature=0.0)
    queries = make_queries(world, 4)
    known = known_after(world, model, queries)
    noisy = replace(known, answers=replace(known.answers, noise=torch.full((2,), 0.3, dtype=torch.float64)))
    torch.testing.assert_close(mean_of(noisy, noisier, (*calm[:4], 0.4)), mean_of(known, model, calm))
    torch.testing.assert_close(evidence(noisy.answers, noisier), evidence(known.answers, model), rtol=1e-5, atol=1e-5)


def test_a_hypothesis_is_chosen_by_its_weight() -> None:
    weights = tensor([0.2, 0.5, 0.3]).log().expand(6, 3) + 100
    at = tensor([0.0, 0.19, 0.21, 0.69, 0.71, 1 - 2**-24])
    assert choose(weights, at).tolist() == [0, 0, 1, 1, 2, 2]
    assert choose(tensor([[-1e30, 0.0, -1e30]]), tensor([0.5])).tolist() == [1]


def test_a_hypothesis_that_holds_wins_by_evidence() -> None:
    """The drops come from a response with sigma 0.3: after 30 queries hardly anything speaks for 0.03 or 3."""
    world = make_world(2, 0, n=4)
    hypotheses = tuple((0.0, 0.0, sigma, 0.0, 0.03) for sigma in (0.03, 0.3, 3.0))
    model = Assumptions(hypotheses, rho=0.0, curvature=0.0)
    slope = 0.3 * torch.randn(world.change[:, 0].shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    effect = world.grid.total((world.change * slope[:, None]).sum(2))  # (n, f, p)
    padded = torch.cat([torch.zeros_like(effect[:, :1]), effect], 1)
    queries = [(a, padded.gather(1, a[:, None]).sum((1, 2))[:, None]) for a, _ in make_queries(world, 30)]
    known = known_after(world, model, queries)
    assert evidence(known.answers, model).softmax(1)[:, 1].min() > 0.99
    error = (mean_of(known, model, hypotheses[1])[:, 0] - effect).norm() / effect.norm()
    assert error < 0.3  # 18 effects of 3 entries at 6 patches, 30 queries


@pytest.mark.parametrize("size", [1e-4, 1.0, 100.0, 1e4])
def test_float32_bears_changes_of_any_size_asked_again_and_again(size: float) -> None:
    """Sixty times nearly the same query, with the largest sigma and the least noise."""
    world = make_world(2, 2, dtype=torch.float32)
    assert world.directions is not None
    world = World(size * world.change, world.directions, world.grid, world.relevance)
    hypotheses = ((1.0, 1.0, 0.3, 1.25, 0.03), (0.2, 0.2, 0.03, 1.25, 0.03))
    model = world.model(*hypotheses)
    base = make_queries(world, 1)[0][0]
    queries = []
    for t, (_, drop) in enumerate(make_queries(world, 60, seed=1)):
        assignment = base.clone()
        assignment[:, t % len(world.grid)] = t % (ENTRIES + 1)
        queries.append((assignment, drop))
    known = known_after(world, model, queries)
    assert torch.isfinite(evidence(known.answers, model)).all()
    for hypothesis in hypotheses:
        assert torch.isfinite(drawn(known, model, hypothesis)).all()


def test_a_thousand_queries_are_borne_in_float32_and_the_last_are_remembered() -> None:
    """As many as a budget has: nothing drifts, as what is forgotten leaves nothing behind."""
    world = make_world(2, 2, dtype=torch.float32)
    model, queries = world.model(*SEVERAL), make_queries(world, 1000)
    known = known_after(world, model, queries, most=40)
    last = known_after(world, model, queries[-40:])
    torch.testing.assert_close(evidence(known.answers, model), evidence(last.answers, model), rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(mean_of(known, model), mean_of(last, model), rtol=1e-3, atol=1e-3)
    wanted = posterior(world, 0, model, DIRECTED, queries[-40:])[0]
    torch.testing.assert_close(mean_of(known, model)[0].flatten(1).double(), wanted, rtol=0, atol=2e-3)
