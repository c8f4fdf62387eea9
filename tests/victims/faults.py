"""An HTTP model on this machine that fails on demand, and keeps a record of what it received."""

from __future__ import annotations

import io
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

JSON, NPY = "application/json", "application/x-npy"
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Reply:
    """By default a correct answer."""

    status: int = 200
    body: bytes | None = None  # None: the scores of the inputs as JSON
    kind: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    wait: float = 0.0  # seconds before the answer
    drip: float = 0.0  # seconds between bytes
    drip_header: bool = False
    endless: bool = False
    hang_up: bool = False


@dataclass(frozen=True)
class Received:
    inputs: Array
    headers: Mapping[str, str]
    path: str
    time: float


def linear_scores(inputs: Array) -> Array:
    """(b, ...) -> (b, 3)"""
    flat = inputs.reshape(len(inputs), -1)
    return np.stack([flat.sum(1), np.ones(len(flat)), flat[:, 0]], 1)


@dataclass
class Server:
    """Replies as `plan` says, given the number of the request from 1 and how many requests are being answered."""

    url: str = ""
    plan: Callable[[int, int], Reply] = lambda number, busy: Reply()
    model: Callable[[Array], Array] = linear_scores
    latency: float = 0.0  # seconds; inputs with larger values are answered sooner
    received: list[Received] = field(default_factory=list)
    connections: set[Any] = field(default_factory=set)
    busy: int = 0
    most_busy: int = 0

    def fail(self, *replies: Reply) -> None:
        """Give these replies to the next requests, then correct answers."""
        left = iter(replies)
        self.plan = lambda number, busy: next(left, Reply())

    @property
    def rows(self) -> int:
        return sum(len(one.inputs) for one in self.received)

    @property
    def times(self) -> list[float]:
        return [one.time for one in self.received]

    def counts(self, x: Array) -> Counter[int]:
        """How often each row of x came, by its first value."""
        firsts = x.reshape(len(x), -1)[:, 0]
        came = np.concatenate([one.inputs.reshape(len(one.inputs), -1)[:, 0] for one in self.received])
        return Counter(np.abs(firsts[None] - came[:, None]).argmin(1).tolist())


@contextmanager
def fault_server() -> Iterator[Server]:
    server, lock = Server(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            as_json = self.headers["Content-Type"] == JSON
            inputs = np.array(json.loads(content)["inputs"]) if as_json else np.load(io.BytesIO(content))
            with lock:
                server.received.append(Received(inputs, dict(self.headers), self.path, time.monotonic()))
                server.connections.add(self.client_address)
                server.busy += 1
                server.most_busy = max(server.most_busy, server.busy)
                reply = server.plan(len(server.received), server.busy)
            time.sleep(reply.wait + server.latency * (1.5 - float(inputs.flat[0])))
            with lock:
                server.busy -= 1
            try:
                self.answer(reply, inputs)
            except OSError:
                self.close_connection = True  # the client did not wait

        def answer(self, reply: Reply, inputs: Array) -> None:
            self.close_connection = reply.hang_up or reply.endless
            if reply.hang_up:
                return
            scored = reply.body is None
            body = json.dumps({"outputs": server.model(inputs).tolist()}).encode() if scored else reply.body or b""
            size = {} if reply.endless else {"Content-Length": str(len(body))}
            lines = [
                f"{name}: {value}" for name, value in {"Content-Type": reply.kind, **size, **reply.headers}.items()
            ]
            head = "\r\n".join([f"HTTP/1.1 {reply.status} X", *lines, "", ""]).encode()
            if not reply.drip:
                self.wfile.write(head + body)
                while reply.endless:
                    self.wfile.write(b" " * 2**16)
                return
            self.wfile.write(b"" if reply.drip_header else head)
            for byte in head + body if reply.drip_header else body:
                self.wfile.write(bytes([byte]))
                time.sleep(reply.drip)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    web = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web.daemon_threads = True
    web.request_queue_size = 64
    thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    server.url = f"http://127.0.0.1:{web.server_address[1]}/predict"
    try:
        yield server
    finally:
        web.shutdown()
        web.server_close()
        thread.join()
