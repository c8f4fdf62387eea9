"""Functions, scikit-learn classifiers and ONNX files as victims."""

from __future__ import annotations

import sys
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

from rlab.errors import InputError, MissingExtra, VictimError
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


def test_a_tensor_will_do_as_the_answer() -> None:
    assert CallableVictim(lambda x: torch.ones(len(x), 3, requires_grad=True))(X).shape == (4, 3)


@pytest.mark.parametrize("answer", [{"a": 1}, ["cat", "dog"], [[1, 2], [3]]])
def test_answers_that_are_no_numbers_are_refused(answer: Any) -> None:
    with pytest.raises(VictimError, match="expected the model to return an array of numbers"):
        CallableVictim(lambda x: answer)(X)


def test_only_functions_are_taken() -> None:
    with pytest.raises(InputError, match="expected a function of a numpy array, got int"):
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


def test_what_cannot_serve_is_refused_with_the_way_out() -> None:
    x, y = DIGITS.data[:100], DIGITS.target[:100]
    with pytest.raises(InputError, match="CalibratedClassifierCV"):
        SklearnVictim(LinearSVC().fit(x, y))
    with pytest.raises(InputError, match="call fit first"):
        SklearnVictim(LogisticRegression())
    with pytest.raises(InputError, match=r"expected classes 0..9, got \["):
        SklearnVictim(LogisticRegression(max_iter=1000).fit(x, y + 1))
    with pytest.raises(InputError, match="fit on labels counted from 0"):
        SklearnVictim(LogisticRegression(max_iter=1000).fit(x, np.where(y > 4, "big", "small")))
    with pytest.raises(InputError, match="pass multilabel=True"):
        SklearnVictim(RandomForestClassifier(2).fit(x, np.stack([y % 2, y > 4], axis=1)))


def saved(graph: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    onnx.save(graph, path)
    return path


def test_a_file_is_read_and_normalised(tmp_path: Path) -> None:
    model, x = linear(), inputs(2)
    victim = OnnxVictim(saved(onnx_graph(model, 2), tmp_path), mean=(0.5, 0.4), std=(0.2, 0.3))
    normal = (x - torch.tensor([0.5, 0.4]).view(2, 1, 1)) / torch.tensor([0.2, 0.3]).view(2, 1, 1)
    assert torch.allclose(victim(x), model.scores(normal), atol=1e-4)


def test_a_graph_for_batches_of_four_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="exactly 4 inputs at a time: export it with a dynamic batch axis"):
        OnnxVictim(saved(onnx_graph(linear(), 2, 4), tmp_path))


def test_of_several_outputs_one_is_named(tmp_path: Path) -> None:
    path = saved(onnx_graph(linear(), 2, outputs=2), tmp_path)
    with pytest.raises(InputError, match=r"several outputs: .* one of scores, again"):
        OnnxVictim(path)
    with pytest.raises(InputError, match="no output 'logits': choose from scores, again"):
        OnnxVictim(path, output="logits")
    assert torch.allclose(OnnxVictim(path, output="again")(inputs(2)), linear().scores(inputs(2)), atol=1e-5)


def test_double_precision_graphs_work(tmp_path: Path) -> None:
    graph = onnx_graph(linear(), 1)
    for value in (*graph.graph.input, *graph.graph.output):
        value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for index, weight in enumerate(list(graph.graph.initializer)):
        array = onnx.numpy_helper.to_array(weight).astype("float64")
        graph.graph.initializer[index].CopyFrom(onnx.numpy_helper.from_array(array, weight.name))
    assert torch.allclose(OnnxVictim(saved(graph, tmp_path))(inputs(1)), linear().scores(inputs(1)), atol=1e-5)


def test_whole_number_inputs_are_refused(tmp_path: Path) -> None:
    graph = onnx_graph(linear(), 1)
    cast = onnx.helper.make_node("Cast", ["raw"], ["x"], to=TensorProto.FLOAT)
    graph.graph.node.insert(0, cast)
    graph.graph.input[0].name = "raw"
    graph.graph.input[0].type.tensor_type.elem_type = TensorProto.UINT8
    with pytest.raises(InputError, match=r"floating-point numbers, got tensor\(uint8\)"):
        OnnxVictim(saved(graph, tmp_path))


def test_two_inputs_are_refused(tmp_path: Path) -> None:
    graph = onnx_graph(linear(), 1)
    graph.graph.input.append(onnx.helper.make_tensor_value_info("mask", TensorProto.FLOAT, [1]))
    with pytest.raises(InputError, match="one input, got 2: x, mask"):
        OnnxVictim(saved(graph, tmp_path))


def test_files_that_are_not_there_or_not_onnx_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        OnnxVictim(tmp_path / "none.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"no model at all")
    with pytest.raises(InputError, match=r"cannot read .*bad.onnx as an ONNX model"):
        OnnxVictim(tmp_path / "bad.onnx")


def test_a_provider_that_is_not_there_is_not_replaced_in_silence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no TensorrtExecutionProvider here: choose from"):
        OnnxVictim(saved(onnx_graph(linear(), 1), tmp_path), providers=["TensorrtExecutionProvider"])


def test_without_the_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtra, match=r"rlab-robustness\[onnx\]"):
        OnnxVictim(saved(onnx_graph(linear(), 1), tmp_path))
