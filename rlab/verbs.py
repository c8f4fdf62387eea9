"""The functions behind the commands, with the same options, for models and data in memory or by name.

`rlab.doctor` and `rlab.harden` are in `rlab.diagnosis.examine` and `rlab.hardening.run`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal, Unpack, get_args, overload

from rlab.benchmarking.config import BenchmarkOptions, folder_name
from rlab.benchmarking.folder import Benchmark
from rlab.benchmarking.make import make_benchmark
from rlab.comparison import AttackOutcome, CompareOptions, Comparison, run_comparison
from rlab.errors import ModelError, OptionError, give_notice
from rlab.explanation import MethodComparison
from rlab.explanation.explanation import Explanation
from rlab.explanation.options import ExplainOptions, explain_declared
from rlab.predictions.boxes import DECODE, UNDECODED, all_missed
from rlab.progress import bar, showing
from rlab.results.kept import Keep
from rlab.results.result import AttackResult
from rlab.runs.attack import run_attack
from rlab.runs.executor import Workers, place
from rlab.runs.inputs import Data, Model, as_batch, named_data, plain_input, taken
from rlab.runs.options import SharedAttackOptions
from rlab.runs.sharing import WorkerOptions
from rlab.runs.understood import Announce, Understood, show
from rlab.storage.config import check, check_keywords, did_you_mean, read_config, takes
from rlab.training.directions import PriorOptions
from rlab.training.directions import train as train_prior
from rlab.training.trainer import Tell
from rlab.victims.base import Victim
from rlab.victims.options import ModelOptions

if TYPE_CHECKING:
    from rlab.keywords import AttackKeywords, BenchmarkKeywords, CompareKeywords, ExplainKeywords

PathLike = str | os.PathLike[str]
_IN_MEMORY = {"model": "in memory", "data": "in memory"}  # for options that need names
_NOT_KEYWORDS = ("model", "data", "keep")  # fields that are parameters of their own here, or mean nothing
# Agents of papers, which are loaded when a file names one, and their options.
PAPERS = {"dual_action": "DualActionConfig", "two_agents": "TwoAgentsConfig"}
TRAINED = ("prior", *PAPERS)


@takes(SharedAttackOptions)
def attack(
    model: Model,
    data: Data,
    *,
    limit: int | None = None,
    out: PathLike | None = None,
    keep: Keep = "everything",
    progress: bool = True,
    announce: Announce = show,
    **options: Unpack[AttackKeywords],
) -> AttackResult:
    """Find, for every sample, patches whose distortion makes the model err, at a small distance.

    The model is a torch module, a function of an array, a `Victim` or a name such as demo:digits. The data are a `Batch`, a
    `Source`, arrays (x, y), a Dataset or DataLoader of such pairs, or a path; at most `limit` samples are used. With `out`, the
    run is saved in this folder as it proceeds, and resumes there after a stop; `keep` selects the inputs to store:
    'everything', 'flips', or 'assignments', from which inputs can be rebuilt. Workers need a model given by name. A bar shows
    the progress; progress=False prints nothing, not even notices. `announce` is called with what was understood before the
    first query; by default it prints it (`rlab.runs.understood`).
    """
    declared = check_keywords(attack, SharedAttackOptions, options)
    if keep not in (kinds := get_args(Keep)):
        raise OptionError(f"expected keep to be one of {', '.join(kinds)}, got {keep!r}")
    if out is None and keep != "everything":
        raise OptionError(
            f"keep={keep!r} says what a run folder stores, but there is none: pass out='runs/x', or leave out keep"
        )
    named, here = _placed(declared, model)
    with showing(progress), taken(here, data, limit, stream=True, goal=declared.goal) as (victim, samples):
        filled, defaulted = declared.filled(samples)
        announce(Understood(samples, (victim,), defaulted))
        named_inputs = {"model": plain_input(named or model, "name"), "data": plain_input(data, "path")}
        config = named_inputs | filled.plain() | {"keep": keep}
        with bar(len(samples)) as advance:
            folder = None if out is None else Path(out)
            workers = None if named is None else Workers.of(declared, named, victim)
            result = run_attack(filled, victim, samples, folder, config, advance, workers, keep)
    if victim.prediction == "boxes" and all_missed(result.before, result.labels):
        raise ModelError(f"{UNDECODED}: {DECODE}")
    if progress and 2 * int(result.attacked.sum()) < len(result):
        wrong = (
            f"the model is wrong about {len(result) - int(result.attacked.sum())} of {len(result)} unchanged samples"
        )
        if result.labels.dim() > 1 and result.setting.goal == "multilabel":
            wrong += ", where one wrong label of a sample is enough; goal='multilabel:LABEL' judges one label alone"
        give_notice(f"{wrong}: the doctor may show why (rlab doctor, in Python rlab.doctor)")
    return result


def _placed(options: WorkerOptions, model: Model) -> tuple[ModelOptions | None, Model]:
    """The model as workers load it, None if it is in memory, and the model as this process loads it."""
    if isinstance(model, str):
        model = check(ModelOptions, {"name": model}, f"the model {model!r}")
    if isinstance(model, ModelOptions):
        return place(options, model)
    if options.shared:
        raise OptionError(f"workers need the model by name, such as 'my_module:net', got a {type(model).__name__}")
    return None, model


@takes(CompareOptions, *_NOT_KEYWORDS, "policy")
def compare(
    model: Model,
    data: Data,
    *,
    limit: int | None = None,
    out: PathLike | None = None,
    progress: bool = True,
    announce: Announce = show,
    tell: Callable[[str, AttackOutcome], None] = lambda name, outcome: None,
    **options: Unpack[CompareKeywords],
) -> Comparison:
    """Run several attacks on the same model, samples and budget; the first is the reference for the others.

    With `out`, each finished attack is stored in this folder, and the same call resumes a comparison that was stopped. An attack
    runs again if anything that decides its result has changed: the model, the data, an option, a surrogate, a filter or the attack
    itself. `progress` and `announce` are as in `attack`; `tell` is called after each attack.
    """
    if "policy" in options:
        raise OptionError("a comparison takes several policies: pass policies='auto,square' instead of policy")
    declared = check_keywords(compare, CompareOptions, {**_IN_MEMORY, **options})
    declared.contenders()  # refuse unknown names before loading anything
    named, here = _placed(declared, model)
    with showing(progress), taken(here, data, limit, goal=declared.goal) as (victim, batch):
        contenders = declared.contenders(None if named is None else Workers.of(declared, named, victim))
        filled, defaulted = declared.filled(batch)
        announce(Understood(batch, (victim,), defaulted))
        batch = batch if declared.quantize else replace(batch, eight_bit=False)
        assert filled.budget is not None
        inputs = {"model": plain_input(named or model, "name"), "data": plain_input(data, "path")}
        settings = declared.settings() | inputs
        folder = None if out is None else Path(out)
        return run_comparison(victim, batch, contenders, filled.budget, filled.seed, folder, settings, tell)


@overload
def explain(
    model: Model,
    data: Data,
    *,
    compare: Literal[True],
    limit: int | None = ...,
    out: PathLike | None = ...,
    progress: bool = ...,
    **options: Unpack[ExplainKeywords],
) -> MethodComparison: ...


@overload
def explain(
    model: Model,
    data: Data,
    *,
    compare: Literal[False] = ...,
    limit: int | None = ...,
    out: PathLike | None = ...,
    progress: bool = ...,
    **options: Unpack[ExplainKeywords],
) -> Explanation: ...


@takes(ExplainOptions, *_NOT_KEYWORDS)
def explain(
    model: Model,
    data: Data,
    *,
    compare: bool = False,
    limit: int | None = None,
    out: PathLike | None = None,
    progress: bool = True,
    **options: Unpack[ExplainKeywords],
) -> Explanation | MethodComparison:
    """Explain the model's decisions with a map and a mask for every sample; with `compare`, score several methods.

    With `out`, arrays, tables, pictures and a page are stored in this folder. The options of an attack are for the method 'mask'.
    `progress` is as in `attack`.
    """
    declared = check_keywords(explain, ExplainOptions, {**_IN_MEMORY, **options})
    if not compare and (count := len(declared.methods())) > 1:
        raise OptionError(f"expected one method, got {count}: pass compare=True to score several")
    with showing(progress):
        found = explain_declared(declared, model, data, compare, limit, out)
        if out is not None:
            MethodComparison.load(out).report(Path(out) / "report.html")
    return found if compare else found.first


@takes(BenchmarkOptions, "models", "data")
def benchmark(
    model: Model | Mapping[str, Model] | None,
    data: Data,
    out: PathLike,
    *,
    limit: int | None = None,
    progress: bool = True,
    announce: Announce = show,
    **options: Unpack[BenchmarkKeywords],
) -> Benchmark:
    """Make or resume a benchmark in the folder `out`: the smallest flip of each sample, and a ladder of harder levels.

    Pass several models as a mapping from names to models. With None no model is queried, and the ladder is severity:1..5.
    `progress` and `announce` are as in `attack`. `rlab.verify_benchmark` checks the files, and
    `rlab.run_benchmark` grades models on them.
    """
    free: dict[str, Any] = {"sets": "free", "ladder": "severity:1..5"} if model is None else {}
    declared = check_keywords(benchmark, BenchmarkOptions, free | dict(options))
    name = folder_name(model) if isinstance(model, str) else "model"
    models = {} if model is None else model if isinstance(model, Mapping) else {name: model}
    placed = {name: _placed(declared, each) for name, each in models.items()}
    source = named_data(data, limit)
    with showing(progress), ExitStack() as stack:
        source = source and source.suited(several=False)
        batch = data if source is None else source.load()
        victims = dict[str, Victim]()
        for name, (_, here) in placed.items():  # the first model's batch is used for all
            victims[name], batch = stack.enter_context(taken(here, batch, limit))
        batch = as_batch(batch, limit)
        if odd := [name for name, victim in victims.items() if victim.own_classes not in ((), batch.classes)]:
            raise ModelError(f"the model {odd[0]!r} lists the classes in another order than the others: use one order")
        named = {name: how for name, (how, _) in placed.items() if how is not None}
        declared = declared.model_copy(update={"models": named, "data": source})
        announce(Understood(batch, tuple(victims.values()), declared.filled(batch)[1]))
        with bar(len(batch) * max(len(victims), 1), "making") as advance:
            return make_benchmark(victims, batch, Path(out), declared, advance)


def train(
    config: PathLike,
    out: PathLike,
    *,
    minutes: float | None = None,
    device: str | None = None,
    progress: bool = True,
    tell: Tell = lambda figures: None,
) -> Path:
    """Train what a YAML or TOML file declares, or resume it: a direction prior, or the agent of a paper (`kind: dual_action` or
    `kind: two_agents`). Returns the file for `policy`; `tell` gets the figures of each validation.

    progress=False shows no bar while data are read.
    """
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise OptionError("a training runs in one process: run the command without torchrun")
    path, folder = Path(config), Path(out)
    kind = read_config(path).get("kind", "prior")
    if kind not in TRAINED:
        hint = did_you_mean(str(kind), TRAINED)
        raise OptionError(f"expected kind to be one of {', '.join(TRAINED)} in {path}, got {kind!r}.{hint}")
    if kind == "prior":
        prior = PriorOptions.read(path, minutes, device)
        with showing(progress):
            return train_prior(*prior.load(), prior, folder, tell)
    declares, trains = (resolve_name(f"rlab.papers.{kind}:{name}") for name in (PAPERS[kind], "train"))
    options = declares.read(path, minutes, device)
    with showing(progress):
        trained: Path = trains(*options.load(), options, folder, tell)
    return trained
