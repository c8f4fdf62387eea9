from __future__ import annotations

import sys
from pathlib import Path

import onnx
import pytest
import torch
from onnx import TensorProto

from rlab.errors import InputError, MissingExtra
from rlab.victims import OnnxVictim
from tests.victims.makers import inputs, linear, onnx_graph


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
    with pytest.raises(MissingExtra, match=r"rlab\[onnx\]"):
        OnnxVictim(saved(onnx_graph(linear(), 1), tmp_path))
