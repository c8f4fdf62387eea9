"""Everything an audit needs, loaded and checked before the first query; what cannot be loaded names its stage."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rlab.auditing.config import AuditConfig
from rlab.auditing.known import Known, check_rules, stages_of
from rlab.auditing.manifest import mark_of
from rlab.auditing.requirements import Rule, parse_rule
from rlab.benchmarking.ladder_search import errs
from rlab.benchmarking.make import check_names
from rlab.benchmarking.marks import file_mark, model_mark
from rlab.core.goals import parse_goal
from rlab.data.batch import Batch
from rlab.errors import InputError, MissingExtra, VictimError
from rlab.explanation import parse_methods
from rlab.filters import check_palette
from rlab.hardening.trainable import trainable
from rlab.progress import Progress, quiet
from rlab.runs.attack import fingerprint
from rlab.runs.config import RunOptions
from rlab.victims.base import Victim
from rlab.victims.torch_module import TorchVictim


@contextmanager
def at(stage: str) -> Iterator[None]:
    """Says where the audit stopped."""
    try:
        yield
    except InputError as error:
        raise InputError(f"the audit stopped at {stage}: {error}") from error
    except VictimError as error:
        raise VictimError(f"the audit stopped at {stage}: {error}") from error
    except MissingExtra as error:
        raise InputError(f"the audit stopped at {stage}: {error}") from error


@dataclass(frozen=True)
class Job:
    """A checked audit: models and data are loaded, nothing has been asked."""

    config: AuditConfig
    folder: Path
    rules: tuple[Rule, ...]
    run: RunOptions  # filled
    batch: Batch
    victim: Victim
    others: Mapping[str, Victim]
    training: Batch | None
    marks: Mapping[str, str]
    progress: Callable[[str, int], Progress] = field(default=lambda stage, total: quiet)


def prepare(config: AuditConfig, folder: Path) -> Job:
    """Loads and checks everything; what is wrong is one sentence, and no model has been asked."""
    rules = tuple(parse_rule(text) for text in config.requirements)
    with at("loading the data"):
        batch = config.data.load()
        run, _ = config.run_config().filled(batch)
        attack = run.attack(batch)
        check_palette(attack.palette, batch.x[:4], batch.bounds)
    check_rules(rules, Known.of(config, batch))
    with at("loading the model"):
        victim = config.model.load(batch)
        victim.rows.clear()
    others = {}
    for name, one in (config.benchmark.models if config.benchmark else {}).items():
        with at(f"loading the model {name!r} of the benchmark"):
            others[name] = one.load(batch)
    training = None
    if config.harden is not None:
        with at("loading the data to harden on"):
            training = config.harden.data.load()
    _check_stages(config, batch, victim, others)
    return Job(
        config,
        folder,
        rules,
        run,
        batch,
        victim,
        others,
        training,
        _marks(config, run, batch, victim, others, training),
    )


def _check_stages(config: AuditConfig, batch: Batch, victim: Victim, others: Mapping[str, Victim]) -> None:
    """What a stage would refuse later, told now."""
    if config.explain is not None:
        for method in parse_methods(config.explain.methods):
            if method.gradients and not isinstance(victim, TorchVictim):
                kind = type(victim).__name__
                raise InputError(
                    f"explain.methods names {method.name!r}, which needs a torch model, not a {kind}: leave it out"
                )
    if config.benchmark is not None:
        with at("benchmark"):
            check_names({config.own: victim, **others})
        goal = parse_goal(config.benchmark.goal)
        if not errs(goal) or batch.y.shape[1:] or victim.multilabel:
            raise InputError(
                "a benchmark is of right and wrong answers, one label a sample, with goal untargeted or targeted:CLASS: "
                "set 'benchmark: false'"
            )
    if config.harden is not None:
        with at("harden"):
            trainable(victim, batch)


def _marks(
    config: AuditConfig,
    run: RunOptions,
    batch: Batch,
    victim: Victim,
    others: Mapping[str, Victim],
    training: Batch | None,
) -> dict[str, str]:
    """Of the model, the data, and each stage that will run: equal only where the same was asked."""
    plain = config.model_dump(mode="json")
    graded = config.benchmark
    known = {
        name: model_mark(name, one, graded.models[name].model_dump() if graded else None)
        for name, one in others.items()
    }
    asked = {key: value for key, value in run.plain().items() if key not in ("model", "data")}
    attack = {**asked, "agent": file_mark(run.policy)}
    whole = {
        "doctor": {**plain["doctor"], "palette": run.palette, "seed": run.seed} if config.doctor else None,
        "attack": attack,
        "explain": [plain["explain"], attack],
        "benchmark": [plain["benchmark"], known, run.palette, run.patch, run.policy, run.budget, run.seed],
        "harden": [plain["harden"], attack, digest(training) if training else ""],
    }
    stages = {name: mark_of(whole[name]) for name in stages_of(config)}
    return {
        "model": model_mark(config.own, victim, config.model.model_dump(mode="json")),
        "data": digest(batch),
        **stages,
    }


def digest(batch: Batch) -> str:
    """Of all values, labels and ids."""
    return str(json.loads(fingerprint({}, batch))["data"])
