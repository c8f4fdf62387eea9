"""A model behind an address: against a real server on this machine that fails as told."""

from __future__ import annotations

import io
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch

from rlab.errors import InputError, VictimError
from rlab.victims import HttpVictim, QueryMeter
from rlab.victims.exchange import Flow
from rlab.victims.wire import seconds_until
from tests.victims.makers import example_server

X = torch.linspace(0, 1, 12).view(3, 1, 4)
JSON = "application/json"


@dataclass
class Reply:
    status: int = 200
    body: bytes = b""
    kind: str = JSON
    headers: dict[str, str] = field(default_factory=dict)
    sleep: float = 0.0
    drip: float = 0.0  # seconds between bytes


@dataclass
class Server:
    """Gives its replies one after the other, then answers well; keeps what it was sent."""

    url: str = ""
    replies: list[Reply] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def next(self, rows: int) -> Reply:
        return self.replies.pop(0) if self.replies else good(rows)

    @property
    def rows(self) -> int:
        return sum(len(one["inputs"]) for one in self.asked)


def good(rows: int) -> Reply:
    return Reply(body=json.dumps({"outputs": [[row, 1, 2] for row in range(rows)]}).encode())


@pytest.fixture
def server() -> Iterator[Server]:
    record = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            record.times.append(time.monotonic())
            body = self.rfile.read(int(self.headers["Content-Length"]))
            npy = self.headers["Content-Type"] != JSON
            inputs = np.load(io.BytesIO(body), allow_pickle=False).tolist() if npy else json.loads(body)["inputs"]
            record.asked.append({"inputs": inputs, "headers": dict(self.headers), "path": self.path})
            reply = record.next(len(inputs))
            time.sleep(reply.sleep)
            try:
                self.send_response(reply.status)
                for name, value in {"Content-Type": reply.kind, **reply.headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                for part in [reply.body[i : i + 1] for i in range(len(reply.body))] if reply.drip else [reply.body]:
                    self.wfile.write(part)
                    time.sleep(reply.drip)
            except OSError:
                pass  # the client did not wait

        def log_message(self, format: str, *args: Any) -> None:
            pass

    web = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web.daemon_threads = True
    thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    record.url = f"http://127.0.0.1:{web.server_address[1]}/predict"
    yield record
    web.shutdown()
    web.server_close()
    thread.join()


def quick(url: str, **options: Any) -> HttpVictim:
    return HttpVictim(url, **{"backoff": 0.01, **options})


def test_inputs_arrive_as_they_are_and_scores_come_back(server: Server) -> None:
    with quick(server.url, headers={"Authorization": "Bearer secret"}) as victim:
        scores = victim(X)
    assert torch.allclose(scores, torch.tensor([[r, 1.0, 2.0] for r in range(3)]).log_softmax(1))
    assert torch.equal(torch.tensor(server.asked[0]["inputs"], dtype=torch.float32), X)
    assert server.asked[0]["headers"]["Authorization"] == "Bearer secret"
    assert server.asked[0]["path"] == "/predict"


@pytest.mark.parametrize("answers_npy", [True, False])
def test_npy_goes_out_and_npy_or_json_comes_back(server: Server, answers_npy: bool) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.array([[r, 1, 2] for r in range(3)], dtype=np.float64))
    if answers_npy:
        server.replies = [Reply(body=buffer.getvalue(), kind="application/x-npy")]
    with quick(server.url, body="npy") as victim:
        scores = victim(X)
    assert torch.allclose(scores, torch.tensor([[r, 1.0, 2.0] for r in range(3)]).log_softmax(1))
    assert server.asked[0]["headers"]["Content-Type"] == "application/x-npy"


def test_null_is_nan(server: Server) -> None:
    server.replies = [Reply(body=b'{"outputs": [[1, 2], [null, null], [3, 4]]}')]
    with quick(server.url) as victim:
        assert victim(X).isnan().all(1).tolist() == [False, True, False]


def test_two_failures_then_an_answer_count_three_times(server: Server) -> None:
    server.replies = [Reply(500), Reply(503)]
    with quick(server.url) as victim:
        meter = QueryMeter(victim, samples=3)
        meter(X, torch.arange(3), "search")
        assert victim.rows["search"] == server.rows == 9
    assert meter.counts[:, 0].tolist() == [3, 3, 3]


def test_a_budget_stops_the_retries(server: Server) -> None:
    server.replies = [Reply(500)] * 9
    with quick(server.url, retries=9) as victim, pytest.raises(VictimError, match=r"status 500 \(asked 2 times\)"):
        QueryMeter(victim, samples=3, budget=2)(X, torch.arange(3), "search")
    assert server.rows == 6


