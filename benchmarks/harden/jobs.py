"""One hardening of one net, and what is measured of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.harden.cases import OURS, UNCHANGED, Section
from benchmarks.harness import machine
from benchmarks.raw import Raw
from rlab.corruptions import KINDS, LEVELS, corrupt
from rlab.data.batch import Batch
from rlab.hardening.evaluation import measure_robustness
from rlab.hardening.options import EvaluationOptions, HardenOptions
from rlab.hardening.run import harden
from rlab.hardening.trainable import Weights, blend, correct, take, twin
from rlab.results.result import AttackResult
from rlab.runs.attack import run_attack
from rlab.storage.config import check
from rlab.victims.torch_module import TorchVictim

BUDGETS = (50, 200)  # queries
KEEP = 0.008  # loss of clean accuracy on validation data that is allowed where a point is chosen
STRENGTHS = (0.4, 0.7, 1.0)  # fractions of the way from the unchanged weights: the curve
SHARES = tuple(i / 20 for i in range(20, 0, -1))
TRAINED_KINDS = ("gaussian_noise", "brightness")  # common corruptions that are also in the palette for pictures
SHARED: dict[str, Any] = {"max_clean_drop": 1.0, "validation_attacked": 200}
OTHERS = ("square", "pgd", "corruptions", "held_out")  # accuracies beside the clean one


@dataclass(frozen=True)
class Job:
    """One hardening; `values` override the section's configuration."""

    section: str
    method: str
    seed: int
    values: tuple[tuple[str, Any], ...] = ()
    spec: str = ""  # the method with a radius after '@' (default: the method)

    @property
    def name(self) -> str:
        return f"{self.section}-{self.method}-{self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        spec = self.spec or self.method
        values = {name: value for name, value in self.values if name != "step"}
        return {"section": self.section, "spec": spec, "values": values, "seed": self.seed}


class Clock:
    """The seconds of training, over all calls that share the file."""

    def __init__(self, path: Path | None) -> None:
        self.path, self.since = path, time.monotonic()
        self.seconds = float(path.read_text()) if path is not None and path.exists() else 0.0

    def __call__(self, epoch: object) -> None:
        now = time.monotonic()
        self.seconds, self.since = self.seconds + now - self.since, now
        if self.path is not None:
            self.path.write_text(str(self.seconds))


def run(job: Job, section: Section, folder: Path | None = None) -> tuple[Raw, Weights]:
    """Harden, draw the weights back until clean accuracy holds, and measure; returns the weights at that point too.

    From scratch, all of the change is kept. A folder keeps finished epochs, so that the next call goes on after them.
    """
    victim, data = section.victim, section.data
    validation = data.validation
    assert validation is not None
    victim.chunk = 4096 if victim.device.type == "cuda" else 256
    declared = SHARED | dict(section.config) | {"seed": job.seed} | dict(job.values)
    base, trained = check(HardenOptions, declared), job.method != UNCHANGED
    start, facts = take(victim.model), dict[str, Any]()
    full, seconds, numbers = start, 0.0, dict[str, Any]()
    if trained:
        chosen = check(HardenOptions, declared | {"method": job.spec or job.method, "augment": section.augment})
        out, clock = folder and folder / job.name, Clock(folder and folder / f"{job.name}.seconds")
        hardened = harden(victim, data.train, chosen, validation=validation, progress=clock, out=out)
        full, seconds = take(hardened.model), clock.seconds
        facts["kept_epoch"] = hardened.best.number
        history = {name: [getattr(e, name) for e in hardened.history[1:]] for name in ("loss", "clean", "robust")}
        numbers |= {"rows": hardened.rows, "history": history}
    other = twin(victim)

    def at(share: float) -> TorchVictim:
        other.model.load_state_dict(blend(start, full, share))
        return other

    def clean(share: float) -> float:
        return float(correct(at(share), validation.x, validation.y).float().mean())

    least = clean(0.0) - KEEP
    kept = 1.0 if section.scratch else next((s for s in SHARES if clean(s) >= least), 0.0)
    share = kept if trained else 0.0
    points = [measure(at(share), section, job, share, True)]
    if trained and not job.seed and not section.scratch:  # the curve of one seed
        points += [measure(at(s), section, job, s, False) for s in STRENGTHS if s != share]
    numbers |= {"seconds": seconds, "share": share, "points": {str(i): point for i, point in enumerate(points)}}
    values = {name: value for name, value in job.values if name != "step"}
    facts |= {
        "section": job.section, "method": job.method, "seed": job.seed, "maker": maker(job.method, base),
        "train": len(data.train), "validation": len(validation), "test": len(data.test), "config": base.plain(),
        "epochs": base.epochs, "device": machine(str(victim.device)), "spec": job.spec or job.method,
        "values": values,
    }  # fmt: skip
    return Raw(numbers, facts), take(at(share).model)


def maker(spec: str, options: HardenOptions) -> str:
    """The source of a method's samples, in a word."""
    if spec in (UNCHANGED, OURS):
        own = options.adversary if isinstance(options.adversary, str) else type(options.adversary).__name__
        return {UNCHANGED: "", OURS: "belief" if own in ("auto", "belief") else own}[spec]
    return {"augment": "chance", "augmix": "chance", "belief": "belief"}.get(spec, "gradient")


def measure(victim: TorchVictim, section: Section, job: Job, share: float, other_attacks: bool) -> dict[str, Any]:
    """Clean accuracy, distances to flip within the budgets, common corruptions and, on request, the other attacks."""
    test = section.data.test
    attacked = min(section.attacked, len(test))
    budget = BUDGETS[-1]
    chunk = attacked if victim.device.type == "cuda" else None
    attack = {"budget": budget, "seed": job.seed, "chunk": chunk}
    evaluation = check(EvaluationOptions, {"attack": attack, "attacked": attacked, "square_budget": budget})
    point: dict[str, Any] = {"share": share}
    if other_attacks:
        measured = measure_robustness(victim, test, evaluation)
        result = measured.attack
        assert result is not None
        point |= {name: float(measured.figures[name].mean()) for name in OTHERS}
    else:
        result = run_attack(evaluation.attack.build(test[:attacked]), victim, test[:attacked])
    point["clean"] = float(correct(victim, test.x, test.y).float().mean())
    point |= {f"l2_{budget}": distances(result, budget) for budget in BUDGETS}
    if section.common is not None:
        point["common"] = common_corruptions(victim, section.common)
    return point


def distances(result: AttackResult, budget: int) -> list[float | None]:
    """Distance of each sample's best flip within the budget; None where it was not attacked."""
    pairs = zip(result.best_within(budget), result.attacked, strict=True)
    return [round(float(far), 4) if attacked else None for far, attacked in pairs]


def common_corruptions(victim: TorchVictim, batch: Batch) -> dict[str, list[float]]:
    """Accuracy by kind and severity."""

    def right(kind: str, level: int) -> float:
        part = _corrupted(batch.x, kind, level, victim.device)
        return float(correct(victim, part.float() / 255, batch.y).float().mean())

    return {kind: [right(kind, level) for level in LEVELS] for kind in KINDS}


@cache
def _corrupted(x: Tensor, kind: str, level: int, device: torch.device) -> Tensor:
    """Corrupted images as bytes, kept for the next model."""
    return (corrupt(x.to(device), kind, level) * 255).round().to(torch.uint8)


def mean_common(point: Mapping[str, Any], without: Sequence[str] = TRAINED_KINDS) -> float:
    """Mean accuracy under the common corruptions, without those in the palette."""
    return float(np.mean([v for kind, values in point["common"].items() if kind not in without for v in values]))
