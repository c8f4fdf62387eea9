"""Repair a run folder: keep what is intact and forget the rest, so that the run's command can make it again.

No model is queried. What can be rebuilt from intact files is rebuilt at once, such as the file of rows from the ledger.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import torch

from rlab.auditing.config import FIGURES
from rlab.auditing.detection import Detection
from rlab.auditing.run import DECLARED
from rlab.benchmarking.folder import MANIFEST, METADATA, Benchmark
from rlab.benchmarking.verify import verify_benchmark
from rlab.corruptions.report import read_corruptions
from rlab.data.numpy_files import read_npz
from rlab.diagnosis.report import read_diagnosis
from rlab.errors import FolderError, InputError
from rlab.explanation.page import explanation_page
from rlab.folders.kinds import KINDS
from rlab.results.result import AttackResult
from rlab.results.stages import stage_file
from rlab.runs.chunk_work import join_chunks
from rlab.storage import files
from rlab.storage.config import read_config, write_config
from rlab.storage.digest import digest
from rlab.storage.ledger import LEDGER, PARTS, check_digest, reading, remove_leftovers
from rlab.storage.lock import hold
from rlab.storage.mend import drop_damaged, mend_ledger, reopened
from rlab.storage.names import CONFIG
from rlab.storage.resume import Resume

_NOT_OPTIONS = ("command", "victims", "agent")  # keys that the ledger stores beside the options of a run


@dataclass
class Mended:
    """What was done to a folder, and which steps must run again."""

    folder: Path
    command: str = ""
    done: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    @property
    def next(self) -> str:
        """The command that resumes the run."""
        for name, word in ((DECLARED, ""), (CONFIG, "" if self.command == "train" else "--config ")):
            if (self.folder / name).is_file() and self.command:
                return f"rlab {self.command} {word}{self.folder / name} --out {self.folder}"
        return f"the same rlab {self.command} command with --out {self.folder}"


def repair_run(folder: str | Path) -> Mended:
    """Repair the folder and the runs inside it; FolderError if it has no ledger."""
    run = Path(folder)
    if not (run / LEDGER).is_file():
        raise FolderError(f"{run} cannot be repaired: it is not a run folder, or its {LEDGER} is missing")
    with hold(run, "repair"):
        inner = [_mend(path.parent) for path in sorted(run.rglob(f"*/{LEDGER}")) if path.parent != run]
        mended = _mend(run, {one.folder.relative_to(run).parts[0]: one for one in inner if one.lost})
        mended.done[:0] = [f"{one.folder}: {line}" for one in inner for line in one.done]
    return mended


def _mend(folder: Path, inner: Mapping[str, Mended] | None = None) -> Mended:
    mended = Mended(folder)
    if leftovers := remove_leftovers(folder):
        mended.done.append(f"removed unfinished files: {', '.join(leftovers)}")
    mended.done += mend_ledger(folder)
    resume = reopened(folder)
    if resume is None:
        return mended
    with closing(resume):
        mended.command = str(resume.question.get("command", ""))
        resume.clean()
        joined = bool(resume.query_ledger("select 1 from files")) and not (folder / PARTS).is_dir()
        mended.lost += drop_damaged(resume, with_parts=not joined)
        resume.clean()
        _mend_config(resume, mended)
        for kind in KINDS:
            if kind.command == mended.command and kind.mend:
                resolve_name(kind.mend)(resume, mended)
        for stage in inner or ():
            if resume.fingerprint(stage) is not None:
                resume.drop(stage)
                mended.lost.append(stage)
    if mended.lost:
        mended.done.append(f"steps to run again: {', '.join(mended.lost)}")
    return mended


def _mend_config(resume: Resume, mended: Mended) -> None:
    path = resume.folder / CONFIG
    if path.exists():
        try:
            read_config(path)
        except InputError:
            path.unlink()
            asked = resume.question.items()
            write_config(resume.folder, {k: v for k, v in asked if k not in _NOT_OPTIONS and not k.startswith("the ")})
            mended.done.append(f"rewrote {CONFIG}")


def mend_attack(resume: Resume, mended: Mended) -> None:
    """Join rows and assignments again from the chunks; a file of all inputs is first split into chunks."""
    folder = resume.folder
    if mended.lost or not (folder / files.SAMPLES).exists():  # a finished run needs no students
        _drop_students(resume, mended)
    if not (folder / files.SAMPLES).exists() and not resume.query_ledger("select 1 from files"):
        return
    try:
        AttackResult.load(folder)
        if not mended.lost:
            return
    except InputError:
        pass
    try:
        arrays, setting = files.read_arrays(folder / files.ARRAYS)
    except InputError:
        arrays, setting = {}, ""
    (folder / PARTS).mkdir(exist_ok=True)
    first = 0
    for key, rows in resume.values("chunk-"):
        count = rows.num_rows
        part = {name: array[first : first + count].clone() for name, array in arrays.items()}
        first += count
        try:
            if count and not resume.part(key).exists():
                files.write_arrays(resume.part(key), part, setting)
            resume.check_part(key)
        except InputError:
            resume.part(key).unlink()
            resume.drop(key)
            mended.lost.append(key)
    resume.unfinish()
    for name in (files.ARRAYS, files.SAMPLES):
        (folder / name).unlink(missing_ok=True)
    if not mended.lost:
        join_chunks(resume, resume.finished("chunk-"))
        resume.finish(files.ARRAYS, files.SAMPLES, parts=True)
        mended.done.append(f"rewrote {files.ARRAYS} and {files.SAMPLES}")


def _drop_students(resume: Resume, mended: Mended) -> None:
    """Forget the students of a stage if their file is damaged; distilling them again gives the same file."""
    for key, facts in list(resume.values("stage-")):
        path = stage_file(resume.folder, int(key.removeprefix("stage-")))
        try:
            check_digest(path, facts["digest"])
        except InputError:
            path.unlink(missing_ok=True)
            resume.drop(key)
            mended.lost.append(key)


def mend_benchmark(resume: Resume, mended: Mended) -> None:
    """Forget chunks whose files have changed; split joined files again."""
    folder = resume.folder
    try:
        if not mended.lost and verify_benchmark(Benchmark.load(folder)).holds:
            return
    except InputError:
        pass
    joined = {mark: x for path in folder.rglob("*.npz") for mark, x in _samples(path)}
    for key, rows in list(resume.values("chunk-")):
        stored = [row for row in rows if row["file"]]
        if not all(_is_whole(folder, row["file"], row["sha256"], joined) for row in stored):
            resume.drop(key)
            mended.lost.append(key)
    if (folder / METADATA).exists() and not mended.lost:
        mended.lost.append("the metadata")
    resume.unfinish()
    for name in (MANIFEST, METADATA):
        (folder / name).unlink(missing_ok=True)


def _samples(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        for x in read_npz(path).get("x", ()):
            yield digest(torch.from_numpy(x).float(), length=64), x
    except InputError:
        return


def _is_whole(folder: Path, name: str, mark: str, joined: Mapping[str, Any]) -> bool:
    """Whether a sample's file is unchanged; a file that was joined with others is written again."""
    path = folder / name
    try:
        if not path.resolve().is_relative_to(folder.resolve()):
            return False
        if path.suffix != ".npy":
            parts = (path, path.with_suffix(".hea")) if path.suffix == ".dat" else (path,)
            return digest(*parts, length=64) == mark
        if not path.exists() and mark in joined:
            path.parent.mkdir(parents=True, exist_ok=True)
            out = io.BytesIO()
            np.save(out, joined[mark], allow_pickle=False)
            files.write_atomically(path, out.getvalue())
        return digest(torch.from_numpy(np.load(path, allow_pickle=False)).float(), length=64) == mark
    except (OSError, ValueError, EOFError):
        return False


def mend_audit(resume: Resume, mended: Mended) -> None:
    """Forget stages whose files cannot be read."""
    folder = resume.folder
    checks: dict[str, Callable[[], object]] = {
        "doctor": lambda: read_diagnosis(folder / "doctor"),
        "attack": lambda: AttackResult.load(folder / "attack"),
        "detect": lambda: Detection.read(folder / "detect"),
        "corrupt": lambda: read_corruptions(folder / "corrupt"),
        "explain": lambda: explanation_page(folder / "explain"),
        "harden": lambda: files.read_json(folder / "harden" / FIGURES),
    }
    for stage, read in checks.items():
        finished = resume.fingerprint(stage)
        if finished is None or (resume.recall(stage, finished) or {}).get("note"):
            continue
        try:
            with reading(folder):
                read()
        except InputError:
            resume.drop(stage)
            mended.lost.append(stage)
            if stage in ("detect", "corrupt", "explain"):
                shutil.rmtree(folder / stage, ignore_errors=True)
