"""A net below the digests: before a resumed run goes on, it repeats one clean query whose answer it has stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pyarrow as pa
import torch
from torch import Tensor

from rlab.core.attack import Attack
from rlab.core.checks import same_answers
from rlab.data.batch import Samples
from rlab.errors import FolderError, give_notice
from rlab.runs.chunk_work import places
from rlab.storage.journal import begun_chunks, fingerprints
from rlab.storage.resume import Resume
from rlab.victims.account import PHASES
from rlab.victims.base import Victim
from rlab.victims.meter import QueryMeter


@dataclass(frozen=True)
class CleanAnswer:
    """A stored answer to an untouched input."""

    place: int  # of the sample in the run
    scores: Tensor  # (k,) probabilities, or boxes, a map or numbers
    spent: int  # queries of the sample so far


def check_same_model(
    attack: Attack, victim: Victim, samples: Samples, resume: Resume, chunks: Mapping[str, slice]
) -> None:
    """Refuse to go on if a score of a sample has changed; `chunks` are the finished ones.

    The query counts for the budget of its sample, so a sample that has spent its budget is of no use.
    """
    stored = chain(_answers(victim, samples, resume, chunks), _in_journals(victim, samples, resume.folder))
    known = next((one for one in stored if one.spent < attack.budget), None)
    if known is None or attack.noisy:
        if chunks:
            why = "no finished sample has a query left" if known is None else "its answers are declared noisy"
            sentence = f"this run goes on without a check that the model is the same, because {why}"
            give_notice(sentence)
        return
    sample, reading, meter = samples[[known.place]], victim.reading, QueryMeter(victim, 1, attack.budget)
    meter.counts[0, PHASES.index("search")] = known.spent
    answer = meter(sample.x.contiguous().to(victim.device), torch.zeros(1, dtype=torch.int64), "resume")
    victim.reading = reading  # one row is too little to recognise them for the whole run
    scores = victim.probabilities(answer)[0].cpu()
    if not meter.lost.any() and not same_answers(victim, known.scores, scores):
        before, now = (_words(victim, each) for each in (known.scores, scores))
        raise FolderError(
            f"{resume.folder} was begun with another model: its answer to the unchanged sample {sample.ids[0]!r} was {before}, "
            f"and now it is {now}. Use the same model, or name another folder with --out; if a model's answers vary, start "
            "with noisy"
        )
    give_notice("1 query has checked that the model still answers as before")


def _answers(victim: Victim, samples: Samples, resume: Resume, chunks: Mapping[str, slice]) -> Iterator[CleanAnswer]:
    """The stored answers: of finished chunks, and of a run that learns, which queries all clean inputs first."""
    for key, rows in chunks.items():
        table: pa.Table = resume.recall(key, "")
        counts = [table[name].to_pylist() for name in table.column_names if name.startswith("queries_")]
        at = places(samples, rows, table["id"].to_pylist() if counts else []).tolist()
        for row, spent in enumerate(map(sum, zip(*counts, strict=True))):
            yield CleanAnswer(at[row], torch.tensor(table["scores_before"][row].as_py()), spent)


def _in_journals(victim: Victim, samples: Samples, folder: Path) -> Iterator[CleanAnswer]:
    """The first sample of each chunk that a stopped run has begun, if its untouched input was answered."""
    reading = victim.reading
    for first, arrived in begun_chunks(folder):
        x = samples[[first]].x if first < len(samples) else None
        if x is not None and len(x) and int(arrived[0].prints[0]) == int(fingerprints(x)[0]):
            scores = victim.scores_of(arrived[0].answers)
            victim.reading = reading  # all samples of a chunk recognise them better than those of one request
            spent = sum(each.sent * int((each.samples == 0).sum()) for each in arrived)
            yield CleanAnswer(first, victim.probabilities(scores)[0], spent)


def _words(victim: Victim, scores: Tensor) -> str:
    if victim.prediction != "classes":
        return str([round(score, 4) for score in scores[:4].tolist()])
    return f"class {int(scores.argmax())} with probability {float(scores.max()):.4f}"
