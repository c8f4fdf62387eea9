"""A run that learns from its own answers, at no extra query.

All untouched inputs are queried first, which an attack pays for anyway; the journals of the chunks keep the answers. The samples
are then attacked in stages whose boundaries are sample numbers. Before each stage, students learn from the answers about untouched
inputs and from those to proposals in the stages before; the stage uses them unless they agree with the model on too few of the
inputs kept aside. So the results depend neither on the number of workers nor on interruptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from rlab.core.attack import Attack
from rlab.core.rng import sample_seeds
from rlab.data.batch import Samples
from rlab.errors import OptionError
from rlab.filters.palette import FreePixels
from rlab.learning.answers import Answers
from rlab.learning.distil import FEWEST, distil
from rlab.learning.simulator import Simulator, best_device, read_simulator
from rlab.policies import parse_policy
from rlab.policies.resolve import guided
from rlab.results.stages import StageFacts, stage_file, stage_key
from rlab.runs.answers import Proposals, kept_proposals
from rlab.runs.chunk_work import ChunkTask
from rlab.runs.options import AttackOptions
from rlab.runs.threads import use_threads
from rlab.storage.journal import Journal, journal_path
from rlab.storage.resume import Resume
from rlab.storage.run_file import check_digest, file_digest
from rlab.victims.base import Victim
from rlab.victims.meter import QueryMeter

VALUES = 2**27  # most values of the untouched inputs that students learn from, and of the distorted ones
TIMES = 2  # most answers to proposals that students learn from, for each answer about an untouched input: training takes time
THREADS = 1  # that train students: always the same number, because it decides the last bits


def check_stages(options: AttackOptions, attack: Attack) -> None:
    """Refuse before the first query what cannot learn."""
    if attack.goal.fits != "classes":
        raise OptionError(f"students learn scores of classes, but the goal '{attack.goal}' has none: leave out learn")
    if isinstance(attack.palette, FreePixels):
        raise OptionError("the palette 'pixels' does not learn in stages: leave out learn, or choose filters")
    if not guided(parse_policy(options.policy)):
        raise OptionError(f"students guide the policies 'auto' and 'belief', not '{options.policy}': use one of them")


def cut(samples: int, boundaries: Sequence[int]) -> list[slice]:
    """The samples of each stage."""
    edges = [0, *(edge for edge in boundaries if edge < samples), samples]
    return [slice(first, last) for first, last in pairwise(edges)]


def ask_clean(victim: Victim, tasks: Iterable[ChunkTask], folder: Path, patches: int) -> None:
    """Query all untouched inputs; the attack finds the answers in the journals of its chunks."""
    for task in tasks:
        if task.batch is not None:
            with Journal(journal_path(folder, task.key), learns=True) as journal:
                n = len(task.batch)
                meter = QueryMeter(victim, n, journal=journal)
                meter(task.batch.x.contiguous().to(victim.device), torch.arange(n), "search", torch.zeros(n, patches))


@dataclass(frozen=True)
class Stages:
    """Makes the students of each stage from the journals in the run's folder."""

    attack: Attack
    victim: Victim
    samples: Samples
    resume: Resume
    chunks: Mapping[str, slice]  # all chunks of the run
    say: Callable[[str], None]

    def students(self, number: int, first: int) -> Simulator | None:
        """The students for the stage that begins at sample `first`, stored or new; None if too few samples were answered."""
        key, path = stage_key(number), stage_file(self.resume.folder, number)
        known = self.resume.recall(key, "")
        if known is None or not path.exists():
            self.resume.begin()
            path.parent.mkdir(exist_ok=True)
            answers = Answers.join(list(self._answers(first)))
            if len(set(answers.source)) < FEWEST:
                return None
            simulator = self._distil(number, answers)
            simulator.save(path)
            card = simulator.card
            facts = StageFacts(first, card.clean, card.distorted, card.usual_agreement, file_digest(path))
            self.resume.record(key, "", known := asdict(facts))
        check_digest(path, known["digest"])
        return read_simulator(path)

    def _distil(self, number: int, answers: Answers) -> Simulator:
        self.say(f"learning from {len(answers):,} answers")
        before = self.resume.recall(stage_key(number - 1), "") if number else None
        with use_threads(THREADS):
            return distil(
                answers,
                self.samples.bounds,
                multilabel=self.victim.multilabel,
                seed=self.attack.seed,
                device=best_device(),
                start=None if before is None else self.students(number - 1, int(before["first"])),
                progress=self.say,
            )

    def _answers(self, first: int) -> Iterator[Answers]:
        """Answers about untouched inputs, and some of those to proposals about the samples before `first`."""
        attack, most, at = self.attack, max(1, VALUES // torch.Size(self.samples.shape).numel()), 0
        known = dict[str, Proposals]()
        for key, rows in self.chunks.items():
            found = kept_proposals(self.resume.folder, key, rows.stop - rows.start, attack.grid, len(attack.palette))
            if found is not None:
                known[key] = found if rows.start < first else found[~found.changed]
        if not known:
            raise OptionError(
                "the model answered no untouched input, so there is nothing to learn from: leave out learn"
            )
        changed = torch.cat([each.changed for each in known.values()])
        clean, moved = ((changed == wanted).nonzero()[:, 0] for wanted in (False, True))
        clean = spread(clean, most)
        chosen = torch.zeros_like(changed)
        chosen[torch.cat([clean, spread(moved, min(most, TIMES * len(clean)))])] = True
        for key, each in known.items():
            part, at = each[chosen[at : at + len(each)]], at + len(each)
            if len(part):
                batch, scores = self.samples[self.chunks[key]], self.victim.scores_of(part.answers)
                seeds = sample_seeds(attack.seed, self.chunks[key].start, len(batch))
                yield part.examples(attack.palette, attack.grid, batch, seeds, scores, "the attack's queries")


def spread(rows: Tensor, most: int) -> Tensor:
    """At most this many of the rows (n,), evenly spread."""
    return rows if len(rows) <= most else rows[torch.arange(most) * len(rows) // most]
