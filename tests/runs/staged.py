"""A small run that learns in stages, with students that are trained in an instant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from rlab.data.batch import Batch, Samples
from rlab.results.result import AttackResult
from rlab.runs.attack import run_attack
from rlab.runs.options import AttackOptions
from rlab.storage.config import check
from rlab.victims.base import Victim
from tests.helpers import PALETTE, PATCHES, exact_victim, labelled_by, make_batch
from tests.learning.toys import small_students

SAMPLES, STAGES = 18, (8, 13)
ENOUGH = 0.0  # such students agree with the victim on little
# The policy belief uses the students' gradients alone, which is fast; auto also tries its candidates on them.
OPTIONS = {
    "patch": PATCHES[2], "palette": PALETTE, "policy": "belief", "budget": 7, "chunk": 4, "until": "budget", "learn": "stages:8,13"
}  # fmt: skip


@contextmanager
def one_student() -> Iterator[None]:
    """One narrow student and two steps of training."""
    one = mock.patch.dict("rlab.learning.students.ARCHITECTURES", {"image": ("plain",)})
    trusted = mock.patch("rlab.learning.ENOUGH", ENOUGH)
    with small_students(steps=2, width=4), one, trusted:
        yield


@cache
def staged_case() -> tuple[Victim, Batch]:
    """A victim and samples; two samples are wrong from the start."""
    victim = exact_victim(2)
    return victim, labelled_by(victim, make_batch(2, SAMPLES), wrong=(1, 7))


def options(**changed: Any) -> AttackOptions:
    return check(AttackOptions, {**OPTIONS, **changed})


def staged_run(
    folder: Path | None = None, victim: Victim | None = None, samples: Samples | None = None, **changed: Any
) -> AttackResult:
    """Attack in memory or in a folder."""
    own, batch = staged_case()
    declared = options(**changed)
    config = {"model": {"name": "exact"}, **declared.plain()}
    with one_student():
        return run_attack(declared, victim or own, samples or batch, folder, config)
