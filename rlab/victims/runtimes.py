"""Files of ONNX Runtime, TFLite and OpenVINO, and Keras models in memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, final

import numpy as np
import torch

from rlab.errors import MissingExtra, ModelError, optional
from rlab.storage.config import takes
from rlab.victims.graphs import Array, GraphVictim, Port
from rlab.victims.reading import Reading

if TYPE_CHECKING:
    from rlab.keywords import VictimKeywords

Provider = str | tuple[str, dict[str, Any]]
# Device -> what ONNX Runtime calls it. TensorRT leaves what it cannot run to CUDA, and CUDA to the CPU.
PROVIDERS = {
    "cpu": ("CPUExecutionProvider",),
    "cuda": ("CUDAExecutionProvider",),
    "tensorrt": ("TensorrtExecutionProvider", "CUDAExecutionProvider"),
}
_ONNX_TYPES = {"float": "float32", "double": "float64"}  # the others have numpy's names


@contextmanager
def _opening(path: str | Path, kind: str) -> Iterator[str]:
    """The path of an existing file; whatever a runtime raises while it reads the file becomes one line."""
    if not Path(path).exists():
        raise ModelError(f"no such file: {path}")
    try:
        yield str(path)
    except Exception as error:  # the runtimes' own errors share no base class
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        raise ModelError(f"cannot read {path} as an {kind}: {lines[-1]}") from error


def onnx_providers(device: str) -> tuple[Provider, ...]:
    """'cuda:1' -> the providers of ONNX Runtime for this device, best first."""
    kind, _, number = device.partition(":")
    if kind not in PROVIDERS or not (number or "0").isdigit():
        raise ModelError(f"ONNX Runtime has no device {device!r} here: choose one of {', '.join(PROVIDERS)}, or cuda:1")
    return tuple((name, {"device_id": int(number)}) if number else name for name in PROVIDERS[kind])


@final
class OnnxVictim(GraphVictim):
    """`model` is a path or an onnxruntime.InferenceSession; `providers` run it, in this order."""

    kind = "ONNX model"

    @takes(Reading)
    def __init__(
        self,
        model: str | Path | Any,
        *,
        providers: Sequence[Provider] = ("CPUExecutionProvider",),
        **reading: Unpack[VictimKeywords],
    ) -> None:
        names = [each if isinstance(each, str) else each[0] for each in providers]
        self.session = _session(model, providers, names) if isinstance(model, str | Path) else model
        self.compiles = "TensorrtExecutionProvider" in names
        answers = [Port(str(each.name)) for each in self.session.get_outputs()]
        super().__init__([_onnx_port(each) for each in self.session.get_inputs()], answers, **reading)

    def _infer(self, array: Array) -> Sequence[Array]:
        answers: list[Array] = self.session.run([port.name for port in self.ports], {self.source.name: array})
        return answers

    def contents(self) -> Iterator[object]:
        path, content = (getattr(self.session, name, None) for name in ("_model_path", "_model_bytes"))
        if path:  # with the files of large weights, which lie beside it under its name
            yield from sorted(Path(path).parent.glob(f"{Path(path).name}*"))
        else:
            yield content or self.session


def _session(path: str | Path, providers: Sequence[Provider], names: Sequence[str]) -> Any:
    onnxruntime = optional("onnxruntime", MissingExtra("onnxruntime", "onnx"))
    available = onnxruntime.get_available_providers()
    if missing := [name for name in names if name not in available]:
        raise ModelError(f"ONNX Runtime has no {missing[0]} here: choose one of {', '.join(available)}")
    with _opening(path, OnnxVictim.kind) as file:
        session = onnxruntime.InferenceSession(file, providers=list(providers))
    if names[0] not in session.get_providers():  # ONNX Runtime would continue on the CPU
        raise ModelError(f"{names[0]} does not start here: check its driver, or choose the device cpu")
    return session


def _onnx_port(port: Any) -> Port:
    """From .name, .type such as tensor(float), and .shape, in which free axes have names."""
    name = port.type.removeprefix("tensor(").removesuffix(")")
    try:
        dtype = np.dtype(_ONNX_TYPES.get(name, name))
    except TypeError as error:
        raise ModelError(f"expected an ONNX model with floating-point or 8-bit input, got {port.type}") from error
    return Port(port.name, tuple(side if isinstance(side, int) else None for side in port.shape or ()), dtype)


@final
class TfliteVictim(GraphVictim):
    """`path` is a .tflite file, run by LiteRT on the CPU."""

    kind, compiles = "TFLite model", True

    @takes(Reading)
    def __init__(self, path: str | Path, **reading: Unpack[VictimKeywords]) -> None:
        litert = optional("ai_edge_litert.interpreter", MissingExtra("ai_edge_litert", "tflite"))
        with _opening(path, self.kind) as file:
            self.interpreter = litert.Interpreter(file, num_threads=torch.get_num_threads())
        inputs, outputs = self.interpreter.get_input_details(), self.interpreter.get_output_details()
        self.path, self.at = Path(path), inputs[0]["index"]
        self.outputs_at = {each["name"]: each["index"] for each in outputs}
        self.allocated: tuple[int, ...] = ()
        super().__init__([_tflite_port(each) for each in inputs], [_tflite_port(each) for each in outputs], **reading)

    def _infer(self, array: Array) -> Sequence[Array]:
        if array.shape != self.allocated:
            if tuple(self.interpreter.get_input_details()[0]["shape"]) != array.shape:
                self.interpreter.resize_tensor_input(self.at, array.shape)
            self.interpreter.allocate_tensors()
            self.allocated = array.shape
        self.interpreter.set_tensor(self.at, array)
        self.interpreter.invoke()
        return [self.interpreter.get_tensor(self.outputs_at[port.name]) for port in self.ports]

    def contents(self) -> Iterator[object]:
        yield self.path


def _tflite_port(details: dict[str, Any]) -> Port:
    scale, zero = details["quantization"]
    shape = tuple(None if side < 0 else int(side) for side in details["shape_signature"])
    return Port(details["name"], shape, np.dtype(details["dtype"]), float(scale) or 1.0, int(zero))


@final
class OpenVinoVictim(GraphVictim):
    """`path` is the .xml file of an OpenVINO model, beside its .bin; `device` is one of OpenVINO's, such as CPU or GPU."""

    kind, compiles = "OpenVINO model", True

    @takes(Reading)
    def __init__(self, path: str | Path, *, device: str = "CPU", **reading: Unpack[VictimKeywords]) -> None:
        core, self.path = optional("openvino", MissingExtra("openvino", "openvino")).Core(), Path(path)
        exact = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        threads = {"INFERENCE_NUM_THREADS": torch.get_num_threads()} if device.upper() == "CPU" else {}
        with _opening(path, self.kind) as file:
            self.model = core.compile_model(file, device.upper(), exact | threads)
        outputs = [Port(_openvino_name(each, number)) for number, each in enumerate(self.model.outputs)]
        self.order = {port.name: number for number, port in enumerate(outputs)}
        super().__init__([_openvino_port(*each) for each in enumerate(self.model.inputs)], outputs, **reading)

    def _infer(self, array: Array) -> Sequence[Array]:
        answers = self.model(array)
        return [np.array(answers[self.order[port.name]]) for port in self.ports]

    def contents(self) -> Iterator[object]:
        yield from (file for file in (self.path, self.path.with_suffix(".bin")) if file.is_file())


