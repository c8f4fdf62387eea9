"""A run that learns from its own answers, at no extra query.

All untouched inputs are queried first, which an attack pays for anyway, and students are distilled from the answers. The
samples are then attacked in stages whose boundaries are sample numbers. Before each stage, new students learn from all answers
paid so far; the stage uses them unless they agree with the model on too few of the inputs kept aside. So the results
depend neither on the number of workers nor on interruptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlab.core.attack import Attack
from rlab.core.heard import CleanAnswers, Heard
from rlab.core.rng import sample_seeds
from rlab.data.batch import Samples
from rlab.errors import OptionError
from rlab.filters.palette import PIXELS, FreePixels
from rlab.learning.answers import Answers
from rlab.learning.distil import distil
from rlab.learning.simulator import Simulator, best_device, read_simulator
from rlab.policies import parse_policy
from rlab.policies.auto import is_auto
from rlab.policies.resolve import guided
from rlab.results.stages import StageFacts, stage_file, stage_key
from rlab.runs.answers import heard_answers, read_heard
from rlab.runs.options import AttackOptions
from rlab.storage.config import write_config
from rlab.storage.resume import Resume
from rlab.storage.run_file import PARTS, check_digest, file_digest
from rlab.victims.base import Victim

BOUNDARIES = (256, 1024, 4096)  # samples after which students are distilled again, if the user names none
FEWEST, MOST = 2000, 100  # samples and queries per sample with which learning pays
CLEAN = 256  # most untouched inputs queried at once
VALUES = 2**27  # most values of the clean inputs that students learn from, and of the distorted ones
TIMES = 2  # most answers to proposals that students learn from, for each clean answer: training takes time
THREADS = 1  # that train students: always the same number, because it decides the last bits


def choose_stages(options: AttackOptions, samples: Samples, victim: Victim) -> tuple[int, ...] | None:
    """The stages that the user names, or the default ones where learning pays, which counts and shapes decide; None elsewhere.

    Students improve the first hundred queries, take thousands of answers to be good, and are run dozens of times for each query,
    which is slow without a GPU.
    """
    if options.stages is not None:
        return options.stages
    assert options.budget is not None
    asked = options.learn is None and options.simulator is None and options.surrogate is None
    able = is_auto(parse_policy(options.policy)) and options.palette != (PIXELS,) and not victim.tells_labels
    able = able and victim.prediction == "classes"
    pays = len(samples) >= FEWEST and options.budget <= MOST and victim.device.type != "cpu"
    return BOUNDARIES if asked and able and pays else None


def check_stages(options: AttackOptions, attack: Attack) -> None:
    """Refuse before the first query what cannot learn."""
    if attack.goal.fits != "classes":
        raise OptionError(f"students learn scores of classes, but the goal '{attack.goal}' has none: leave out stages")
    if isinstance(attack.palette, FreePixels):
        raise OptionError("the palette 'pixels' does not learn in stages: leave out the stages, or choose filters")
    if not guided(parse_policy(options.policy)):
        raise OptionError(f"students guide the policies 'auto' and 'belief', not '{options.policy}': use one of them")


def stages_words(stages: Sequence[int], samples: int) -> str:
    """What a run with these stages does, in one line."""
    edges = [f"{edge:,}" for edge in stages if edge < samples]
    later = f" and after {', '.join(edges)} samples" if edges else ""
    return f"learning from the answers: students after the clean queries{later}; --learn off switches this off"


def cut(samples: int, boundaries: Sequence[int]) -> list[slice]:
    """The samples of each stage."""
    edges = [0, *(edge for edge in boundaries if edge < samples), samples]
    return [slice(first, last) for first, last in pairwise(edges)]


# Where a run keeps its clean answers, its students and the answers to its proposals; a value is a mapping.


@dataclass(frozen=True)
class MemoryStore:
    """Keeps everything in memory."""

    values: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    answers: dict[str, Heard | None] = field(default_factory=dict)
    simulators: dict[int, Simulator] = field(default_factory=dict)
    folder: None = None

    def recall(self, key: str) -> Mapping[str, Any] | None:
        return self.values.get(key)

    def begin(self, key: str) -> None:
        """Nothing can be left half done here."""

    def record(self, key: str, value: Mapping[str, Any]) -> None:
        self.values[key] = value

    def heard(self, key: str) -> Heard | None:
        return self.answers[key]

    def keep(self, number: int, simulator: Simulator) -> str:
        self.simulators[number] = simulator
        return simulator.digest

    def taught(self, number: int) -> bool:
        return number in self.simulators

    def simulator(self, number: int) -> Simulator:
        return self.simulators[number]


@dataclass(frozen=True)
class FolderStore:
    """Keeps everything in a run folder with its configuration."""

    resume: Resume
    config: Mapping[str, Any]

    @property
    def folder(self) -> Path:
        return self.resume.folder

    def recall(self, key: str) -> Mapping[str, Any] | None:
        return self.resume.recall(key, "")

    def create(self) -> None:
        """Create the folder before anything is written."""
        self.resume.create()
        write_config(self.resume.folder, self.config)
        (self.resume.folder / PARTS).mkdir(exist_ok=True)

    def begin(self, key: str) -> None:
        self.create()
        self.resume.begin(key)

    def record(self, key: str, value: Mapping[str, Any]) -> None:
        self.resume.record(key, "", dict(value))

    def heard(self, key: str) -> Heard | None:
        return read_heard(self.resume.part(key))

    def keep(self, number: int, simulator: Simulator) -> str:
        path = stage_file(self.resume.folder, number)
        path.parent.mkdir(exist_ok=True)
        simulator.save(path)
        return file_digest(path)

    def taught(self, number: int) -> bool:
        """Whether the students of a stage are finished and their file still exists."""
        return self.recall(stage_key(number)) is not None and stage_file(self.resume.folder, number).exists()

    def simulator(self, number: int) -> Simulator:
        path = stage_file(self.resume.folder, number)
        check_digest(path, (self.resume.recall(stage_key(number), "") or {}).get("digest"))
        return read_simulator(path)


StageStore = MemoryStore | FolderStore


@dataclass(frozen=True)
class Teacher:
    """Makes the students of each stage from the answers in the store."""

    attack: Attack
    victim: Victim
    samples: Samples
    store: StageStore
    clean: CleanAnswers  # of the whole run
    chunks: Mapping[str, slice]  # all chunks of the run
    say: Callable[[str], None]

    def students(self, number: int, first: int) -> Simulator:
        """The students for the stage that begins at sample `first`: stored ones, or new ones, which are then stored."""
        if not self.store.taught(number):
            key = stage_key(number)
            self.store.begin(key)
            simulator = self._distil(number, first)
            card = simulator.card
            digest = self.store.keep(number, simulator)
            self.store.record(key, asdict(StageFacts(first, card.clean, card.distorted, on_clean(simulator), digest)))
        return self.store.simulator(number)

    def _distil(self, number: int, first: int) -> Simulator:
        clean = self._clean()
        answers = Answers.join([clean, *self._heard(first, min(self._most, TIMES * len(clean)))])
        self.say(f"learning from {len(answers):,} answers")
        with fixed_threads():
            return distil(
                answers,
                self.samples.bounds,
                multilabel=self.victim.multilabel,
                seed=self.attack.seed,
                device=best_device(),
                start=self.students(number - 1, self._first(number - 1)) if number else None,
                progress=self.say,
            )

    def _first(self, number: int) -> int:
        """The sample at which an earlier stage begins."""
        return int((self.store.recall(stage_key(number)) or {})["first"])

    @property
    def _most(self) -> int:
        return max(1, VALUES // torch.Size(self.samples.shape).numel())

    def _clean(self) -> Answers:
        answered = spread(self.clean.queries.nonzero()[:, 0], self._most)
        x = torch.cat([self.samples[part.tolist()].x for part in answered.split(CLEAN)])
        return Answers(x, self.clean.scores[answered], origins=("clean answers",))

    def _heard(self, first: int, most: int) -> Iterator[Answers]:
        """At most this many answers to proposals for the samples before `first`."""
        earlier = [key for key, rows in self.chunks.items() if rows.start < first]
        before = {key: heard for key in earlier if (heard := self.store.heard(key))}
        chosen, at = spread(torch.arange(sum(len(heard.sample) for heard in before.values())), most), 0
        for key, heard in before.items():
            count, rows = len(heard.sample), self.chunks[key]
            part = heard[chosen[(chosen >= at) & (chosen < at + count)] - at]
            at += count
            if len(part.sample):
                batch = self.samples[rows]
                seeds = sample_seeds(self.attack.seed, rows.start, len(batch))
                palette, grid = self.attack.palette, self.attack.grid
                yield heard_answers(palette, grid, batch, seeds, part, "the attack's queries")


def on_clean(simulator: Simulator) -> float:
    """How often the students agree with the model on clean inputs. Those of an attack lie near its boundary and agree less."""
    card = simulator.card
    return card.agreement if card.clean_agreement is None else card.clean_agreement


def spread(rows: Tensor, most: int) -> Tensor:
    """At most this many of the rows (n,), evenly spread."""
    return rows if len(rows) <= most else rows[torch.arange(most) * len(rows) // most]


@contextmanager
def fixed_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        yield
    finally:
        torch.set_num_threads(before)
