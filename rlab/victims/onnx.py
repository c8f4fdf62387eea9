"""An ONNX file as the victim, through ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from rlab.errors import InputError, MissingExtra
from rlab.victims.base import Outputs, Victim
from rlab.victims.callables import as_array, as_scores
from rlab.victims.normalise import Channels, Normalise
from rlab.victims.torch_module import Layout, arrange, known_layout

_TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}


@final
class OnnxVictim(Victim):
    """`model` is a path or an onnxruntime.InferenceSession; a graph made for batches of one is fed one by one."""

    def __init__(
        self,
        model: str | Path | Any,
        *,
        output: str | None = None,
        providers: Sequence[str] = ("CPUExecutionProvider",),
        mean: Channels | None = None,
        std: Channels | None = None,
        layout: Layout = "channels_first",
        bounds: tuple[float, float] = (0.0, 1.0),
        outputs: Outputs = "auto",
        multilabel: bool = False,
        chunk: int = 256,
    ) -> None:
        super().__init__(bounds=bounds, outputs=outputs, multilabel=multilabel, chunk=chunk)
        self.session = _session(Path(model), providers) if isinstance(model, str | Path) else model
        self.input = _input(self.session)
        self.output = _output(self.session, output)
        self.normalise = Normalise.of(mean, std)
        self.layout = known_layout(layout)

    def _predict(self, x: Tensor) -> Tensor:
        array = as_array(arrange(x, self.normalise, self.layout)).astype(_TYPES[self.input.type], copy=False)
        if self.input.shape[0] != 1:
            return self._feed(array)
        return torch.cat([self._feed(array[row : row + 1]) for row in range(len(array))])

    def _feed(self, array: np.ndarray[Any, Any]) -> Tensor:
        return as_scores(self.session.run([self.output], {self.input.name: array})[0])


def _session(path: Path, providers: Sequence[str]) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtra("onnxruntime", "onnx") from error
    if not path.is_file():
        raise InputError(f"no such file: {path}")
    known = onnxruntime.get_available_providers()
    if missing := [name for name in providers if name not in known]:
        raise InputError(f"ONNX Runtime has no {missing[0]} here: choose from {', '.join(known)}")
    try:
        return onnxruntime.InferenceSession(str(path), providers=list(providers))
    except Exception as error:  # ONNX Runtime's own errors share no base class
        raise InputError(f"cannot read {path} as an ONNX model: {str(error).splitlines()[0]}") from error


def _input(session: Any) -> Any:
    """The graph's one input: .name, .type, .shape with numbers where fixed and names where free."""
    inputs = session.get_inputs()
    if len(inputs) != 1:
        names = ", ".join(one.name for one in inputs)
        raise InputError(f"expected an ONNX model with one input, got {len(inputs)}: {names}")
    if inputs[0].type not in _TYPES:
        raise InputError(
            f"expected an ONNX model on floating-point numbers, got {inputs[0].type}: convert inside the graph"
        )
    batch = inputs[0].shape[0] if inputs[0].shape else None
    if isinstance(batch, int) and batch > 1:
        raise InputError(f"the ONNX model takes exactly {batch} inputs at a time: export it with a dynamic batch axis")
    return inputs[0]


def _output(session: Any, wanted: str | None) -> str:
    names = [one.name for one in session.get_outputs()]
    if wanted is not None and wanted not in names:
        raise InputError(f"the ONNX model has no output {wanted!r}: choose from {', '.join(names)}")
    if wanted is None and len(names) > 1:
        raise InputError(f"the ONNX model has several outputs: name the scores with output=, one of {', '.join(names)}")
    return wanted or str(names[0])
