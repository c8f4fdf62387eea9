"""A model behind an address that does not answer: a one-line error, exit code 2, and no files."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.cli.test_bad_input import DIGITS, assert_refused, contents
from tests.command import rlab_command


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


Answer = Callable[[BaseHTTPRequestHandler], None]


def write(handler: BaseHTTPRequestHandler, status: int, content: bytes, kind: str = "application/json") -> None:
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


def slow(handler: BaseHTTPRequestHandler) -> None:
    time.sleep(1.0)


ANSWERS: dict[str, tuple[Answer, str]] = {
    "slow": (slow, "did not answer within 0.3 s"),
    "down": (lambda handler: write(handler, 503, b""), "status 503"),
    "refusing": (lambda handler: write(handler, 404, b"no such thing"), "status 404"),
    "garbage": (lambda handler: write(handler, 200, b"<html>hello</html>", "text/html"), "something else than scores"),
    "other JSON": (lambda handler: write(handler, 200, b'{"answer": 42}'), "something else than scores"),
    "wrong rows": (lambda handler: write(handler, 200, b'{"outputs": [[0.5, 0.5]]}'), "something else than scores"),
    "hanging up": (lambda handler: handler.connection.close(), "could not be reached"),
}


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], str]]:
    """Start a server on this machine with the given answer; -> its address."""
    servers: list[ThreadingHTTPServer] = []

    def start(answer: Answer) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                answer(self)

            def log_message(self, format: str, *values: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.handle_error = lambda *about: None  # type: ignore[method-assign]
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}/predict"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


OPTIONS = ["-M", "http={timeout: 0.3, retries: 1, backoff: 0.01}"]


@pytest.mark.parametrize("name", ANSWERS)
def test_a_model_behind_an_address_that_does_not_answer(name: str, empty: Path, serve: Callable[[Answer], str]) -> None:
    answer, words = ANSWERS[name]
    assert_refused(rlab_command("attack", serve(answer), DIGITS, "--limit", 3, *OPTIONS), words)
    assert not contents(empty)


def test_an_address_where_nobody_listens(empty: Path, serve: Callable[[Answer], str]) -> None:
    address = "http://127.0.0.1:9/predict"  # the discard port
    assert_refused(rlab_command("attack", address, DIGITS, "--limit", 3, *OPTIONS), "could not be reached")
    assert not contents(empty)
