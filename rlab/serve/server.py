"""The settings of the web server, which does not wait for ever for clients."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD = 10.0  # maximum seconds until a client has sent the head of a request


class ImpatientProtocol(H11Protocol):
    """Closes a connection whose client does not complete the head of a request, for which uvicorn has no limit."""

    waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop()

    def _wait(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._stop()
        elif self.waiting is None:
            self.waiting = self.loop.call_later(HEAD, self.transport.close)

    def _stop(self) -> None:
        if self.waiting is not None:
            self.waiting.cancel()
            self.waiting = None


def server_config(app: ASGIApp, **more: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=ImpatientProtocol,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
        **{"log_level": "warning", **more},
    )
