"""`rlab benchmark`: make, verify, run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlab.benchmarking import check_requirements, parse_requirement
from rlab.benchmarking.answers import corruptions_of, count_rows
from rlab.benchmarking.config import BenchmarkOptions, folder_name
from rlab.benchmarking.folder import CARD, Benchmark
from rlab.benchmarking.make import make_benchmark
from rlab.benchmarking.run import DEFAULT, run_benchmark, save_report
from rlab.benchmarking.tables import RULES, report_tables, sets_table
from rlab.benchmarking.verify import verify_benchmark
from rlab.cli.declared import MODEL_HELP, Out, check_out, declared, new_folder, out, pairs, tell_data
from rlab.errors import InputError
from rlab.present.table import plain, terminal
from rlab.progress import bar
from rlab.runs.config import check, read_config
from rlab.victims.options import ModelOptions
from rlab.victims.resolve import load_model

_HELP = "Make robustness benchmarks from your model, data and distortions; verify them; grade models on them."
app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="markdown", help=_HELP)
_NAMED = "NAME=MODEL or MODEL, repeated; a .yaml file may hold its fields (name, mean, ...)."
_REQUIRED = "LEVEL=ACCURACY or FILTER=ACCURACY, repeated; exit code 1 where a model has less."
_FURTHER = "Further options of the models, e.g. -M mean=[0.5,0.5,0.5] -M outputs=logits."
Model = Annotated[str | None, typer.Argument(help="The model, see below.", show_default=False)]
Models = Annotated[list[str] | None, typer.Option("--model", "-m", help=_NAMED)]
ModelWords = Annotated[list[str] | None, typer.Option("--model-option", "-M", help=_FURTHER)]
Filters = Annotated[list[str] | None, typer.Option(help="Filters to compare with, in place of the benchmark's own.")]


@app.command()
@declared(BenchmarkOptions)
def make(
    options: BenchmarkOptions, model: Model = None, models: Models = None, words: ModelWords = None, folder: Out = None
) -> None:
    named = _models([*([model] if model else []), *(models or [])], words) or options.models
    if not named or options.data is None:
        missing = "data" if named else "models"
        raise InputError(
            f"expected a model and data: rlab benchmark make MODEL DATA, or a --config file with '{missing}:'"
        )
    batch = options.data.load()
    options, defaulted = options.model_copy(update={"models": named}).filled(batch)
    tell_data(batch, defaulted)
    victims = {name: load_model(each, batch.bounds) for name, each in named.items()}
    with bar(len(batch) * len(victims), "making") as progress:
        benchmark = make_benchmark(victims, batch, folder or new_folder("benchmark"), options, progress)
    out.print(terminal(sets_table(benchmark)))
    out.print(f"Every file was read back and asked about again. Card: [bold]{plain(benchmark.folder / CARD)}[/bold]")
    where = plain(benchmark.folder)
    out.print(f"[dim]rlab benchmark verify {where}; rlab benchmark run {where} --model MODEL[/dim]", highlight=False)


make.__doc__ = f"""Make a benchmark: for every sample the smallest flip of MODEL, then a ladder of severities beyond it.

{MODEL_HELP}

Several victims: --model, repeated. A run that was stopped goes on when the same command is given again.
"""


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="A benchmark folder.")],
    models: Models = None,
    words: ModelWords = None,
    ask: Annotated[bool, typer.Option(help="Ask the victims again, by the models the benchmark names.")] = True,
) -> None:
    """Check every file of a benchmark: its hash, its distance, and that its victim still errs on it.

    Victims are loaded as they were named when the benchmark was made; --model NAME=MODEL says it anew.
    """
    benchmark, named = Benchmark.load(folder), dict[str, ModelOptions]()
    if ask:
        stored = benchmark.manifest.config.get("models", {})
        named = {name: check(ModelOptions, fields) for name, fields in stored.items()} | _models(models, words)
        if not named:
            raise InputError(f"{folder} does not say how its models are loaded: pass --model NAME=MODEL, or --no-ask")
    victims = {name: load_model(each, benchmark.manifest.shape.bounds) for name, each in named.items()}
    with bar(sum(bool(row["reached"]) for row in benchmark.rows), "verifying") as progress:
        verification = verify_benchmark(benchmark, victims, progress)
    for mismatch in verification.mismatches[:20]:
        out.print(f"[red]{plain(mismatch.file)}[/red]: {plain(mismatch.what)}", highlight=False, soft_wrap=True)
    if len(verification.mismatches) > 20:
        out.print(f"and {len(verification.mismatches) - 20} more")
    out.print(plain(verification))
    if not verification.holds:
        raise typer.Exit(1)


@app.command()
def run(
    folders: Annotated[list[Path], typer.Argument(help="Benchmark folders of one task.")],
    models: Models = None,
    words: ModelWords = None,
    corruptions: Annotated[bool, typer.Option(help="Compare with uniform corruptions at equal L2.")] = True,
    corruption: Filters = None,
    require: Annotated[list[str] | None, typer.Option(help=_REQUIRED)] = None,
    fresh: Annotated[bool, typer.Option(help="Ask again what is known from earlier runs.")] = False,
    seed: Annotated[int, typer.Option(help="Of the bootstrap.")] = 0,
    folder: Annotated[
        Path | None, typer.Option("--out", "-o", callback=check_out, help="Folder for tables and picture.")
    ] = None,
) -> None:
    """Grade models on benchmarks: accuracy by severity and distortion, ranking, transfer, uniform corruptions.

    Answers are kept in the benchmark folder: a model that is added later costs its own rows only.
    """
    benchmarks = [Benchmark.load(path) for path in folders]
    requirements = [parse_requirement(text) for text in require or []]
    named = _models(models, words)
    if not named:
        raise InputError("expected at least one model to grade: rlab benchmark run FOLDER --model MODEL")
    victims = {name: load_model(each, benchmarks[0].manifest.shape.bounds) for name, each in named.items()}
    wanted = [name for text in corruption or [] for name in text.split()] or corruptions
    total = sum(count_rows(each, len(corruptions_of(each, wanted))) for each in benchmarks)
    with bar(total * len(victims), "asking") as progress:
        report = run_benchmark(
            benchmarks, victims, configs={name: each.plain() for name, each in named.items()},
            corruptions=wanted, fresh=fresh, seed=seed, progress=progress,
        )  # fmt: skip
    verdicts = check_requirements(report, requirements)
    for table in report_tables(report):
        out.print(terminal(table))
    out.print(f"[dim]{RULES}[/dim]", highlight=False)
    out.print(f"Tables and picture: [bold]{plain(save_report(report, folder or folders[0] / DEFAULT))}[/bold]")
    for verdict in verdicts:
        out.print(plain(verdict), style="" if verdict.passed else "red", highlight=False)
    if not all(verdict.passed for verdict in verdicts):
        raise typer.Exit(1)


def _models(specs: list[str] | None, words: list[str] | None) -> dict[str, ModelOptions]:
    """Models by the names they go by; -M options hold for all of them."""
    named: dict[str, ModelOptions] = {}
    for text in specs or []:
        name, _, spec = text.partition("=") if "=" in text else ("", "", text)
        is_file = spec.endswith((".yaml", ".yml", ".toml"))
        fields = read_config(Path(spec)) if is_file else {"name": spec}
        name = name or folder_name(Path(spec).stem if is_file else spec, named)
        if name in named:
            raise InputError(f"two models are called {name!r}: give them names, --model NAME=MODEL")
        named[name] = check(ModelOptions, fields | pairs(words, "-M"), f"the model {name!r}")
    return named
