"""Models that return only classes, several outputs or objects, and custom scores."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor, nn

import rlab
from rlab.data.batch import Batch
from rlab.errors import InputError, VictimError
from rlab.victims import CallableVictim, OnnxVictim, TorchVictim, Victim
from rlab.victims.template import load_template
from rlab.victims.wire import decode
from tests.victims.makers import inputs, linear, onnx_graph

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
X = inputs(2)
CLASSES = 3
SCORES = linear().scores(X)
WINNER = SCORES.argmax(1)
Say = Callable[[Tensor], Any]
LABELS = {"outputs": "labels", "classes": CLASSES}
TOPK = {"outputs": "topk", "classes": CLASSES}


class Saying(nn.Module):
    """Returns what a function makes of the linear model's logits."""

    def __init__(self, say: Say) -> None:
        super().__init__()
        self.say, self.weight = say, nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Any:
        return self.say(linear().scores(x * self.weight))


def both(say: Say, **options: Any) -> tuple[Victim, Victim]:
    """A torch module and a function that return the same."""
    function = CallableVictim(lambda x: say(linear().scores(torch.from_numpy(x))), **options)
    return TorchVictim(Saying(say), **options), function


def numbers(logits: Tensor) -> Tensor:
    return logits.argmax(1)


def best_two(logits: Tensor) -> Tensor:
    return logits.topk(2, 1).indices


def heads(logits: Tensor) -> dict[str, Tensor]:
    return {"box": torch.zeros(len(logits), 4), "species": logits}


@pytest.mark.parametrize(
    ("say", "options"),
    [
        (numbers, LABELS),
        (lambda logits: numbers(logits)[:, None], LABELS),
        (lambda logits: nn.functional.one_hot(numbers(logits), CLASSES), {"outputs": "labels"}),
        (lambda logits: logits, {"outputs": "labels"}),
        (lambda logits: numbers(logits).tolist(), LABELS),
        (best_two, TOPK),
        (lambda logits: logits.topk(1, 1).indices, TOPK),
    ],
)
def test_classes_are_ranked_and_nothing_else_is_known(say: Say, options: dict[str, Any]) -> None:
    for victim in both(say, **options):
        scores = victim(X)
        assert scores.shape == (len(X), CLASSES)
        assert torch.equal(scores.argmax(1), WINNER)
        assert victim.reading.tells_labels
        margins = (scores.gather(1, WINNER[:, None]) - scores).topk(2, 1, largest=False).values[:, 1]
        assert torch.equal(margins, margins[:1].expand_as(margins))
        assert victim.rows == {"search": len(X)}
        if say is best_two:
            assert torch.equal(scores.topk(2, 1).indices, best_two(SCORES))


@pytest.mark.parametrize(
    ("say", "output"),
    [
        (lambda logits: logits.half(), None),
        (lambda logits: logits.double(), None),
        (lambda logits: logits.T.contiguous().T, None),
        (lambda logits: {"logits": logits, "loss": None}, None),
        (lambda logits: SimpleNamespace(logits=logits, loss=None), None),
        (heads, "species"),
        (lambda logits: (torch.zeros(1), logits), 1),
        (lambda logits: [torch.zeros(1), logits], -1),
        (lambda logits: type("Answer", (), {"scores": logits})(), "scores"),
    ],
)
def test_scores_of_other_types_and_in_objects_are_read(say: Say, output: str | int | None) -> None:
    for victim in both(say, output=output):
        torch.testing.assert_close(victim(X), SCORES, rtol=1e-2, atol=1e-2)
        with pytest.raises(VictimError, match="'nothing'"):
            victim.read_as(output="nothing")(X)


def endless(logits: Tensor) -> Any:
    return endless(logits)


FAULTS: list[tuple[Say, dict[str, Any], str]] = [
    (numbers, {}, "outputs='labels'"),
    (numbers, {"outputs": "labels"}, "classes="),
    (numbers, {"outputs": "labels", "classes": 2}, "0..1"),
    (lambda logits: logits.amax(1), LABELS, "class numbers"),
    (lambda logits: numbers(logits)[:2], LABELS, "each of 7 inputs"),
    (numbers, TOPK, "most likely first"),
    (heads, {}, "box, species: select the scores with e.g. -M output=box"),
    (lambda logits: (logits, logits), {}, "-M output=0"),
    (lambda logits: None, {}, "got NoneType"),
    (lambda logits: {}, {}, "got dict"),
    (lambda logits: "abc", {}, "real numbers"),
    (lambda logits: b"ab", {}, "real numbers"),
    (lambda logits: [["1", "2"]] * 7, {}, "real numbers"),
    (lambda logits: [[1j, 2]] * 7, {}, "real numbers"),
    (lambda logits: [[None, 1]] * 7, {}, "real numbers"),
    (lambda logits: [[1, 2], [3]], {}, "real numbers"),
    (lambda logits: logits.to(torch.complex64), {}, "real scores"),
    (lambda logits: logits.to("meta"), {}, "real scores"),
    (lambda logits: logits.to_sparse(), {}, "real scores"),
    (lambda logits: logits[:2], {}, "got shape (2, 3)"),
    (lambda logits: torch.cat([logits, logits]), {}, "got shape (14, 3)"),
    (lambda logits: logits[:, :1], {}, "at least 2 scores"),
    (lambda logits: torch.tensor(1.0), {}, "got shape ()"),
    (lambda logits: logits[:, :1], {}, "outputs='numbers'; for two classes, a score="),
    (endless, {}, "RecursionError"),
]


