"""Distil students from a victim's answers (https://arxiv.org/abs/1503.02531).

Each student learns the victim's probabilities with AdamW and one cycle of the learning rate; pictures are mirrored and shifted,
signals shifted. The number of steps depends on counts, never on a clock, and every draw comes from the seed, so the same answers
give the same students on one machine. On a GPU, where it takes a minute, students of images are wider and learn for longer.
A tenth of the inputs is kept aside, with all their distorted copies, to measure how often the students agree with the victim.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from rlab.core.rng import seeded_globals
from rlab.core.vectors import wide
from rlab.data.kinds import kind_of
from rlab.errors import DataError
from rlab.learning.answers import Answers
from rlab.learning.simulator import Simulator, SimulatorCard, student_scores
from rlab.learning.students import Student, StudentShape, shapes_for
from rlab.storage.digest import digest

BATCH, LEARNING_RATE, WEIGHT_DECAY = 64, 4e-3, 5e-4
EPOCHS, FEWEST_STEPS, MOST_STEPS = {"cpu": 30, "cuda": 60}, 300, 6000
FEWEST = 8  # inputs from which anything can be learned
ASIDE, FEWEST_ASIDE = 0.1, 32  # the share of the inputs kept aside, and the fewest where there are enough
PACE, FIRST_STEPS = 30.0, 20  # seconds between two words on training, and the steps after which the first comes
Weights = Mapping[str, Tensor]
Remember = Callable[[str, Callable[[], Weights]], Weights]  # by key: weights made earlier, or made now
Say = Callable[[str], None]


def distil(
    answers: Answers,
    bounds: tuple[float, float],
    *,
    multilabel: bool,
    seed: int,
    device: torch.device,
    start: Simulator | None = None,
    progress: Say = lambda line: None,
    remember: Remember = lambda key, make: make(),
) -> Simulator:
    """Students of the victim that gave these answers; `start` goes on from earlier students in half the steps.

    `progress` gets a line for each student, and one every half a minute. `remember` stores each student's weights when they are
    made and returns stored ones.
    """
    aside = keep_aside(answers.source, seed)
    lesson = Lesson(answers[(~aside).nonzero()[:, 0]], bounds, multilabel, device)
    test = answers[aside.nonzero()[:, 0]]
    abouts = shapes_for(tuple(answers.x.shape[2:]), device) if start is None else start.card.students
    students, said, agreements = list[Student](), list[Tensor](), list[float]()
    for number, about in enumerate(abouts):
        began, name = time.monotonic(), f"student {number + 1} of {len(abouts)} ({about.architecture})"
        first = None if start is None else start.students[number]

        def make(
            about: StudentShape = about, number: int = number, first: Student | None = first, name: str = name
        ) -> Weights:
            return lesson.teach(about, seed + number, first, lambda line: progress(f"{name}: {line}")).state_dict()

        student = lesson.make(about)
        student.load_state_dict(dict(remember(f"{number}-{about.architecture}", make)))
        students.append(student.eval())
        with torch.no_grad():
            said.append(student_scores(student, test.x, multilabel))
        agreements.append(agreement(said[-1], test.scores, multilabel))
        progress(f"{name} agrees on {agreements[-1]:.1%}, after {time.monotonic() - began:.0f} s on {device}")
    mean, clean, changed = torch.stack(said).mean(0), ~test.changed, int(answers.changed.sum())
    low, high = (end if math.isfinite(end) else None for end in bounds)
    card = SimulatorCard(
        students=tuple(student.about for student in students),
        shape=lesson.shape,
        classes=answers.scores.shape[1],
        multilabel=multilabel,
        bounds=(low, high),
        clean=len(answers) - changed,
        distorted=changed,
        origins=answers.origins,
        queries=answers.queries,
        aside=len(test),
        agreement=agreement(mean, test.scores, multilabel),
        clean_agreement=agreement(mean[clean], test.scores[clean], multilabel) if clean.any() else None,
        agreements=tuple(agreements),
        seed=seed,
    )
    return Simulator(tuple(students), card)


def keep_aside(source: tuple[str, ...], seed: int) -> Tensor:
    """(n,) bool: whether an input is kept aside; all inputs with one source are on one side."""
    ranked = sorted(set(source), key=lambda name: digest(seed, name))
    if len(ranked) < FEWEST:
        raise DataError(f"expected answers about at least {FEWEST} different inputs to learn from, got {len(ranked)}")
    count = min(max(math.ceil(ASIDE * len(ranked)), FEWEST_ASIDE), len(ranked) // 4)
    chosen = set(ranked[:count])
    return torch.tensor([name in chosen for name in source])


def agreement(scores: Tensor, wanted: Tensor, multilabel: bool) -> float:
    """The share of equal decisions: classes, or labels if several can be true at once. Both (n, k)."""
    same = (scores > 0) == (wanted > 0) if multilabel else scores.argmax(1) == wanted.argmax(1)
    return float(same.double().mean())


def steps_for(answers: int, device: torch.device, again: bool = False) -> int:
    """The number of steps for this many answers, half of it to go on from earlier students."""
    epochs = EPOCHS["cpu" if device.type == "cpu" else "cuda"]
    steps = min(max(epochs * answers // BATCH, FEWEST_STEPS), MOST_STEPS)
    return steps // 2 if again else steps


@dataclass(frozen=True)
class Lesson:
    """The answers that students learn from."""

    answers: Answers
    bounds: tuple[float, float]
    multilabel: bool
    device: torch.device

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.answers.x.shape[1:])

    def make(self, about: StudentShape) -> Student:
        return Student(about, self.shape, self.answers.scores.shape[1]).to(self.device)

    def teach(self, about: StudentShape, seed: int, start: Student | None, tell: Say = lambda line: None) -> Student:
        """A trained student."""
        with seeded_globals(seed), torch.backends.cudnn.flags(enabled=True, deterministic=True):
            student = self.make(about)
            if start is None:
                student.mean, student.std = (part.to(self.device) for part in standard(self.answers.x))
            else:
                student.load_state_dict(start.state_dict())
            steps = steps_for(len(self.answers), self.device, start is not None)
            self._train(student.train(), steps, 1.0 if start is None else 0.5, tell)
        return student.eval()

    def _train(self, student: Student, steps: int, pace: float, tell: Say) -> None:
        x, scores = self.answers.x.to(self.device), self.answers.scores
        # the probabilities of a victim that returns labels are 0 and 1, which makes the loss a cross entropy
        wanted = (scores.sigmoid() if self.multilabel else scores.softmax(1)).to(self.device)
        divergence = F.binary_cross_entropy_with_logits if self.multilabel else F.cross_entropy  # up to a constant
        if kind_of(self.shape[1:]) == "image":  # twice as fast on a CPU
            student.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        optimizer = torch.optim.AdamW(student.parameters(), weight_decay=WEIGHT_DECAY, fused=True)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, pace * LEARNING_RATE, total_steps=steps)
        waiting = torch.empty(0, dtype=torch.int64)
        told = began = time.monotonic()
        for step in range(steps):
            if time.monotonic() - told > PACE or (step == FIRST_STEPS and told == began):
                told = time.monotonic()
                tell(f"{step:,} of {steps:,} steps, about {(told - began) / step * (steps - step):.0f} s left")
            while len(waiting) < min(BATCH, len(x)):
                waiting = torch.cat([waiting, torch.randperm(len(x))])
            rows, waiting = waiting[:BATCH].to(self.device), waiting[BATCH:]
            loss = divergence(student(vary(x[rows])), wanted[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()


def standard(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (c, 1, ...) of each channel."""
    axes, each = (0, *range(2, x.dim())), (-1, *(1,) * (x.dim() - 2))
    std, mean = torch.std_mean(x.float(), axes)
    return mean.view(each), std.clamp(min=1e-6).view(each)


def vary(x: Tensor) -> Tensor:
    """Shift each input (n, c, *size) by up to an eighth along each axis but time in clips, and mirror half of all pictures."""
    kind = kind_of(x.shape[2:])
    for axis in range(3 if kind == "video" else 2, x.dim()):
        far, length = x.shape[axis] // 8, x.shape[axis]
        moved = (torch.arange(length) - torch.randint(-far, far + 1, (len(x), 1))) % length
        index = moved.to(x.device).view(len(x), *(length if a == axis else 1 for a in range(1, x.dim())))
        x = x.gather(axis, index.expand_as(x))
    if kind == "signal":
        return x
    mirrored = (torch.rand(len(x)) < 0.5).to(x.device)
    return torch.where(wide(mirrored, x), x.flip(-1), x)
