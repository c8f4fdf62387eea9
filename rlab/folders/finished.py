"""Finished run folders: which command made one, whether it is finished, and its report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from rlab.errors import FolderError
from rlab.folders.verbs import VERBS, Verb
from rlab.present.report import REPORT, read_verb
from rlab.storage.names import refuse_strange
from rlab.storage.run_file import RUN, reading, stored_command

if TYPE_CHECKING:  # imported on use: the list of `rlab serve` does without torch
    from rlab.data.batch import Samples
    from rlab.present.report import Report


def verb_of(folder: Path) -> Verb | None:
    """The command by the name in `run.json`, or by the files of a finished run if the folder has no readable one."""
    name = stored_command(folder) or read_verb(folder)
    verbs = [verb for verb in VERBS if verb.name == name]
    finished = next((verb for verb in verbs or VERBS if is_finished(verb, folder)), None)
    return finished or (verbs[0] if verbs else None)


def is_finished(verb: Verb, folder: Path) -> bool:
    if REPORT in verb.marks:
        return read_verb(folder) == verb.name
    return all((folder / mark).exists() for mark in verb.marks)


def finished_verb(folder: Path) -> Verb:
    """The command of a finished run; FolderError if the folder is no run or the run is not finished."""
    if not folder.is_dir():
        raise FolderError(f"there is no folder {folder}: name a run folder of rlab")
    refuse_strange(folder)
    verb = verb_of(folder)
    if verb is not None and is_finished(verb, folder):
        return verb
    if (folder / RUN).exists():
        raise FolderError(f"{folder} is not finished: run its command again to resume it")
    raise FolderError(f"{folder} holds no run of rlab: expected a folder of {', '.join(verb.name for verb in VERBS)}")


def load_report(folder: Path, data: Samples | None = None) -> Report:
    """The report of a finished run; inputs that an attack did not store are rebuilt from `data`."""
    verb = finished_verb(folder)
    load: Callable[..., Report] = resolve_name(verb.report).load
    with reading(folder):
        return load(folder) if data is None else load(folder, data)
