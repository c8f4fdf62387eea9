"""Finish a benchmark once every chunk exists: join levels if the format does, and write the manifest, the card and the rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch import Tensor

import rlab
from rlab.benchmarking.card import LABELS, card
from rlab.benchmarking.config import FLIP, Ladder
from rlab.benchmarking.folder import CARD, FREE, MANIFEST, METADATA, Benchmark, Manifest, Row, rows_digest
from rlab.benchmarking.formats import Joined, Parquet
from rlab.benchmarking.placed import PLACED
from rlab.benchmarking.sets import Making
from rlab.benchmarking.single import Format, Wfdb
from rlab.benchmarking.tables import queries_of
from rlab.errors import FolderError, OptionError
from rlab.results.result import Status
from rlab.runs.fingerprint import agent_fingerprint
from rlab.runs.palette_options import spec_name
from rlab.storage import files
from rlab.storage.digest import digest
from rlab.storage.run_file import AGAIN, PARTS


class NothingFlipped(OptionError):
    """No sample was flipped, so there is no benchmark to make; `queries` were sent to the victims."""

    def __init__(self, sentence: str, queries: int = 0) -> None:
        super().__init__(sentence)
        self.queries = queries


def write_whole(making: Making, ladder: Ladder, reach: float, victims: Mapping[str, str], rows: Sequence[Row]) -> None:
    """Write everything but the samples; the rows come last and mark the benchmark as complete.

    `reach` is the end of the distance axis, `victims` are the fingerprints by the name of a set.
    """
    folder, form, attack, options = making.resume.folder, making.format, making.attack, making.options
    changed, free = [row for row in rows if row["reached"] and row["victim"]], options.sets == FREE
    if not changed and free:
        raise NothingFlipped(f"no sample reaches a level of {options.ladder}: use stronger filters")
    if not changed:
        tried = sum(row["level"] == FLIP and row["status"] != Status.SKIPPED.value for row in rows)
        held = f"none of {tried} attacked samples was flipped within {attack.budget} queries, so there is no benchmark"
        raise NothingFlipped(f"{held}: raise the budget or use stronger filters", sum(map(queries_of, rows)))
    if isinstance(form, Joined):
        rows = _join_levels(folder, rows, form)
    else:
        _write_labels(folder, rows, form)
    packed = {row["file"] for row in rows if row["file"]} if isinstance(form, Parquet) else ()
    containers = {file: digest(folder / file, length=64) for file in sorted(packed)}
    outputs = int(changed[0]["outputs"] or len(making.batch.classes))
    manifest = Manifest(
        shape=form.shape, storage=form.name, classes=making.batch.classes, outputs=outputs,
        goal=str(attack.goal), ladder=options.ladder, palette=tuple(map(spec_name, options.palette or ())),
        entries=attack.palette.names, patch=attack.grid.patch, policy=PLACED if free else attack.label or str(attack.policy),
        budget=attack.budget, steps=options.steps, lead=options.lead, seed=attack.seed, victims=tuple(victims.items()),
        versions=versions(attack.label), config=making.config, reach=reach, sets=options.sets, distances=ladder.distances,
        containers=containers, channels=attack.grid.channels, hash=rows_digest(rows),
    )  # fmt: skip
    files.write_text(folder / CARD, card(Benchmark(folder, manifest, tuple(rows))))
    files.write_json(folder / MANIFEST, asdict(manifest))
    files.write_rows(folder / METADATA, rows, "")


def versions(policy: str) -> dict[str, str]:
    """Versions of the packages, and the fingerprint of the agent if the policy is one."""
    agent = agent_fingerprint(policy)
    numbers = {"rlab": rlab.__version__} | ({"agent": agent} if agent else {})
    for package in ("torch", "numpy", "pillow", "pyarrow", "wfdb", "av"):
        try:
            numbers[package] = version(package)
        except PackageNotFoundError:
            continue
    return numbers


def _join_levels(folder: Path, rows: Sequence[Row], form: Joined) -> list[dict[str, Any]]:
    """Join the parts into one file per level, and return rows that name their new file; the parts stay."""
    joined, by_folder = [dict(row) for row in rows], defaultdict(list)
    for row in joined:
        if row["file"]:
            by_folder[PurePosixPath(row["file"]).parent].append(row)
    for parent, members in by_folder.items():
        whole = PurePosixPath(f"{parent.relative_to(PARTS)}{form.ending}")
        joined_before = (folder / whole).exists() and not all((folder / row["file"]).exists() for row in members)
        if not joined_before:
            (folder / whole).parent.mkdir(parents=True, exist_ok=True)
            x = torch.stack([_part(folder, row, form) for row in members])
            with files.replacing(folder / whole) as file:
                form.pack(file, x, [row["label"] for row in members], [row["id"] for row in members])
        for number, row in enumerate(members):
            row |= {"file": whole.as_posix(), "row": number}
    return joined


def _write_labels(folder: Path, rows: Sequence[Row], form: Format) -> None:
    """Write labels.csv for every level: file (signals: record), label and source id."""
    by_level: dict[PurePosixPath, list[dict[str, Any]]] = defaultdict(list)
    for row in (row for row in rows if row["file"]):
        path = PurePosixPath(row["file"])
        level = path.parent if isinstance(form, Wfdb) else path.parent.parent
        named = {"record": path.stem} if isinstance(form, Wfdb) else {"file": path.relative_to(level).as_posix()}
        by_level[level].append({**named, "label": row["label"], "source": row["id"]})
    for level, labels in by_level.items():
        files.write_csv(folder / level / LABELS, labels)


def _part(folder: Path, row: Row, form: Joined) -> Tensor:
    """Read a sample that a chunk wrote, and check it."""
    path = folder / row["file"]
    try:
        x = form.read(path)
    except (OSError, ValueError, EOFError) as error:
        raise FolderError(f"cannot read {path} ({error}): delete it and {AGAIN}") from error
    if digest(x.float(), length=64) != row["sha256"]:
        raise FolderError(f"{path} is damaged, its content has changed: delete it and {AGAIN}")
    return x
