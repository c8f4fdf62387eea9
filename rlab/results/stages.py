"""The stages of a run that learns from its own answers: what their students learned from, and the distances in each stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlab.learning import ENOUGH
from rlab.storage.run_file import reading
from rlab.storage.steps import read_steps

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
    """The key of the step that makes a stage."""
    return f"{STAGES}-{number}"


def stage_file(folder: Path, number: int) -> Path:
    """The file of a stage's students."""
    return folder / FOLDER / f"{stage_key(number)}.safetensors"


def read_stages(folder: Path) -> list[StageFacts]:
    """The stages of a run folder, in order; an empty list if the run did not learn."""
    with reading(folder):
        return sorted(
            (StageFacts(**value) for _, value in read_steps(folder, f"{STAGES}-")), key=lambda facts: facts.first
        )


def stages_line(stages: Sequence[StageFacts]) -> str:
    """How the run learned, in one line."""
    last, when = stages[-1], ", ".join(f"{facts.first:,}" for facts in stages[1:])
    later = f" and after {when} samples" if when else ""
    return (
        f"Learned from its answers after the clean queries{later}, at no extra query: the last students learned from "
        f"{last.answers:,} answers and agree with the model on {last.agreement:.0%} of clean inputs kept aside. A stage does not "
        f"use students that agree on less than {ENOUGH:.0%}."
    )
