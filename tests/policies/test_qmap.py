"""The Q-map network and how a set of changes is read off it."""

import pytest
import torch

from rlab.policies.qmap import QMap, QMapConfig, best_set, linear_guess, ranking, set_facts
from tests.training.seen import features
from tests.helpers import RANKS

INF = torch.inf


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("entries", [1, 3])
def test_one_network_serves_any_palette_and_size(rank: int, entries: int) -> None:
    network = QMap(QMapConfig(rank, channels=2, width=16, blocks=1, shares=(0.5,)))
    for side in (2, 3):
        q = network(features(rank, n=2, entries=entries, side=side))
        assert q.shape == (2, 2, entries + 1, side**rank)
        assert torch.isfinite(q).all()


def test_a_plane_of_sets_has_one_value_and_ranks_by_the_compass() -> None:
    network = QMap(QMapConfig(2, channels=2, width=16, blocks=1, shares=(0.3, 0.6), heads=2, compass_width=8))
    seen = features(2, n=3, entries=2, side=3, heads=2)
    q = network(seen)
    assert q.shape == (3, 5, 3, 9)
    for head in range(2):
        score = ranking(seen["projection"].flatten(3), seen["entries"].flatten(3))[:, :, head]
        for plane in (1 + 2 * head, 2 + 2 * head):
            writes = q[:, plane, 1:]
            assert (writes.amax((1, 2)) - writes.amin((1, 2)) < 1e-3).all()
            assert torch.equal(writes.flatten(1).argmax(1), score.flatten(1).argmax(1))


def test_set_facts_by_hand() -> None:
    seen = features(1, n=1, entries=1, side=4, heads=1)
    seen["entries"] = torch.ones(1, 1, 4, 4)
    seen["entry_maps"] = torch.zeros(1, 1, 3, 4)
    seen["entry_maps"][0, 0, :, 3] = torch.tensor([1.0, 0.6, 0.5])  # the last patch is written: tried, and brought 0.6
    lead = torch.tensor([[[[1.0, 4.0, 2.0, 3.0]]]])
    facts = set_facts(lead, ranking(lead, seen["entries"]), seen, (1, 2))
    told = 0.6 * 3 / (9 + 0.1)
    one = [4 / 4, (2 / 4) ** 0.5, 0.0, 0.0, 0.25, told, told * 1]
    two = [6 / 4, (4 / 4) ** 0.5, 0.0, 0.0, 0.5, told, told * 1.5]
    assert facts[0].flatten().tolist() == pytest.approx([*one, *two])


def test_entries_are_scored_by_what_they_change_not_by_their_place() -> None:
    network = QMap(QMapConfig(2, channels=2, width=16, blocks=1, shares=(0.3,)))
    seen = features(2, n=1, entries=3, side=3)
    order = [2, 0, 1]
    moved = {**seen, "entries": seen["entries"][:, order], "entry_maps": seen["entry_maps"][:, order]}
    q, swapped = network(seen), network(moved)
    assert torch.allclose(q[:, :, 1:][:, :, order], swapped[:, :, 1:], atol=1e-5)
    assert torch.allclose(q[:, :, 0], swapped[:, :, 0], atol=1e-5)


def test_best_set_takes_the_plane_with_the_best_mean() -> None:
    single = [[-INF, -INF, -INF], [0.0, 5.0, 1.0]]  # one change at a time: 5 at best
    pair = [[-INF, 7.0, -INF], [6.0, 2.0, 1.0]]  # two at a time: restore patch 1 (7) and write patch 0 (6), mean 6.5
    plane, entry, patch = best_set(torch.tensor([[single, pair]]), (1, 2))
    assert plane.tolist() == [1]
    assert entry.tolist() == [[0, 1]]
    assert patch.tolist() == [[1, 0]]


def test_best_set_leaves_places_beyond_the_count_empty() -> None:
    q = torch.tensor([[[[9.0, 1.0, 0.0]], [[2.0, 2.0, 2.0]]]])
    plane, entry, patch = best_set(q, (1, 2))
    assert (plane.tolist(), entry.tolist(), patch.tolist()) == ([0], [[0, -1]], [[0, -1]])


def test_best_set_takes_what_is_legal_where_that_is_less_than_asked_for() -> None:
    _, entry, patch = best_set(torch.tensor([[[[-INF, 3.0, -INF]]]]), (2,))
    assert (entry.tolist(), patch.tolist()) == ([[0, -1]], [[1, -1]])


def test_linear_guess_by_hand() -> None:
    change = torch.tensor([[[[1.0]], [[-2.0]]]])  # one patch, one channel, two entries
    maps = torch.tensor([[[[0.0], [0.6], [1.0]], [[0.0], [0.0], [0.0]]]])  # the first was tried and brought 0.6
    slope, guess = linear_guess(change, maps)
    expected = 0.6 / (1.0 + 0.05)
    assert slope.item() == pytest.approx(expected)
    assert guess.flatten().tolist() == pytest.approx([expected, -2 * expected])
