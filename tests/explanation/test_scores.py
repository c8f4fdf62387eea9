"""Scores against hand-computed values and independent oracles."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from rlab.data.batch import Batch
from rlab.errors import DataError
from rlab.explanation.base import SCORE
from rlab.explanation.explanation import Explanation, MethodComparison
from rlab.explanation.run import parse_method
from rlab.explanation.scores import (
    MethodJudge,
    against_truth,
    area,
    curves,
    energy,
    overlap,
    pointing,
    rank_correlation,
    shuffle_weights,
)
from rlab.present.page import render
from rlab.victims import CallableVictim
from tests.explanation.test_methods import case

METHODS = [parse_method("occlusion(along=4)"), parse_method("middle"), parse_method("rise(masks=20)")]


def test_overlap_by_hand():
    mask = torch.tensor([[True, True, False, False], [False] * 4, [False] * 4])
    truth = torch.tensor([[True, False, True, False], [True] * 4, [False] * 4])
    scored = overlap(mask, truth)
    assert scored["dice"].tolist() == [0.5, 0.0, 1.0]
    assert scored["iou"].tolist() == [pytest.approx(1 / 3), 0.0, 1.0]


def test_pointing_and_energy_by_hand():
    maps = torch.tensor([[0.0, 1.0, 3.0, 0.0], [2.0, 2.0, 0.0, 0.0]])
    truth = torch.tensor([[False, False, True, True], [True, False, False, False]])
    assert pointing(maps, truth).tolist() == [1.0, 0.5]
    assert energy(maps, truth).tolist() == pytest.approx([0.75, 0.5])
    assert energy(torch.zeros(1, 4), truth[:1]).tolist() == [0.0]
    zero = torch.zeros(1, dtype=torch.int64)
    with pytest.raises(DataError):  # masks of another size
        against_truth(Explanation("test", maps[:1], maps[:1] > 1, zero, zero, "otsu", 0.0), torch.zeros(1, 5).bool())


def mean_victim():
    """The probability of class 0 is the mean of the input."""
    return CallableVictim(lambda x: np.stack([m := x.reshape(len(x), -1).mean(1), 1 - m], 1), outputs="probabilities")


def test_deletion_and_insertion_by_hand():
    victim, x = mean_victim(), torch.tensor([[[1.0, 1.0, 0.0, 0.0]]])
    blank, labels = torch.zeros_like(x), torch.tensor([0])
    best, worst = torch.tensor([[4.0, 3.0, 2.0, 1.0]]), torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    down = curves(victim, x, blank, best, labels, steps=4)
    assert down.tolist() == [pytest.approx([0.5, 0.25, 0.0, 0.0, 0.0], abs=1e-6)]
    up = curves(victim, x, blank, worst, labels, steps=4, insert=True)
    assert up.tolist() == [pytest.approx([0.0, 0.0, 0.0, 0.25, 0.5], abs=1e-6)]
    assert area(down).tolist() == pytest.approx([(0.25 + 0.25 + 0.25 / 2 - 0.125) / 4], abs=1e-6)
    assert victim.rows == {SCORE: 10}  # a phase of its own


def test_rank_correlation_is_scipys():
    draw = torch.Generator().manual_seed(0)
    a, b = (torch.randint(0, 5, (3, 40), generator=draw).float() for _ in range(2))
    want = [spearmanr(ours.numpy(), other.numpy()).statistic for ours, other in zip(a, b, strict=True)]
    assert rank_correlation(a, b).tolist() == pytest.approx(want)
    assert rank_correlation(a, torch.zeros_like(a)).tolist() == [0.0] * 3


def test_a_comparison_has_every_score_and_counts_its_queries_separately():
    victim, batch = case(2, n=2)
    comparison = MethodJudge(steps=4)(victim, batch, METHODS)
    names = ["dice", "iou", "pointing", "energy", "dice_map", "deletion", "insertion", "stability", "sanity"]
    assert comparison.names == names
    assert not comparison.left_out
    assert victim.rows[SCORE] == len(METHODS) * len(batch) * 2 * 5
    assert victim.rows["search"] == 2 * sum(int(scored.queries.sum()) for scored in comparison.judged.values())
    assert comparison.judged["middle"].scores["sanity"].tolist() == pytest.approx(
        [1.0, 1.0]
    )  # it never looks at the model
    assert comparison.judged["occlusion"].scores["stability"].tolist() == pytest.approx([1.0, 1.0])
    gap = comparison.difference("occlusion", "middle", "dice")
    scores = comparison.judged["occlusion"].scores["dice"] - comparison.judged["middle"].scores["dice"]
    assert gap.value == pytest.approx(float(scores.mean()))
    assert gap.low <= gap.value <= gap.high
    plain, whole = comparison.table(), comparison.table(intervals=True)
    assert (
        plain.head
        == whole.head
        == ["method", "queries", "mask\ncovers", "Dice", "IoU", "pointing", "energy", "Dice of\nthe map", *names[5:]]
    )
    assert [row[0] for row in plain.rows] == [
        "occlusion",
        "middle",
        "rise",
        "occlusion\nminus middle",
        "rise\nminus middle",
    ]
    assert whole.rows[3][3] == gap
    dice = comparison.judged["rise"].mean("dice", comparison.seed)
    assert (plain.rows[2][3], whole.rows[2][3]) == (dice.value, dice)


def test_what_was_stored_is_read_back(tmp_path):
    victim, batch = case(2, n=2)
    batch = replace(batch, masks=None)
    comparison = MethodJudge(steps=4, checked=1)(victim, batch, [*METHODS[:2], parse_method("gradcam")])
    again = MethodComparison.load(comparison.save(tmp_path, pictures=1))
    page = render(again.view())
    assert page.count('<figure class="viewer') == 3  # one sample under the map of each method
    assert "no ground truth" in page
    assert again.table(intervals=True) == comparison.table(intervals=True)
    assert again.inputs is not None
    assert torch.equal(again.inputs.x, batch.x[:1])
    assert again.inputs.classes == batch.classes
    assert again.rows == comparison.rows
    for name, scored in comparison.judged.items():
        stored = again.judged[name]
        assert (stored.rule, stored.gradients) == ("otsu", name == "gradcam")
        assert torch.equal(stored.maps, scored.maps)
        assert type(stored.subject) is type(scored.subject)
        assert stored.ids == batch.ids
        for score, values in scored.scores.items():
            torch.testing.assert_close(stored.scores[score], values, equal_nan=True)
    bare = MethodComparison.load(comparison.save(tmp_path, pictures=0))
    assert bare.inputs is None
    assert [section.title for section in bare.view().sections] == ["Methods"]


def test_scores_without_ground_truth():
    victim = mean_victim()
    batch = Batch(x=torch.rand(2, 1, 8, 8) * 0.4 + 0.6, y=torch.zeros(2, dtype=torch.int64))
    comparison = MethodJudge(steps=4)(victim, batch, METHODS)
    assert "dice" not in comparison.names
    truth, weights = comparison.left_out
    assert "no ground truth" in truth
    assert "only the weights of a torch module" in weights


def test_shuffling_leaves_the_victim_alone():
    victim, batch = case(2, n=2)
    before = {name: value.clone() for name, value in victim.model.state_dict().items()}
    other = shuffle_weights(victim, 0)
    for name, value in victim.model.state_dict().items():
        assert torch.equal(value, before[name])
        assert torch.equal(value.flatten().sort().values, other.model.state_dict()[name].flatten().sort().values)
    other(batch.x)
    assert not victim.rows


def test_a_map_that_knows_the_place_deletes_better_than_the_middle():
    victim, batch = case(2, n=3)
    scored = MethodJudge(steps=10, checks=False)(
        victim, batch, [parse_method("occlusion(along=8)"), parse_method("middle")]
    )
    assert scored.judged["occlusion"].mean("deletion").value < scored.judged["middle"].mean("deletion").value
