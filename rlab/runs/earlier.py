"""Answers that earlier attacks paid for, read from their run folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlab.errors import DataError
from rlab.learning.answers import Answers
from rlab.results.result import AttackResult
from rlab.runs.answers import paid_answers
from rlab.storage.names import refuse_strange


@dataclass(frozen=True)
class EarlierAnswers:
    """Answers of one model about data with the same bounds."""

    answers: Answers
    bounds: tuple[float, float]
    multilabel: bool


def answers_of(folders: Sequence[Path]) -> EarlierAnswers:
    """The answers in finished run folders of `rlab attack`."""
    read = [_read(folder) for folder in folders]
    kinds = {(each.bounds, each.multilabel) for each in read}
    if len(kinds) > 1:
        raise DataError(
            "expected earlier runs of one model on one kind of data, got runs that differ in bounds or labels"
        )
    return EarlierAnswers(Answers.join([each.answers for each in read]), read[0].bounds, read[0].multilabel)


def _read(folder: Path) -> EarlierAnswers:
    refuse_strange(folder)
    setting = AttackResult.load(folder).setting
    return EarlierAnswers(paid_answers(folder), setting.bounds, setting.goal.startswith("multilabel"))
