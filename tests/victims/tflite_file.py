"""Write TFLite files of a linear model by hand, so that no converter is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def tflite_file(
    weight: Array,
    bias: Array,
    shape: Sequence[int],
    rows: int,
    stored: tuple[float, int] | None = None,
    unsigned: bool = True,
) -> bytes:
    """x: (rows, *shape) -> logits; -1 rows: any number. `stored`: scale and zero of 8-bit inputs; then probabilities come out."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    def tensor(
        name: str, sides: Sequence[int], kind: int, buffer: int = 0, quantised: tuple[float, int] | None = None
    ) -> Any:
        made = schema.TensorT()
        made.name, made.type, made.buffer = name.encode(), kind, buffer
        made.shape, made.shapeSignature = [abs(side) for side in sides], list(sides)
        if quantised is not None:
            made.quantization = schema.QuantizationParametersT()
            made.quantization.scale, made.quantization.zeroPoint = [quantised[0]], [quantised[1]]
        return made

    def operator(code: int, inputs: list[int], output: int, name: str) -> Any:
        made = schema.OperatorT()
        made.opcodeIndex, made.inputs, made.outputs = code, inputs, [output]
        made.builtinOptionsType = getattr(schema.BuiltinOptions, f"{name}Options")
        made.builtinOptions = getattr(schema, f"{name}OptionsT")()
        return made

    def kind_of(code: int) -> Any:
        made = schema.OperatorCodeT()
        made.builtinCode, made.deprecatedBuiltinCode, made.version = code, code, 1
        return made

    floats, bits = schema.TensorType.FLOAT32, schema.TensorType.UINT8 if unsigned else schema.TensorType.INT8
    answer, linear = (rows, len(bias)), operator(0, [2, 0, 1], 3, "FullyConnected")
    graph, model = schema.SubGraphT(), schema.ModelT()
    graph.tensors = [tensor("w", weight.T.shape, floats, 1), tensor("b", bias.shape, floats, 2)]
    graph.tensors += [tensor("x", (rows, *shape), floats), tensor("logits", answer, floats)]
    graph.inputs, graph.outputs, graph.operators = [2], [3], [linear]
    if stored is not None:
        softmax = operator(2, [3], 5, "Softmax")
        softmax.builtinOptions.beta = 1.0
        graph.tensors += [tensor("stored", (rows, *shape), bits, 0, stored), tensor("p", answer, floats)]
        graph.tensors += [tensor("scores", answer, bits, 0, (1 / 256, 0 if unsigned else -128))]
        graph.operators = [operator(1, [4], 2, "Dequantize"), linear, softmax, operator(3, [5], 6, "Quantize")]
        graph.inputs, graph.outputs = [4], [6]
    codes = schema.BuiltinOperator
    model.operatorCodes = [
        kind_of(code) for code in (codes.FULLY_CONNECTED, codes.DEQUANTIZE, codes.SOFTMAX, codes.QUANTIZE)
    ]
    model.version, model.subgraphs, model.buffers = 3, [graph], [schema.BufferT() for _ in range(3)]
    for buffer, array in zip(model.buffers[1:], (weight.T, bias), strict=True):
        buffer.data = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())