def _openvino_name(port: Any, number: int) -> str:
    return min(port.get_names(), default=str(number))


def _openvino_port(number: int, port: Any) -> Port:
    shape = tuple(side.get_length() if side.is_static else None for side in port.get_partial_shape())
    return Port(_openvino_name(port, number), shape, port.get_element_type().to_dtype())


@final
class KerasVictim(GraphVictim):
    """`model` is a Keras 3 model on any backend."""

    kind = "Keras model"

    @takes(Reading)
    def __init__(self, model: Any, **reading: Unpack[VictimKeywords]) -> None:
        keras = sys.modules["keras"]
        self.model, self.compiles = model, keras.backend.backend() != "torch"
        shape = getattr(model, "input_shape", None) or ()
        if not all(side is None or isinstance(side, int) for side in shape):
            raise ModelError("expected a Keras model with one input, got several: wrap it in a function")
        if not shape and "layout" not in reading:
            reading["layout"] = keras.config.image_data_format()
        self.names = getattr(model, "output_names", None) or ["output"]
        super().__init__([Port("input", tuple(shape))], [Port(name) for name in self.names], **reading)

    def _infer(self, array: Array) -> Sequence[Array]:
        answer = self.model.predict_on_batch(array)
        parts = list(answer.values()) if isinstance(answer, dict) else answer if isinstance(answer, list) else [answer]
        return [parts[self.names.index(port.name)] for port in self.ports]

    def contents(self) -> Iterator[object]:
        yield self.model.to_json() if self.source.shape else type(self.model)
        yield self.model.get_weights()
        yield from (np.asarray(array).tobytes() for array in self.model.get_weights())


def is_keras(model: object) -> bool:
    """Whether this is a Keras model; Keras itself is not imported. With the torch backend it is a torch module too."""
    keras = sys.modules.get("keras")
    return keras is not None and isinstance(model, keras.Model)
