"""A simulator: students of a victim, and a card that says what they learned from. One safetensors file, nothing pickled."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from rlab import __version__, learning
from rlab.data.batch import Samples
from rlab.errors import ModelError
from rlab.learning.students import MOST_CLASSES, MOST_SIDE, Student, StudentShape
from rlab.priors.file import read_network
from rlab.priors.surrogates import SurrogatePrior, check_surrogate
from rlab.storage.digest import digest
from rlab.storage.files import write_atomically
from rlab.victims.torch_module import TorchVictim

VERSION, SIMULATOR = 1, "simulator"
FILE = f"{SIMULATOR}.safetensors"  # in the folder of `rlab learn`
_Side = Annotated[int, Field(ge=1, le=MOST_SIDE)]
_Share = Annotated[float, Field(ge=0, le=1)]


class SimulatorCard(BaseModel):
    """What a simulator is for, what it learned from, and how well it agrees with its victim."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)

    students: tuple[StudentShape, ...] = Field(min_length=1, max_length=64)
    shape: tuple[_Side, ...] = Field(min_length=2, max_length=4)  # (c, *size) of an input
    classes: int = Field(ge=1, le=MOST_CLASSES)
    multilabel: bool
    bounds: tuple[float | None, float | None]  # of the data's values; None if there is none
    clean: int = Field(ge=0)  # answers about clean inputs
    distorted: int = Field(ge=0)
    origins: tuple[str, ...] = ()  # where the answers come from
    queries: int = Field(ge=0)  # spent only to learn
    aside: int = Field(ge=0)  # answers kept aside, from which the agreement is measured
    agreement: _Share  # of the students' mean with the victim
    clean_agreement: _Share | None = None  # the same on clean inputs alone, if some of them were kept aside
    agreements: tuple[_Share, ...]  # of each student
    seed: int
    version: str = __version__

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        low, high = self.bounds
        if len(self.agreements) != len(self.students) or not (low is None or high is None or low < high):
            raise ValueError("its figures do not fit together")
        return self

    @property
    def answers(self) -> int:
        return self.clean + self.distorted

    @property
    def usual_agreement(self) -> float:
        """The agreement that decides whether searches use the students.

        Answers to an attack lie near the model's boundary, where few students agree, so those to clean inputs count.
        """
        return self.agreement if self.queries or self.clean_agreement is None else self.clean_agreement


@dataclass(frozen=True)
class Simulator:
    """Networks that stand in for a victim; they cost no query."""

    students: tuple[Student, ...] = field(repr=False)
    card: SimulatorCard

    def save(self, path: Path) -> None:
        """Write one file; the same students and card give the same bytes."""
        write_atomically(path, self.content())

    def content(self) -> bytes:
        """The bytes of the file."""
        tensors = {
            f"{number}.{name}": value.detach().cpu().contiguous()
            for number, student in enumerate(self.students)
            for name, value in student.state_dict().items()
        }
        header = {"version": VERSION, "kind": SIMULATOR, "card": self.card.model_dump(mode="json")}
        return to_bytes(tensors, metadata={"rlab": json.dumps(header, sort_keys=True)})

    @property
    def digest(self) -> str:
        """Equal only for equal simulators."""
        return digest(self.content())

    @property
    def weak(self) -> str:
        """Why searches leave these students out; empty if they agree with the model often enough."""
        share = self.card.usual_agreement
        agree = f"the students agree with the model on only {share:.0%} of the answers kept aside"
        return "" if share >= learning.ENOUGH else f"{agree}, and below {learning.ENOUGH:.0%} they mislead a search"

    @property
    def bounds(self) -> tuple[float, float]:
        low, high = self.card.bounds
        return -math.inf if low is None else low, math.inf if high is None else high

    def victims(self, device: torch.device | None = None) -> list[TorchVictim]:
        """The students as models that can be queried like surrogates."""
        multilabel, where = self.card.multilabel, best_device() if device is None else device
        return [
            TorchVictim(student, bounds=self.bounds, outputs="logits", multilabel=multilabel, device=where)
            for student in self.students
        ]

    @property
    def names(self) -> tuple[str, ...]:
        """The students' names in sentences."""
        return tuple(f"student {about.architecture}" for about in self.card.students)

    @torch.no_grad()
    def mean_scores(self, x: Tensor) -> Tensor:
        """x (n, c, *size) -> (n, k): the mean of the students' scores."""
        return torch.stack([student_scores(student, x, self.card.multilabel) for student in self.students]).mean(0)


def best_device() -> torch.device:
    """The first GPU if there is one: students are small, but are run many times."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def student_scores(student: Student, x: Tensor, multilabel: bool) -> Tensor:
    """Scores (n, k) on the device of x: log-probabilities, or log-odds of several labels."""
    logits = torch.cat([student(part.to(student.mean.device)) for part in x.split(256)]).to(x.device)
    return logits if multilabel else logits.log_softmax(1)


def simulator_path(path: Path) -> Path:
    """The file that a path names: itself, or the one in a folder of `rlab learn`."""
    return path / FILE if path.is_dir() else path


def read_simulator(path: Path) -> Simulator:
    """Read a file of `rlab learn`, or the one in its folder; refuse anything that does not fit together."""
    networks, card, _ = read_network(simulator_path(path), SIMULATOR, SimulatorCard, _students, SIMULATOR, VERSION)
    return Simulator(tuple(each for each in networks if isinstance(each, Student)), card)


def _students(card: SimulatorCard) -> nn.ModuleList:
    return nn.ModuleList(Student(about, card.shape, card.classes) for about in card.students)


def with_students(given: SurrogatePrior | None, simulator: Simulator, batch: Samples) -> SurrogatePrior:
    """The surrogates that are given, then the students, for data like this batch."""
    card = simulator.card
    if batch.target != "classes":
        raise ModelError("students learn scores of classes, but these data have none: leave out the simulator")
    if card.shape != batch.shape:
        raise ModelError(
            f"the simulator learned from inputs of shape {card.shape}, but these have shape {batch.shape}: "
            "learn one from data like these"
        )
    if simulator.bounds != batch.bounds:
        own = f"values in {list(simulator.bounds)}, but these are in {list(batch.bounds)}"
        raise ModelError(f"the simulator learned from {own}: learn one from data like these")
    students = simulator.victims()
    for name, student in zip(simulator.names, students, strict=True):
        check_surrogate(name, student, batch)
    before = SurrogatePrior(()) if given is None else given
    return SurrogatePrior((*before.surrogates, *students), (*before.names, *simulator.names))
