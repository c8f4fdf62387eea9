"""Run what `ExplainOptions` declare, for `rlab.explain`, `rlab explain` and the server; a folder gets the results."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict, Unpack

import torch

from rlab.data.batch import Batch
from rlab.errors import OptionError
from rlab.explanation.base import SCORE, Method
from rlab.explanation.explanation import PICTURED, Explanation
from rlab.explanation.files import REPORT, open_explanation, save_comparison
from rlab.explanation.method_comparison import MethodComparison, ScoredMethod
from rlab.explanation.options import ExplainOptions
from rlab.explanation.page import maps_page
from rlab.explanation.subject import find_subject
from rlab.present.page import write_page
from rlab.progress import bar
from rlab.runs.inputs import Data, Model, taken
from rlab.runs.understood import Announce, Understood, show
from rlab.victims.base import Victim
from rlab.victims.torch_module import TorchVictim

NOT_FOUND = "holds nothing that the model finds"
Tell = Callable[[Explanation, Batch], None]  # called after each method


class Shown(TypedDict, total=False):
    """The number of samples to draw, and what to call after each method."""

    pictures: int
    tell: Tell


def explain_declared(
    options: ExplainOptions,
    model: Model,
    data: Data,
    compare: bool,
    limit: int | None = None,
    out: str | os.PathLike[str] | None = None,
    announce: Announce = show,
    **shown: Unpack[Shown],
) -> list[Explanation] | MethodComparison:
    """Explain the data with every named method, or compare the methods."""
    options.methods(compare)  # refuse unknown names before loading anything
    with taken(model, data, limit) as (victim, batch):
        announce(Understood(batch, (victim,)))
        if batch.numbered and victim.prediction == "classes":  # one query shows whether the names fit
            batch.check_numbers(victim(batch.x[:1].to(victim.device), SCORE).shape[1])
        batch = keep_found(victim, options.with_masks(batch), options.label)
        methods = options.methods(compare, isinstance(victim, TorchVictim))
        job = ExplainJob(options, victim, batch, methods, None if out is None else Path(out), **shown)
        return job.compare() if compare else job.explain()


def keep_found(victim: Victim, batch: Batch, label: int | None) -> Batch:
    """The samples in which the model finds the object or the class to explain, which takes a query for each."""
    if victim.prediction == "classes":
        return batch
    clean = victim(batch.x.to(victim.device), SCORE)
    chosen = None if label is None else torch.full((len(batch),), label)
    subject, found = find_subject(victim, clean, batch, chosen)
    rows = found.nonzero().flatten().tolist()
    if not rows:
        what = "an object" if victim.prediction == "boxes" else "a class other than 0"
        raise OptionError(
            f"the model finds {what} to explain in none of {len(batch)} samples: check the data and the class"
        )
    lost = [(name, NOT_FOUND) for name, there in zip(batch.ids, found.tolist(), strict=True) if not there]
    masks = subject.truth(batch.size) if batch.masks is None else batch.masks
    return replace(replace(batch, masks=masks)[rows], left_out=(*batch.left_out, *lost))


@dataclass(frozen=True)
class ExplainJob:
    """Methods to run on a batch, and the folder that gets the results."""

    options: ExplainOptions
    victim: Victim
    batch: Batch
    methods: Sequence[Method]
    folder: Path | None = None
    pictures: int = PICTURED
    tell: Tell = lambda explanation, batch: None

    def explain(self) -> list[Explanation]:
        """An explanation by each method; the folder gets arrays, tables, pictures and a page."""
        labels, explained = self.options.labels(self.batch), []
        with self._opened():
            for method in self.methods:
                explanation = method(self.victim, self.batch, labels, self.options.seed, self.options.rule)
                if self.folder is not None:
                    explanation.save(self.folder, self.pictures)
                self.tell(explanation, self.batch)
                explained.append(explanation)
            if self.folder is not None:
                write_page(maps_page(self.folder), self.folder / REPORT)
        return explained

    def compare(self) -> MethodComparison:
        """The methods scored on the same samples; the folder gets arrays, scores and a gallery."""
        options = self.options
        with self._opened():
            with bar(len(self.methods), "scoring", unit="methods") as progress:

                def scored(name: str, judged: ScoredMethod) -> None:
                    progress([name])
                    self.tell(judged.explanation, self.batch)

                judge, labels = options.judge(scored), options.labels(self.batch)
                comparison = judge(self.victim, self.batch, self.methods, labels, options.seed)
            if self.folder is not None:
                save_comparison(comparison, self.folder, f"What decides: {options.model.name}", self.pictures)
        return comparison

    def _opened(self) -> AbstractContextManager[object]:
        return nullcontext() if self.folder is None else open_explanation(self.folder)
