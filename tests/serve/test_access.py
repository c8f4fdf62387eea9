"""Access to the server: tokens, other sites, path traversal, links, scripts in names, large bodies."""

from __future__ import annotations

import http.client
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest

from rlab.results.result import AttackResult
from tests.command import rlab_command
from tests.serve.cases import copy_runs, served

TOKEN = "a-token-for-this-test"
SCRIPT = '"><script>alert(1)</script>'


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Beside it lies what nobody may read."""
    home = tmp_path_factory.mktemp("access")
    copy_runs(home / "outside")
    (home / "runs.secret").write_text("nobody reads this")
    return copy_runs(home / "runs")


@pytest.fixture(scope="module")
def client(root: Path) -> Iterator[httpx.Client]:
    with served(root) as client:
        yield client


@pytest.fixture(scope="module")
def guarded(root: Path) -> Iterator[httpx.Client]:
    with served(root, TOKEN) as client:
        yield client


def ask(client: httpx.Client, path: str, **headers: str) -> http.client.HTTPResponse:
    """A path that is sent as it is: httpx would take the dots out."""
    connection = http.client.HTTPConnection(client.base_url.host, client.base_url.port or 80)
    with closing(connection):
        connection.request("GET", path, headers=headers)
        return connection.getresponse()


@pytest.mark.parametrize("page", ["run", "samples", "sample/0", "picture/original"])
@pytest.mark.parametrize(
    "name",
    ["../outside/run_ecg", "..%2foutside%2frun_ecg", "%2e%2e/outside/run_ecg", "run_ecg/../../outside/run_ecg", "", ".",
     "/etc", "%2fetc", "run_ecg%00", "run_ecg/config.yaml", "linked", "run_ecg/linked"],
)  # fmt: skip
def test_files_outside_the_folder_are_not_read(client: httpx.Client, root: Path, page: str, name: str):
    for where in (root, root / "run_ecg"):
        if not (where / "linked").is_symlink():
            (where / "linked").symlink_to(root.parent / "outside" / "run_ecg")
    assert ask(client, f"/{page}/{name}").status == 404
    for where in (root, root / "run_ecg"):
        (where / "linked").unlink()


def test_a_run_with_a_link_out_of_it_is_not_reported(client: httpx.Client, root: Path):
    stored = root / "run_digits" / "samples.parquet"
    kept = stored.read_bytes()
    stored.unlink()
    stored.symlink_to(root.parent / "outside" / "run_digits" / "samples.parquet")
    for address in ("/run/run_digits", "/samples/run_digits", "/sample/0/run_digits"):
        assert client.get(address).status_code in (404, 422)
    stored.unlink()
    stored.write_bytes(kept)


def test_pipes_in_a_run_use_up_no_thread(root: Path, tmp_path: Path):
    stored = copy_runs(tmp_path) / "run_digits"
    for name in ("samples.parquet", "arrays.safetensors"):
        (stored / name).unlink()
        os.mkfifo(stored / name)
    with served(tmp_path) as client:
        for address in 15 * ("/run/run_digits", "/samples/run_digits", "/sample/0/run_digits"):
            assert client.get(address).status_code in (404, 422)
        assert client.get("/").status_code == 200


def test_requests_without_the_token_are_refused(guarded: httpx.Client):
    for address in ("/", "/run/run_ecg", "/serve.js", "/nowhere"):
        assert guarded.get(address).status_code == 401
        assert guarded.get(address, headers={"Authorization": f"Bearer {TOKEN}x"}).status_code == 403
        assert guarded.get(address, params={"token": TOKEN[:-1]}).status_code == 403
        assert ask(guarded, address, Cookie="rlab-token=\xfc").status == 403
    assert guarded.get("/", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_a_token_in_the_address_becomes_a_cookie(guarded: httpx.Client):
    answer = guarded.get("/samples/run_ecg", params={"token": TOKEN, "sort": "l2"})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/samples/run_ecg?sort=l2"
    assert {"HttpOnly", "SameSite=strict"} <= set(answer.headers["set-cookie"].split("; "))
    page = guarded.get(answer.headers["location"])
    assert page.status_code == 200
    assert TOKEN not in page.text
    guarded.cookies.clear()
    for path in ("//evil.example/a", "/%2fevil.example/a", "///evil.example/a"):
        assert ask(guarded, f"{path}?token={TOKEN}").headers["location"] == "/evil.example/a"


def test_other_names_of_this_machine_are_refused(client: httpx.Client):
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", ""):
        assert client.get("/", headers={"Host": host}).status_code in (400, 421)
    assert client.get("/", headers={"Host": "localhost:8321"}).status_code == 200


@pytest.mark.parametrize("host", ["[", "[::1"])
def test_a_host_that_is_no_address_is_a_bad_request(client: httpx.Client, host: str):
    answer = ask(client, "/", Host=host)
    assert answer.status == 400
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("address", ["/", "/run/run_ecg", "/start", "/own"])
def test_nothing_can_be_posted(client: httpx.Client, address: str):
    assert client.post(address, content=b"x" * 2**20).status_code in (404, 405)


def test_half_open_connections_are_closed(client: httpx.Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rlab.serve.app.HEAD", 0.2)
    for sent in (b"", b"GET / HTTP/1.1\r\nHost: localh"):
        with socket.create_connection((client.base_url.host, client.base_url.port or 80), timeout=20) as half:
            half.sendall(sent)
            while half.recv(2**16):
                pass  # ends when the server closes the connection


def test_an_answer_that_takes_too_long_is_ended(client: httpx.Client, monkeypatch: pytest.MonkeyPatch):
    wait = threading.Event()
    monkeypatch.setattr("rlab.serve.access.LONGEST", 0.2)
    monkeypatch.setattr("rlab.serve.app.list_runs", lambda root: wait.wait(20) and [])
    try:
        answer = client.get("/")
        assert answer.status_code == 503
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert client.get("/serve.js").status_code == 200
    finally:
        wait.set()


def test_pages_run_only_their_own_scripts(client: httpx.Client):
    for address in ("/", "/run/run_ecg", "/nowhere", "/samples/run_ecg"):
        headers = client.get(address).headers
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert "unsafe-inline" not in headers["content-security-policy"].split("script-src")[1]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"


class Tags(HTMLParser):
    """The text of every script of a page, and all attributes' names."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.scripts, self.handlers, self.inside = list[str](), list[str](), False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside = tag == "script"
        self.handlers += [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.scripts.append(data)

    def handle_endtag(self, tag: str) -> None:
        self.inside = False


def test_scripts_in_names_stay_text(tmp_path: Path):
    result = AttackResult.load(copy_runs(tmp_path / "first") / "run_digits")
    classes = (SCRIPT, *(f"<img src=x onerror=alert({k})>" for k in range(9)))
    ids = tuple(f"{SCRIPT}{k}" for k in range(len(result)))
    run = f"run{SCRIPT.replace('/', '')}"
    replace(result, setting=replace(result.setting, classes=classes), ids=ids).save(tmp_path / "runs" / run)
    (tmp_path / "runs" / run / "config.yaml").write_text(f"model: {SCRIPT}")
    with served(tmp_path / "runs") as client:
        for address in ("", f"run/{run}", f"samples/{run}", f"sample/0/{run}", f"run/{SCRIPT}"):
            page = client.get(httpx.URL(f"{client.base_url}").copy_with(path=f"/{address}"))
            assert page.status_code == (404 if address.endswith("</script>") else 200), address
            tags = Tags(page.text)
            assert not any("alert" in script for script in tags.scripts)
            assert tags.handlers == []
            assert "alert" in page.text or address.startswith('run/"')


@pytest.mark.parametrize(
    "arguments", [("--port", "0", "--token", "short"), ("--host", "256.1.1.1"), ("--token", "${RLAB_NO_SUCH}")]
)
def test_bad_arguments_are_refused(tmp_path: Path, arguments: tuple[str, ...]):
    said = rlab_command("serve", tmp_path, *arguments)
    assert said.code == 2
    assert "Traceback" not in said.err


def test_a_missing_folder_is_refused(tmp_path: Path):
    assert rlab_command("serve", tmp_path / "none").code == 2
    assert not (tmp_path / "none").exists()
