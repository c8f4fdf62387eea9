"""The commands of `rlab`. Heavy imports happen inside a command, so that --help is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rlab.cli import options as given
from rlab.cli.agents import agents
from rlab.cli.audit import audit
from rlab.cli.benchmark import app as benchmark
from rlab.cli.explain import explain
from rlab.cli.harden import harden
from rlab.cli.report import report
from rlab.errors import MissingExtra

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="""What is the least that has to go wrong for my model to be wrong, and where does it look?

Start with **rlab demo**. Then check your own model and data with **rlab doctor MODEL DATA**, and attack it with
**rlab attack MODEL DATA**. Models and data are named the way you have them; `rlab attack --help` lists how.""",
)
out = Console()


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False) -> None:
    if version:
        from rlab import __version__

        out.print(f"rlab {__version__}")
        raise typer.Exit


@app.command()
def demo(
    folder: Annotated[Path | None, typer.Option("--out", help="Folder for the runs and pictures.")] = None,
    samples: Annotated[int, typer.Option(min=1, max=400, help="Samples in each of the three parts.")] = 40,
    policy: Annotated[str, typer.Option(help="Which policy proposes the changes.")] = given.DEFAULT_POLICY,
    seed: int = 0,
) -> None:
    """Attack a signal, an image and a clip classifier on embedded data. No network, no GPU, under three minutes."""
    import torch

    from rlab.demo import run_demo
    from rlab.present.tables import summary_table

    torch.set_num_threads(1)  # quickest for models this small, and does not wait for threads on a busy machine
    place = folder or given.new_folder("demo")
    results = run_demo(place, samples, policy, seed, tell=lambda text: out.print(f"[dim]{text}[/dim]"))
    out.print(summary_table(results, "The least that had to go wrong (medians over flipped samples)"))
    out.print(f"Every flip was predicted again from the stored file. Runs and pictures: [bold]{place}[/bold]")
    out.print(f"[dim]Look closer: rlab show {place}/digits[/dim]")


@app.command()
def attack(
    model: given.Model = None,
    data: given.Data = None,
    config: given.Config = None,
    palette: given.PaletteOption = None,
    patch: given.Patch = None,
    goal: given.Goal = None,
    budget: given.Budget = None,
    policy: given.PolicyOption = None,
    keep: given.Keep = None,
    cleanup: given.Cleanup = None,
    seed: given.Seed = None,
    chunk: given.Chunk = None,
    folder: given.Out = None,
    pictures: Annotated[int, typer.Option(min=0, help="How many samples to draw; 0 draws nothing.")] = 6,
    labels: given.Labels = None,
    size: given.Size = None,
    limit: given.Limit = None,
    data_option: given.DataOptions = None,
    model_option: given.ModelOptions = None,
) -> None:
    """Find, for every sample, few patches whose distortion makes the model err.

    MODEL: package.module:function that returns one, timm:NAME, torchvision:NAME, hf:NAME, model.onnx, weights.safetensors
    with -M factory=module:function, an http(s):// address, or demo:digits, demo:ecg, demo:clips.

    DATA: an image folder (with --labels labels.csv, or one sub-folder a class), .npz with x and y, .csv or .npy signals,
    WFDB records, a folder of clips, CIFAR-10 binary batches, or demo:digits, demo:ecg, demo:clips.

    A run that was stopped goes on where it was when the same command with the same --out is given again.
    """
    values = given.gathered(locals())
    from rlab.present.plots import save_pictures
    from rlab.present.tables import figures_line, summary_table
    from rlab.progress import bar
    from rlab.runs.attack import run_attack

    run, batch, victim = given.prepare(values, out)
    made = run.attack(batch)
    place = folder or given.new_folder("attack")
    with bar(len(batch)) as progress:
        result = run_attack(made, victim, batch, place, run.plain(), run.seed, progress)
    if pictures:
        save_pictures(result, place / "pictures", limit=pictures)
    out.print(summary_table({run.model.name: result}))
    out.print(figures_line(result))
    if result.attacked.sum() < len(result) / 2:
        out.print("More than half the samples were wrong before any change: `rlab doctor` may find out why.")
    out.print(f"Run folder: [bold]{place}[/bold]  ([dim]rlab show {place}[/dim])")


@app.command()
def doctor(
    model: given.Model = None,
    data: given.Data = None,
    config: given.Config = None,
    palette: given.PaletteOption = None,
    samples: Annotated[int, typer.Option(min=2, help="Samples to look at.")] = 16,
    labels: given.Labels = None,
    size: given.Size = None,
    limit: given.Limit = None,
    data_option: given.DataOptions = None,
    model_option: given.ModelOptions = None,
) -> None:
    """Check model, data and palette before a budget is spent: normalisation, channel order, modes, labels, filters."""
    values = given.gathered(locals())
    from rlab.diagnosis import examine
    from rlab.filters.palette import Palette
    from rlab.present.tables import findings_table

    run, batch, victim = given.prepare(values, out)
    chosen = Palette.of(run.palette or [], batch.rank, batch.x.shape[1], batch.rate, batch.unit)
    report = examine(victim, batch, chosen, samples=samples)
    out.print(findings_table(report.findings))
    right = "" if report.accuracy is None else f", {report.accuracy:.0%} right"
    out.print(f"{report.queries} queries spent{right}. " + ("Nothing stands in the way." if report.healthy else ""))
    if not report.healthy:
        raise typer.Exit(1)


@app.command()
def compare(
    model: given.Model = None,
    data: given.Data = None,
    config: given.Config = None,
    policies: Annotated[
        str, typer.Option(help="Policies of rlab, with commas: random,square,greedy,agent.safetensors.")
    ] = "random,square",
    attacks: Annotated[
        list[str] | None,
        typer.Option(
            help="Attacks of other libraries, repeated or with spaces: torchattacks:square@1.0 art:simba@0.2."
        ),
    ] = None,
    palette: given.PaletteOption = None,
    patch: given.Patch = None,
    budget: given.Budget = None,
    keep: given.Keep = None,
    cleanup: given.Cleanup = None,
    seed: given.Seed = None,
    chunk: given.Chunk = None,
    folder: given.Out = None,
    labels: given.Labels = None,
    size: given.Size = None,
    limit: given.Limit = None,
    data_option: given.DataOptions = None,
    model_option: given.ModelOptions = None,
) -> None:
    """Run several attacks on the same model, samples and budget, and count every row that reaches the model.

    The first one named is what the others are measured against. An attack given at several strengths, such as
    torchattacks:square@1.0 and torchattacks:square@2.0, is also told at the first one's median L2.
    """
    values = given.gathered(locals())
    from rlab.comparison import compare, parse_contenders
    from rlab.comparison.table import RULES, comparison_table, equal_lines

    run, batch, victim = given.prepare(values, out)
    options = run.model_dump(include={"keep", "l2_penalty", "cleanup", "patience", "chunk"})
    named = parse_contenders(policies, attacks or [], run.palette, run.patch, **options)
    assert run.budget is not None  # filled in by prepare
    found = compare(
        victim,
        batch,
        named,
        run.budget,
        run.seed,
        lambda name, one: out.print(f"[dim]{name}: {one.seconds:.0f} s[/dim]"),
    )
    place = found.save(folder or given.new_folder("compare"))
    out.print(comparison_table(found))
    for line in equal_lines(found):
        out.print(line, highlight=False)
    out.print(f"[dim]{RULES}[/dim]", highlight=False)
    out.print(f"Rows and curves: [bold]{place}[/bold]")


@app.command()
def train(
    config: Annotated[Path, typer.Argument(help="YAML or TOML file, e.g. agents/images.yaml of the repository.")],
    folder: Annotated[Path, typer.Option("--out", "-o", help="Folder for the agent, its checkpoint and log.")],
    minutes: Annotated[float | None, typer.Option(help="How long, in place of the file's.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda, in place of the file's.")] = None,
) -> None:
    """Train an agent on models you can query. Goes on from its checkpoint when stopped; needs the extra 'train'."""
    from rlab.cli.clips import compass_line, train_pair
    from rlab.runs.config import read_config

    if read_config(config).get("kind") == "clips":
        return train_pair(config, folder, minutes, device, out)
    try:
        from rlab.training.qmap import read_training, train
    except ImportError as error:
        raise MissingExtra("torchrl", "train") from error

    made = read_training(config, minutes, device)

    def tell(figures: dict[str, float]) -> None:
        if "compass" in figures:
            return out.print(compass_line(figures))
        out.print(
            f"{figures['progress']:>4.0%}  success {figures['success']:.1%}  queries {figures['median_queries']:g} "
            f"(search {figures['median_search']:g})  L2 {figures['median_l2']:.3g}  loss {figures['loss']:.3g}"
        )

    out.print(f"Agent: [bold]{train(made, folder, tell)}[/bold]")


@app.command()
def show(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    samples: Annotated[int, typer.Option(min=0, help="Rows of the table.")] = 20,
    pictures: Annotated[int, typer.Option(min=0, help="Draw so many samples again.")] = 0,
) -> None:
    """Show what a run found: summary, samples, where its pictures are."""
    from rlab.core.result import AttackResult
    from rlab.present.tables import breakdown_tables, detail_table, figures_line, reach_line, summary_table

    result = AttackResult.load(run)
    out.print(summary_table({run.name: result}))
    out.print(figures_line(result))
    if reach := reach_line(result):
        out.print(reach)
    for table in breakdown_tables(result):
        out.print(table)
    out.print(detail_table(result, samples))
    if pictures:
        from rlab.present.plots import save_pictures

        save_pictures(result, run / "pictures", limit=pictures)
    if (run / "pictures").is_dir():
        out.print(f"Pictures: {run / 'pictures'}")


@app.command()
def filters(
    rank: Annotated[
        int | None, typer.Option(min=1, max=3, help="Only those for signals (1), images (2), video (3).")
    ] = None,
) -> None:
    """List the built-in filters, their severities and what they imitate."""
    from rlab.present.tables import filters_table

    out.print(filters_table(rank))
    out.print(
        "Use as name, name@severity, name@0.1,0.3 (two entries), name@0.1*3 (three draws), or your own module:function; "
        "those that add noise also as name@20dB (signal-to-noise ratio) or name@0.1mV (the data's unit)."
    )


app.command()(agents)
app.command()(harden)
app.add_typer(benchmark, name="benchmark")
app.command()(explain)
app.command()(audit)
app.command()(report)
