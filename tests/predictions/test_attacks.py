"""Attacks on planted models that predict boxes, maps and numbers: in memory, in a folder, with other models, on bad answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import rlab
from rlab.core.goals import Vanish, parse_goal
from rlab.errors import InputError
from rlab.predictions.boxes import Boxes, TargetBoxes
from rlab.predictions.kinds import Prediction
from rlab.results.rows import to_rows
from rlab.victims import CallableVictim, TorchVictim
from tests.helpers import exact_victim, labelled_by, make_batch
from tests.predictions.planted import (
    CLASSES,
    DARK,
    PLACES,
    REACHABLE,
    SIDE,
    boxes_of,
    planted_batch,
    planted_victim,
    squares,
)

OPTIONS: dict[str, Any] = {
    "budget": 60,
    "patch": 4,
    "palette": ["illuminate+@0.9", "illuminate-@0.9"],
    "until": "flip",
    "progress": False,
}
ONE_EACH: dict[Prediction, str] = {"boxes": "vanish", "map": "lose:1", "numbers": "deviate:+5"}


@pytest.mark.parametrize(("text", "kind"), REACHABLE.items())
def test_every_goal_is_reached_and_verified(text: str, kind: Prediction) -> None:
    batch, victim = planted_batch(kind, n=2), planted_victim(kind)
    result = rlab.attack(victim, batch, goal=text, **OPTIONS)
    assert result.succeeded.all()
    goal, clean = parse_goal(text), planted_victim(kind)(batch.x)
    assert torch.equal(result.before, clean)
    assert goal.reached(planted_victim(kind)(result.perturbed), goal.aim(clean, batch.y)).all()
    assert torch.equal(result.after, planted_victim(kind)(result.perturbed))
    assert int(victim.rows.total()) == result.total_queries
    assert (result.queries.sum(1) <= OPTIONS["budget"]).all()


@pytest.mark.parametrize("kind", ["boxes", "map", "numbers"])
@pytest.mark.parametrize("policy", ["random", "square", "greedy", "belief"])
def test_every_policy_takes_every_kind(policy: str, kind: Prediction) -> None:
    options = OPTIONS | {"budget": 120, "patch": 8}
    result = rlab.attack(planted_victim(kind), planted_batch(kind, 1), goal=ONE_EACH[kind], policy=policy, **options)
    assert result.succeeded.all()


@pytest.mark.parametrize(("kind", "words"), [("boxes", "dog"), ("map", "IoU"), ("numbers", "21.88")])
def test_a_folder_holds_what_was_predicted(kind: Prediction, words: str, tmp_path: Path) -> None:
    victim, batch = planted_victim(kind), planted_batch(kind)
    result = rlab.attack(victim, batch, goal=ONE_EACH[kind], out=tmp_path / "run", **OPTIONS)
    again = rlab.AttackResult.load(tmp_path / "run")
    assert again.setting.target == kind
    assert torch.equal(again.labels, batch.y)
    assert again.labels.dtype == batch.y.dtype
    assert torch.equal(again.after, result.after)
    assert words in again[0].sentence
    assert words in to_rows(again)[0]["predicted_before"]
    again.report(tmp_path / "page.html")
    assert words in (tmp_path / "page.html").read_text()
    assert again.plot(0).axes
    victim.rows.clear()
    rlab.attack(victim, batch, goal=ONE_EACH[kind], out=tmp_path / "run", **OPTIONS)
    assert not victim.rows.total()  # nothing is left to do


def test_objects_that_are_not_found_are_skipped_and_counted() -> None:
    batch = planted_batch("boxes", 3)
    batch.x[1] = DARK  # nothing is there
    result = rlab.attack(planted_victim("boxes"), batch, goal="vanish", **OPTIONS)
    assert result.attacked.tolist() == [True, False, True]
    assert result[1].predicted_before == "nothing"


def test_an_image_without_objects_is_skipped_unless_one_may_appear() -> None:
    x, y = torch.full((2, 1, 16, 16), DARK), TargetBoxes.of([(torch.zeros(0, 4), torch.zeros(0))] * 2).encode()
    batch = rlab.Batch(x, y, target="boxes")
    hidden = rlab.attack(planted_victim("boxes"), batch, goal="vanish", **OPTIONS)
    assert not hidden.attacked.any()
    assert rlab.attack(planted_victim("boxes"), batch, goal="appear", **OPTIONS).succeeded.all()


def test_scores_of_nan_are_refused_untouched_and_fail_later() -> None:
    def broken(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        found = squares(x)
        found[x.min((1, 2, 3)) < DARK, :, 4] = np.nan  # once something is darker
        return found

    batch = planted_batch("boxes", 1)
    result = rlab.attack(
        CallableVictim(broken, outputs="boxes"),
        batch,
        goal="vanish",
        policy="random",
        **OPTIONS | {"palette": ["illuminate-@0.9"]},
    )
    assert "NaN" in result.status[0].value
    with pytest.raises(InputError, match="NaN for 1 of 1 untouched"):
        rlab.attack(CallableVictim(lambda x: broken(x * 0), outputs="boxes"), batch, **OPTIONS)


def test_arrays_and_lists_of_boxes_are_data(tmp_path: Path) -> None:
    batch = planted_batch("boxes", 2)
    objects = TargetBoxes.decode(batch.y)
    pairs = [(objects.xyxy[i, :2], objects.label[i, :2]) for i in range(2)]
    victim = planted_victim("boxes")
    for y in (pairs, batch.y.view(2, -1, 5)):
        result = rlab.attack(victim, (batch.x, y), **OPTIONS)
        assert result.setting.goal == "vanish"
        assert torch.equal(result.labels, batch.y)
    bare = rlab.attack(squares, rlab.load((batch.x.numpy(), batch.y.view(2, -1, 5).numpy()), target="boxes"), **OPTIONS)
    assert torch.equal(bare.after, rlab.attack(victim, batch, **OPTIONS).after)


@pytest.mark.parametrize(
    ("goal", "kind", "words"),
    [
        ("untargeted:1", "boxes", "goal"),
        ("deviate:1", "boxes", "predicts boxes"),
        ("vanish", "numbers", "predicts numbers"),
        ("untargeted", "boxes", "the goal 'untargeted' is for models that predict scores"),
        ("untargeted", "map", "the goal 'untargeted' is for models that predict scores"),
        ("untargeted", "numbers", "the goal 'untargeted' is for models that predict scores"),
    ],
)
def test_a_goal_that_does_not_fit_is_one_sentence(goal: str, kind: Prediction, words: str) -> None:
    with pytest.raises(InputError, match=words):
        rlab.attack(planted_victim(kind), planted_batch(kind, 1), goal=goal, **OPTIONS)


def test_data_that_do_not_fit_are_one_sentence() -> None:
    with pytest.raises(InputError, match="data hold scores of classes"):
        rlab.attack(
            planted_victim("boxes"), rlab.Batch(torch.zeros(1, 1, 16, 16), torch.tensor([0])), goal="vanish", **OPTIONS
        )
    two = rlab.Batch(torch.zeros(1, 1, 16, 16), torch.zeros(1, 2), target="numbers")
    with pytest.raises(InputError, match="predicts 1 numbers per sample, but the data have 2"):
        rlab.attack(planted_victim("numbers"), two, **OPTIONS)


@pytest.mark.parametrize("verb", ["harden", "learn", "benchmark"])
def test_commands_that_need_classes_say_so(verb: str, tmp_path: Path) -> None:
    class Mean(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mean((1, 2, 3))

    model, batch = TorchVictim(Mean(), outputs="numbers"), planted_batch("numbers")
    calls: dict[str, Any] = {
        "harden": lambda: rlab.harden(model, batch, epochs=1),
        "learn": lambda: rlab.learn(model, batch, out=tmp_path / "out", queries=64),
        "benchmark": lambda: rlab.benchmark(model, batch, tmp_path / "out"),
    }
    with pytest.raises(InputError, match=r"classes"):
        calls[verb]()


class Lamps(nn.Module):
    """The planted detector as a network, with boxes as torchvision's detectors return them."""

    def __init__(self, gain: float = 1.0) -> None:
        super().__init__()
        self.gain = gain

    def forward(self, x: Tensor) -> list[dict[str, Tensor]]:
        means = [x[:, 0, top : top + SIDE, left : left + SIDE].mean((1, 2)) for left, top in PLACES]
        scores = (self.gain * torch.stack(means, 1)).clamp(max=1)
        return [{"boxes": boxes_of((0, 1, 2)), "scores": row, "labels": torch.tensor(CLASSES)} for row in scores]


