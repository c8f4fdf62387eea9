"""Models that tell only classes, answers of several parts, and scores of one's own."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor, nn

import rlab
from rlab.data.batch import Batch
from rlab.errors import InputError, VictimError
from rlab.results.result import AttackResult
from rlab.victims import CallableVictim, OnnxVictim, TorchVictim
from rlab.victims.wire import decode
from tests.command import rlab_command
from tests.victims.makers import inputs, linear, onnx_graph

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
X = inputs(2)
CLASSES = 3
WINNER = linear().scores(X).argmax(1)


class Saying(nn.Module):
    """Returns what a function makes of the linear model's logits."""

    def __init__(self, say: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.say = say

    def forward(self, x: Tensor) -> Any:
        return self.say(linear().scores(x))


def numbers(logits: Tensor) -> Tensor:
    return logits.argmax(1)


def best_two(logits: Tensor) -> Tensor:
    return logits.topk(2, 1).indices


SAYINGS: dict[str, tuple[Callable[[Tensor], Any], dict[str, Any]]] = {
    "numbers": (numbers, {"outputs": "labels", "classes": CLASSES}),
    "a column of numbers": (lambda logits: numbers(logits)[:, None], {"outputs": "labels", "classes": CLASSES}),
    "one-hot": (lambda logits: nn.functional.one_hot(numbers(logits), CLASSES), {"outputs": "labels"}),
    "scores that are not looked at": (lambda logits: logits, {"outputs": "labels"}),
    "a list": (lambda logits: numbers(logits).tolist(), {"outputs": "labels", "classes": CLASSES}),
    "the best two": (best_two, {"outputs": "topk", "classes": CLASSES}),
    "the best alone": (lambda logits: logits.topk(1, 1).indices, {"outputs": "topk", "classes": CLASSES}),
}


@pytest.mark.parametrize("name", SAYINGS)
def test_classes_that_are_told_win_and_nothing_else_is_known(name: str) -> None:
    say, options = SAYINGS[name]
    for victim in (
        TorchVictim(Saying(say), **options),
        CallableVictim(lambda x: say(linear().scores(torch.from_numpy(x))), **options),
    ):
        scores = victim(X)
        assert scores.shape == (len(X), CLASSES)
        assert torch.equal(scores.argmax(1), WINNER)
        assert victim.tells_labels
        margins = (scores.gather(1, WINNER[:, None]) - scores).topk(2, 1, largest=False).values[:, 1]
        assert torch.equal(margins, margins[:1].expand_as(margins))  # the same for all: no distance is told
    assert victim.rows == {"search": len(X)}


def test_the_best_two_are_in_order() -> None:
    victim = TorchVictim(Saying(best_two), outputs="topk", classes=CLASSES)
    assert torch.equal(victim(X).topk(2, 1).indices, best_two(linear().scores(X)))


@pytest.mark.parametrize(
    ("say", "options", "words"),
    [
        (numbers, {}, "outputs='labels'"),
        (numbers, {"outputs": "labels"}, "classes="),
        (numbers, {"outputs": "labels", "classes": 2}, r"0\.\.1"),
        (lambda logits: logits.amax(1), {"outputs": "labels", "classes": CLASSES}, "class numbers"),
        (lambda logits: numbers(logits)[:2], {"outputs": "labels", "classes": CLASSES}, "each of 7 inputs"),
        (numbers, {"outputs": "topk", "classes": CLASSES}, "likeliest first"),
    ],
)
def test_answers_that_are_no_classes_are_refused(
    say: Callable[[Tensor], Any], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(VictimError, match=words):
        TorchVictim(Saying(say), **options)(X)


@pytest.mark.parametrize(
    "options",
    [
        {"classes": 3},
        {"outputs": "labels", "classes": 1},
        {"outputs": "topk", "multilabel": True},
        {"output": 1.5},
        {"output": True},
        {"score": "text"},
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        TorchVictim(Saying(numbers), **options)


def test_several_labels_are_zeros_and_ones() -> None:
    victim = TorchVictim(Saying(lambda logits: (logits > -1).int()), outputs="labels", multilabel=True)
    assert torch.equal(victim(X) > 0, linear().scores(X) > -1)


def test_an_onnx_graph_tells_numbers(tmp_path: Path) -> None:
    graph = onnx_graph(linear(), 2)
    graph.graph.node.append(helper.make_node("ArgMax", ["scores"], ["label"], axis=1, keepdims=0))
    graph.graph.output.pop()
    graph.graph.output.append(helper.make_tensor_value_info("label", TensorProto.INT64, ["b"]))
    onnx.save(graph, tmp_path / "net.onnx")
    victim = rlab.load_victim(str(tmp_path / "net.onnx"), outputs="labels", classes=CLASSES)
    assert torch.equal(victim(X).argmax(1), WINNER)


def test_an_address_may_send_numbers() -> None:
    body = json.dumps({"outputs": WINNER.tolist()}).encode()
    assert decode(body, "application/json", len(X), labels=True).flatten().tolist() == WINNER.tolist()
    with pytest.raises(ValueError, match="labels"):
        decode(body, "application/json", len(X))


# --- answers of several parts -----------------------------------------------------------------------------------------


def heads(logits: Tensor) -> dict[str, Tensor]:
    return {"box": torch.zeros(len(logits), 4), "species": logits}


def test_of_an_answer_with_parts_the_error_says_which_there_are() -> None:
    with pytest.raises(VictimError, match=r"box, species.*-M output=box") as caught:
        TorchVictim(Saying(heads))(X)
    assert "-M score=" in str(caught.value)
    with pytest.raises(VictimError, match=r"-M output=0"):
        TorchVictim(Saying(lambda logits: (logits, logits)))(X)


@pytest.mark.parametrize(
    ("say", "output"),
    [
        (heads, "species"),
        (lambda logits: (torch.zeros(1), logits), 1),
        (lambda logits: [torch.zeros(1), logits], -1),
        (lambda logits: type("Answer", (), {"scores": logits})(), "scores"),
    ],
)
def test_a_part_is_named_or_counted(say: Callable[[Tensor], Any], output: str | int) -> None:
    victim = TorchVictim(Saying(say), output=output)
    torch.testing.assert_close(victim(X), linear().scores(X))
    victim.output = "nothing"
    with pytest.raises(VictimError, match="no part 'nothing'"):
        victim(X)


def test_a_model_of_several_inputs_is_a_function_of_one() -> None:
    def model(x: np.ndarray[Any, Any], age: np.ndarray[Any, Any], *, scale: float) -> Tensor:
        return scale * linear().scores(torch.from_numpy(x)) + torch.from_numpy(age)[:, None]

    victim = CallableVictim(lambda x: partial(model, scale=1.0)(x, np.full(len(x), 40.0, np.float32)), outputs="logits")
    torch.testing.assert_close(victim(X), linear().scores(X), rtol=1e-3, atol=1e-3)


# --- scores of one's own ----------------------------------------------------------------------------------------------


def surest(found: list[dict[str, Tensor]]) -> Tensor:
    """Above 0 while any box is surer than one half."""
    return torch.stack([one["scores"].amax() - 0.5 for one in found])


def boxes(logits: Tensor) -> list[dict[str, Tensor]]:
    return [{"boxes": torch.zeros(2, 4), "scores": row.softmax(0)[:2]} for row in logits]


def test_a_score_of_a_detector_is_a_class_that_is_there_or_not() -> None:
    victim = TorchVictim(Saying(boxes), score=surest, outputs="logits")
    scores = victim(X)
    expected = linear().scores(X).softmax(1)[:, :2].amax(1) - 0.5
    torch.testing.assert_close(scores[:, 1] - scores[:, 0], expected)
    assert torch.equal(scores.argmax(1), (expected > 0).long())


def test_a_score_is_named_as_code_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_detector.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return [{'scores': row.flatten()} for row in x]\n"
        "def net():\n    return Net()\n"
        "def least(found):\n    return 0.5 - torch.stack([one['scores'].mean() for one in found])\n"
    )
    monkeypatch.chdir(tmp_path)
    victim = rlab.load_victim("own_detector:net", score="own_detector:least", outputs="logits")
    batch = Batch(x=torch.full((2, 3, 8, 8), 0.45), y=torch.ones(2, dtype=torch.int64))
    result = rlab.attack(victim, batch, palette="illuminate@0.3", budget=40)
    assert result.succeeded.all()
    for missing in ("own_detector:nothing", "no_module:least"):
        with pytest.raises(InputError, match=missing):
            rlab.load_victim("own_detector:net", score=missing)
    with pytest.raises(VictimError, match="KeyError"):
        TorchVictim(Saying(boxes), score=lambda found: found[0]["nothing"])(X)


def test_an_onnx_score_gets_all_outputs(tmp_path: Path) -> None:
    onnx.save(onnx_graph(linear(), 2, outputs=2), tmp_path / "net.onnx")
    victim = OnnxVictim(tmp_path / "net.onnx", score=lambda parts: parts["scores"] + 0 * parts["again"])
    torch.testing.assert_close(victim(X), linear().scores(X), rtol=1e-4, atol=1e-4)


def test_the_example_detector_loses_its_discs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In Python and by its file; what is stored hides the disc from the detector itself."""
    for name in ("detector.py", "detector.yaml"):
        (tmp_path / name).write_text((EXAMPLES / name).read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    detector = importlib.import_module("detector")
    x, y = detector.scenes(4)
    np.savez("scenes.npz", x=x, y=y)
    assert (detector.surest(detector.model()(torch.from_numpy(x))) > 0).all()
    assert rlab_command("attack", "--config", "detector.yaml", "--out", "run").code == 0
    result = AttackResult.load(tmp_path / "run")
    assert result.succeeded.all()
    assert (detector.surest(detector.model()(result.perturbed)) < 0).all()
