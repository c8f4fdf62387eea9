"""Every kind of victim around the same linear model, which records the rows it receives."""

from __future__ import annotations

import importlib.util
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime
import torch
import uvicorn
from onnx import TensorProto, helper, numpy_helper
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from rlab.victims import CallableVictim, HttpVictim, OnnxVictim, SklearnVictim, TorchVictim, Victim

RANKS = (1, 2, 3)
SIZES = {1: (6,), 2: (3, 2), 3: (1, 3, 2)}
CHANNELS, CLASSES = 2, 3
FEATURES = CHANNELS * math.prod(SIZES[1])


@dataclass
class Linear:
    """x: (b, c, *size) -> logits (b, 3); `seen` holds the rows of each call."""

    weight: np.ndarray[Any, Any]
    bias: np.ndarray[Any, Any]
    seen: list[int] = field(default_factory=list)

    def logits(self, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        self.seen.append(len(x))
        answer: np.ndarray[Any, Any] = x.reshape(len(x), -1) @ self.weight + self.bias
        return answer

    def scores(self, x: Tensor) -> Tensor:
        """What every victim should return; not recorded in `seen`."""
        flat = x.flatten(1).double() @ torch.from_numpy(self.weight).double()
        return (flat + torch.from_numpy(self.bias).double()).log_softmax(1).float()


def linear(broken: bool = False) -> Linear:
    """`broken`: answers NaN to everything."""
    random = np.random.default_rng(0)
    weight = random.normal(size=(FEATURES, CLASSES)).astype(np.float32)
    bias = np.full(CLASSES, math.nan if broken else 0.1, dtype=np.float32)
    return Linear(weight, bias)


def inputs(rank: int, rows: int = 7) -> Tensor:
    return torch.rand(rows, CHANNELS, *SIZES[rank], generator=torch.Generator().manual_seed(rank))


class LinearModule(nn.Module):
    def __init__(self, model: Linear) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.from_numpy(model.weight))
        self.bias = nn.Parameter(torch.from_numpy(model.bias))
        self.seen = model.seen

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(len(x))
        return x.flatten(1) @ self.weight + self.bias


class CountingSession:
    """An onnxruntime session that records its rows."""

    def __init__(self, graph: onnx.ModelProto, seen: list[int]) -> None:
        self.session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
        self.seen = seen
        self.get_inputs, self.get_outputs = self.session.get_inputs, self.session.get_outputs

    def run(self, names: list[str], feed: dict[str, np.ndarray[Any, Any]]) -> Any:
        self.seen += [len(array) for array in feed.values()]
        return self.session.run(names, feed)


class CountingRegression(LogisticRegression):  # type: ignore[misc]
    seen: list[int]

    def predict_proba(self, X: np.ndarray[Any, Any]) -> Any:  # noqa: N803
        self.seen.append(len(X))
        return super().predict_proba(X)


def onnx_graph(model: Linear, rank: int, batch: str | int = "b", outputs: int = 1) -> onnx.ModelProto:
    """Flatten and Gemm, built by hand so that no exporter is needed."""
    names = ["scores", "again"][:outputs]
    nodes = [helper.make_node("Flatten", ["x"], ["flat"])]
    nodes += [helper.make_node("Gemm", ["flat", "w", "b"], [name]) for name in names]
    weights = [numpy_helper.from_array(model.weight, "w"), numpy_helper.from_array(model.bias, "b")]
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, CHANNELS, *SIZES[rank]])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, CLASSES]) for name in names],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def regression(model: Linear) -> CountingRegression:
    estimator = CountingRegression()
    estimator.classes_, estimator.n_features_in_ = np.arange(CLASSES), FEATURES
    estimator.coef_, estimator.intercept_ = model.weight.T, model.bias
    estimator.seen = model.seen
    return estimator


@cache
def example_server() -> ModuleType:
    """examples/http_server.py as a module."""
    path = Path(__file__).resolve().parents[2] / "examples" / "http_server.py"
    spec = importlib.util.spec_from_file_location("rlab_example_http_server", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def serving(app: Any, config: Callable[..., uvicorn.Config] = uvicorn.Config) -> Iterator[str]:
    """A real server on a free port of this machine -> its address."""
    server = uvicorn.Server(config(app, host="127.0.0.1", port=0, log_level="critical"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


Make = Callable[..., Victim]  # takes the options every victim shares
Kind = Callable[[Linear, int], AbstractContextManager[Make]]


def _local(build: Callable[[Linear, int, dict[str, Any]], Victim]) -> Kind:
    @contextmanager
    def kind(model: Linear, rank: int) -> Iterator[Make]:
        yield lambda **options: build(model, rank, options)

    return kind


def _onnx(model: Linear, rank: int, batch: str | int, options: dict[str, Any]) -> Victim:
    return OnnxVictim(CountingSession(onnx_graph(model, rank, batch), model.seen), **options)


def _http(template: Literal["rlab", "npy"]) -> Kind:
    @contextmanager
    def kind(model: Linear, rank: int) -> Iterator[Make]:
        served = TorchVictim(LinearModule(model), bounds=(-math.inf, math.inf))
        with serving(example_server().create_app(served)) as address:
            yield lambda **options: HttpVictim(f"{address}/predict", template=template, backoff=0.01, **options)

    return kind


ALL_VICTIMS: dict[str, Kind] = {
    "torch": _local(lambda model, rank, options: TorchVictim(LinearModule(model), **options)),
    "callable": _local(lambda model, rank, options: CallableVictim(model.logits, **options)),
    "onnx": _local(lambda model, rank, options: _onnx(model, rank, "b", options)),
    "onnx of one": _local(lambda model, rank, options: _onnx(model, rank, 1, options)),
    "sklearn": _local(lambda model, rank, options: SklearnVictim(regression(model), **options)),
    "http json": _http("rlab"),
    "http npy": _http("npy"),
}
