"""What of an audit is finished: one small file that says which stages are done, of what, and what they cost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rlab.errors import InputError
from rlab.runs.files import write_atomically

MANIFEST, VERSION = "manifest.json", 1


@dataclass(frozen=True)
class Rows:
    """Inputs that reached models: the audited one, further ones of the benchmark, and copies that hardening trains."""

    model: int = 0
    others: int = 0
    copies: int = 0

    def __add__(self, more: Rows) -> Rows:
        return Rows(self.model + more.model, self.others + more.others, self.copies + more.copies)

    @property
    def total(self) -> int:
        return self.model + self.others + self.copies


@dataclass(frozen=True)
class Done:
    """A finished stage."""

    rows: Rows = Rows()
    seconds: float = 0.0
    note: str = ""  # why it has nothing to show, where it has not
    begun: int = 1  # more often than once where it was interrupted


class Manifest:
    """The stages of one folder. `marks` tell models, data and stages apart; a stage of another mark is refused."""

    def __init__(self, folder: Path, marks: Mapping[str, str]) -> None:
        self.folder, self.marks = folder, dict(marks)
        self.stages: dict[str, dict[str, Any]] = {}
        self.common: dict[str, str] = {name: marks[name] for name in ("model", "data")}
        if (folder / MANIFEST).is_file():
            self._read()
        elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{folder} exists and is not an audit's folder: name another with --out")

    def _read(self) -> None:
        try:
            found = json.loads((self.folder / MANIFEST).read_text(encoding="utf-8"))
            if found["rlab_audit"] != VERSION:
                raise ValueError(f"version {found['rlab_audit']}")
            there, self.stages = found["common"], found["stages"]
            differs = [name for name in self.common if there[name] != self.common[name]]
            differs += [name for name, one in self.stages.items() if one["mark"] != self.marks.get(name, one["mark"])]
        except (KeyError, TypeError, ValueError, OSError) as error:
            raise InputError(f"{self.folder / MANIFEST} is damaged or of another version: {error}") from error
        if differs:
            raise InputError(
                f"{self.folder} holds another audit ({', '.join(differs)} differs): name another folder with --out"
            )

    def finished(self, stage: str) -> Done | None:
        known = self.stages.get(stage, {})
        if not known.get("finished"):
            return None
        return Done(Rows(**known["rows"]), known["seconds"], known["note"], known["begun"])

    def begin(self, stage: str) -> int:
        """-> how often it has been begun, this time included."""
        begun = int(self.stages.get(stage, {}).get("begun", 0)) + 1
        self.stages[stage] = {"mark": self.marks[stage], "begun": begun, "finished": False}
        self._write()
        return begun

    def finish(self, stage: str, done: Done) -> None:
        self.stages[stage] = {"mark": self.marks[stage], "finished": True, **asdict(done)}
        self._write()

    def _write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        content = {"rlab_audit": VERSION, "common": self.common, "stages": self.stages}
        write_atomically(self.folder / MANIFEST, (json.dumps(content, indent=1) + "\n").encode())


def mark_of(values: object) -> str:
    """A short digest of plain values."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:24]
