"""Load and check everything that an audit needs before the first query."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rlab.auditing.config import AuditOptions
from rlab.benchmarking.config import ORIGINAL, parse_ladder
from rlab.benchmarking.goals import errs
from rlab.benchmarking.make import check_names
from rlab.benchmarking.requirements import Requirement, quantity
from rlab.corruptions import LEVELS
from rlab.corruptions.run import CorruptOptions, Job
from rlab.data.batch import Batch
from rlab.errors import InputError, MissingExtra, ModelError, OptionError, VictimError
from rlab.explanation import parse_methods
from rlab.filters import check_palette
from rlab.filters.palette import Palette, refuse_pixels
from rlab.filters.palettes import corruptions
from rlab.hardening.trainable import trainable
from rlab.predictions.kinds import WORDS
from rlab.results.breakdown import entry_filters
from rlab.runs.executor import place
from rlab.runs.inputs import relabelled, rescaled
from rlab.runs.understood import Announce, Understood, say_nothing
from rlab.storage.config import check
from rlab.victims.base import Victim
from rlab.victims.resolve import load_model
from rlab.victims.torch_module import TorchVictim

NEED_TRUTH, NEED_CHECKS = ("dice", "iou", "pointing", "energy"), ("stability", "sanity")


@contextmanager
def stopped_at(stage: str) -> Iterator[None]:
    """Add the stage to the error that stops the audit."""
    try:
        yield
    except (InputError, VictimError, MissingExtra) as error:
        kind = (
            type(error)
            if isinstance(error, InputError)
            else VictimError
            if isinstance(error, VictimError)
            else InputError
        )
        raise kind(f"the audit stopped at {stage}: {error}") from error


@dataclass(frozen=True)
class LoadedAudit:
    """A checked audit with models and data loaded, before the first query."""

    options: AuditOptions  # with defaults filled in
    folder: Path
    batch: Batch
    victim: Victim
    training: Batch | None  # to harden on

    def corruption_job(self) -> Job:
        """All kinds and levels of corruptions on the audit's samples."""
        return Job(check(CorruptOptions, {"seed": self.options.seed}), self.victim, self.batch)


def load_audit(options: AuditOptions, folder: Path, announce: Announce = say_nothing) -> LoadedAudit:
    """Load and check everything without querying a model; raise a one-line error if something is wrong."""
    with stopped_at("loading the data"):
        options = options.model_copy(update={"data": options.suited_data()})
        batch = _for_model(options, options.data.load())
        filled, defaulted = options.filled(batch)
        refuse_pixels(filled.palette, "an audit")
        attack = filled.build(batch)
        check_palette(attack.palette, batch.x[:4], batch.bounds)
    with stopped_at("loading the model"):
        model, here = place(options, options.model)
        filled, victim = filled.model_copy(update={"model": model}), load_model(here, batch.bounds)
        victim.rows.clear()
        batch = relabelled(batch, victim.own_classes)
    training = None
    if options.harden is not None:
        with stopped_at("loading the data to harden on"):
            training = relabelled(_for_model(options, options.harden.data.load()), victim.own_classes)
    audit = LoadedAudit(filled, folder, batch, victim, training)
    for requirement in options.requirements:
        if why := next(_obstacles(requirement, audit, attack.palette), ""):
            raise OptionError(f"the requirement '{requirement}' cannot be checked: {why}")
    _check_stages(audit)
    announce(Understood(batch, (victim,), defaulted))
    return audit


def _for_model(options: AuditOptions, batch: Batch) -> Batch:
    return batch if options.model.bounds is None else rescaled(batch, options.model.bounds)


