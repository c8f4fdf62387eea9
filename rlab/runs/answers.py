"""Answers that finished runs have paid for, with the inputs rendered again from the assignments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from rlab.core.grid import PatchGrid
from rlab.core.heard import Heard
from rlab.data.batch import Batch
from rlab.errors import DataError, FolderError
from rlab.filters.palette import Palette
from rlab.learning.answers import Answers, source_names
from rlab.results.kept import palette_of, rendered
from rlab.results.result import AttackResult
from rlab.storage import files
from rlab.storage.names import refuse_strange
from rlab.storage.run_file import PARTS, reading
from rlab.storage.steps import check_shard
from rlab.victims.answers import to_scores


def read_heard(part: Path) -> Heard | None:
    """The answers to proposals in a chunk's file; None if there is no such file or it holds none."""
    arrays = files.read_heard(part) if part.exists() else None
    return None if arrays is None else Heard(arrays[0].long(), *arrays[1:])


def heard_answers(palette: Palette, grid: PatchGrid, batch: Batch, seeds: Tensor, heard: Heard, origin: str) -> Answers:
    """The answers to proposals for these samples, which are sorted by sample, with the inputs rendered again."""
    x, names = (
        rendered(palette, grid, batch.x, batch.bounds, seeds, heard.assignment, heard.sample),
        source_names(batch.x),
    )
    source, distorted = tuple(names[i] for i in heard.sample.tolist()), torch.ones(len(x), dtype=torch.bool)
    return Answers(x, heard.scores.float(), source, distorted, origins=(origin,))


@dataclass(frozen=True)
class EarlierAnswers:
    """Answers of one model about data with the same bounds."""

    answers: Answers
    bounds: tuple[float, float]
    multilabel: bool


def earlier_answers(folders: Sequence[Path]) -> EarlierAnswers:
    """The answers in finished run folders of `rlab attack`."""
    for folder in folders:
        refuse_strange(folder)
    settings = [AttackResult.load(folder).setting for folder in folders]
    kinds = {(setting.bounds, setting.goal.startswith("multilabel")) for setting in settings}
    if len(kinds) > 1:
        raise DataError("expected earlier runs of one model on one kind of data, got several bounds or kinds of labels")
    return EarlierAnswers(Answers.join([paid_answers(folder) for folder in folders]), *kinds.pop())


def paid_answers(folder: Path) -> Answers:
    """All answers in a finished run folder: to the untouched inputs, and to the proposals if the run kept these answers, else
    to the perturbed inputs. Inputs that the run did not store are left out."""
    result = AttackResult.load(folder)
    rows = [i for i in range(len(result)) if result.inputs.has(i)]
    if not rows:
        raise FolderError(f"{folder} stores no inputs: run the attack with keep='everything' to learn from its answers")
    with reading(folder):
        original, perturbed = result.inputs.read(rows)
        several, name = result.setting.goal.startswith("multilabel"), f"the run {folder.name}"
        source = source_names(original)
        clean = Answers(original, to_scores(result.before[rows], "probabilities", several), source, origins=(name,))
        if heard := _heard(folder, result, rows, original, name):
            return Answers.join([clean, heard])
        changed = (perturbed != original).flatten(1).any(1)
        if not changed.any():
            return clean
        at = changed.nonzero()[:, 0]
        after = to_scores(result.after[rows], "probabilities", several)[at]
        names, marks = tuple(source[i] for i in at.tolist()), torch.ones(len(at), dtype=torch.bool)
        return Answers.join([clean, Answers(perturbed[at], after, names, marks, origins=(name,))])


def _heard(folder: Path, result: AttackResult, rows: list[int], original: Tensor, name: str) -> Answers | None:
    """The answers to proposals for the samples `rows`, in all chunks; None if the run kept none."""
    parts, first = list[Heard](), 0
    place = torch.full((len(result),), -1)
    place[rows] = torch.arange(len(rows))
    for path in sorted((folder / PARTS).glob("chunk-*.safetensors")):
        check_shard(folder, path)
        if heard := read_heard(path):
            parts.append(replace(heard, sample=place[heard.sample + first]))
        first += len(files.read_assignment(path)[0])
    if not parts:
        return None
    whole = Heard.cat(parts)
    whole = whole[whole.sample >= 0]
    setting = result.setting
    batch = Batch(
        original, result.labels[rows], bounds=setting.bounds, unit=setting.unit, rate=setting.rate, leads=setting.leads
    )
    palette = palette_of(folder, batch, setting.palette)
    return heard_answers(palette, setting.grid, batch, result.seeds[rows], whole, name)