def test_retries_wait_longer_each_time(server: Server) -> None:
    server.replies = [Reply(500)] * 3
    with quick(server.url, backoff=0.05) as victim:
        victim(X)
    gaps = np.diff(server.times)
    assert all(gap >= least for gap, least in zip(gaps, (0.05, 0.1, 0.2), strict=True))


def test_a_slow_model_is_not_waited_for(server: Server) -> None:
    server.replies = [Reply(sleep=2.5, body=good(3).body)] * 2
    victim = quick(server.url, timeout=1.0, retries=1)  # long enough for a busy machine
    with pytest.raises(VictimError, match=r"the model at http://127.* did not answer within 1 s \(asked 2 times\)"):
        victim(X)
    assert victim.rows["search"] == server.rows == 6
    assert torch.isfinite(victim(X)).all()  # it may be asked again


def test_a_model_that_drips_is_not_waited_for_either(server: Server) -> None:
    server.replies = [Reply(drip=0.02, body=good(3).body)]
    started = time.monotonic()
    with quick(server.url, timeout=0.2, retries=0) as victim, pytest.raises(VictimError, match=r"within 0.2 s"):
        victim(X)
    assert time.monotonic() - started < 0.02 * len(good(3).body)


GARBAGE = {
    "html": (b"<html>oops</html>", "text/html", "got '<html>oops"),
    "not json": (b"{outputs", JSON, "got '{outputs'"),
    "empty": (b"", JSON, "got nothing"),
    "no outputs": (b'{"scores": [[1, 2]]}', JSON, "expected {"),
    "a list": (b"[[1, 2]]", JSON, "expected {"),
    "a number": (b'{"outputs": 3}', JSON, "list of lists"),
    "flat": (b'{"outputs": [1, 2, 3]}', JSON, "list of lists"),
    "words": (b'{"outputs": [["1", "2"], ["1", "2"], ["1", "2"]]}', JSON, "numbers"),
    "truths": (b'{"outputs": [[true, 2], [1, 2], [1, 2]]}', JSON, "numbers"),
    "deeper": (b'{"outputs": [[[1], [2]], [[1], [2]], [[1], [2]]]}', JSON, "numbers"),
    "ragged": (b'{"outputs": [[1, 2], [1, 2, 3], [1, 2]]}', JSON, "one length"),
    "two rows": (b'{"outputs": [[1, 2], [1, 2]]}', JSON, r"expected 3 rows of scores, got shape \(2, 2\)"),
    "bottomless": (b"[" * 100_000, JSON, "expected {"),
    "a zip": (b"PK\x03\x04 no zip", "application/x-npy", "expected JSON or .npy"),
    "a cut npy": (b"\x93NUMPY\x01\x00v\x00{'descr'", "application/x-npy", "expected JSON or .npy"),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_asked_about_again_and_then_told(server: Server, name: str) -> None:
    body, kind, said = GARBAGE[name]
    server.replies = [Reply(body=body, kind=kind)] * 2
    with (
        quick(server.url, retries=1) as victim,
        pytest.raises(VictimError, match=f"answered with something else than scores: .*{said}.*asked 2 times"),
    ):
        victim(X)
    assert victim.rows["search"] == server.rows == 6


def npy(array: np.ndarray[Any, Any], allow_pickle: bool = False) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=allow_pickle)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "array", [np.array([["a", "b"]] * 3), np.array([[1 + 1j, 2]] * 3), np.array([[{}, 1]] * 3, dtype=object)]
)
def test_npy_of_anything_but_numbers_is_garbage(server: Server, array: np.ndarray[Any, Any]) -> None:
    server.replies = [Reply(body=npy(array, allow_pickle=True), kind="application/x-npy")]
    with quick(server.url, retries=0) as victim, pytest.raises(VictimError, match="something else than scores"):
        victim(X)


def test_npy_that_claims_to_be_huge_is_garbage_and_not_a_lack_of_memory(server: Server) -> None:
    huge = npy(np.zeros((3, 2))).replace(b"(3, 2), }           ", b"(3, 999999999999), }")
    assert b"(3, 999999999999)" in huge
    server.replies = [Reply(body=huge, kind="application/x-npy")]
    with quick(server.url, retries=0) as victim, pytest.raises(VictimError, match="something else than scores"):
        victim(X)
    assert server.rows == victim.rows["search"] == 3


def test_a_refusal_is_told_at_once_with_what_was_said(server: Server) -> None:
    server.replies = [Reply(400, b"inputs must be 28x28 " * 50, "text/plain")]
    with quick(server.url) as victim, pytest.raises(VictimError, match="status 400: inputs must be 28x28") as caught:
        victim(X)
    assert len(str(caught.value)) < 320
    assert victim.rows["search"] == server.rows == 3  # they were sent


def test_a_refusal_that_speaks_of_memory_is_no_reason_to_send_again(server: Server) -> None:
    server.replies = [Reply(413, b"out of memory", "text/plain")]
    with quick(server.url) as victim, pytest.raises(VictimError, match="413: out of memory"):
        victim(X)
    assert len(server.asked) == 1


