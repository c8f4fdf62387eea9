"""Slightly damaged inputs give one sentence and exit code 2, or a result; never a traceback, a hang or a stray file."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.command import Said, rlab_command
from tests.mutation.edits import apply_all, changes, edits
from tests.mutation.inputs import SUBJECTS, Subject, make_inputs

SECONDS = 30  # generous: each command takes less than one second on an idle machine
FEW, MANY = 4, 60  # damages per subject, a sixth for slow ones: 130 and 2,000 in total
OUTPUTS = ("out", "run/report.html")


class Hangs(BaseException):
    """Not an Exception, so nothing catches it."""


@contextmanager
def alarm(seconds: int) -> Iterator[None]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise Hangs(f"no answer within {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def within(folder: Path, *words: object) -> Said:
    """Run `rlab WORDS` in this folder."""
    here = Path.cwd()
    os.chdir(folder)
    try:
        with alarm(SECONDS):
            return rlab_command(*words)
    finally:
        os.chdir(here)


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a folder with all valid inputs in `valid`, and another file beside it."""
    place = tmp_path_factory.mktemp("mutation")
    (place / "valid").mkdir()
    (place / "others").mkdir()
    (place / "others" / "notes.txt").write_text("mine")
    make_inputs(place / "valid", lambda *words: within(place / "valid", *words))
    return place


def contents(folder: Path, without: tuple[str, ...] = ()) -> dict[str, bytes | None]:
    """Return every path below the folder with its content."""
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if "__pycache__" not in path.parts}
    kept = {name: path for name, path in paths.items() if not any(f"{name}/".startswith(f"{w}/") for w in without)}
    return {name: path.read_bytes() if path.is_file() else None for name, path in kept.items()}


def damaged(subject: Subject, file: Path, damages: list[Any]) -> bytes:
    """Return the file's bytes after the damages."""
    valid = file.read_bytes()
    if subject.made == "bytes":
        return bytes(apply_all(damages, valid))
    if subject.made == "yaml":
        return yaml.dump(apply_all(damages, yaml.safe_load(valid)), Dumper=_Plain).encode()
    if subject.made == "json":
        return json.dumps(apply_all(damages, json.loads(valid))).encode()
    if subject.made == "header":  # the values `rlab train` wrote into the header of a safetensors file
        (length,) = struct.unpack("<Q", valid[:8])
        header = json.loads(valid[8 : 8 + length])
        header["__metadata__"]["rlab"] = json.dumps(apply_all(damages, json.loads(header["__metadata__"]["rlab"])))
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + valid[8 + length :]
    table = pq.read_table(file)
    rows = apply_all(damages, table.to_pylist())
    sink = pa.BufferOutputStream()
    try:
        changed = pa.Table.from_pylist(rows)
    except (pa.ArrowException, AttributeError, TypeError, OverflowError, RecursionError, ValueError):
        return valid  # Parquet cannot hold such rows
    pq.write_table(changed.replace_schema_metadata(table.schema.metadata), sink)
    return sink.getvalue().to_pybytes()


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def check(place: Path, subject: Subject, damages: list[Any]) -> None:
    folder = place / "work"
    shutil.copytree(place / "valid", folder)
    try:
        (folder / subject.file).write_bytes(damaged(subject, folder / subject.file, damages))
        before = {allowed: contents(folder, allowed) for allowed in ((), OUTPUTS)}
        beside = contents(place, ("work", "valid"))
        shown = within(folder, *subject.words.split())
        assert shown.code in (0, 1, 2), shown
        assert "Traceback" not in shown.out + shown.err
        allowed = () if shown.code == 2 else OUTPUTS
        assert contents(folder, allowed) == before[allowed], "something was left behind"
        assert contents(place, ("work", "valid")) == beside, "something was written elsewhere"
        assert shown.code != 2 or shown.err.strip(), shown
    finally:
        shutil.rmtree(folder)


def campaign(place: Path, subject: Subject, count: int) -> None:
    """Try `count` lists of one to three damages, always the same ones."""
    quiet = [HealthCheck.too_slow, HealthCheck.differing_executors]
    damages = st.lists(edits if subject.made == "bytes" else changes, min_size=1, max_size=3)

    @settings(max_examples=count, derandomize=True, database=None, suppress_health_check=quiet)
    @given(damages=damages)
    def damage(damages: list[Any]) -> None:
        check(place, subject, damages)

    damage()


@pytest.mark.parametrize("subject", {subject.words: subject for subject in SUBJECTS}.values(), ids=str)
def test_unharmed(place: Path, subject: Subject) -> None:
    shutil.copytree(place / "valid", place / "work")
    try:
        shown = within(place / "work", *subject.words.split())
        assert shown.code == subject.code, shown
    finally:
        shutil.rmtree(place / "work")


@pytest.mark.parametrize("subject", SUBJECTS, ids=str)
def test_a_few_damages(place: Path, subject: Subject) -> None:
    campaign(place, subject, -(-FEW // 6) if subject.slow else FEW)


@pytest.mark.slow
@pytest.mark.parametrize("subject", SUBJECTS, ids=str)
def test_many_damages(place: Path, subject: Subject) -> None:
    campaign(place, subject, MANY // 6 if subject.slow else MANY)
