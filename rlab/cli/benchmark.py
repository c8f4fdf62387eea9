"""`rlab benchmark`: make, verify, run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from rlab.benchmarking import check_requirements, parse_requirement
from rlab.benchmarking.config import BenchmarkOptions, folder_name
from rlab.benchmarking.folder import Benchmark, queries_of
from rlab.benchmarking.make import check_targets
from rlab.benchmarking.report import DEFAULT
from rlab.benchmarking.run import run_benchmark
from rlab.benchmarking.verdicts import check_names
from rlab.benchmarking.verify import load_victims, verify_benchmark
from rlab.cli.build import declared
from rlab.cli.fields import MODEL, pairs, pairs_option
from rlab.cli.folder import DryRun, RunFlags, run_folder, tell_data, tell_options, tell_plan
from rlab.cli.help import Command, Group
from rlab.cli.speak import out, summary, tell_page
from rlab.data.images import CIFAR10C
from rlab.errors import OptionError
from rlab.present.table import plain, typed
from rlab.storage.config import check, read_config
from rlab.storage.names import file_name
from rlab.storage.resume import open_run
from rlab.verbs import benchmark
from rlab.victims.options import ModelOptions

_HELP = "Make robustness benchmarks from your model and data, verify them, and grade models on them."
app = typer.Typer(
    cls=Group, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown", help=_HELP
)
NO_MODEL = "none"  # instead of a model's name
_NAMED = "NAME=MODEL or MODEL (repeatable); MODEL can be a .yaml file with its fields (name, mean, ...)"
_REQUIRED = "LEVEL=ACCURACY or FILTER=ACCURACY (repeatable); exit code 1 if a model is less accurate"
_TRUSTED = "Load the models that the folder names; only for your own folders"


@dataclass(frozen=True)
class ModelFlags:
    """Models by name; the other options apply to all of them."""

    models: Annotated[list[str] | None, typer.Option("--model", "-m", help=_NAMED)] = None
    words: Annotated[list[str] | None, pairs_option("model")] = None
    device: Annotated[str | None, typer.Option(help="Device for the models: cpu, cuda or cuda:1")] = None
    batch_size: Annotated[int | None, typer.Option(min=1, help="Maximum batch size for the models")] = None

    def named(self, first: str | None = None) -> dict[str, ModelOptions]:
        """The models by name, `first` before those of --model."""
        named: dict[str, ModelOptions] = {}
        flags = {"device": self.device, "chunk": self.batch_size}
        flags = {name: value for name, value in flags.items() if value is not None}
        for text in [*([first] if first else []), *(self.models or [])]:
            name, equals, spec = text.partition("=")
            if not equals or file_name(name) != name:  # the '=' belongs to a URL
                name, spec = "", text
            is_file = spec.endswith((".yaml", ".yml", ".toml"))
            fields = read_config(Path(spec)) if is_file else {"name": spec}
            name = name or folder_name(Path(spec).stem if is_file else spec, named)
            if name in named:
                raise OptionError(f"two models are called {name!r}: name them with --model NAME=MODEL")
            named[name] = check(ModelOptions, fields | pairs(self.words, "-M") | flags, f"the model {name!r}")
        return named


@dataclass(frozen=True)
class GradeFlags:
    """How models are graded."""

    require: Annotated[list[str] | None, typer.Option(help=_REQUIRED)] = None
    fresh: Annotated[bool, typer.Option(help="Query models again instead of reusing stored answers")] = False
    seed: Annotated[int, typer.Option(help="Bootstrap seed")] = 0


@app.command(cls=Command)
@declared(queries=True)
def make(
    options: BenchmarkOptions,
    models: ModelFlags,
    run: RunFlags,
    model: Annotated[str | None, typer.Argument(help=MODEL, show_default=False)] = None,
    dry_run: DryRun = False,
) -> None:
    """Make a benchmark: for every sample, the smallest change found that flips MODEL, and harder levels beyond it.

    Repeat --model for several models: each gets a set. If MODEL is none, no model is queried, and the default is --ladder
    severity:1..5. To resume a stopped run, repeat the command.
    """
    given = {name: getattr(options, name) for name in options.model_fields_set - {"models", "data"}}
    if model == NO_MODEL:
        given, model = {"ladder": "severity:1..5"} | given | {"sets": "free"}, None
    named = models.named(model) or options.models
    if (not named and given.get("sets") != "free") or options.data is None:
        missing = "data" if named else "models"
        raise OptionError(
            f"expected a model and data: rlab benchmark make MODEL DATA, or a --config file with '{missing}:'"
        )
    if dry_run:
        check_targets(options.model_copy(update=given), named)
        return tell_options(options.model_copy(update=given), list(named.values()), options.data, run.folder)
    with run.opened("benchmark make") as folder:
        made = benchmark(named or None, options.data, folder, announce=tell_data, **given)
        reached, rows = sum(bool(row["reached"]) for row in made.rows), sum(map(queries_of, made.rows))
        run.finish(made, folder, hash=made.manifest.hash, samples=len(made.originals()), files=reached, rows=rows)
    where = typed(made.folder)
    out.print(f"[dim]rlab benchmark verify {where} --trust; rlab benchmark run {where} --model MODEL[/dim]")


@app.command(cls=Command)
@declared(queries=True)
def verify(
    folder: Annotated[Path, typer.Argument(help="Benchmark folder")],
    models: ModelFlags,
    trust: Annotated[bool, typer.Option("--trust", help=_TRUSTED)] = False,
) -> None:
    """Check every file of a benchmark: its hash, its distance, and that the models you name still err on it.

    Pass each model with --model NAME=MODEL. Models that the folder itself names are loaded only with --trust.
    """
    whole = Benchmark.load(folder)
    verification = verify_benchmark(whole, models.named(), trust=trust)
    tell_page(verification.view())
    for name in verification.unasked:
        model = whole.named_models.get(name)
        model = model.get("name") if isinstance(model, Mapping) else model
        how = f"--model {name}={model}, or --trust if the folder is yours" if model else f"--model {name}=MODEL"
        out.print(plain(f"{name} was not checked: to check that it still errs, add {how}"))
    wrong = [{"file": each.file, "what": each.what} for each in verification.mismatches]
    facts = {"holds": verification.holds, "mismatches": wrong, "unasked": verification.unasked}
    summary(command="benchmark verify", folder=folder, **facts)
    if not verification.holds:
        raise typer.Exit(1)


@app.command("run", cls=Command)
@declared(queries=True)
def grade(
    folders: Annotated[list[Path], typer.Argument(help="Benchmark folders of one task")],
    models: ModelFlags,
    flags: GradeFlags,
    run: RunFlags,
    dry_run: DryRun = False,
) -> None:
    """Grade models on benchmarks: accuracy by severity and distortion, ranking, transfer.

    Answers are stored in the benchmark folder, so adding a model later costs only the queries to that model.
    """
    if given := [str(path) for path in folders if str(path).startswith(CIFAR10C)]:
        raise OptionError(
            f"expected benchmark folders, got the corrupted images {given[0]}: rlab corrupt MODEL {given[0]}"
        )
    benchmarks = [Benchmark.load(path) for path in folders]
    requirements = [parse_requirement(text) for text in flags.require or []]
    named = models.named()
    if not named:
        raise OptionError("expected at least one model to grade: rlab benchmark run FOLDER --model MODEL")
    check_names(requirements, list(named), benchmarks)
    run = replace(run, folder=run.folder or folders[0] / DEFAULT)  # beside the answers
    if dry_run:
        facts = {"samples": sum(len(each.originals()) for each in benchmarks), "fresh": flags.fresh}
        names = {"benchmarks": [each.name for each in benchmarks], "models": list(load_victims(named, benchmarks[0]))}
        return tell_plan(names | facts, run.folder)
    with ExitStack() as stack:
        for held in folders:
            stack.enter_context(run_folder(held, "benchmark run", run.wait))
        folder = stack.enter_context(run.opened("benchmark run"))
        with open_run(folder, {"command": "benchmark run"}) as resume:
            report = run_benchmark(benchmarks, named, fresh=flags.fresh, seed=flags.seed)
            resume.create()
            report.write(folder)
        verdicts = check_requirements(report, requirements)
        met = [{"requirement": str(v), "passed": v.passed} for v in verdicts]
        ranking = [{"model": s.model, "rank": s.rank} for s in report.standings]
        run.finish(report, folder, ranking=ranking, requirements=met, rows=report.asked)
    for verdict in verdicts:
        out.print(plain(verdict), style="" if verdict.passed else "red")
    if not all(verdict.passed for verdict in verdicts):
        raise typer.Exit(1)
