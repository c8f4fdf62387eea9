"""Files of ONNX Runtime, TFLite and OpenVINO as victims, built here around one linear model, and real ones."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from onnx import TensorProto

import rlab
from rlab.errors import InputError, MissingExtra, VictimError
from rlab.runs.fingerprint import model_fingerprint
from rlab.victims import OnnxVictim
from rlab.victims.reading import Layout
from rlab.victims.resolve import load_victim
from rlab.victims.runtimes import PROVIDERS
from tests.victims.makers import CHANNELS, CLASSES, RANKS, SIZES, Linear, inputs, linear, onnx_graph
from tests.victims.tflite_file import tflite_file

Array = NDArray[Any]


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


def of_integers(kind: int) -> onnx.ModelProto:
    graph = onnx_graph(linear(), 1)
    graph.graph.node.insert(0, onnx.helper.make_node("Cast", ["raw"], ["x"], to=TensorProto.FLOAT))
    graph.graph.input[0].name = "raw"
    graph.graph.input[0].type.tensor_type.elem_type = kind
    return graph


@pytest.mark.parametrize(("kind", "low"), [(TensorProto.UINT8, 0), (TensorProto.INT8, -128)])
def test_eight_bits_span_the_range_of_the_data(tmp_path: Path, kind: int, low: int) -> None:
    path, x = saved(of_integers(kind), tmp_path), inputs(1)
    stored = low + (255 * x).round()
    assert torch.allclose(OnnxVictim(path)(x), linear().scores(stored), atol=1e-3)
    assert torch.allclose(OnnxVictim(path, bounds=(-1, 3))(4 * x - 1), linear().scores(stored), atol=1e-3)
    plain = OnnxVictim(path, mean=0, std=0.01)(x)  # the user's own scale instead
    assert torch.allclose(plain, linear().scores((x * 100).round()), atol=1e-3)


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("free", [False, True])
def test_channels_last_is_found_from_the_shape(tmp_path: Path, rank: int, free: bool) -> None:
    model, x = linear(), inputs(rank)
    path = saved(last(model, rank, free), tmp_path)
    layouts: tuple[Layout, ...] = ("channels_first", "channels_last")
    for layout in layouts[free and SIZES[rank][-1] == CHANNELS :]:
        assert torch.allclose(OnnxVictim(path, layout=layout)(x), model.scores(x), atol=1e-5)


def last(model: Linear, rank: int, free: bool) -> onnx.ModelProto:
    """The same model for inputs (b, *size, c), whose sizes the graph may leave open."""
    graph = onnx_graph(Linear(channels_last(model, rank), model.bias), rank)
    sides = [f"side{at}" if free else side for at, side in enumerate(SIZES[rank])]
    graph.graph.input[0].CopyFrom(onnx.helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", *sides, CHANNELS]))
    return graph


def channels_last(model: Linear, rank: int) -> Array:
    moved = np.moveaxis(model.weight.reshape(CHANNELS, *SIZES[rank], CLASSES), 0, -2)
    return np.ascontiguousarray(moved.reshape(-1, CLASSES))


def test_a_fixed_number_of_rows_is_filled_up(tmp_path: Path) -> None:
    victim = OnnxVictim(saved(onnx_graph(linear(), 2, 4), tmp_path))
    assert torch.allclose(victim(inputs(2, 7)), linear().scores(inputs(2, 7)), atol=1e-5)
    assert victim.rows == {"search": 7}


def test_a_size_that_no_order_of_axes_fits_is_said_before_the_runtime_fails(tmp_path: Path) -> None:
    victim = OnnxVictim(saved(last(linear(), 2, free=False), tmp_path))
    with pytest.raises(VictimError, match=r"\(rows, 3, 2, 2\).*\(rows, 2, 9, 9\).*size="):
        victim(torch.zeros(1, 2, 9, 9))
    victim = OnnxVictim(saved(last(linear(), 1, free=False), tmp_path))
    with pytest.raises(VictimError, match="such as another rate or window, or pass layout="):
        victim(torch.zeros(1, 2, 9))


@pytest.mark.parametrize("device", ["tensorrt", "cuda:1", "coreml", "tpu"])
def test_a_device_that_is_not_here_is_refused(tmp_path: Path, device: str) -> None:
    import onnxruntime

    if any(name in onnxruntime.get_available_providers() for name in PROVIDERS.get(device.partition(":")[0], ())):
        pytest.skip(f"{device} is here")
    with pytest.raises(InputError, match="choose one of"):
        load_victim(str(saved(onnx_graph(linear(), 1), tmp_path)), device=device)


def of_two_inputs() -> onnx.ModelProto:
    graph = onnx_graph(linear(), 1)
    graph.graph.input.append(onnx.helper.make_tensor_value_info("mask", TensorProto.FLOAT, [1]))
    return graph


GRAPHS: dict[str, tuple[Callable[[], onnx.ModelProto | bytes | None], dict[str, Any], str]] = {
    "several outputs": (
        lambda: onnx_graph(linear(), 2, outputs=2),
        {},
        r"one of scores, again as output \(-M output=NAME\)",
    ),
    "another output": (lambda: onnx_graph(linear(), 2, outputs=2), {"output": "logits"}, "one of scores, again"),
    "other integers": (lambda: of_integers(TensorProto.INT64), {}, "int64"),
    "text": (lambda: of_integers(TensorProto.STRING), {}, "string"),
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


TFLITE = [
    pytest.param(rank, rows, layout, id=f"{rank}d, {rows} rows, {layout}")
    for rank, rows, layout in [(1, -1, "last"), (2, -1, "last"), (2, 1, "last"), (3, 4, "last"), (2, -1, "first")]
]


@pytest.mark.parametrize(("rank", "rows", "layout"), TFLITE)
def test_tflite(tmp_path: Path, rank: int, rows: int, layout: str) -> None:
    pytest.importorskip("ai_edge_litert")
    model, path = linear(), tmp_path / "model.tflite"
    first = layout == "first"
    weight, shape = model.weight if first else channels_last(model, rank), (*SIZES[rank], CHANNELS)
    path.write_bytes(tflite_file(weight, model.bias, (CHANNELS, *SIZES[rank]) if first else shape, rows))
    victim = load_victim(str(path))
    for count in (7, 1, 30):
        assert torch.allclose(victim(inputs(rank, count)), model.scores(inputs(rank, count)), atol=1e-5)
    assert victim.rows == {"search": 38}


@pytest.mark.parametrize("unsigned", [True, False])
def test_tflite_of_eight_bits(tmp_path: Path, unsigned: bool) -> None:
    """Stored values mean -1..1; what is returned are probabilities in steps of 1/256."""
    pytest.importorskip("ai_edge_litert")
    model, path, x = linear(), tmp_path / "model.tflite", inputs(2)
    zero = 128 if unsigned else 0
    path.write_bytes(
        tflite_file(channels_last(model, 2), model.bias, (*SIZES[2], CHANNELS), -1, (1 / 128, zero), unsigned)
    )
    victim = load_victim(str(path))
    real = ((255 * x).round() - 128) / 128
    scores = victim(x)
    assert victim.outputs == "probabilities"
    assert torch.allclose(scores.exp(), model.scores(real).exp(), atol=0.5 / 256 + 1e-4)
    own = load_victim(str(path), mean=0.5, std=0.5)(x)  # 0..1 to -1..1, stored with the graph's own scale
    real = ((x - 0.5) / 0.5 * 128).round().clamp(max=127) / 128
    assert torch.allclose(own.exp(), model.scores(real).exp(), atol=0.5 / 256 + 1e-4)


def test_a_probability_that_was_rounded_to_zero_is_small_but_possible(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    model, path = linear(), tmp_path / "model.tflite"
    sure = 50 * channels_last(model, 2)
    path.write_bytes(tflite_file(sure, model.bias, (*SIZES[2], CHANNELS), -1, (1 / 255, 0)))
    probabilities = load_victim(str(path))(inputs(2)).exp()
    assert float(probabilities.min()) == pytest.approx(0.25 / 256)
    assert float(probabilities.max()) == pytest.approx(255 / 256)


def openvino_file(graph: onnx.ModelProto, folder: Path) -> Path:
    openvino = pytest.importorskip("openvino")
    onnx.save(graph, folder / "linear.onnx")
    openvino.save_model(openvino.convert_model(folder / "linear.onnx"), folder / "linear.xml", compress_to_fp16=False)
    return folder / "linear.xml"


@pytest.mark.parametrize(("rank", "channels"), [(1, "first"), (2, "last")])
def test_openvino_with_weights_that_belong_to_the_fingerprint(tmp_path: Path, rank: int, channels: str) -> None:
    model = linear()
    graph = onnx_graph(model, rank) if channels == "first" else last(model, rank, free=False)
    name = str(openvino_file(graph, tmp_path))
    victim = load_victim(name)
    for count in (7, 1, 30):
        assert torch.allclose(victim(inputs(rank, count)), model.scores(inputs(rank, count)), atol=1e-4)
    assert victim.rows == {"search": 38}
    before = model_fingerprint(victim)
    (tmp_path / "linear.bin").write_bytes((tmp_path / "linear.bin").read_bytes() + b"0")
    assert model_fingerprint(victim) != before


@pytest.mark.parametrize(
    ("file", "package", "extra"),
    [("m.tflite", "ai_edge_litert", "tflite"), ("m.xml", "openvino", "openvino"), ("m.onnx", "onnxruntime", "onnx")],
)
def test_a_missing_runtime_names_its_extra_and_other_files_are_refused(
    file: str, package: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(package)
    path = tmp_path / file
    with pytest.raises(InputError, match="no such file"):
        load_victim(str(path))
    path.write_bytes(b"<net>no model at all</net>")
    with pytest.raises(InputError, match="cannot read") as caught:
        load_victim(str(path))
    assert "\n" not in str(caught.value)
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"\[{extra}\]"):
        load_victim(str(path))


@pytest.mark.real
def test_a_real_network_of_floats(real: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    data = np.load(real / "mnist/test_0_4999.npz")
    x = torch.from_numpy(data["x"][:200]).float().reshape(-1, 1, 28, 28) / 255
    victim = load_victim(str(real / "mnist/ptq_mnist_lenet-300-100.tflite"))
    assert (victim(x).argmax(1).numpy() == data["y"][:200]).mean() > 0.95


@pytest.mark.real
def test_a_real_network_of_sounds(real: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    data = np.load(real / "audio/kws_mfcc_even.npz")
    x = torch.from_numpy(0.5847 * (data["x"][:200].astype(np.float32) - 83)).reshape(-1, 1, 49, 10)
    victim = load_victim(str(real / "audio/kws_ref_model_float32.tflite"), bounds=(-1000, 1000))
    assert (victim(x).argmax(1).numpy() == data["y"][:200]).mean() > 0.85


@pytest.mark.real
def test_a_real_network_of_bytes(real: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MobileNet with a class for the background in front, which a score leaves out."""
    pytest.importorskip("ai_edge_litert")
    batch = rlab.load(
        str(real / "imagenet/nips17"), labels=str(real / "imagenet/nips17/labels.csv"), size=192, limit=40
    )
    path = real / "classifiers/mobilenet_v1_0.75_192_quant.tflite"
    victim = rlab.TfliteVictim(path, score=lambda scores: scores[:, 1:], outputs="probabilities")
    assert (victim(batch.x).argmax(1) == batch.y).float().mean() > 0.65
    assert victim.classes == 1000
