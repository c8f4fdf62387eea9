"""Repair a run folder: keep what is intact and remove the rest, so that the run's command can make it again.

No model is queried. What can be rebuilt from intact files is rebuilt at once, such as the file of rows from the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from rlab.errors import FolderError, InputError
from rlab.folders.kinds import kind_named
from rlab.folders.mending import Mended
from rlab.storage.config import read_config, write_config
from rlab.storage.ledger import LEDGER, PARTS, remove_leftovers
from rlab.storage.lock import hold
from rlab.storage.mend import drop_damaged, mend_ledger, reopened
from rlab.storage.names import CONFIG
from rlab.storage.resume import Resume

_NOT_OPTIONS = ("command", "victims", "agent")  # keys that the ledger stores beside the options of a run


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
        if (kind := kind_named(mended.command)) is not None:
            kind.mend_folder(resume, mended)
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
