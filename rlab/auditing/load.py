"""Load and check everything that an audit needs before the first query."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rlab.auditing.config import AuditOptions
from rlab.benchmarking.config import ORIGINAL, parse_ladder
from rlab.benchmarking.folder import Benchmark
from rlab.benchmarking.goals import errs
from rlab.benchmarking.make import check_names
from rlab.benchmarking.requirements import Requirement, quantity
from rlab.benchmarking.verdicts import main_distortions
from rlab.corruptions import LEVELS
from rlab.corruptions.run import CorruptOptions, Job
from rlab.data.batch import Batch
from rlab.errors import DataError, InputError, MissingExtra, ModelError, OptionError, VictimError
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
    except VictimError as error:
        raise VictimError(f"the audit stopped at {stage}: {error}") from error
    except InputError as error:
        raise type(error)(f"the audit stopped at {stage}: {error}") from error
    except MissingExtra as error:
        raise InputError(f"the audit stopped at {stage}: {error}") from error


@dataclass(frozen=True)
class LoadedAudit:
    """A checked audit with models and data loaded, before the first query."""

    options: AuditOptions  # with defaults filled in
    folder: Path
    batch: Batch
    victim: Victim
    others: Mapping[str, Victim]  # other models of the benchmark
    training: Batch | None  # to harden on
    benchmark: Benchmark | None = None  # an existing one that the file names

    def corruption_job(self) -> Job:
        """All kinds and levels of corruptions on the audit's samples."""
        return Job(check(CorruptOptions, {"seed": self.options.seed}), self.victim, self.batch)


def load_audit(
    options: AuditOptions,
    folder: Path,
    announce: Announce = say_nothing,
) -> LoadedAudit:
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
        filled = filled.model_copy(update={"model": model})
        victim = load_model(here, batch.bounds)
        victim.rows.clear()
        batch = relabelled(batch, victim.own_classes)
    benchmark = _stored_benchmark(filled, batch)
    _check_requirements(filled, batch, attack.palette, benchmark)
    with stopped_at("loading the model"):
        foreign = [stage for stage in ("detect", "benchmark", "harden") if stage in filled.steps]
        if victim.prediction != "classes" and foreign:
            advice = "drop the requirement on 'detection'" if foreign[0] == "detect" else f"set '{foreign[0]}: false'"
            returns = f"the model returns {WORDS[victim.prediction]}"
            raise ModelError(f"the stage {foreign[0]!r} needs scores of classes, but {returns}: {advice}")
    others = {}
    for name, model in (options.benchmark.models if options.benchmark else {}).items():
        with stopped_at(f"loading the model {name!r} of the benchmark"):
            others[name] = load_model(place(options, model)[1], batch.bounds)
    training = None
    if options.harden is not None:
        with stopped_at("loading the data to harden on"):
            training = relabelled(_for_model(options, options.harden.data.load()), victim.own_classes)
    audit = LoadedAudit(filled, folder, batch, victim, others, training, benchmark)
    _check_stages(audit)
    announce(Understood(batch, (victim, *others.values()), defaulted))
    return audit


def _for_model(options: AuditOptions, batch: Batch) -> Batch:
    return batch if options.model.bounds is None else rescaled(batch, options.model.bounds)


def _stored_benchmark(options: AuditOptions, batch: Batch) -> Benchmark | None:
    """The existing benchmark that the file names; its inputs must be like the audit's."""
    if options.benchmark is None or options.benchmark.folder is None:
        return None
    with stopped_at("loading the benchmark"):
        benchmark = Benchmark.load(options.benchmark.folder)
        stored = benchmark.manifest.shape
        own, there = (batch.x.shape[1], *batch.size), (stored.channels, *stored.size)
        if own != there or batch.bounds != stored.bounds:
            shapes = f"holds inputs {there} in {stored.bounds}, the audit's are {own} in {batch.bounds}"
            raise DataError(f"{benchmark.folder} {shapes}: name a benchmark made from such data")
        return benchmark


