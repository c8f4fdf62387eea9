"""A run that can be killed at any moment: finished chunks are in a ledger, and the same command goes on from there.

A chunk's samples are finished together, so that a resumed run asks the model exactly the batches an unbroken one would.
Nothing is written before the first chunk's search is done: a run that fails at its start leaves no folder behind.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from torch import Tensor

from rlab import runfolder
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.filters import check_palette
from rlab.loop import Attack
from rlab.progress import Progress, quiet
from rlab.result import AttackResult, Setting, from_parts, to_rows
from rlab.victims.base import Victim

CONFIG, LEDGER, PARTS = "config.yaml", "ledger.sqlite", "parts"
_TABLES = """
create table if not exists meta (key text primary key, value text not null);
create table if not exists chunks (first integer primary key, begun integer not null, finished integer not null);
create table if not exists samples (place integer primary key, id text not null, row text not null);
"""


class Ledger:
    """Which chunks of a run folder are finished, and their rows."""

    def __init__(self, folder: Path) -> None:
        self.db = sqlite3.connect(folder / LEDGER)
        self.db.execute("pragma synchronous = full")
        self.db.executescript(_TABLES)

    def fingerprint(self) -> str | None:
        found = self.db.execute("select value from meta where key = 'fingerprint'").fetchone()
        return None if found is None else str(found[0])

    def sign(self, fingerprint: str) -> None:
        with self.db:
            self.db.execute("insert or replace into meta values ('fingerprint', ?)", (fingerprint,))

    def finished(self) -> set[int]:
        return {first for (first,) in self.db.execute("select first from chunks where finished = 1")}

    def begin(self, first: int) -> None:
        """A chunk that was begun more often than finished was interrupted; its rows were asked again."""
        with self.db:
            self.db.execute(
                "insert into chunks values (?, 1, 0) on conflict (first) do update set begun = begun + 1", (first,)
            )

    def commit(self, first: int, result: AttackResult) -> None:
        """The arrays are on disk already; from here on the chunk counts as finished."""
        self.commit_rows(first, [(first + i, row) for i, row in enumerate(to_rows(result))])

    def commit_rows(self, first: int, placed: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
        """The same for any rows with an id, each with its place."""
        rows = [(place, row["id"], json.dumps(row)) for place, row in placed]
        with self.db:
            self.db.executemany("insert into samples values (?, ?, ?)", rows)
            self.db.execute("update chunks set finished = 1 where first = ?", (first,))

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(row) for (row,) in self.db.execute("select row from samples order by place")]

    def interrupted(self) -> int:
        """How often a chunk was begun and not finished."""
        return int(self.db.execute("select coalesce(sum(begun - finished), 0) from chunks").fetchone()[0])


class Run:
    """A run folder and what was asked for in it."""

    def __init__(self, folder: Path, config: Mapping[str, Any], fingerprint: str) -> None:
        self.folder, self.config, self.fingerprint = folder, config, fingerprint
        self.ledger: Ledger | None = None
        if (folder / LEDGER).exists():
            self.ledger = Ledger(folder)
            _check_same(folder, self.ledger.fingerprint(), fingerprint)
        elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{folder} exists and is not a run folder: name another with --out")

    def part(self, first: int) -> Path:
        return self.folder / PARTS / f"{first:08d}.safetensors"

    def attack_chunk(
        self, attack: Attack, victim: Victim, batch: Batch, first: int, seed: int, labels: Tensor
    ) -> AttackResult:
        """One chunk, verified from the file its inputs were written to."""
        if self.ledger is not None:
            self.ledger.begin(first)

        def through_disk(arrays: Mapping[str, Tensor], setting: Setting) -> Tensor:
            self.create()
            runfolder.write_arrays(self.part(first), arrays, setting.to_json())
            return runfolder.read_arrays(self.part(first))[0]["perturbed"]

        fresh = self.ledger is None
        result = attack.attack_chunk(victim, batch, seed, first, through_disk, labels)
        assert self.ledger is not None
        if fresh:
            self.ledger.begin(first)
        self.ledger.commit(first, result)
        return result

    def create(self) -> None:
        """Whatever of the folder is not there yet. The ledger comes first: by it a killed run knows its own folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.ledger = self.ledger or Ledger(self.folder)
        if self.ledger.fingerprint() is None:
            self.ledger.sign(self.fingerprint)
        if not (self.folder / CONFIG).exists():
            text = yaml.safe_dump(dict(self.config), sort_keys=False, allow_unicode=True)
            runfolder.write_atomically(self.folder / CONFIG, text.encode())
        (self.folder / PARTS).mkdir(exist_ok=True)

    def read_chunk(self, rows: slice) -> AttackResult:
        assert self.ledger is not None
        arrays, setting = runfolder.read_arrays(self.part(rows.start))
        return from_parts(Setting.from_json(setting), self.ledger.rows()[rows], arrays)

    def finish(self, firsts: list[int]) -> None:
        """Parts become the one file of arrays; the rows' file comes last and marks the run as whole."""
        assert self.ledger is not None
        runfolder.join_arrays([self.part(first) for first in firsts], self.folder / runfolder.ARRAYS)
        setting = runfolder.read_arrays(self.part(firsts[0]))[1]
        runfolder.write_rows(self.folder / runfolder.SAMPLES, self.ledger.rows(), setting)
        for first in firsts:
            self.part(first).unlink()
        (self.folder / PARTS).rmdir()


def run_attack(
    attack: Attack,
    victim: Victim,
    batch: Batch,
    folder: Path,
    config: Mapping[str, Any],
    seed: int = 0,
    progress: Progress = quiet,
) -> AttackResult:
    """Attacks the batch into `folder`, or goes on with what is there. `config` is what was asked for, as plain values."""
    run = Run(folder, config, fingerprint(config, batch))
    if not (folder / runfolder.SAMPLES).exists():
        check_palette(attack.palette, batch.x[:4], batch.bounds)
        done = run.ledger.finished() if run.ledger else set()
        chunks = list(attack.chunks(len(batch)))
        for rows in chunks:
            if rows.start in done:
                progress(run.read_chunk(rows))
            else:
                progress(run.attack_chunk(attack, victim, batch[rows], rows.start, seed, batch.y))
        run.finish([rows.start for rows in chunks])
    return AttackResult.load(folder)


def fingerprint(config: Mapping[str, Any], batch: Batch) -> str:
    """One line that two runs share only if they were asked the same of the same data."""
    digest = hashlib.sha256()
    for values in (batch.x, batch.y):
        digest.update(values.contiguous().numpy().tobytes())
    digest.update("\n".join(batch.ids).encode())
    return json.dumps({"config": dict(config), "data": digest.hexdigest()}, sort_keys=True, default=str)


def _check_same(folder: Path, there: str | None, asked: str) -> None:
    if there is None or there == asked:
        return
    old, new = (json.loads(mark)["config"] for mark in (there, asked))
    differs = ", ".join(sorted(key for key in old | new if old.get(key) != new.get(key))) or "the data"
    raise InputError(
        f"{folder} holds a run of another configuration ({differs} differs): name another folder with --out"
    )
