"""Answers that runs have paid for, as examples to learn from; their inputs are rendered again from the assignments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from rlab.core.grid import PatchGrid
from rlab.data.batch import Batch
from rlab.errors import DataError, FolderError
from rlab.filters.palette import Palette
from rlab.learning.answers import Answers, source_names
from rlab.results.kept import palette_of, rendered
from rlab.results.result import AttackResult
from rlab.storage import files
from rlab.storage.journal import journal_path, read_journal
from rlab.storage.names import refuse_strange
from rlab.storage.run_file import PARTS, reading
from rlab.victims.answers import recognise, to_scores


@dataclass(frozen=True)
class Proposals:
    """What a model answered to m proposals for some samples, the untouched input among them; sorted by sample."""

    sample: Tensor  # (m,)
    assignment: Tensor  # (m, p)
    answers: Tensor  # (m, k) as the model gave them

    def __len__(self) -> int:
        return len(self.sample)

    def __getitem__(self, rows: Tensor) -> Proposals:
        return Proposals(self.sample[rows], self.assignment[rows], self.answers[rows])

    @classmethod
    def join(cls, parts: Sequence[Proposals]) -> Proposals:
        return cls(
            *(torch.cat([getattr(each, name) for each in parts]) for name in ("sample", "assignment", "answers"))
        )

    @property
    def changed(self) -> Tensor:
        """(m,) bool: those that are not the untouched input."""
        return (self.assignment > 0).any(1)

    def examples(
        self, palette: Palette, grid: PatchGrid, batch: Batch, seeds: Tensor, scores: Tensor, origin: str
    ) -> Answers:
        """With the inputs, rendered for the samples of the batch, and the scores (m, k) that the answers stand for."""
        x = rendered(palette, grid, batch.x, batch.bounds, seeds, self.assignment, self.sample)
        names = source_names(batch.x)
        return Answers(x, scores, tuple(names[i] for i in self.sample.tolist()), self.changed, origins=(origin,))


def kept_proposals(folder: Path, key: str, samples: int, grid: PatchGrid, entries: int) -> Proposals | None:
    """The answers in the journal that a run kept of a finished chunk of this many samples; None if it kept none."""
    path = journal_path(folder, key)
    parts = [
        Proposals(each.samples, each.assignment, each.answers)
        for _, each in read_journal(path)
        if each.assignment is not None
    ]
    if len({(each.answers.shape[1], each.assignment.shape[1]) for each in parts}) != 1:
        return None
    found = Proposals.join(parts)
    order = found.sample.argsort(stable=True)
    found = found[order[~found.answers[order].isnan().any(1)]]  # failed ones are left out
    if not len(found):
        return None
    fits = found.assignment.shape[1] == len(grid) and int(found.assignment.max()) <= entries
    if not fits or int(found.sample.min()) < 0 or int(found.sample.max()) >= samples:
        raise FolderError(f"{path} does not fit the run: delete it to learn from the other answers")
    return found


def earlier_answers(folders: Sequence[Path]) -> tuple[Answers, tuple[float, float], bool]:
    """The answers in finished run folders of `rlab attack`, the bounds of the data, and whether labels are several per sample."""
    for folder in folders:
        refuse_strange(folder)
    settings = [AttackResult.load(folder).setting for folder in folders]
    kinds = {(setting.bounds, setting.goal.startswith("multilabel")) for setting in settings}
    if len(kinds) > 1:
        raise DataError("expected earlier runs of one model on one kind of data, got several bounds or kinds of labels")
    return Answers.join([paid_answers(folder) for folder in folders]), *kinds.pop()


def paid_answers(folder: Path) -> Answers:
    """All answers in a finished run folder: those in its journals if the run kept them, else those to the untouched and to the
    perturbed inputs. Inputs that the run did not store are left out."""
    result = AttackResult.load(folder)
    rows = [i for i in range(len(result)) if result.inputs.has(i)]
    if not rows:
        raise FolderError(f"{folder} stores no inputs: run the attack with keep='everything' to learn from its answers")
    with reading(folder):
        original, perturbed = result.inputs.read(rows)
        setting, several = result.setting, result.setting.goal.startswith("multilabel")
        name, source = f"the run {folder.name}", source_names(original)
        if (known := _in_journals(folder, result, rows)) is not None:
            batch = Batch(
                original, result.labels[rows], bounds=setting.bounds, unit=setting.unit, rate=setting.rate,
                leads=setting.leads,
            )  # fmt: skip
            palette = palette_of(folder, batch, setting.palette)
            scores = to_scores(known.answers, recognise(known.answers, several), several)
            return known.examples(palette, setting.grid, batch, result.seeds[rows], scores, name)
        clean = Answers(original, to_scores(result.before[rows], "probabilities", several), source, origins=(name,))
        at = (perturbed != original).flatten(1).any(1).nonzero()[:, 0]
        if not len(at):
            return clean
        after = to_scores(result.after[rows], "probabilities", several)[at]
        names, marks = tuple(source[i] for i in at.tolist()), torch.ones(len(at), dtype=torch.bool)
        return Answers.join([clean, Answers(perturbed[at], after, names, marks, origins=(name,))])


def _in_journals(folder: Path, result: AttackResult, rows: list[int]) -> Proposals | None:
    """The answers about the samples `rows` in the journals of all chunks; None if the run kept none."""
    parts, first = list[Proposals](), 0
    place = torch.full((len(result),), -1)
    place[rows] = torch.arange(len(rows))
    for path in sorted((folder / PARTS).glob("chunk-*.safetensors")):
        samples = len(files.read_assignment(path)[0])
        grid, entries = result.setting.grid, len(result.setting.palette)
        if known := kept_proposals(folder, path.stem, samples, grid, entries):
            at = place[known.sample + first]
            parts.append(Proposals(at, known.assignment, known.answers)[at >= 0])
        first += samples
    return Proposals.join(parts) if parts else None
