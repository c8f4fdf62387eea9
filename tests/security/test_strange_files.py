"""Pipes, devices, links and hostile ledgers in a folder give an error of one sentence, soon and in little memory."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from PIL import Image

from rlab.benchmarking.manifest import MANIFEST
from rlab.data.load import load
from rlab.errors import InputError
from rlab.guard import time_limit
from rlab.results.result import AttackResult
from rlab.serve.runs import list_runs
from rlab.storage import ledger
from rlab.storage.lock import hold
from tests.benchmarking.cases import made_once
from tests.command import rlab_command
from tests.runs.killing import unbroken, unbroken_root

SECONDS = 20  # far more than needed, far less than for ever
FILES = (
    "arrays.safetensors",
    "samples.parquet",
    "run.lock",
    "times.parquet",
    "config.yaml",
    "ledger.sqlite",
    "ledger.sqlite-journal",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    unbroken("attack")
    return Path(shutil.copytree(unbroken_root() / "attack", tmp_path / "runs" / "run"))


def as_pipe(path: Path) -> None:
    os.mkfifo(path)


def as_zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("plant", [as_pipe, as_zeros])
def test_no_command_waits_for_a_file(folder: Path, name: str, plant: Callable[[Path], None]) -> None:
    (folder / name).unlink(missing_ok=True)
    plant(folder / name)
    with time_limit(SECONDS):
        for command in ("show", "report"):
            shown = rlab_command(command, folder)
            assert shown.code == 2, shown
            assert shown.err.count("\n") == 1
        list_runs(folder.parent)


@pytest.mark.parametrize("name", ["arrays.safetensors", "samples.parquet", "ledger.sqlite"])
def test_no_function_waits_for_a_file(folder: Path, name: str) -> None:
    (folder / name).unlink()
    as_pipe(folder / name)
    with time_limit(SECONDS), pytest.raises(InputError):
        AttackResult.load(folder)


def test_a_lock_must_be_a_file(tmp_path: Path) -> None:
    as_pipe(tmp_path / "run.lock")
    with time_limit(SECONDS), pytest.raises(InputError), hold(tmp_path, "test"):
        pass


def test_a_pipe_as_a_picture_of_a_benchmark(tmp_path: Path) -> None:
    folder = made_once(tmp_path, 2, "png").folder
    picture = next(folder.rglob("*.png"))
    picture.unlink()
    as_pipe(picture)
    with time_limit(SECONDS):
        for words in (("report",), ("benchmark", "verify")):
            assert rlab_command(*words, folder).code == 2


def test_a_manifest_of_enormous_samples(tmp_path: Path) -> None:
    """Its numbers decide how much memory is needed."""
    folder = made_once(tmp_path, 2, "png").folder
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["shape"]["size"] = [10**8, 10**8]
    (folder / MANIFEST).write_text(json.dumps(manifest))
    for words in (
        ("report", folder),
        ("benchmark", "verify", folder),
        ("benchmark", "run", folder, "--model", "demo:digits"),
    ):
        said = rlab_command(*words)
        assert said.code in (1, 2), said
        assert said.err.count("\n") <= 1


ENDLESS = "with recursive more(value, versions) as (select '{}', '{}' union all select value, versions from more)"
LEDGERS = {
    "an endless view": f"drop table asked; create view asked as {ENDLESS} select value, versions from more",
    "a large view": "drop table asked; create view asked as select hex(zeroblob(400000000)) value, '{}' versions",
    "an endless view of steps": f"drop table steps; create view steps as {ENDLESS} "
    "select value as key, '' fingerprint, 0 begun, 1 finished, null value, null digest, null part from more",
    "a trigger": "create trigger more after insert on files begin delete from steps; end",
    "a computed column": "drop table files; create table files (name text primary key, "
    "digest text generated always as (hex(zeroblob(400000000))))",
    "another table": "create table more (value text)",
}


@pytest.mark.parametrize("script", LEDGERS.values(), ids=LEDGERS)
def test_a_ledger_with_other_tables_is_refused(folder: Path, script: str) -> None:
    with closing(sqlite3.connect(folder / ledger.LEDGER)) as db:
        db.executescript(script)
    with time_limit(SECONDS):
        for command in ("show", "report"):
            shown = rlab_command(command, folder)
            assert shown.code == 2, shown
            assert "other tables" in shown.err
        (entry,) = list_runs(folder.parent)
    assert entry.command in ("attack", "damaged")


def test_a_long_query_ends(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "PATIENCE", 0.2)
    with closing(ledger.connect(folder)) as db, pytest.raises(sqlite3.OperationalError):
        db.execute(f"{ENDLESS} select count(*) from more").fetchall()


def test_a_ledger_is_read_without_the_right_to_write(folder: Path) -> None:
    with closing(ledger.connect(folder)) as db, pytest.raises(sqlite3.OperationalError):
        db.execute("delete from steps")


def test_a_journal_cannot_name_files_to_delete(folder: Path) -> None:
    """SQLite deletes the file that a journal names as its superior, if no other journal needs it."""
    precious = folder.parent / "precious"
    precious.write_bytes(b"kept")
    with closing(sqlite3.connect(folder / ledger.LEDGER, isolation_level=None)) as db:
        db.execute("pragma journal_mode = persist")
        db.execute("begin immediate")
        db.execute("update steps set begun = begun + 1")
        db.execute("pragma cache_spill = 1")
        journal = (folder / f"{ledger.LEDGER}-journal").read_bytes()
        db.execute("rollback")
    name = str(precious).encode()
    tail = (2**30 // 4096 + 1).to_bytes(4, "big") + name + len(name).to_bytes(4, "big") + sum(name).to_bytes(4, "big")
    (folder / f"{ledger.LEDGER}-journal").write_bytes(journal + tail + bytes.fromhex("d9d505f920a163d7"))
    for command in ("show", "report"):
        assert rlab_command(command, folder).code == 2
    assert precious.read_bytes() == b"kept"


def test_links_in_data_are_followed(tmp_path: Path) -> None:
    """A folder of images that the user names may consist of links, as many data sets do."""
    (tmp_path / "elsewhere").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "elsewhere" / "a.png")
    for name in ("0", "1"):
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "a.png").symlink_to(tmp_path / "elsewhere" / "a.png")
    assert len(load(tmp_path / "data")) == 2


def test_every_promise_names_a_test(root: Path) -> None:
    """The table of SECURITY.md: `path::test`, or `::test` in the file before it."""
    named, file = 0, ""
    for path, test in re.findall(r"`([\w/.]*)::(\w+)`", (root / "SECURITY.md").read_text()):
        file = path or file
        assert f"def {test}(" in (root / file).read_text(), (file, test)
        named += 1
    assert named > 25
