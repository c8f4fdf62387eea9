"""Functions, scikit-learn classifiers and ONNX files as victims."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from rlab.errors import InputError, MissingExtra
from rlab.victims import CallableVictim, OnnxVictim, SklearnVictim
from tests.victims.makers import inputs, linear, onnx_graph

X = torch.rand(4, 2, 3)


def test_the_function_gets_float32_it_may_write_on() -> None:
    kinds = []

    def model(x: np.ndarray[Any, Any]) -> list[list[float]]:
        kinds.append((x.dtype, x.flags.c_contiguous))
        x *= 0
        answer: list[list[float]] = (x.reshape(len(x), -1)[:, :2] + [1, 2]).tolist()
        return answer

    before = X.clone()
    assert torch.allclose(CallableVictim(model)(X), torch.tensor([[1.0, 2.0]]).log_softmax(1).expand(4, 2))
    assert kinds == [(np.float32, True)]
    assert torch.equal(X, before)


def test_only_functions_are_taken() -> None:
    with pytest.raises(InputError, match="got int"):
        CallableVictim(3)  # type: ignore[arg-type]


DIGITS = load_digits()
IMAGES = torch.from_numpy(DIGITS.images).float()[:, None]


def test_a_fitted_pipeline_sees_the_image_as_a_row_of_values() -> None:
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200)).fit(
        DIGITS.data[:500], DIGITS.target[:500]
    )
    victim = SklearnVictim(model, bounds=(0, 16))
    scores = victim(IMAGES[500:800])
    assert np.array_equal(scores.argmax(1), model.predict(DIGITS.data[500:800]))
    assert np.allclose(scores.exp(), model.predict_proba(DIGITS.data[500:800]), atol=1e-4)
    assert victim.rows == {"search": 300}


@pytest.mark.parametrize(
    "model", [RandomForestClassifier(5, random_state=0), OneVsRestClassifier(LogisticRegression(max_iter=2000))]
)
def test_several_labels_at_once(model: Any) -> None:
    labels = np.stack([DIGITS.target % 2, DIGITS.target > 4], axis=1).astype(int)
    model.fit(DIGITS.data[:300], labels[:300])
    victim = SklearnVictim(model, bounds=(0, 16), multilabel=True)
    scores = victim(IMAGES[:300])
    assert scores.shape == (300, 2)
    assert ((scores > 0).numpy() == model.predict(DIGITS.data[:300])).mean() > 0.99


X_FIT, Y_FIT = DIGITS.data[:100], DIGITS.target[:100]
UNUSABLE: dict[str, tuple[Callable[[], Any], str]] = {
    "no probabilities": (lambda: LinearSVC().fit(X_FIT, Y_FIT), "CalibratedClassifierCV"),
    "not fitted": (LogisticRegression, "call fit first"),
    "two labels": (
        lambda: RandomForestClassifier(2).fit(X_FIT, np.stack([Y_FIT % 2, Y_FIT > 4], 1)),
        "multilabel=True",
    ),
}


@pytest.mark.filterwarnings("ignore:lbfgs failed to converge")
@pytest.mark.parametrize("name", UNUSABLE)
def test_unusable_classifiers_are_refused_with_advice(name: str) -> None:
    make, words = UNUSABLE[name]
    with pytest.raises(InputError, match=words):
        SklearnVictim(make())


def saved(graph: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    onnx.save(graph, path)
    return path


def test_a_file_is_read_and_normalised(tmp_path: Path) -> None:
    model, x = linear(), inputs(2)
    victim = OnnxVictim(saved(onnx_graph(model, 2), tmp_path), mean=(0.5, 0.4), std=(0.2, 0.3))
    normal = (x - torch.tensor([0.5, 0.4]).view(2, 1, 1)) / torch.tensor([0.2, 0.3]).view(2, 1, 1)
    assert torch.allclose(victim(x), model.scores(normal), atol=1e-4)


def test_of_several_outputs_one_is_named(tmp_path: Path) -> None:
    path = saved(onnx_graph(linear(), 2, outputs=2), tmp_path)
    assert torch.allclose(OnnxVictim(path, output="again")(inputs(2)), linear().scores(inputs(2)), atol=1e-5)


def test_double_precision_graphs_work(tmp_path: Path) -> None:
    graph = onnx_graph(linear(), 1)
    for value in (*graph.graph.input, *graph.graph.output):
        value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for index, weight in enumerate(list(graph.graph.initializer)):
        array = onnx.numpy_helper.to_array(weight).astype("float64")
        graph.graph.initializer[index].CopyFrom(onnx.numpy_helper.from_array(array, weight.name))
    assert torch.allclose(OnnxVictim(saved(graph, tmp_path))(inputs(1)), linear().scores(inputs(1)), atol=1e-5)


def of_bytes() -> onnx.ModelProto:
    graph = onnx_graph(linear(), 1)
    graph.graph.node.insert(0, onnx.helper.make_node("Cast", ["raw"], ["x"], to=TensorProto.FLOAT))
    graph.graph.input[0].name = "raw"
    graph.graph.input[0].type.tensor_type.elem_type = TensorProto.UINT8
    return graph


def of_two_inputs() -> onnx.ModelProto:
    graph = onnx_graph(linear(), 1)
    graph.graph.input.append(onnx.helper.make_tensor_value_info("mask", TensorProto.FLOAT, [1]))
    return graph


GRAPHS: dict[str, tuple[Callable[[], onnx.ModelProto | bytes | None], dict[str, Any], str]] = {
    "several outputs": (lambda: onnx_graph(linear(), 2, outputs=2), {}, "one of scores, again"),
    "another output": (lambda: onnx_graph(linear(), 2, outputs=2), {"output": "logits"}, "one of scores, again"),
    "bytes": (of_bytes, {}, r"tensor\(uint8\)"),
    "two inputs": (of_two_inputs, {}, "x, mask"),
    "missing": (lambda: None, {}, "no such file"),
    "damaged": (lambda: b"no model at all", {}, "ONNX"),
    "another provider": (lambda: onnx_graph(linear(), 1), {"providers": ["TensorrtExecutionProvider"]}, "Tensorrt"),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_unusable_graphs_are_refused(tmp_path: Path, name: str) -> None:
    make, options, words = GRAPHS[name]
    path, graph = tmp_path / "model.onnx", make()
    if isinstance(graph, onnx.ModelProto):
        onnx.save(graph, path)
    elif graph is not None:
        path.write_bytes(graph)
    with pytest.raises(InputError, match=words):
        OnnxVictim(path, **options)


def test_without_the_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtra, match=r"\[onnx\]"):
        OnnxVictim(saved(onnx_graph(linear(), 1), tmp_path))
