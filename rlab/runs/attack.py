"""An attack into a folder: finished chunks are kept, and the same command goes on from there.

A chunk's samples are finished together, so that a resumed run asks the model exactly the batches an unbroken one would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from rlab.core.attack import Attack, Found
from rlab.core.distances import Measure
from rlab.core.result import AttackResult, Status, to_rows
from rlab.core.trace import DISTANCE_NAMES
from rlab.data.batch import Batch
from rlab.filters import check_palette
from rlab.progress import Progress, quiet, standing
from rlab.redact import redact
from rlab.runs import files
from rlab.runs.fingerprint import data_fingerprint, inputs_of
from rlab.runs.resume import Resume, open_run
from rlab.victims.base import Victim

CONFIG = "config.yaml"


def run_attack(
    attack: Attack, victim: Victim, batch: Batch, folder: Path, config: Mapping[str, Any], progress: Progress = quiet
) -> AttackResult:
    """Attacks the batch into `folder`, or goes on with what is there. `config` is what was asked for, as plain values."""
    asked = {"command": "attack", **config, "the data": data_fingerprint(batch), **inputs_of(victim, config)}
    with open_run(folder, asked) as resume:
        if not (folder / files.SAMPLES).exists():
            check_palette(attack.palette, batch.x[:4], batch.bounds)
            chunks = list(attack.chunks(len(batch)))
            for rows in chunks:
                search = partial(attack.search, victim, batch[rows], rows.start, batch.y, progress)
                progress(_chunk(resume, attack, search, key_of(rows), config))
            join_chunks(resume, [key_of(rows) for rows in chunks])
        resume.finish(files.ARRAYS, files.SAMPLES)
    return AttackResult.load(folder)


def key_of(rows: slice) -> str:
    return f"chunk-{rows.start:08d}"


def _chunk(
    resume: Resume, attack: Attack, search: Callable[[], Found], key: str, config: Mapping[str, Any]
) -> FinishedRows:
    """One chunk, verified from the file its inputs were written to; of one that is finished the rows alone are read."""
    part = resume.part(key)

    def make() -> list[dict[str, Any]]:
        found = search()
        resume.create()
        write_config(resume.folder, config)
        part.parent.mkdir(exist_ok=True)
        files.write_arrays(part, found.arrays, found.setting.to_json())
        return to_rows(attack.verify(found, files.read_arrays(part)[0]["perturbed"]))

    return FinishedRows(resume.step(key, "", make, part=True), attack.distance)


@dataclass(frozen=True)
class FinishedRows:
    """A chunk, for the progress bar."""

    rows: list[dict[str, Any]]
    distance: Measure

    def __len__(self) -> int:
        return len(self.rows)

    def note(self) -> str:
        won = [row for row in self.rows if row["status"] == Status.SUCCEEDED.value]
        attacked = sum(row["status"] != Status.SKIPPED.value for row in self.rows)
        return standing([min(row["improved_to"]) for row in won], attacked, DISTANCE_NAMES[self.distance])


def join_chunks(resume: Resume, keys: list[str]) -> None:
    """Parts become the one file of arrays; the rows' file comes last and marks the run as whole."""
    for key in keys:
        resume.check_part(key)
    parts = [resume.part(key) for key in keys]
    files.join_arrays(parts, resume.folder / files.ARRAYS)
    setting = files.read_arrays(parts[0])[1]
    rows = [row for _, kept in resume.values("chunk-") for row in kept]
    files.write_rows(resume.folder / files.SAMPLES, rows, setting)


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """The effective configuration beside the results: a file to start the next run from."""
    if not (folder / CONFIG).exists():
        text = yaml.safe_dump(redact(dict(config)), sort_keys=False, allow_unicode=True)
        files.write_text(folder / CONFIG, text)