def test_redirects_are_not_followed(server: Server) -> None:
    server.replies = [Reply(307, headers={"Location": "http://elsewhere.example/predict"})]
    with quick(server.url) as victim, pytest.raises(VictimError, match=r"to http://elsewhere.*: name that address"):
        victim(X)
    assert len(server.asked) == 1


def test_429_is_waited_for_as_long_as_asked(server: Server) -> None:
    server.replies = [Reply(429, headers={"Retry-After": "1"})]
    with quick(server.url) as victim:
        victim(X)
    assert np.diff(server.times)[0] >= 1
    assert victim.rows["search"] == server.rows == 6


def test_429_for_an_hour_is_not_waited_for(server: Server) -> None:
    server.replies = [Reply(429, headers={"Retry-After": "3600"})]
    with quick(server.url) as victim, pytest.raises(VictimError, match="asks to wait 3600 s"):
        victim(X)
    assert len(server.asked) == 1


def test_retry_after_reads_seconds_and_dates() -> None:
    soon = datetime.now(UTC) + timedelta(seconds=30)
    assert 25 < seconds_until(format_datetime(soon, usegmt=True)) <= 30
    assert seconds_until("7") == 7
    assert [seconds_until(text) for text in (None, "", "soon", "-3", "Wed, 21 Oct 2015 07:28:00 GMT")] == [0] * 5


def test_nobody_there_is_one_sentence() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (
        quick(f"http://127.0.0.1:{port}/predict", retries=2) as victim,
        pytest.raises(
            VictimError, match=rf"the model at http://127.0.0.1:{port}/predict could not be reached.*3 times"
        ),
    ):
        victim(X)


def test_the_rate_is_kept(server: Server) -> None:
    with quick(server.url, rate=20, chunk=1) as victim:
        started = time.monotonic()
        victim(X)
        took = time.monotonic() - started
    # by the asking side's clock: when a busy server notes an arrival says little about when it was sent
    assert len(server.times) == len(X)
    assert took > (len(X) - 1) / 20 - 0.001


def test_without_a_rate_nothing_waits() -> None:
    flow = Flow(1, None)
    for _ in range(100):
        flow.sent()
        assert flow.delay() == 0


def test_sentences_hold_no_password(server: Server) -> None:
    server.replies = [Reply(400)]
    url = server.url.replace("http://", "http://me:hunter2@") + "?token=hunter2"
    with quick(url) as victim, pytest.raises(VictimError) as caught:
        victim(X)
    assert "hunter2" not in str(caught.value)
    assert server.asked[0]["path"] == "/predict?token=hunter2"


def test_closing_ends_the_connection(server: Server) -> None:
    with quick(server.url) as victim:
        victim(X)
    assert victim._clients.free[0].is_closed
    forgotten = quick(server.url)
    client = forgotten._clients.free[0]
    del forgotten
    assert client.is_closed


@pytest.mark.parametrize(
    ("url", "options", "said"),
    [
        ("ftp://host/x", {}, "expected an address like"),
        ("http://", {}, "expected an address like"),
        ("http://host:port", {}, "cannot read the address"),
        ("http://host", {"body": "xml"}, "expected body 'json' or 'npy'"),
        ("http://host", {"timeout": 0}, "a timeout above 0"),
        ("http://host", {"rate": 0}, "rate=0"),
        ("http://host", {"retries": -1}, "retries=-1"),
    ],
)
def test_options_that_make_no_sense_are_refused(url: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        HttpVictim(url, **options)


def test_the_example_server_runs_by_itself(root: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\ndef model(): return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3))\n"
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(root / "examples/http_server.py"), "--model", "mine:model", "--port", str(port)]
    process = subprocess.Popen(command, cwd=tmp_path, env={"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"})
    try:
        with quick(f"http://127.0.0.1:{port}/predict", retries=120, backoff=0.0) as victim:
            while not listening(port):
                assert process.poll() is None
                time.sleep(0.05)
            assert victim(X).shape == (3, 3)
            with pytest.raises(VictimError, match=r"expected JSON with inputs or \.npy"):
                quick(f"http://127.0.0.1:{port}/predict", headers={"Content-Type": "application/x-npy"})(X)
        assert httpx.get(f"http://127.0.0.1:{port}/").json() == {"model": "TorchVictim", "bounds": [0, 1], "rows": 3}
    finally:
        process.terminate()
        process.wait()


def test_the_example_server_tells_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["http_server.py", "--model", "nothing.onnx"])
    with pytest.raises(SystemExit) as ended:
        example_server().main()
    assert (ended.value.code, capsys.readouterr().err) == (2, "no such file: nothing.onnx\n")


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
