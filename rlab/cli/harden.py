"""`rlab harden`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from rlab.cli.build import declared
from rlab.cli.fields import Section
from rlab.cli.folder import DryRun, RunFlags, tell_data, tell_options, track
from rlab.cli.speak import out, summary
from rlab.hardening.comparison import METHODS
from rlab.hardening.declared import PAGE, HardeningJob
from rlab.hardening.options import HardenOptions, HardenRunOptions
from rlab.hardening.pages import RULES
from rlab.hardening.run import WEIGHTS
from rlab.present.table import number, plain, terminal

TRAINING = Section(
    "harden",
    HardenOptions,
    (
        "from_scratch", "epochs", "training_batch", "learning_rate", "adversary", "adversary_budget", "adversarial_share",
        "max_clean_drop", "patience",
    ),
    "Training",
)  # fmt: skip


@dataclass(frozen=True)
class ComparisonFlags:
    """Flags of a comparison."""

    compare: Annotated[
        bool, typer.Option("--compare", help="Compare with augmentation, AugMix, FGSM, PGD and TRADES")
    ] = False
    methods: Annotated[
        str, typer.Option(help="With --compare: methods, separated by commas, with an optional radius: pgd_l2@0.5")
    ] = ",".join(METHODS)
    seeds: Annotated[int, typer.Option(min=1, help="With --compare: number of trainings per method")] = 3

    @property
    def names(self) -> list[str]:
        return [name.strip() for name in self.methods.split(",") if name.strip()]


@declared(without=("keep", "rate", "price", "max_cost"), section=TRAINING, queries=True)
def command(
    options: HardenRunOptions,
    run: RunFlags,
    comparison: ComparisonFlags,
    onnx: Annotated[bool, typer.Option("--onnx", help="Also write the hardened model as ONNX")] = False,
    dry_run: DryRun = False,
) -> None:
    """Train a torch model on its own failures while keeping its clean accuracy, and measure it before and after.

    --policy and --budget set how the model is measured; --adversary and --adversary-budget set how training samples are made. In a
    --config file, training options go below 'harden:'. To resume a stopped run, repeat the command.
    """
    if dry_run:
        return tell_options(options, [options.model], options.data, run.folder)
    with run.opened("harden") as folder:
        job = _load(options)
        stopped = _compare(job, comparison, folder) if comparison.compare else _harden(job, onnx, folder)
        track(folder, run.tracker)
    if stopped.startswith(("the loss", "clean accuracy fell")):
        raise typer.Exit(1)


def _load(options: HardenRunOptions) -> HardeningJob:
    job = HardeningJob.load(options, tell_data)
    if options.test is None:
        held = f"{len(job.test)} of {len(job.train) + len(job.test)} samples are held out for the test"
        out.print(f"[dim]{held}; pass --test to use other data[/dim]")
    return job


def _compare(job: HardeningJob, flags: ComparisonFlags, folder: Path) -> str:
    comparison = job.compare(
        folder, flags.names, flags.seeds,
        lambda name, seed, m: out.print(f"[dim]{name}, seed {seed}: {m.figures['clean'].mean():.1%} clean[/dim]"),
    )  # fmt: skip
    out.print(terminal(comparison.table()))
    out.print(f"[dim]{RULES}[/dim]")
    summary(command="harden", out=folder, figures=folder / "comparison.csv")
    out.print(f"Figures: [bold]{plain(folder / 'comparison.csv')}[/bold]")
    return ""


def _harden(job: HardeningJob, onnx: bool, folder: Path) -> str:
    """Harden, measure and print; -> why training stopped."""
    run = job.run(folder)
    hardened = run.hardened
    out.print(plain(hardened))
    means = {when: {name: figure.mean() for name, figure in m.figures.items()} for when, m in run.measured.items()}
    summary(command="harden", out=folder, stopped=hardened.stopped, rows=run.rows, **means)
    abouts = {"clean": "accuracy on clean test samples", "corruptions": "accuracy under the palette's filters"}
    for name, what in abouts.items():
        out.print(f"{what}: {means['before'][name]:.1%} -> {means['after'][name]:.1%}")
    l2 = [number(m.estimates()["agent_l2"].value) for m in run.measured.values()]
    out.print(f"median L2 to flip: {' -> '.join(l2)}")
    weights, page = plain(folder / WEIGHTS), plain(folder / PAGE)
    out.print(f"Weights: [bold]{weights}[/bold]  Before and after: [bold]{page}[/bold]")
    if onnx:
        exported = hardened.export_onnx(folder / "hardened.onnx", tuple(job.train.x.shape[1:]))
        out.print(f"ONNX: [bold]{plain(exported)}[/bold]")
    return hardened.stopped