def _check_stages(audit: LoadedAudit) -> None:
    """Refuse now what a stage would refuse later."""
    options, victim = audit.options, audit.victim
    for method in parse_methods(options.explain.methods) if options.explain else ():
        if method.gradients and not isinstance(victim, TorchVictim):
            needs = f"needs a torch model, not a {type(victim).__name__}"
            raise ModelError(f"explain.methods names {method.name!r}, which {needs}: omit it")
    if options.benchmark is not None:
        with stopped_at("benchmark"):
            check_names({options.own: victim, **audit.others})
            goal = audit.benchmark.goal if audit.benchmark else options.benchmark_options().build(audit.batch).goal
        if not errs(goal) or audit.batch.y.shape[1:] or victim.multilabel:
            needs = "needs one label per sample and the goal untargeted or targeted:CLASS"
            raise OptionError(f"a benchmark {needs}: set 'benchmark: false', or another goal in its section")
    if "corrupt" in options.steps:
        with stopped_at("corrupt"):
            audit.corruption_job()
    if options.harden is not None:
        with stopped_at("harden"):
            trainable(victim, audit.batch)


def _check_requirements(options: AuditOptions, batch: Batch, palette: Palette, stored: Benchmark | None) -> None:
    """Refuse a requirement that names something unknown, or that cannot be checked."""
    for requirement in options.requirements:
        stage = requirement.figure.stage
        if stage not in ("audit", *options.steps):
            advice = f"declare the section '{stage}:' or drop the requirement"
            raise OptionError(f"'{requirement}' is about the stage {stage!r}, which this audit skips: {advice}")
        names = _names(stage, options, batch, palette.names, stored)
        for key, name in requirement.details.items():
            if key in names and name not in names[key]:
                kind = "class, or one without samples," if key == "class" else key
                listed = f"there are {', '.join(dict.fromkeys(names[key]))}"
                raise OptionError(f"the requirement '{requirement}' names an unknown {kind} {name!r}: {listed}")
        if stage == "benchmark" and stored and requirement.distortion not in (None, *main_distortions(stored)):
            filters = ", ".join(main_distortions(stored))
            raise OptionError(
                f"the requirement '{requirement}' cannot be checked: no file of the benchmark has "
                f"{requirement.distortion!r} as its main distortion; there are {filters}"
            )
        if why := _obstacle(requirement, options, batch, palette):
            raise OptionError(f"the requirement '{requirement}' cannot be checked: {why}")


def _names(
    stage: str, options: AuditOptions, batch: Batch, entries: Sequence[str], stored: Benchmark | None
) -> dict[str, tuple[str, ...]]:
    """Valid values of each key of a requirement about this stage; `entries` are those of the palette."""
    explain, benchmark, classes = options.explain, options.benchmark, class_indices(batch)
    names: dict[str, tuple[str, ...]] = {
        "class": (*(batch.label_name(k) for k in classes), *map(str, classes)),
        "distortion": tuple(entry_filters(entries)),
        "level": (ORIGINAL, *parse_ladder(benchmark.ladder).names) if benchmark else (),
        "model": (options.own, *benchmark.models) if benchmark else (),
        "method": tuple(method.name for method in parse_methods(explain.methods)) if explain else (),
    }
    if stage == "corrupt":
        return names | {"level": tuple(map(str, LEVELS)), "distortion": tuple(corruptions(batch.rank, batch.rate))}
    if stage == "benchmark" and stored:
        filters = tuple(entry_filters(stored.manifest.entries))
        return names | {"level": (ORIGINAL, *stored.ladder.names), "distortion": filters}
    return names


def class_indices(batch: Batch) -> list[int]:
    if batch.target != "classes":
        return []
    if batch.y.shape[1:]:
        return [k for k in range(batch.y.shape[1]) if (batch.y[:, k] == 1).any()]
    return [int(k) for k in batch.y.unique()]


def _obstacle(requirement: Requirement, options: AuditOptions, batch: Batch, palette: Palette) -> str:
    """Why the requirement cannot be checked, or ''."""
    metric, at, bounded = requirement.metric, requirement.at or {}, math.isfinite(batch.bounds[1] - batch.bounds[0])
    if metric in NEED_TRUTH and batch.masks is None and batch.target not in ("boxes", "map"):
        return "the data have no ground truth"
    if metric in NEED_CHECKS and not (options.explain and options.explain.checks):
        return "explain.checks is off: set 'checks: true'"
    added = {entry.filter.name for entry in palette.entries if entry.filter.additive}
    if metric == "detection" and at and requirement.distortion not in added:
        return f"{requirement.distortion} adds nothing to the signal, so it has no SNR: leave out 'at'"
    own = "" if bounded else batch.unit  # distances of data with bounds are shares of their range
    for unit in (requirement.unit, *(quantity(bound)[1] for bound in at.values())):
        if unit not in ("", "%", own) and unit.lower() != "db":
            return f"it is in {unit}, the data in {own or 'no unit'}: omit the unit or use that of the data"
    return ""