@pytest.mark.parametrize(("say", "options", "words"), FAULTS)
def test_outputs_that_are_no_scores_are_one_line_errors(say: Say, options: dict[str, Any], words: str) -> None:
    for victim in both(say, **options):
        with pytest.raises(VictimError) as caught:
            victim(X)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)
        assert victim.rows["search"] == len(X)
        if isinstance(victim, TorchVictim):
            with pytest.raises(VictimError):
                victim.scores_with_grad(X, "train")


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
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        TorchVictim(Saying(numbers), **options)


def test_labels_of_a_multilabel_model_are_zeros_and_ones() -> None:
    victim = TorchVictim(Saying(lambda logits: (logits > -1).int()), outputs="labels", multilabel=True)
    assert torch.equal(victim(X) > 0, SCORES > -1)


def test_an_onnx_graph_may_return_class_numbers(tmp_path: Path) -> None:
    graph = onnx_graph(linear(), 2)
    graph.graph.node.append(helper.make_node("ArgMax", ["scores"], ["label"], axis=1, keepdims=0))
    graph.graph.output.pop()
    graph.graph.output.append(helper.make_tensor_value_info("label", TensorProto.INT64, ["b"]))
    onnx.save(graph, tmp_path / "net.onnx")
    victim = rlab.load_victim(str(tmp_path / "net.onnx"), outputs="labels", classes=CLASSES)
    assert torch.equal(victim(X).argmax(1), WINNER)


def test_a_server_may_return_class_numbers() -> None:
    body = json.dumps({"outputs": WINNER.tolist()}).encode()
    template = load_template("rlab")
    assert decode(body, template, len(X), labels=True).flatten().tolist() == WINNER.tolist()
    with pytest.raises(ValueError, match="labels"):
        decode(body, template, len(X), labels=False)


def surest(found: list[dict[str, Tensor]]) -> Tensor:
    """Above 0 while any box has a score above one half."""
    return torch.stack([one["scores"].amax() - 0.5 for one in found])


def boxes(logits: Tensor) -> list[dict[str, Tensor]]:
    return [{"boxes": torch.zeros(2, 4), "scores": row.softmax(0)[:2]} for row in logits]


def test_the_score_of_a_detector_becomes_two_classes() -> None:
    for victim in both(boxes, score=surest, outputs="logits"):
        scores = victim(X)
        expected = SCORES.softmax(1)[:, :2].amax(1) - 0.5
        torch.testing.assert_close(scores[:, 1] - scores[:, 0], expected)
        assert torch.equal(scores.argmax(1), (expected > 0).long())
    with pytest.raises(VictimError, match="KeyError"):
        TorchVictim(Saying(boxes), score=lambda found: found[0]["nothing"])(X)


def test_a_score_is_named_like_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_an_onnx_score_receives_all_outputs(tmp_path: Path) -> None:
    onnx.save(onnx_graph(linear(), 2, outputs=2), tmp_path / "net.onnx")
    victim = OnnxVictim(tmp_path / "net.onnx", score=lambda parts: parts["scores"] + 0 * parts["again"])
    torch.testing.assert_close(victim(X), SCORES, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_the_example_hides_a_cat_from_a_real_detector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Path(os.environ.get("RLAB_REAL", "")) / "detectors/yolox_nano.onnx"
    if not file.is_file():
        pytest.skip("yolox_nano.onnx is not on this machine")
    pytest.importorskip("skimage")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    detector = importlib.import_module("detector")
    detector.main(str(file))
    assert "class 15" in (tmp_path / "detector.html").read_text()


def test_the_example_skips_without_its_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    importlib.import_module("detector").main("no_such_file.onnx")
    assert capsys.readouterr().out.startswith("skipped: there is no file")


@pytest.mark.parametrize("goal", ["targeted:1", "targeted:least-likely", "targeted:second-best"])
@pytest.mark.parametrize("masked", [-torch.inf, torch.finfo(torch.float32).min])
def test_masked_logits_can_be_attacked(goal: str, masked: float) -> None:
    def function(x: object) -> Tensor:
        scores = linear().scores(torch.as_tensor(x))
        return scores.index_fill(1, torch.tensor([1]), masked)

    x = X[:4]
    result = rlab.attack(function, (x, function(x).argmax(1)), goal=goal, budget=12, progress=False)
    assert int(result.queries.max()) <= 12
    assert result.after.isfinite().all()
