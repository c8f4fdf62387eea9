"""Answers that earlier attacks paid for, read from their run folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from rlab.errors import DataError, FolderError
from rlab.learning.answers import Answers, source_names
from rlab.results.result import AttackResult
from rlab.storage.names import refuse_links


@dataclass(frozen=True)
class EarlierAnswers:
    """Answers of one model about data with the same bounds."""

    answers: Answers
    bounds: tuple[float, float]
    multilabel: bool


def answers_of(folders: Sequence[Path]) -> EarlierAnswers:
    """The answers in finished run folders of `rlab attack`: about the original and the perturbed inputs that they store."""
    read = [_read(folder) for folder in folders]
    kinds = {(each.bounds, each.multilabel) for each in read}
    if len(kinds) > 1:
        raise DataError(
            "expected earlier runs of one model on one kind of data, got runs that differ in bounds or labels"
        )
    return EarlierAnswers(Answers.join([each.answers for each in read]), read[0].bounds, read[0].multilabel)


def _read(folder: Path) -> EarlierAnswers:
    refuse_links(folder)
    result = AttackResult.load(folder)
    multilabel = result.setting.goal.startswith("multilabel")
    rows = [row for row in range(len(result)) if result.inputs.has(row)]
    if not rows:
        raise FolderError(f"{folder} does not store its inputs: name runs that kept them (keep='everything')")
    original, perturbed = result.inputs.read(rows)
    source, changed = source_names(original), (perturbed != original).flatten(1).any(1)
    names = tuple(name for name, differs in zip(source, changed.tolist(), strict=True) if differs)
    probabilities = torch.cat([result.before[rows], result.after[rows][changed]])
    scores = probabilities.clamp(1e-12, 1 - 1e-7).logit() if multilabel else probabilities.clamp(1e-12, 1).log()
    distorted = torch.arange(len(scores)) >= len(rows)
    x = torch.cat([original, perturbed[changed]])
    answers = Answers(x, scores, source + names, distorted, origins=(f"the run {folder.name}",))
    return EarlierAnswers(answers, result.setting.bounds, multilabel)
