"""A server that counts requests and can echo them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch

from rlab import demo_victim


@dataclass
class Server:
    """Answers like demo:digits; with a `status` other than 200 it echoes path and headers."""

    address: str = ""
    posts: int = 0
    status: int = 200
    seen: list[str] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Server]:
    record, model = Server(), demo_victim("digits")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            record.posts += 1
            record.seen.append(f"{self.path} {dict(self.headers)}")
            inputs = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["inputs"]
            scores = model(torch.tensor(inputs, dtype=torch.float32)).tolist()
            body = json.dumps({"outputs": scores}) if record.status == 200 else record.seen[-1]
            self.send_response(record.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    web = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web.daemon_threads = True
    thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    record.address = f"127.0.0.1:{web.server_address[1]}/predict"
    yield record
    web.shutdown()
    web.server_close()
    thread.join()