def _check_stages(audit: LoadedAudit) -> None:
    """Refuse now what a stage would refuse later."""
    options, victim, batch = audit.options, audit.victim, audit.batch
    foreign = [stage for stage in ("detect", "benchmark", "harden") if stage in options.steps]
    if victim.prediction != "classes" and foreign:
        advice = "drop the requirement on 'detection'" if foreign[0] == "detect" else f"set '{foreign[0]}: false'"
        needs = f"the stage {foreign[0]!r} needs scores of classes, but the model returns {WORDS[victim.prediction]}"
        raise ModelError(f"the audit stopped at loading the model: {needs}: {advice}")
    for method in parse_methods(options.explaining.methods) if options.explaining else ():
        if method.gradients and not isinstance(victim, TorchVictim):
            needs = f"needs a torch model, not a {type(victim).__name__}"
            raise ModelError(f"explain.methods names {method.name!r}, which {needs}: omit it")
    if options.benchmark:
        with stopped_at("benchmark"):
            check_names([options.own])
            goal = options.benchmark_options().build(batch).goal
        if not errs(goal) or batch.y.shape[1:] or victim.multilabel:
            needs = "needs one label per sample and the goal untargeted or targeted:CLASS"
            raise OptionError(f"a benchmark {needs}: set 'benchmark: false', or another goal in its section")
    if "corrupt" in options.steps:
        with stopped_at("corrupt"):
            audit.corruption_job()
    if options.harden is not None:
        with stopped_at("harden"):
            trainable(victim, batch)


def _obstacles(requirement: Requirement, audit: LoadedAudit, palette: Palette) -> Iterator[str]:
    """Why the requirement cannot be checked: it names something unknown, or nothing measures it."""
    metric, stage, at, batch = requirement.metric, requirement.figure.stage, requirement.at or {}, audit.batch
    if stage not in ("audit", *audit.options.steps):
        yield f"the audit skips the stage {stage!r}: declare the section '{stage}:' or drop the requirement"
    names = _names(stage, audit, palette.names)
    for key, name in requirement.details.items():
        if key in names and name not in names[key]:
            kind = "class, or one without samples," if key == "class" else key
            yield f"it names an unknown {kind} {name!r}: there are {', '.join(dict.fromkeys(names[key]))}"
    if metric in NEED_TRUTH and batch.masks is None and batch.target not in ("boxes", "map"):
        yield "the data have no ground truth"
    if metric in NEED_CHECKS and not (audit.options.explaining and audit.options.explaining.checks):
        yield "explain.checks is off: set 'checks: true'"
    added = {entry.filter.name for entry in palette.entries if entry.filter.additive}
    if metric == "detection" and at and requirement.distortion not in added:
        yield f"{requirement.distortion} adds nothing to the signal, so it has no SNR: leave out 'at'"
    bounded = math.isfinite(batch.bounds[1] - batch.bounds[0])
    own = "" if bounded else batch.unit  # distances of data with bounds are shares of their range
    for unit in (requirement.unit, *(quantity(bound)[1] for bound in at.values())):
        if unit not in ("", "%", own) and unit.lower() != "db":
            yield f"it is in {unit}, the data in {own or 'no unit'}: omit the unit or use that of the data"


def _names(stage: str, audit: LoadedAudit, entries: Sequence[str]) -> dict[str, Sequence[str]]:
    """Valid values of each key of a requirement about this stage; `entries` are those of the palette."""
    batch, options, benchmark = audit.batch, audit.options, audit.options.benchmark
    classes = class_indices(batch)
    names: dict[str, Sequence[str]] = {
        "class": (*(batch.label_name(k) for k in classes), *map(str, classes)),
        "distortion": tuple(entry_filters(entries)),
        "model": (options.own,),
        "method": [method.name for method in parse_methods(options.explaining.methods if options.explaining else ())],
    }
    if stage == "corrupt":
        names |= {"level": [*map(str, LEVELS)], "distortion": tuple(corruptions(batch.rank, batch.rate))}
    elif stage == "benchmark" and benchmark:
        names |= {"level": (ORIGINAL, *parse_ladder(benchmark.ladder).names)}
    return names


def class_indices(batch: Batch) -> list[int]:
    if batch.target != "classes":
        return []
    if batch.y.shape[1:]:
        return [k for k in range(batch.y.shape[1]) if (batch.y[:, k] == 1).any()]
    return [int(k) for k in batch.y.unique()]
