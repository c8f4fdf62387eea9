"""`rlab benchmark`: make, verify, run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from rlab.cli import options as given
from rlab.errors import InputError

if TYPE_CHECKING:
    from rlab.data.batch import Batch
    from rlab.victims.base import Victim
    from rlab.victims.options import ModelOptions

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Make robustness benchmarks from your model, data and distortions; verify them; grade models on them.",
)
out = Console()
Folder = Annotated[Path, typer.Argument(help="A benchmark folder.")]
More = Annotated[
    list[str] | None,
    typer.Option(
        "--model", "-m", help="NAME=MODEL or MODEL, repeated; a .yaml file may hold its fields (name, mean, ...)."
    ),
]


@app.command()
def make(
    model: given.Model = None,
    data: given.Data = None,
    config: given.Config = None,
    more: More = None,
    ladder: Annotated[
        str | None, typer.Option(help="times:1.25,1.5,2 (of the flip's L2), l2:1,2,4, probability:0.5,0.1 or flip.")
    ] = None,
    goal: Annotated[
        str | None, typer.Option(help="untargeted: the class is missed; targeted:CLASS: it is claimed.")
    ] = None,
    palette: given.PaletteOption = None,
    patch: given.Patch = None,
    budget: Annotated[int | None, typer.Option(help="Most queries a sample up to the flip.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Most queries a sample and level beyond it.")] = None,
    policy: given.PolicyOption = None,
    per_class: Annotated[int | None, typer.Option(min=1, help="So many samples of every class.")] = None,
    form: Annotated[
        str | None, typer.Option("--format", help="png, npz, wfdb or mp4; by the kind of data if left out.")
    ] = None,
    seed: given.Seed = None,
    chunk: given.Chunk = None,
    folder: given.Out = None,
    labels: given.Labels = None,
    size: given.Size = None,
    limit: given.Limit = None,
    data_option: given.DataOptions = None,
    model_option: given.ModelOptions = None,
) -> None:
    """Make a benchmark: for every sample the smallest flip of MODEL, then a ladder of severities beyond it.

    Several victims: --model, repeated. A run that was stopped goes on when the same command is given again.
    """
    from rlab.benchmarking import make_benchmark, make_benchmark_config
    from rlab.progress import bar

    values = _values(
        config,
        model,
        data,
        more,
        model_option,
        given.named(data, "path", data_option, labels=labels, size=size, limit=limit),
    )
    said = {
        "ladder": ladder, "goal": goal, "palette": given.split(palette), "patch": given.numbers(patch), "budget": budget,
        "steps": steps, "policy": policy, "per_class": per_class, "format": form, "seed": seed, "chunk": chunk,
    }  # fmt: skip
    made = make_benchmark_config(values | {name: value for name, value in said.items() if value is not None})
    batch = made.data.load()
    made, defaulted = made.filled(batch)
    _tell_data(batch, defaulted)
    victims = {name: one.load(batch) for name, one in made.models.items()}
    place = folder or given.new_folder("benchmark")
    with bar(len(batch) * len(victims), "making") as progress:
        found = make_benchmark(
            victims, batch, place, storage=made.format, config=made.plain(), progress=progress, **made.options()
        )
    _tell_made(found)


@app.command()
def verify(
    folder: Folder,
    more: More = None,
    model_option: given.ModelOptions = None,
    ask: Annotated[bool, typer.Option(help="Ask the victims again, by the models the benchmark names.")] = True,
) -> None:
    """Check every file of a benchmark: its hash, its distance, and that its victim still errs on it.

    Victims are loaded as they were named when the benchmark was made; --model NAME=MODEL says it anew.
    """
    from rlab.benchmarking import Benchmark, verify_benchmark
    from rlab.progress import bar

    whole = Benchmark.load(folder)
    victims = _victims(whole, more, model_option, ask)
    with bar(sum(bool(row["reached"]) for row in whole.rows), "verifying") as progress:
        found = verify_benchmark(whole, victims, progress)
    for one in found.mismatches[:20]:
        out.print(f"[red]{one.file}[/red]: {one.what}", highlight=False, soft_wrap=True)
    if len(found.mismatches) > 20:
        out.print(f"and {len(found.mismatches) - 20} more")
    asked = f", {found.asked} rows asked of their victims" if found.asked else ""
    not_asked = f"; not asked: {', '.join(found.unasked)}" if found.unasked else ""
    out.print(
        f"{found.files} files{asked}{not_asked}: "
        + ("all hold" if found.holds else f"{len(found.mismatches)} do not hold")
    )
    if not found.holds:
        raise typer.Exit(1)


@app.command()
def run(
    folders: Annotated[list[Path], typer.Argument(help="Benchmark folders of one task.")],
    more: More = None,
    model_option: given.ModelOptions = None,
    corruptions: Annotated[bool, typer.Option(help="Compare with uniform corruptions at equal L2.")] = True,
    corruption: Annotated[
        list[str] | None, typer.Option(help="Filters to compare with, in place of the benchmark's own.")
    ] = None,
    require: Annotated[
        list[str] | None,
        typer.Option(help="LEVEL=ACCURACY or FILTER=ACCURACY, repeated; exit code 1 where a model has less."),
    ] = None,
    fresh: Annotated[bool, typer.Option(help="Ask again what is known from earlier runs.")] = False,
    seed: Annotated[int, typer.Option(help="Of the bootstrap.")] = 0,
    folder: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for tables and picture.")] = None,
) -> None:
    """Grade models on benchmarks: accuracy by severity and distortion, ranking, transfer, uniform corruptions.

    Answers are kept in the benchmark folder: a model that is added later costs its own rows only.
    """
    from rlab.benchmarking import Benchmark, check_requirements, parse_requirement, run_benchmark, save_report, table
    from rlab.benchmarking.answers import count_rows
    from rlab.benchmarking.run import wanted_corruptions
    from rlab.progress import bar

    whole = [Benchmark.load(one) for one in folders]
    wanted = [parse_requirement(text) for text in require or []]
    models = _models(more, model_option)
    if not models:
        raise InputError("expected at least one model to grade: rlab benchmark run FOLDER --model MODEL")
    batch = _like(whole[0])
    victims = {name: one.load(batch) for name, one in models.items()}
    chosen = given.split(corruption) or corruptions
    total = sum(count_rows(one, len(wanted_corruptions(one, chosen))) for one in whole)
    with bar(total * len(victims), "asking") as progress:
        report = run_benchmark(
            whole, victims, configs={name: one.model_dump(mode="json") for name, one in models.items()},
            corruptions=chosen, fresh=fresh, seed=seed, progress=progress,
        )  # fmt: skip
    verdicts = check_requirements(report, wanted)
    for one in (table.ranking_table(report), *table.level_tables(report), table.transfer_table(report)):
        out.print(one)
    out.print(table.distortion_table(report))
    if (compared := table.corruption_table(report)) is not None:
        out.print(compared)
    out.print(f"[dim]{table.RULES} * a set was made against this model.[/dim]", highlight=False)
    place = save_report(report, folder or whole[0].folder / "results" / "report")
    out.print(f"Tables and picture: [bold]{place}[/bold]")
    for verdict in verdicts:
        out.print(str(verdict), style="" if verdict.passed else "red", highlight=False)
    if not all(verdict.passed for verdict in verdicts):
        raise typer.Exit(1)


def _values(
    config: Path | None, model: str | None, data: str | None, more: list[str] | None, words: list[str] | None,
    source: dict[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """The file's values under the command line's models and data."""
    from rlab.runs.config import read_config

    values = read_config(config) if config else {}
    said = [*([model] if model else []), *(more or [])]
    if said:
        values["models"] = {name: one.model_dump(exclude_unset=True) for name, one in _models(said, words).items()}
    if source:
        before = values.get("data") or {}
        values["data"] = ({"path": before} if isinstance(before, str) else before) | source
    if not values.get("models") or not values.get("data"):
        missing = "models" if not values.get("models") else "data"
        raise InputError(
            f"expected a model and data: rlab benchmark make MODEL DATA, or a --config file with '{missing}:'"
        )
    return values


def _models(said: list[str] | None, words: list[str] | None) -> dict[str, ModelOptions]:
    """Models by the names they go by; -M options hold for all of them."""
    from rlab.benchmarking.make import folder_name
    from rlab.victims.options import ModelOptions, check, read_config

    found: dict[str, ModelOptions] = {}
    options = given.pairs(words, "-M")
    for text in said or []:
        name, equals, spec = text.partition("=")
        spec = spec if equals else text
        is_file = spec.endswith((".yaml", ".yml", ".toml"))
        fields = read_config(Path(spec)) if is_file else {"name": spec}
        called = name if equals else folder_name(Path(spec).stem if is_file else spec, list(found))
        if called in found:
            raise InputError(f"two models are called {called!r}: give them names, --model NAME=MODEL")
        found[called] = check(ModelOptions, fields | options)
    return found


def _victims(whole: Any, more: list[str] | None, words: list[str] | None, ask: bool) -> dict[str, Victim]:
    """The models a benchmark was made against, as its configuration names them or as said now."""
    from rlab.victims.options import ModelOptions, check

    known = {name: check(ModelOptions, dict(one)) for name, one in whole.manifest.config.get("models", {}).items()}
    chosen = known | _models(more, words) if ask else {}
    if ask and not chosen:
        raise InputError(
            f"{whole.folder} does not say how its models are loaded: pass --model {whole.victims[0]}=MODEL, or --no-ask"
        )
    batch = _like(whole)
    return {name: one.load(batch) for name, one in chosen.items()}


def _like(whole: Any) -> Batch:
    """A batch of the benchmark's kind, for models that want to know the range of values."""
    import torch

    from rlab.data.batch import Batch

    rows, shape = whole.originals()[:1], whole.manifest.shape
    labels = torch.tensor([row["label"] for row in rows])
    return Batch(whole.read(rows), labels, bounds=shape.bounds, unit=shape.unit, rate=shape.rate)


