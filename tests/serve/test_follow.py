"""Running attacks are followed: what their parts hold so far, read anew by each look."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import pytest

from rlab.results.result import AttackResult
from rlab.serve.follow import progress_of
from rlab.serve.runs import is_running
from rlab.storage.lock import LOCK
from rlab.storage.run_file import RUN
from rlab.storage.steps import Step, read_step
from tests.command import rlab_command
from tests.serve.cases import live_run, served


def test_a_follower_counts_the_results_of_a_run(tmp_path: Path):
    attack = ("attack", "demo:digits", "demo:digits", "--limit", 6, "--budget", 30, "--chunk", 3, "--pictures", 0, "-q")
    assert rlab_command(*attack, "--out", tmp_path / "run").code == 0
    result, told = AttackResult.load(tmp_path / "run"), progress_of(tmp_path / "run")
    assert told["samples"] == 6
    assert told["ended"].get("flipped", 0) == int(result.succeeded.sum()) > 0
    assert told["queries"] == int(result.queries.sum())
    assert told["best"] == pytest.approx(sorted(result.best_within(30)[result.succeeded].tolist())[:5])


def test_each_look_reads_only_new_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    row = {"status": "succeeded", "queries_search": 5, "queries_cleanup": 1, "queries_verify": 1}
    read = mock.Mock(side_effect=read_step)
    monkeypatch.setattr("rlab.serve.follow.read_step", read)
    assert progress_of(tmp_path)["samples"] == 0
    for count, nearest in enumerate((3.0, 1.0, 2.0), 1):
        spent = row | {"status": "budget spent", "improved_to": []}
        value = [row | {"improved_to": [9.0, nearest]}, spent]
        Step(fingerprint="", value=value).write(tmp_path, f"chunk-{count:08d}")
        told = progress_of(tmp_path)
        assert (told["samples"], told["queries"]) == (2 * count, 14 * count)
        assert told["ended"] == {"flipped": count, "held": count}
        assert read.call_count == count
    assert told["best"] == [1.0, 2.0, 3.0]
    assert told["median"] == 2.0
    (first, *_) = sorted((tmp_path / "parts").iterdir())
    first.with_name(f"chunk-7{first.suffix}").write_text("damaged")
    assert progress_of(tmp_path)["samples"] == 6


def test_a_running_attack_is_followed_to_its_end(tmp_path: Path):
    lock = live_run(tmp_path / "live")
    with served(tmp_path) as client:
        page = client.get("/run/live").text
        assert 'data-progress="/progress/live"' in page
        assert "<dd>running</dd>" in page
        told = client.get("/progress/live").json()
        assert (told["running"], told["samples"], told["median"]) == (True, 0, None)
        lock.unlink()
        assert not client.get("/progress/live").json()["running"]
        page = client.get("/run/live").text
        assert "<dd>stopped</dd>" in page
        assert "run the same command again" in page
        assert client.get("/progress/nowhere").status_code == 404


def test_a_run_is_running_while_its_process_lives(tmp_path: Path):
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    here = platform.node()
    for pid, host, running in ((os.getpid(), here, True), (done.pid, here, False), (1, "far", True)):
        (tmp_path / LOCK).write_text(json.dumps({"command": "attack", "pid": pid, "host": host}))
        assert is_running(tmp_path) is running
    (tmp_path / RUN).touch()
    for hours, running in ((2, True), (30, False)):  # a process on another machine writes now and then
        (tmp_path / LOCK).write_text(json.dumps({"command": "attack", "pid": 1, "host": "far"}))
        for name in (LOCK, RUN):
            os.utime(tmp_path / name, (time.time() - 3600 * hours,) * 2)
        assert is_running(tmp_path) is running
    for odd in ("", "[]", '{"pid": -1}', '{"pid": "1"}', '{"pid": 99999999999999999999}'):
        (tmp_path / LOCK).write_text(odd)
        assert is_running(tmp_path) is False
