"""Everything an audit needs, loaded and checked before the first query; what cannot be loaded names its stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rlab.auditing.config import AuditOptions
from rlab.auditing.names import check_names
from rlab.benchmarking.ladder_search import errs
from rlab.benchmarking.make import check_names as check_folder_names
from rlab.data.batch import Batch
from rlab.errors import InputError, MissingExtra, VictimError
from rlab.explanation import parse_methods
from rlab.filters import check_palette
from rlab.hardening.trainable import trainable
from rlab.progress import Progress, quiet
from rlab.runs.fingerprint import agent_fingerprint, data_fingerprint, digest, model_fingerprint
from rlab.victims.base import Victim
from rlab.victims.resolve import load_model
from rlab.victims.torch_module import TorchVictim

Bars = Callable[[str, int], Progress]  # a bar for a stage of so many parts


@contextmanager
def stopped_at(stage: str) -> Iterator[None]:
    """Says where the audit stopped."""
    try:
        yield
    except VictimError as error:
        raise VictimError(f"the audit stopped at {stage}: {error}") from error
    except (InputError, MissingExtra) as error:
        raise InputError(f"the audit stopped at {stage}: {error}") from error


@dataclass(frozen=True)
class LoadedAudit:
    """A checked audit: models and data are loaded, nothing has been asked."""

    options: AuditOptions  # filled
    folder: Path
    batch: Batch
    victim: Victim
    others: Mapping[str, Victim]  # further models of the benchmark
    training: Batch | None  # to harden on
    progress: Bars

    def fingerprints(self) -> dict[str, str]:
        """Of the model, the data, and each stage that will run: equal only where the same was asked."""
        options, plain = self.options, self.options.plain()
        attack = [options.attack_options().plain(), agent_fingerprint(str(options.policy))]
        further = options.benchmark.models if options.benchmark else {}
        others = [model_fingerprint(name, self.others[name], further[name].plain()) for name in further]
        asked = {
            "doctor": [plain["doctor"], list(map(str, options.palette or ())), options.seed],
            "attack": attack,
            "explain": [plain["explain"], attack],
            "benchmark": [plain["benchmark"], attack, others],
            "harden": [plain.get("harden"), attack, data_fingerprint(self.training) if self.training else ""],
        }
        return {
            "model": model_fingerprint(options.own, self.victim, options.model.plain()),
            "data": data_fingerprint(self.batch),
            **{stage: digest(asked[stage]) for stage in options.stages},
        }


def load_audit(options: AuditOptions, folder: Path, progress: Bars = lambda stage, total: quiet) -> LoadedAudit:
    """Loads and checks everything; what is wrong is one sentence, and no model has been asked."""
    with stopped_at("loading the data"):
        batch = options.data.load()
        filled, _ = options.filled(batch)
        attack = filled.build(batch)
        check_palette(attack.palette, batch.x[:4], batch.bounds)
    check_names(filled, batch, attack.palette.names)
    with stopped_at("loading the model"):
        victim = load_model(options.model, batch.bounds)
        victim.rows.clear()
    others = {}
    for name, model in (options.benchmark.models if options.benchmark else {}).items():
        with stopped_at(f"loading the model {name!r} of the benchmark"):
            others[name] = load_model(model, batch.bounds)
    training = None
    if options.harden is not None:
        with stopped_at("loading the data to harden on"):
            training = options.harden.data.load()
    audit = LoadedAudit(filled, folder, batch, victim, others, training, progress)
    _check_stages(audit)
    return audit


def _check_stages(audit: LoadedAudit) -> None:
    """What a stage would refuse later, told now."""
    options, victim = audit.options, audit.victim
    for method in parse_methods(options.explain.methods) if options.explain else ():
        if method.gradients and not isinstance(victim, TorchVictim):
            kind = type(victim).__name__
            raise InputError(
                f"explain.methods names {method.name!r}, which needs a torch model, not a {kind}: leave it out"
            )
    if options.benchmark is not None:
        with stopped_at("benchmark"):
            check_folder_names({options.own: victim, **audit.others})
            goal = options.benchmark_options().build(audit.batch).goal
        if not errs(goal) or audit.batch.y.shape[1:] or victim.multilabel:
            raise InputError(
                "a benchmark is of right and wrong answers, one label a sample, with goal untargeted or targeted:CLASS: "
                "set 'benchmark: false', or another goal in the section 'benchmark'"
            )
    if options.harden is not None:
        with stopped_at("harden"):
            trainable(victim, audit.batch)
