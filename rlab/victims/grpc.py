"""Models behind the Open Inference Protocol V2 over gRPC: Triton, KServe and others, through `tritonclient`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack, final

import numpy as np

from rlab.errors import MissingExtra, ModelError, OptionError, VictimError, optional
from rlab.storage.config import check, takes
from rlab.victims.address import HttpOptions
from rlab.victims.failures import Unanswered, first_line
from rlab.victims.graphs import GraphVictim, Port
from rlab.victims.metadata import input_port
from rlab.victims.reading import Reading

if TYPE_CHECKING:
    from rlab.keywords import VictimKeywords

SCHEME = "kserve+grpc://"
_AGAIN = ("StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED", "StatusCode.RESOURCE_EXHAUSTED")


@final
class GrpcVictim(GraphVictim):
    """A model at kserve+grpc://host:8001/MODEL; the server says which inputs and outputs it has.

    Requests that fail because the server is busy or away are sent again up to `retries` times.
    """

    kind = "model behind gRPC"
    first_chunk = 64
    first_timeout = 10.0
    watched = False  # each request has its own deadline

    @takes(Reading)
    def __init__(self, url: str, *, retries: int = 3, backoff: float = 0.5, **reading: Unpack[VictimKeywords]) -> None:
        match = re.fullmatch(rf"{re.escape(SCHEME)}([\w.\[\]:-]+)/([\w.-]+)", url)
        if match is None:
            raise OptionError(f"expected an address such as {SCHEME}host:8001/MODEL, without user, password and query")
        check(HttpOptions, {"retries": retries, "backoff": backoff}, url)
        self.retries, self.backoff, self.name, self.model = retries, backoff, url, match[2]
        try:
            self.triton = optional("tritonclient.grpc", MissingExtra("tritonclient", "grpc"))
        except RuntimeError as error:  # of protobuf, if its version does not fit
            raise ModelError(f"tritonclient does not load: {first_line(error)}") from error
        self.client = self.triton.InferenceServerClient(match[1])
        told = self._asked(lambda: self.client.get_model_metadata(self.model, client_timeout=self.first_timeout))
        sources = [input_port(str(each.name), str(each.datatype), each.shape, url) for each in told.inputs]
        self.datatype = str(told.inputs[0].datatype)
        super().__init__(sources, [Port(str(each.name)) for each in told.outputs], **reading)

    def _about(self) -> str:
        return self.name

    def _infer(self, array: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        given = self.triton.InferInput(self.source.name, list(array.shape), self.datatype)
        given.set_data_from_numpy(array)
        wanted = [self.triton.InferRequestedOutput(port.name) for port in self.ports]
        answer = self._asked(
            lambda: self.client.infer(self.model, [given], outputs=wanted, client_timeout=self.timeout)
        )
        return [answer.as_numpy(port.name) for port in self.ports]

    def _asked(self, ask: Callable[[], Any]) -> Any:
        """The answer; an error that may go away is `Unanswered`."""
        try:
            return ask()
        except self.triton.InferenceServerException as error:
            sentence = f"the model at {self.name} answered: {str(error.message() or error.status())[:300]}"
            raise (Unanswered if error.status() in _AGAIN else VictimError)(sentence) from None

    def close(self) -> None:
        """Close the connection; the victim cannot be used after that."""
        self.client.close()