def test_a_surrogate_of_the_same_kind_helps_and_another_is_refused() -> None:
    class Mean(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 100 * x.mean((1, 2, 3))

    batch = planted_batch("numbers", 2)
    result = rlab.attack(planted_victim("numbers"), batch, goal="deviate:+5", surrogate=Mean(), **OPTIONS)
    assert result.succeeded.all()
    lamps = [Lamps(), Lamps(1.1)]
    hidden = rlab.attack(planted_victim("boxes"), planted_batch("boxes", 2), surrogate=lamps, **OPTIONS)
    assert hidden.succeeded.all()
    free = {**OPTIONS, "palette": "pixels", "patch": None}
    alone = rlab.attack(planted_victim("numbers"), batch, goal="deviate:+5", surrogate=Mean(), **free)
    assert alone.succeeded.all()
    assert (alone.final["l2"] < result.final["l2"]).all()
    assert rlab.attack(planted_victim("boxes"), planted_batch("boxes", 2), surrogate=lamps, **free).succeeded.all()
    surrogate = TorchVictim(Mean(), outputs="numbers")
    with pytest.raises(InputError, match="predicts numbers and the model boxes"):
        rlab.attack(planted_victim("boxes"), planted_batch("boxes"), surrogate=surrogate, **OPTIONS)


def test_a_target_class_for_each_sample(tmp_path: Path) -> None:
    victim = exact_victim(2)
    batch = labelled_by(victim, make_batch(2, 6))
    classes = (batch.y + 1) % 3
    options: dict[str, Any] = {"budget": 100, "progress": False, "palette": "pixels", "until": "flip"}
    result = rlab.attack(victim, batch, goal=rlab.Targeted(classes.tolist()), out=tmp_path / "run", **options)
    assert result.setting.goal == "targeted:data"
    assert result.succeeded.any()
    assert torch.equal(result.after.argmax(1)[result.succeeded], classes[result.succeeded])
    second = rlab.attack(victim, batch, goal="targeted:second-best", **options)
    runner_up = victim(batch.x).topk(2, 1).indices[:, 1]
    assert torch.equal(second.after.argmax(1)[second.succeeded], runner_up[second.succeeded])
    with pytest.raises(InputError, match="one target class as int64 for each of 6 samples"):
        rlab.attack(victim, batch, goal=rlab.Targeted([1, 2]), **options)
    with pytest.raises(InputError, match=r"target classes in 0\.\.2"):
        rlab.attack(victim, batch, goal=rlab.Targeted([7] * 6), **options)


def test_the_objects_of_the_result_can_be_read() -> None:
    batch = planted_batch("boxes", 1)
    result = rlab.attack(planted_victim("boxes"), batch, goal=Vanish(every=True), **OPTIONS | {"budget": 100})
    before, after = rlab.Boxes.decode(result.before), Boxes.decode(result.after)
    assert (before.score >= 0.3).sum() == 2
    assert result[0].label == "dog + cat"
    assert not ((after.score >= 0.3) & (after.label == 0) & (after.xyxy[..., 0] == 1)).any()


def test_a_column_names_the_class_to_aim_at(tmp_path: Path) -> None:
    from PIL import Image

    for name, grey in (("a", 20), ("b", 200)):
        Image.new("RGB", (8, 8), (grey, grey, grey)).save(tmp_path / f"{name}.png")
    (tmp_path / "labels.csv").write_text("file,label,wanted\na.png,0,2\nb.png,1,0\n")
    for stream in (None, True):
        data = rlab.load(tmp_path, targets="wanted", label_column="label", stream=stream)[:]
        assert data.y.tolist() == [0, 1]
        assert data.aims is not None
        assert data.aims.tolist() == [2, 0]
        assert data[1:].aims is not None
