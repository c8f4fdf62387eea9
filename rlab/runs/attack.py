"""An attack into a folder: finished chunks are kept, and the same command goes on from there.

A chunk's samples are finished together, so that a resumed run asks the model exactly the batches an unbroken one would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from rlab.core.attack import Attack, Found
from rlab.core.result import AttackResult, Setting, from_parts, to_rows
from rlab.data.batch import Batch
from rlab.filters import check_palette
from rlab.progress import Progress, quiet
from rlab.redact import redact
from rlab.runs import files
from rlab.runs.fingerprint import data_fingerprint
from rlab.runs.resume import PARTS, Resume
from rlab.victims.base import Victim

CONFIG = "config.yaml"


def run_attack(
    attack: Attack, victim: Victim, batch: Batch, folder: Path, config: Mapping[str, Any], progress: Progress = quiet
) -> AttackResult:
    """Attacks the batch into `folder`, or goes on with what is there. `config` is what was asked for, as plain values."""
    resume = Resume(folder, {"command": "attack", **config, "the data": data_fingerprint(batch)})
    if not (folder / files.SAMPLES).exists():
        check_palette(attack.palette, batch.x[:4], batch.bounds)
        chunks = list(attack.chunks(len(batch)))
        for rows in chunks:
            search = partial(attack.search, victim, batch[rows], rows.start, batch.y, progress)
            progress(_chunk(resume, attack, search, key_of(rows), config))
        _finish(resume, [key_of(rows) for rows in chunks])
    return AttackResult.load(folder)


def key_of(rows: slice) -> str:
    return f"chunk-{rows.start:08d}"


def _chunk(
    resume: Resume, attack: Attack, search: Callable[[], Found], key: str, config: Mapping[str, Any]
) -> AttackResult:
    """One chunk, verified from the file its inputs were written to, or read back."""
    part = resume.part(key)
    results = []

    def make() -> list[dict[str, Any]]:
        found = search()
        resume.create()
        write_config(resume.folder, config)
        files.write_arrays(part, found.arrays, found.setting.to_json())
        results.append(attack.verify(found, files.read_arrays(part)[0]["perturbed"]))
        return to_rows(results[0])

    kept = resume.step(key, "", make)
    if results:
        return results[0]
    arrays, setting = files.read_arrays(part)
    return from_parts(Setting.from_json(setting), kept, arrays)


def _finish(resume: Resume, keys: list[str]) -> None:
    """Parts become the one file of arrays; the rows' file comes last and marks the run as whole."""
    parts = [resume.part(key) for key in keys]
    files.join_arrays(parts, resume.folder / files.ARRAYS)
    setting = files.read_arrays(parts[0])[1]
    rows = [row for _, kept in resume.values("chunk-") for row in kept]
    files.write_rows(resume.folder / files.SAMPLES, rows, setting)
    for part in parts:
        part.unlink()
    (resume.folder / PARTS).rmdir()


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """The effective configuration beside the results: a file to start the next run from."""
    if not (folder / CONFIG).exists():
        text = yaml.safe_dump(redact(dict(config)), sort_keys=False, allow_unicode=True)
        files.write_text(folder / CONFIG, text)
