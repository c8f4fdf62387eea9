"""`rlab harden`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from rlab.cli.declared import Out, Wait, about, declared, out, pairs, run_folder, tell_data
from rlab.cli.ending import Track, track
from rlab.cli.plan import DryRun, tell_plan
from rlab.cli.spoken import summary
from rlab.data.load import DataOptions
from rlab.hardening.comparison import METHODS
from rlab.hardening.declared import PAGE, HardeningJob
from rlab.hardening.options import HardenOptions, HardenRunOptions
from rlab.hardening.pages import RULES
from rlab.hardening.run import WEIGHTS
from rlab.present.table import number, plain, terminal
from rlab.storage.config import check


def _flag(name: str, *flags: str) -> Any:
    """A flag for a field of the section 'harden'."""
    meaning = about(HardenOptions.model_fields[name])
    flag = f"--{name.replace('_', '-')}"
    return typer.Option(flag, *flags, help=meaning, show_default=False, rich_help_panel="Training")


@dataclass(frozen=True)
class HardenFlags:
    """Flags of the command beside the generated ones; None leaves the value of the section 'harden'."""

    test: Annotated[str | None, typer.Option(help="Data to measure on (default: a fifth of DATA)")] = None
    from_scratch: Annotated[bool | None, _flag("from_scratch")] = None
    epochs: Annotated[int | None, _flag("epochs")] = None
    adversarial_share: Annotated[float | None, _flag("adversarial_share", "--share")] = None
    learning_rate: Annotated[float | None, _flag("learning_rate", "--rate")] = None
    batch_size: Annotated[int | None, _flag("batch_size", "--batch")] = None
    max_clean_drop: Annotated[str | None, _flag("max_clean_drop", "--keep-clean", "--drop")] = None
    patience: Annotated[int | None, _flag("patience")] = None
    adversary: Annotated[str | None, _flag("adversary", "--maker")] = None
    adversary_budget: Annotated[int | None, _flag("adversary_budget", "--queries")] = None
    compare: Annotated[
        bool, typer.Option("--compare", help="Compare with augmentation, AugMix, FGSM, PGD and TRADES")
    ] = False
    methods: Annotated[
        str, typer.Option(help="With --compare: methods, separated by commas, with an optional radius: pgd_l2@0.5")
    ] = ",".join(METHODS)
    seeds: Annotated[int, typer.Option(min=1, help="With --compare: number of trainings per method")] = 3
    onnx: Annotated[bool, typer.Option("--onnx", help="Also write the hardened model as ONNX")] = False
    test_option: Annotated[
        list[str] | None,
        typer.Option(
            "--test-option",
            "-T",
            metavar="KEY=VALUE",
            help="Options of the test data, like -D for DATA, e.g. -T split=test",
        ),
    ] = None

    def over(self, options: HardenRunOptions) -> HardenRunOptions:
        """The options of the file with the flags over its sections 'harden' and 'test'."""
        names = {field.name for field in fields(self)} & HardenOptions.model_fields.keys()
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        before = {} if options.test is None else options.test.model_dump(exclude_unset=True)
        test = before | pairs(self.test_option, "-T") | ({} if self.test is None else {"path": self.test})
        checked = check(DataOptions, test, "the test data") if test else None
        return options.model_copy(update={"harden": options.harden.updated(given), "test": checked})

    @property
    def compared(self) -> list[str]:
        """The methods of a comparison."""
        return [name.strip() for name in self.methods.split(",") if name.strip()]


@declared(HardenRunOptions, without=("keep", "rate", "price", "max_cost"))
def command(
    options: HardenRunOptions,
    flags: HardenFlags,
    folder: Out = None,
    tracker: Track = None,
    wait: Wait = False,
    dry_run: DryRun = False,
) -> None:
    """Train a torch model on its own failures while keeping its clean accuracy, and measure it before and after.

    --policy and --budget set how the model is measured; --adversary and --adversary-budget set how training samples are made. In a
    --config file, training options go below 'harden:'. To resume a stopped run, repeat the command.
    """
    options = flags.over(options)
    if dry_run:
        return _plan(_load(options, flags), flags, folder)
    with run_folder(folder, "harden", wait) as folder:
        job = _load(options, flags)
        stopped = _compare(job, flags, folder) if flags.compare else _harden(job, flags, folder)
        track(folder, tracker)
    if stopped.startswith(("the loss", "clean accuracy fell")):
        raise typer.Exit(1)


def _load(options: HardenRunOptions, flags: HardenFlags) -> HardeningJob:
    job = HardeningJob.load(options, tell_data)
    if options.test is None:
        held = f"{len(job.test)} of {len(job.train) + len(job.test)} samples are held out for the test"
        out.print(f"[dim]{held}; pass --test to use other data[/dim]")
    return job


def _compare(job: HardeningJob, flags: HardenFlags, folder: Path) -> str:
    comparison = job.compare(
        folder, flags.compared, flags.seeds,
        lambda name, seed, m: out.print(f"[dim]{name}, seed {seed}: {m.figures['clean'].mean():.1%} clean[/dim]"),
    )  # fmt: skip
    out.print(terminal(comparison.table()))
    out.print(f"[dim]{RULES}[/dim]")
    summary(command="harden", out=folder, figures=folder / "comparison.csv")
    out.print(f"Figures: [bold]{plain(folder / 'comparison.csv')}[/bold]")
    return ""


def _harden(job: HardeningJob, flags: HardenFlags, folder: Path) -> str:
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
    if flags.onnx:
        exported = hardened.export_onnx(folder / "hardened.onnx", tuple(job.train.x.shape[1:]))
        out.print(f"ONNX: [bold]{plain(exported)}[/bold]")
    return hardened.stopped


def _plan(job: HardeningJob, flags: HardenFlags, folder: Path | None) -> None:
    rows = job.rows_at_most(flags.compared * flags.seeds if flags.compare else ())
    facts = {
        "samples": len(job.train), "test samples": len(job.test), "epochs": job.options.epochs,
        "adversary": str(job.options.adversary), "seed": job.options.seed,
    }  # fmt: skip
    tell_plan(facts, rows, folder, [job.victim], job.train.x)
