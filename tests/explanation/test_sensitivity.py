"""Sobol indices and HSIC on functions whose values are known."""

import pytest
import torch

from rlab.explanation.black_box import hsic, total_sobol
from rlab.explanation.run import parse_method
from tests.explanation.test_methods import case
from tests.helpers import RANKS


def indices(function, patches, samples=20000):
    draw = torch.rand(2, samples, patches, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    swapped = draw[:1].repeat(patches, 1, 1)
    for i in range(patches):
        swapped[i, :, i] = draw[1, :, i]
    return total_sobol(function(draw[0]), function(swapped))


def test_total_sobol_of_a_sum_and_of_a_product():
    found = indices(lambda x: 3 * x[..., 0] + x[..., 1], 3)
    torch.testing.assert_close(found, torch.tensor([0.9, 0.1, 0.0], dtype=torch.float64), atol=0.02, rtol=0)
    # centred factors: all of the variance needs both
    found = indices(lambda x: (x[..., 0] - 0.5) * (x[..., 1] - 0.5), 3)
    torch.testing.assert_close(found, torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64), atol=0.04, rtol=0)


def test_hsic_is_zero_where_nothing_depends_and_orders_what_does():
    masks = (torch.rand(600, 4, generator=torch.Generator().manual_seed(0)) < 0.5).float()
    found = hsic(masks, masks[:, 0] + 0.4 * masks[:, 1])
    assert found[0] > 2 * found[1] > 8 * found[2:].max()
    assert hsic(masks[:4, :1] * 0 + torch.tensor([[0.0], [0.0], [1.0], [1.0]]), torch.tensor([0.0, 0.0, 1.0, 1.0])) == (
        pytest.approx(0.25 * (1 - torch.exp(torch.tensor(-0.5)).item()))
    )


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize(
    "spec",
    [
        "sobol(samples=6, along=4)",
        "hsic(masks=200, along=4)",
        "kernel_shap(samples=150, along=4)",
        "lime(samples=150, along=4)",
    ],
)
def test_peers_find_the_planted_place_and_count_their_queries(spec, rank):
    victim, batch = case(rank, n=2)
    method = parse_method(spec)
    found = method(victim, batch, batch.y)
    assert found.queries.tolist() == [method.most(batch.size)] * 2
    inside = batch.masks
    assert found.maps[inside].mean() > 1.5 * found.maps[~inside].mean()
