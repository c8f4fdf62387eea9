"""Models behind the V2 protocol over gRPC, with a stand-in server that speaks it; skipped without `tritonclient`."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

import rlab
from rlab.errors import OptionError, VictimError

try:
    import grpc
    from tritonclient.grpc import service_pb2, service_pb2_grpc
except Exception as error:  # a protobuf of another version raises its own errors
    pytest.skip(f"tritonclient is not installed: {error}", allow_module_level=True)

X = torch.rand(5, 3, 4, 6, generator=torch.Generator().manual_seed(0))
WEIGHT = torch.randn(72, 3, generator=torch.Generator().manual_seed(1))
SCORES = (X.flatten(1) @ WEIGHT).log_softmax(1)


class Planted(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """A linear model of channels-last inputs; the first `away` requests are refused as by a busy server."""

    def __init__(self, away: int) -> None:
        self.away, self.rows = away, 0

    def ModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.name != "flowers":
            context.abort(grpc.StatusCode.NOT_FOUND, f"unknown model {request.name}")
        one = service_pb2.ModelMetadataResponse.TensorMetadata
        inputs = [one(name="pixels", datatype="FP32", shape=[-1, 4, 6, 3])]
        return service_pb2.ModelMetadataResponse(
            name="flowers", inputs=inputs, outputs=[one(name="logits", datatype="FP32", shape=[-1, 3])]
        )

    def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.rows += request.inputs[0].shape[0]
        if self.away:
            self.away -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "try again")
        x = np.frombuffer(request.raw_input_contents[0], np.float32).reshape(tuple(request.inputs[0].shape))
        logits = (torch.tensor(x).permute(0, 3, 1, 2).flatten(1) @ WEIGHT).numpy()
        answer = service_pb2.ModelInferResponse(model_name="flowers", raw_output_contents=[logits.tobytes()])
        answer.outputs.add(name="logits", datatype="FP32", shape=list(logits.shape))
        return answer


@contextmanager
def served(away: int = 0) -> Iterator[tuple[Planted, str]]:
    planted, server = Planted(away), grpc.server(ThreadPoolExecutor(2))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(planted, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield planted, f"kserve+grpc://127.0.0.1:{port}"
    finally:
        server.stop(None)


def test_the_server_says_how_it_wants_its_inputs() -> None:
    with served() as (planted, address):
        victim = rlab.load_victim(f"{address}/flowers", outputs="logits")
        torch.testing.assert_close(victim(X), SCORES)
    assert planted.rows == 5


def test_every_row_that_is_sent_counts() -> None:
    with served(away=2) as (planted, address):
        victim = rlab.GrpcVictim(f"{address}/flowers", outputs="logits", backoff=0.0)
        torch.testing.assert_close(victim(X), SCORES)
    assert planted.rows == victim.rows.total() == 15


def test_an_unknown_model_and_a_bad_address_are_one_sentence() -> None:
    with served() as (_, address), pytest.raises(VictimError, match="unknown model"):
        rlab.GrpcVictim(f"{address}/trees")
    with pytest.raises(OptionError, match="expected an address"):
        rlab.load_victim("kserve+grpc://user:word@host:1/flowers")
