"""The verbs of the package: what the commands do, with the same options, on models and data in memory or by name.

`rlab.doctor` and `rlab.harden` are in `rlab.diagnosis.examine` and `rlab.hardening.run`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, Unpack, get_args, overload

from rlab.auditing import AuditOptions, AuditResult, run_audit
from rlab.benchmarking.config import BenchmarkOptions, folder_name
from rlab.benchmarking.folder import Benchmark
from rlab.benchmarking.make import make_benchmark
from rlab.comparison import CompareOptions, Comparison
from rlab.comparison import compare as run_contenders
from rlab.core.kept import Keep
from rlab.core.result import AttackResult
from rlab.errors import InputError, MissingExtra, Notice
from rlab.explanation import MethodComparison, MethodJudge
from rlab.explanation.base import Explanation
from rlab.explanation.options import ExplainOptions
from rlab.inputs import Data, Model, as_batch, taken
from rlab.options import AttackKeywords, SharedAttackOptions
from rlab.progress import bar
from rlab.runs.attack import run_attack
from rlab.runs.config import check, read_config, takes
from rlab.runs.sharing import WorkerKeywords
from rlab.training.directions import PriorOptions
from rlab.training.directions import train as train_prior
from rlab.training.ranks import join, started
from rlab.training.trainer import Tell
from rlab.victims.options import ModelOptions
from rlab.workers import Crew

PathLike = str | os.PathLike[str]
_IN_MEMORY = {"model": "in memory", "data": "in memory"}  # where a declaration asks for names
TRAINED = ("prior", "clips")


class SharedAttackKeywords(AttackKeywords, WorkerKeywords, total=False):
    """The fields of `SharedAttackOptions`."""


@takes(SharedAttackOptions, SharedAttackKeywords)
def attack(
    model: Model,
    data: Data,
    *,
    limit: int | None = None,
    out: PathLike | None = None,
    keep: Keep = "everything",
    **options: Unpack[SharedAttackKeywords],
) -> AttackResult:
    """Finds, for every sample, few patches whose distortion makes the model err.

    The model is a torch module, a function of an array, a `Victim` or a name such as demo:digits; the data are a `Batch`, a
    `Source`, arrays (x, y), a Dataset or DataLoader of such pairs, or a path, of which the first `limit` samples are used. With
    `out` the run is written into this folder as it goes, and goes on there when it was stopped; `keep` says of which samples the
    inputs are written: 'everything', 'flips', or 'assignments', of which they can be made again. Workers take the model by its
    name.
    """
    declared = check(SharedAttackOptions, options, "the attack's options")
    if keep not in get_args(Keep) or (out is None and keep != "everything"):
        raise InputError(
            f"expected keep, of a run in a folder `out`, to be one of {', '.join(get_args(Keep))}, got {keep!r}"
        )
    named = _by_name(model) if declared.shared else None
    with taken(model, data, limit, stream=True) as (victim, batch), bar(len(batch)) as progress:
        whole = declared.build(batch)
        crew = None if named is None else Crew.of(declared, named, victim)
        if out is not None:
            told = {"model": {"name": _told(model)}, "data": {"path": _told(data)}}
            config = told | declared.filled(batch)[0].plain() | {"keep": keep}
            workers = None
            if crew is not None:
                whole, workers = crew.paced(whole), crew.attack_parts(declared, batch.y)
            result = run_attack(whole, victim, batch, Path(out), config, progress, workers, keep)
        elif crew is not None:
            result, _ = crew.attack(declared, whole, batch, progress)
        else:
            result = whole(victim, batch, progress)
    if 2 * int(result.attacked.sum()) < len(result):
        wrong = f"{len(result) - int(result.attacked.sum())} of {len(result)} samples were wrong before any change"
        warnings.warn(f"{wrong}: rlab.doctor(model, data) may find out why", Notice, stacklevel=2)
    return result


def _told(thing: object) -> str:
    return os.fspath(thing) if isinstance(thing, str | os.PathLike) else type(thing).__name__


def _by_name(model: Model) -> ModelOptions:
    """What workers, which are other processes, can load."""
    if not isinstance(model, str):
        raise InputError(
            f"workers load the model by its name, such as 'my_module:net', got a {type(model).__name__} in memory"
        )
    return check(ModelOptions, {"name": model}, f"the model {model!r}")


class CompareKeywords(SharedAttackKeywords, total=False):
    """The fields of `CompareOptions`."""

    policies: str | Sequence[str]
    attacks: str | Sequence[str]
    reduce: bool


@takes(CompareOptions, CompareKeywords)
def compare(
    model: Model,
    data: Data,
    *,
    limit: int | None = None,
    out: PathLike | None = None,
    **options: Unpack[CompareKeywords],
) -> Comparison:
    """Runs several attacks on the same model, samples and budget; the first is what others are measured against."""
    if "policy" in options:
        raise InputError(
            "a comparison is of several policies: name them with policies='auto,square' in place of policy"
        )
    declared = check(CompareOptions, {**_IN_MEMORY, **options}, "the comparison's options")
    declared.contenders()  # names that are none are refused before anything is loaded
    named = _by_name(model) if declared.shared else None
    with taken(model, data, limit) as (victim, batch):
        contenders = declared.contenders(None if named is None else Crew.of(declared, named, victim))
        filled, _ = declared.filled(batch)
        assert filled.budget is not None
        comparison = run_contenders(victim, batch, contenders, filled.budget, filled.seed)
    if out is not None:
        comparison.save(Path(out))
    return comparison


class ExplainKeywords(AttackKeywords, total=False):
    """The fields of `ExplainOptions`."""

    method: str | Sequence[str] | None
    agent: str | None
    label: int | None
    masks: str | None
    mask_values: int | Sequence[int] | None
    rule: str
    steps: int
    checks: bool


@overload
def explain(
    model: Model, data: Data, *, compare: Literal[True], limit: int | None = ..., **options: Unpack[ExplainKeywords]
) -> MethodComparison: ...


@overload
def explain(
    model: Model,
    data: Data,
    *,
    compare: Literal[False] = ...,
    limit: int | None = ...,
    **options: Unpack[ExplainKeywords],
) -> Explanation: ...


@takes(ExplainOptions, ExplainKeywords)
def explain(
    model: Model, data: Data, *, compare: bool = False, limit: int | None = None, **options: Unpack[ExplainKeywords]
) -> Explanation | MethodComparison:
    """Where the model's decisions rest: a map and a mask for every sample; with `compare`, several methods side by side, scored.

    The options of an attack are for the method 'mask'.
    """
    declared = check(ExplainOptions, {**_IN_MEMORY, **options}, "the explanation's options")
    methods = declared.methods(("belief",))
    if compare != (len(methods) > 1):
        expected = "several methods to compare, such as method='belief,occlusion'" if compare else "one method"
        raise InputError(f"expected {expected}, got {len(methods)}: compare=True scores several, without it one is run")
    with taken(model, data, limit) as (victim, batch):
        batch = declared.with_masks(batch)
        labels, rule = declared.labels(batch), declared.rule
        if not compare:
            return methods[0](victim, batch, labels, declared.seed, rule)
        judge = MethodJudge(steps=declared.steps, stability=declared.checks, sanity=declared.checks, rule=rule)
        return judge(victim, batch, methods, labels, declared.seed)


class BenchmarkKeywords(SharedAttackKeywords, total=False):
    """The fields of `BenchmarkOptions` but for models and data."""

    ladder: str
    sets: Literal["each", "agreement", "free"]
    reference: str | None
    steps: int
    lead: float
    tolerance: float
    reach: float | None
    per_class: int | None
    format: Literal["png", "npz", "wfdb", "mp4", "frames", "webdataset", "parquet"] | None


@takes(BenchmarkOptions, BenchmarkKeywords)
def benchmark(
    model: Model | Mapping[str, Model] | None,
    data: Data,
    out: PathLike,
    *,
    limit: int | None = None,
    **options: Unpack[BenchmarkKeywords],
) -> Benchmark:
    """Makes a benchmark in the folder `out`, or goes on with it: the smallest flip of each sample, then a ladder beyond it.

    Several models go by names of your own; None asks no model, with the ladder severity:1..5. `rlab.verify_benchmark` checks its
    files, `rlab.run_benchmark` grades models on it.
    """
    free: dict[str, Any] = {"sets": "free", "ladder": "severity:1..5"} if model is None else {}
    declared = check(BenchmarkOptions, free | dict(options), "the benchmark's options")
    models: Mapping[str, Model] = {}
    if model is not None:
        models = (
            model if isinstance(model, Mapping) else {folder_name(model) if isinstance(model, str) else "model": model}
        )
    named = {name: _by_name(each) for name, each in models.items()} if declared.shared else None
    victims = {}
    data = data if models else as_batch(data, limit)
    with ExitStack() as stack:
        for name, each in models.items():
            victims[name], data = stack.enter_context(taken(each, data, limit))  # the batch of the first is that of all
        with bar(len(data) * max(1, len(victims)), "making") as progress:  # type: ignore[arg-type]
            return make_benchmark(victims, data, Path(out), declared, progress, named)  # type: ignore[arg-type]


def audit(file: PathLike | Mapping[str, Any], out: PathLike) -> AuditResult:
    """The whole pipeline as a YAML or TOML file, or its content, declares it, judged by its requirements: see docs/audit.md."""
    declared = file if isinstance(file, Mapping) else read_config(Path(file))
    return run_audit(check(AuditOptions, declared, "the audit"), Path(out))


def train(
    config: PathLike,
    out: PathLike,
    *,
    minutes: float | None = None,
    device: str | None = None,
    tell: Tell = lambda figures: None,
) -> Path:
    """Train what a YAML or TOML file declares, or resume it: a direction prior, or the agents for video (`kind: clips`, extra
    'train'). Returns the file for `policy`; `tell` gets the figures of each validation.

    Priors train on several GPUs if torchrun starts several processes.
    """
    path, folder = Path(config), Path(out)
    kind = read_config(path).get("kind", "prior")
    if kind not in TRAINED:
        raise InputError(f"expected kind to be one of {', '.join(TRAINED)} in {path}, got {kind!r}")
    if kind == "prior":
        prior = PriorOptions.read(path, minutes, device)
        with join(prior.device) as ranks:
            return train_prior(*prior.load(), prior, folder, tell, ranks)
    if started().count > 1:
        raise InputError("the agents for clips train in one process: leave out torchrun")
    try:
        from rlab.papers.video.train import PairOptions
        from rlab.papers.video.train import train as train_pair
    except ImportError as error:
        raise MissingExtra("torchrl", "train") from error
    pair = PairOptions.read(path, minutes, device)
    return train_pair(*pair.load(), pair, folder, tell)