def _tell_data(batch: Batch, defaulted: dict[str, Any]) -> None:
    """What is there, what was left out of it, and what was not said and follows from it."""
    size = "×".join(map(str, batch.size))
    out.print(f"{len(batch)} {batch.kind} samples of size {size}, {batch.x.shape[1]} channels")
    if batch.left_out:
        first, why = batch.left_out[0]
        out.print(f"{len(batch.left_out)} left out, first {first}: {why}", highlight=False)
    told = "; ".join(f"{name} {' '.join(map(str, v)) if isinstance(v, list) else v}" for name, v in defaulted.items())
    if told:
        out.print(f"[dim]defaults: {told}[/dim]", highlight=False)


def _tell_made(found: Any) -> None:
    from rich.table import Table

    table = Table(title=f"Benchmark {found.folder}", title_justify="left")
    for heading in ("victim", "level", "samples", "mean L2", "queries a sample"):
        table.add_column(heading, justify="left" if heading in ("victim", "level") else "right", overflow="fold")
    for victim in found.victims:
        for level in found.ladder.names:
            rows = found.of(victim, level)
            there = [row["l2"] for row in rows if row["reached"]]
            queries = sum(row[f"queries_{phase}"] for row in rows for phase in ("search", "cleanup", "verify"))
            mean = f"{sum(there) / len(there):.3g}" if there else "–"
            table.add_row(victim, level, f"{len(there)} of {len(rows)}", mean, f"{queries / len(rows):.1f}")
    out.print(table)
    out.print(f"Every file was read back and asked about again. Card: [bold]{found.folder / 'README.md'}[/bold]")
    out.print(
        f"[dim]rlab benchmark verify {found.folder}; rlab benchmark run {found.folder} --model MODEL[/dim]",
        highlight=False,
    )
