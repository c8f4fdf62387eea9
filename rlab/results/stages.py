"""The stages of a run that learned from its own answers: what the students of each learned from, and what it gained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from rlab.core.trace import DISTANCE_NAMES
from rlab.present.chart import Chart, Curve
from rlab.present.page import Block, Charts, Section, Text
from rlab.present.table import Table
from rlab.results.data import ResultData
from rlab.stats import median_of
from rlab.storage.ledger import read_steps, reading

STAGES = "stage"  # how the keys of stages begin
FOLDER = "stages"
WITHIN = (5, 20)  # queries


@dataclass(frozen=True)
class StageFacts:
    """What the students of a stage learned from, and the share of inputs kept aside on which they agree with the model."""

    first: int  # index of the stage's first sample
    clean: int  # answers
    distorted: int
    agreement: float
    digest: str

    @property
    def answers(self) -> int:
        return self.clean + self.distorted


def stage_key(number: int) -> str:
    """The key of a stage in the ledger."""
    return f"{STAGES}-{number}"


def stage_file(folder: Path, number: int) -> Path:
    """The file of a stage's students."""
    return folder / FOLDER / f"{stage_key(number)}.safetensors"


def read_stages(folder: Path) -> list[StageFacts]:
    """The stages of a run folder, in order; an empty list if the run did not learn."""
    with reading(folder):
        return sorted(
            (StageFacts(**value) for value in read_steps(folder, f"{STAGES}-")), key=lambda facts: facts.first
        )


def stage_medians(result: ResultData, stages: Sequence[StageFacts], queries: int) -> list[float]:
    """The median distance of the best flip within so many queries, by stage; infinite if most samples have none."""
    best, attacked = result.best_within(queries), result.attacked
    edges = [*(facts.first for facts in stages), len(result)]
    return [median_of(best[first:last], attacked[first:last]) for first, last in pairwise(edges)]


def stages_line(stages: Sequence[StageFacts]) -> str:
    """How the run learned, in one line."""
    last = stages[-1]
    when = "after the clean queries" + "".join(
        f"{' and after' if number == 0 else ','} {facts.first:,}" for number, facts in enumerate(stages[1:])
    )
    samples = " samples" if len(stages) > 1 else ""
    return (
        f"Learned from its answers {when}{samples}, at no extra query: the last students learned from {last.answers:,} answers "
        f"and agree with the model on {last.agreement:.0%} of inputs kept aside."
    )


def stages_section(result: ResultData, stages: Sequence[StageFacts]) -> Section:
    """The curve over stages, and what the students learned from."""
    name, setting = DISTANCE_NAMES[result.setting.distance], result.setting
    edges = [*(facts.first for facts in stages), len(result)]
    shown = [q for q in WITHIN if q < setting.budget]
    medians = {q: stage_medians(result, stages, q) for q in shown}
    curves = [
        Curve(f"within {q} queries", [*edges[:-1], edges[-1]], [*values, values[-1]]) for q, values in medians.items()
    ]
    chart = Chart("Distance by stage", curves, "sample", f"median {name}", steps=True)
    rows = [
        [f"{facts.first + 1:,} to {last:,}", facts.clean, facts.distorted, f"{facts.agreement:.1%}",
         *(setting.format_distance(medians[q][number]) for q in shown)]
        for number, (facts, last) in enumerate(zip(stages, edges[1:], strict=True))
    ]  # fmt: skip
    heads = ["samples", "clean answers", "answers to proposals", "agreement", *(f"{name} within {q}" for q in shown)]
    words = (
        "The same students serve all samples of a stage. Agreement is measured on inputs that they did not learn from."
    )
    blocks: list[Block] = [Text(stages_line(stages)), *([Charts([chart])] if curves else []), Table(heads, rows)]
    return Section("Learning", [*blocks, Text(words, quiet=True)])
