"""Learn a simulator of a model: query it on inputs, distil students from its answers, and save them.

Answers and students are stored as soon as they exist: a process that was killed repeats at most the batch of queries that
was on its way and one student, and ends with the same file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from rlab.core import defaults
from rlab.core.checks import need_classes
from rlab.data.batch import Samples
from rlab.data.eight_bit import EightBit
from rlab.data.load import DataOptions
from rlab.errors import DataError, ModelError, OptionError, give_notice
from rlab.filters import check_palette
from rlab.filters.palette import PIXELS, by_gradient, refuse_pixels
from rlab.learning.answers import Answers, Plan, ask, shuffled
from rlab.learning.distil import FEWEST, Say, distil
from rlab.learning.simulator import FILE, Simulator, best_device, read_simulator
from rlab.progress import Progress, Said, bar, quiet, showing
from rlab.runs.answers import earlier_answers
from rlab.runs.fingerprint import data_fingerprint
from rlab.runs.inputs import Data, Model, plain_input, taken
from rlab.runs.learning_options import FEWEST_QUERIES
from rlab.runs.options import AttackOptions
from rlab.runs.palette_options import PaletteOptions, make_grid, make_palette
from rlab.runs.understood import Understood, show
from rlab.storage.config import check, check_keywords, takes, write_config
from rlab.storage.contents import Contents
from rlab.storage.digest import digest
from rlab.storage.journal import Journal, journal_path
from rlab.storage.resume import Resume, open_run
from rlab.storage.run_file import PARTS, check_files
from rlab.victims.base import Victim
from rlab.victims.meter import QueryMeter
from rlab.victims.options import ModelOptions

if TYPE_CHECKING:
    from rlab.keywords import LearnKeywords


# Answers of earlier runs, the bounds of their data, and whether labels are several per sample.
Stored = tuple[Answers, tuple[float, float], bool]


def nothing(line: str) -> None:
    """Say nothing; a bar shows the lines instead, if there is one."""


class LearnOptions(PaletteOptions):
    """How to learn a simulator."""

    queries: int = Field(
        5000,
        ge=FEWEST_QUERIES,
        description="queries to spend, on clean inputs first and then on distorted ones (default: 5000)",
    )
    seed: int = Field(0, ge=-(2**63), lt=2**63, description="random seed (default: 0)")


class LearnRunOptions(LearnOptions):
    """Options of `rlab learn`; earlier runs can stand in for model and data."""

    model: ModelOptions | None = None
    data: DataOptions | None = None


@takes(LearnOptions)
def learn(
    model: Model | None = None,
    data: Data | Tensor | np.ndarray[Any, Any] | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    earlier: Sequence[str | os.PathLike[str]] = (),
    limit: int | None = None,
    progress: bool = True,
    tell: Say = nothing,
    **options: Unpack[LearnKeywords],
) -> Simulator:
    """Learn a simulator of a model from its answers, for `rlab.attack(..., simulator=...)`.

    The model and the data are as in `rlab.attack`; labels are not used, so the data may also be an array of inputs alone. The
    inputs are queried clean and then distorted by the palette. `earlier` names finished run folders of attacks on the same
    model, whose answers cost nothing; with them, model and data can be left out. With `out`, everything is saved in this folder
    as it proceeds, the simulator as simulator.safetensors, and the same call resumes there after a stop. progress=False prints
    nothing.
    """
    declared = check_keywords(learn, LearnOptions, options)
    refuse_pixels(declared.palette, "learning")  # before anything is loaded
    folder, before = None if out is None else Path(out), tuple(str(run) for run in earlier)
    if (model is None) != (data is None) or (model is None and not before):
        raise OptionError("expected a model and data to learn from, or run folders of earlier attacks, or both")
    config = {**declared.plain(), **({"from": list(before)} if before else {})}
    if model is None or data is None:
        return Lessons(declared, None, None, before, tell).run(folder, config)
    inputs = (data, np.zeros(len(data), np.int64)) if isinstance(data, Tensor | np.ndarray) else data
    with showing(progress), taken(model, inputs, limit, stream=True) as (victim, samples):
        need_classes(victim, "learn")
        show(Understood(samples, (victim,)))
        config = {"model": plain_input(model, "name"), "data": plain_input(data, "path"), **config}
        return Lessons(declared, victim, samples, before, tell, shown=True).run(folder, config)


def learn_first(
    options: AttackOptions,
    victim: Victim,
    samples: Samples,
    folder: Path,
    config: Mapping[str, Any],
    progress: Progress,
) -> Simulator:
    """The simulator of an attack that learns before its first query, from its own samples or from earlier runs."""
    own = tuple(spec for spec in options.palette or () if not by_gradient(spec) and spec != PIXELS)
    learning = options.learning
    given: dict[str, Any] = {
        "queries": learning.queries or FEWEST_QUERIES,
        "palette": own or None,
        "seed": options.seed,
    }
    given |= {"patch": options.patch, "channels": options.channels}
    declared = check(LearnOptions, given, "the options of learning")
    asked = (None, None) if learning.runs else (victim, samples)
    lessons = Lessons(declared, asked[0], asked[1], learning.runs, lambda line: progress(Said(line)))
    return lessons.run(folder, {"model": config.get("model"), **declared.plain(), "from": list(learning.runs)})


@dataclass(frozen=True)
class Lessons:
    """Where answers come from: a victim and samples to query it on, folders of earlier runs, or both."""

    options: LearnOptions
    victim: Victim | None
    samples: Samples | None
    earlier: tuple[str, ...]
    tell: Say = nothing
    shown: bool = False  # whether a bar of its own shows the queries

    def run(self, folder: Path | None, config: Mapping[str, Any]) -> Simulator:
        """Learn in a folder that belongs to this configuration; None is a folder for the moment."""
        plan, inputs = self._plan(), dict[str, Any]()
        with ExitStack() as stack:
            if folder is None:
                folder, config = Path(stack.enter_context(TemporaryDirectory())) / "learned", {}
            elif self.victim is not None and self.samples is not None:
                inputs = {"the data": data_fingerprint(self.samples), "the model": Contents(self.victim)}
                inputs["the filters"] = Contents(plan and plan.palette)
            resume = stack.enter_context(open_run(folder, {"command": "learn", **config, **inputs}, paid=True))
            if not resume.is_finished:
                resume.create()
                write_config(folder, config)
                self._learn(plan, self._stored(plan), resume).save(folder / FILE)
                resume.finish(FILE)
            check_files(folder, FILE)
            simulator = read_simulator(folder)
        if simulator.weak:
            give_notice(f"{simulator.weak}: attacks leave them out; learn with more queries or more inputs")
        return simulator

    def _stored(self, plan: Plan | None) -> Stored | None:
        """The answers of earlier runs; those of other data or of a model of another kind are refused."""
        if not self.earlier:
            return None
        answers, bounds, several = stored = earlier_answers([Path(run) for run in self.earlier])
        self.tell(f"{len(answers):,} answers of {len(self.earlier)} earlier runs, at no query")
        if plan is not None and (tuple(answers.x.shape[1:]), bounds) != (plan.batch.shape, plan.batch.bounds):
            raise DataError(
                f"the earlier runs are about inputs of shape {tuple(answers.x.shape[1:])} in {list(bounds)}, but these have "
                f"shape {plan.batch.shape} in {list(plan.batch.bounds)}: leave out the runs, or name their data"
            )
        if self.victim is not None and self.victim.multilabel != several:
            raise ModelError("only one of the model and the earlier runs has several labels per sample: leave out one")
        return stored

    def _plan(self) -> Plan | None:
        """The inputs to query, all that can be checked before the first query."""
        if self.samples is None or self.victim is None:
            return None
        options, samples = self.options, self.samples
        batch = shuffled(samples, options.queries, options.seed)
        if not self.earlier and len(batch) < FEWEST:
            raise DataError(f"expected at least {FEWEST} inputs to learn from, got {len(batch)}: pass more of them")
        specs = defaults.palette(samples) if options.palette is None else options.palette
        rounded = EightBit(samples.bounds) if samples.eight_bit else None  # as attacks query the model
        palette = make_palette(specs, samples, rounded=rounded)
        grid = make_grid(samples, options.patch, options.channels)
        if options.queries > len(batch):
            check_palette(palette, batch[:4].x, batch.bounds)
        return Plan(batch, palette, grid, options.queries, options.seed)

    def _learn(self, plan: Plan | None, stored: Stored | None, resume: Resume) -> Simulator:
        parts = [] if stored is None else [stored[0]]
        shown = plan is not None and self.shown
        with bar(plan.queries if plan else 0, "querying") if shown else nullcontext(quiet) as progress:
            if plan is not None:
                parts.append(self._ask(plan, resume, progress))
            answers = Answers.join(parts)
            self.tell(f"training students on {len(answers):,} answers, on {best_device()}")
            bounds = plan.batch.bounds if plan is not None else stored[1] if stored else (0.0, 1.0)
            multilabel = self.victim.multilabel if self.victim is not None else stored is not None and stored[2]
            known = digest(answers.x, answers.scores, list(answers.source))
            return distil(
                answers, bounds, multilabel=multilabel, seed=self.options.seed, device=best_device(),
                progress=(lambda line: progress(Said(line))) if self.tell is nothing else self.tell,
                remember=lambda key, make: resume.step(f"student-{key}", known, lambda: dict(make()), stale="remake"),
            )  # fmt: skip

    def _ask(self, plan: Plan, resume: Resume, progress: Progress) -> Answers:
        """The victim's answers to the plan; the journal knows those from before a stop. Unanswered rows are left out."""
        assert self.victim is not None
        clean = min(plan.queries, len(plan.batch))
        self.tell(f"querying the model on {clean:,} clean inputs and {plan.queries - clean:,} distorted ones")
        (resume.folder / PARTS).mkdir(exist_ok=True)
        with Journal(journal_path(resume.folder, "answers-0")) as journal:
            meter, got = QueryMeter(self.victim, 1, plan.queries, journal), list[Answers]()
            for rows in plan.parts(defaults.chunk(plan.batch, len(plan.palette))):
                rows = rows[: int(meter.left(torch.zeros(1, dtype=torch.int64)))]  # lost answers were paid for too
                if not rows:
                    break
                x = plan.inputs(rows)
                scores = ask(meter, x)
                known = (~scores.isnan().any(1)).nonzero()[:, 0]
                got += [plan.answers(rows, x, scores)[known]] if len(known) else []
                progress(rows)
        if not got:
            raise ModelError("the model answered none of the queries with a score")
        return replace(Answers.join(got), queries=int(meter.counts.sum()), origins=("queries to learn from",))
