"""Forms of the server: runs are started, followed and stopped, only from its own pages."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from rlab.errors import InputError
from rlab.results.result import AttackResult
from rlab.serve.actions import Follower, events
from rlab.serve.jobs import Jobs, StartForm, read_models
from rlab.serve.runs import is_running
from rlab.storage.config import check
from rlab.storage.ledger import LEDGER, TABLES
from rlab.storage.lock import LOCK
from tests.command import rlab_command
from tests.serve.cases import MODELS, copy_runs, only_wait, served


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    """Of a server whose runs are processes that only wait."""
    only_wait(monkeypatch)
    with served(copy_runs(tmp_path / "runs"), models=MODELS) as client:
        client.headers["Origin"] = str(client.base_url).rstrip("/")
        yield client


def form_of(client: httpx.Client, **fields: str) -> dict[str, str]:
    found = re.search(r'name="csrf" content="([^"]+)"', client.get("/start").text)
    assert found
    return {"csrf": found[1], "model": "demo:digits", **fields}


def names(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()}


def test_only_pages_of_the_server_may_post(client: httpx.Client, tmp_path: Path):
    form = form_of(client)
    refused = [
        client.post("/start", data={**form, "csrf": "x" * 32}),
        client.post("/start", data={"model": "demo:digits"}),
        client.post("/start", data=form, headers={"Origin": "http://evil.example"}),
        client.post("/start", data=form, headers={"Origin": "null"}),
        client.post("/start", data=form, headers={"Origin": "null", "Sec-Fetch-Site": "cross-site"}),
        client.post("/start", data=form, headers={"Sec-Fetch-Site": "same-site"}),
        client.post("/start", data=form, headers={"Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"}),
        client.post("/stop/run_ecg", data=form, headers={"Origin": "http://127.0.0.1"}),
        client.post("/own?file=a.png&model=demo:digits&do=attack", content=b"x"),
    ]
    del client.headers["Origin"]
    refused += [
        client.post("/start", data=form),
        client.post("/start", data=form, headers={"Sec-Fetch-Site": "cross-site"}),
    ]
    assert [answer.status_code for answer in refused] == [403] * len(refused)
    assert names(tmp_path / "runs") == {"run_digits", "run_ecg"}


def test_a_form_that_is_too_large_is_refused(client: httpx.Client):
    assert client.post("/start", data=form_of(client, name="x" * 2**17)).status_code == 413


def test_a_run_is_started_followed_and_stopped(client: httpx.Client):
    started = client.post("/start", data=form_of(client, name="../My run"))
    assert started.headers["location"] == "/run/My-run"
    page = client.get("/run/My-run")
    assert 'data-events="/events/My-run"' in page.text
    assert 'action="/stop/My-run"' in page.text
    heard: list[Any] = []
    with client.stream("GET", "/events/My-run") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        for line in stream.iter_lines():
            heard.append(line)
            if "waiting" in line and not any("waiting" in before for before in heard[:-1]):
                assert client.post("/stop/My-run", data=form_of(client)).status_code == 303
    assert json.loads(heard[0].removeprefix("data: "))["samples"] == 0
    assert "event: end" in heard
    assert "<dd>stopped</dd>" in client.get("/run/My-run").text
    assert client.post("/stop/My-run", data=form_of(client)).status_code == 422


def test_the_number_of_running_jobs_is_limited(client: httpx.Client):
    answers = [client.post("/start", data=form_of(client)).status_code for _ in range(3)]
    assert answers == [303, 303, 422]


def test_only_runs_of_this_server_can_be_stopped(client: httpx.Client):
    assert client.post("/stop/run_ecg", data=form_of(client)).status_code == 422


REFUSED = [
    {"palette": "os:system"}, {"palette": "my_module:filter@1"}, {"policy": "/etc/agent.safetensors"}, {"policy": "x"},
    {"goal": "../x"}, {"model": "timm:resnet18"}, {"model": "http://evil.example"}, {"data": "/etc"}, {"surrogate": "a:b"},
    {"budget": "0"}, {"limit": "-1"}, {"patch": "a"}, {"name": "x" * 81},
]  # fmt: skip


def test_a_form_cannot_name_files_modules_or_addresses(client: httpx.Client, tmp_path: Path):
    for fields in REFUSED:
        assert client.post("/start", data=form_of(client, **fields)).status_code == 422, fields
        assert client.post("/preview", data=form_of(client, **fields)).status_code == 422, fields
    assert names(tmp_path / "runs") == {"run_digits", "run_ecg"}


def test_without_models_no_run_can_be_started(tmp_path: Path):
    with served(copy_runs(tmp_path)) as client:
        for address in ("/start", "/own", "/preview"):
            assert client.get(address).status_code == 404
            assert client.post(address, headers={"Origin": str(client.base_url).rstrip("/")}).status_code == 404


def test_a_form_is_a_configuration_of_rlab_attack(tmp_path: Path):
    fields = {
        "palette": "gaussian_noise@0.2 dead_pixel",
        "patch": "2",
        "budget": "30",
        "limit": "3",
        "policy": "square",
    }
    config = check(StartForm, {"model": "demo:digits", "seed": "", **fields}).config(MODELS)
    (tmp_path / "form.yaml").write_text(yaml.safe_dump(config))
    said = rlab_command("attack", "--config", tmp_path / "form.yaml", "--dry-run", "--json")
    plan = json.loads(said.out)
    assert (plan["samples"], plan["budget"], plan["policy"], plan["patches"]) == (3, 30, "square", 16)
    assert MODELS["demo:digits"] == {"model": "demo:digits", "data": "demo:digits"}


@pytest.mark.slow
def test_a_preview_shows_the_dry_run(tmp_path: Path):
    jobs = Jobs(tmp_path, MODELS)
    try:
        plan = jobs.preview(StartForm(model="demo:digits", limit=3, budget=20))
        assert plan["rows_at_most"] == 60
        with pytest.raises(InputError, match="nosuch"):
            jobs.preview(StartForm(model="demo:digits", palette="nosuch@1"))
    finally:
        jobs.close()
    assert names(tmp_path) == set()


@pytest.mark.slow
def test_a_real_run_is_followed_to_its_end(tmp_path: Path):
    with served(tmp_path, models=MODELS) as client:
        client.headers["Origin"] = str(client.base_url).rstrip("/")
        client.post("/start", data=form_of(client, name="real", limit="24", chunk="8", budget="60"))
        with client.stream("GET", "/events/real") as stream:
            told = [json.loads(line[6:]) for line in stream.iter_lines() if line.startswith('data: {"steps"')]
        assert told[-1]["samples"] == 24
        assert len(told[-1]["best"]) == 5
        assert client.get("/run/real").status_code == 200
    result = AttackResult.load(tmp_path / "real")
    assert told[-1]["best"][0] == pytest.approx(float(result.best_within(60).min()))


@pytest.mark.parametrize("word", ["timm:resnet18", "my_module:net", "http://127.0.0.1:1/", "missing.yaml"])
def test_models_are_demos_or_files_of_rlab_attack(tmp_path: Path, word: str):
    said = rlab_command("serve", tmp_path, "--model", word)
    assert said.code == 2
    assert "Traceback" not in said.err


def test_pages_show_no_secrets_of_a_models_file(tmp_path: Path):
    secret = "a-password-of-some-length"
    config = {"model": {"name": f"http://user:{secret}@127.0.0.1:1/"}, "data": "demo:digits"}
    (tmp_path / "net.yaml").write_text(yaml.safe_dump(config))
    copy_runs(tmp_path / "runs")
    with served(tmp_path / "runs", models=read_models([str(tmp_path / "net.yaml")])) as client:
        for address in ("/", "/start", "/own"):
            page = client.get(address)
            assert page.status_code == 200
            assert secret not in page.text


def test_a_follower_counts_the_results_of_a_run(tmp_path: Path):
    attack = ("attack", "demo:digits", "demo:digits", "--limit", 6, "--budget", 30, "--chunk", 3, "--pictures", 0, "-q")
    assert rlab_command(*attack, "--out", tmp_path / "run").code == 0
    result, told = AttackResult.load(tmp_path / "run"), Follower(tmp_path / "run").look()
    assert (told["steps"], told["samples"]) == (2, 6)
    assert told["ended"].get("flipped", 0) == int(result.succeeded.sum()) > 0
    assert told["queries"] == int(result.queries.sum())
    assert told["best"] == pytest.approx(sorted(result.best_within(30)[result.succeeded].tolist())[:5])


def test_each_look_reads_only_new_chunks(tmp_path: Path):
    row = {"status": "succeeded", "queries_search": 5, "queries_cleanup": 1, "queries_verify": 1}
    follower = Follower(tmp_path)
    assert follower.look()["samples"] == 0
    with sqlite3.connect(tmp_path / "ledger.sqlite") as db:
        db.executescript(TABLES)
    for count, nearest in enumerate((3.0, 1.0, 2.0), 1):
        spent = row | {"status": "budget spent", "improved_to": []}
        value = json.dumps([row | {"improved_to": [9.0, nearest]}, spent])
        with sqlite3.connect(tmp_path / "ledger.sqlite") as db:
            db.execute("insert into steps values (?, '', 1, 1, ?, null, null)", (f"chunk-{count:08d}", value))
            db.execute("insert into steps values (?, '', 1, 0, null, null, null)", (f"chunk-9{count:07d}",))
        told = follower.look()
        assert (told["samples"], told["queries"]) == (2 * count, 14 * count)
        assert told["ended"] == {"flipped": count, "held": count}
    assert told["best"] == [1.0, 2.0, 3.0]
    assert told["median"] == 2.0
    with sqlite3.connect(tmp_path / "ledger.sqlite") as db:
        db.execute("insert into steps values ('chunk-7', '', 1, 1, 'no JSON', null, null)")
    assert follower.look()["samples"] == 6


def test_events_end_with_the_run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rlab.serve.actions.EVERY", 0.01)
    looks = iter([{"n": 1}, {"n": 1}, {"n": 2}])
    alive = iter([True, True, False])

    async def heard() -> list[str]:
        return [event async for event in events(lambda: next(looks), lambda: next(alive))]

    assert asyncio.run(heard()) == ['data: {"n": 1}\n\n', 'data: {"n": 2}\n\n', "event: end\ndata: {}\n\n"]


def test_a_run_is_running_while_its_process_lives(tmp_path: Path):
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    here = platform.node()
    for pid, host, running in ((os.getpid(), here, True), (done.pid, here, False), (1, "far", True)):
        (tmp_path / LOCK).write_text(json.dumps({"command": "attack", "pid": pid, "host": host}))
        assert is_running(tmp_path) is running
    (tmp_path / LEDGER).touch()
    for hours, running in ((2, True), (30, False)):  # a process on another machine writes now and then
        (tmp_path / LOCK).write_text(json.dumps({"command": "attack", "pid": 1, "host": "far"}))
        for name in (LOCK, LEDGER):
            os.utime(tmp_path / name, (time.time() - 3600 * hours,) * 2)
        assert is_running(tmp_path) is running
    for odd in ("", "[]", '{"pid": -1}', '{"pid": "1"}', '{"pid": 99999999999999999999}'):
        (tmp_path / LOCK).write_text(odd)
        assert is_running(tmp_path) is False


def test_running_jobs_end_with_the_server(client: httpx.Client, tmp_path: Path):
    jobs = Jobs(tmp_path / "runs", MODELS)
    job = jobs.start(StartForm(model="demo:digits"))
    jobs.close()
    assert not job.running
    assert job.process.returncode != -signal.SIGKILL  # it ended on the first signal
    assert not Path(jobs.scratch.name).exists()
