"""What a run folder belongs to: a configuration, and contents of objects that a later run has to recognise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlab import __version__
from rlab.errors import FolderError
from rlab.redact import redact
from rlab.storage.contents import Contents, left_out_of
from rlab.storage.run_file import RunFile

HINT = "name another folder with --out"


class Question:
    """Plain `values`, as `run.json` stores them, with a mark in place of each of the contents."""

    def __init__(self, question: Mapping[str, Any]) -> None:
        self.contents = {key: value for key, value in question.items() if isinstance(value, Contents)}
        marks = {key: contents.mark() for key, contents in self.contents.items()}
        self.values: dict[str, Any] = json.loads(json.dumps(redact(dict(question)) | marks, default=str))

    def differ(self, before: Mapping[str, Any]) -> list[str]:
        """The keys whose values differ from stored ones; marks that fit leave out what the stored ones do."""
        self.values |= {key: before[key] for key, contents in self.contents.items() if contents.fits(before.get(key))}
        return sorted(key for key in {*before, *self.values} if before.get(key) != self.values.get(key))

    def refuse_other(self, folder: Path, begun: RunFile) -> None:
        """Refuse a folder that was begun by another version, command or configuration."""
        version, (mine, theirs) = (
            begun.versions["rlab"],
            (each.get("command") for each in (self.values, begun.configuration)),
        )
        if version.split(".")[:2] != __version__.split(".")[:2]:
            both = f"was begun by rlab {version}, but this is {__version__}"
            raise FolderError(f"{folder} {both}: continue it with that version, or {HINT}")
        if mine != theirs:
            raise FolderError(f"{folder} belongs to `rlab {theirs}`, not to `rlab {mine}`: {HINT}")
        differ = self.differ(begun.configuration)
        if lost := self.lost():
            raise FolderError(f"{folder} cannot be resumed, because rlab cannot recognise {lost}: {HINT}")
        if differ:
            what = f"a run of another configuration ({', '.join(differ)} differ{'s' if len(differ) == 1 else ''})"
            raise FolderError(f"{folder} holds {what}: {HINT}")

    def lost(self) -> str:
        """What a later run could not recognise, in words."""
        lost = {key: contents.lost(left_out_of(self.values[key])) for key, contents in self.contents.items()}
        return ", ".join(f"{key}: {', '.join(parts)}" for key, parts in lost.items() if parts)

    def settle(self) -> None:
        """Leave out what changed because it was used, such as a model's count of its calls."""
        for key, contents in self.contents.items():
            if not contents.lost(left_out_of(self.values[key])):
                self.values[key] = contents.settled(self.values[key])
