"""The flags of commands that leave a run folder, the folder itself, and what becomes of it when the command ends."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer

from rlab.cli.speak import note, out, summary, tell_page
from rlab.data.batch import Samples
from rlab.errors import FolderError
from rlab.present.report import Report
from rlab.present.table import plain, typed
from rlab.runs.executor import place
from rlab.runs.inputs import relabelled
from rlab.runs.options import AttackOptions, RunOptions
from rlab.runs.sharing import WorkerOptions
from rlab.runs.understood import Understood
from rlab.storage.lock import hold, is_read_only
from rlab.storage.outside import is_text, short
from rlab.storage.run_file import RUN
from rlab.victims.base import Victim
from rlab.victims.options import ModelOptions
from rlab.victims.resolve import load_model


def check_out(path: Path | None) -> Path | None:
    """Check, before any query is spent, that the folder exists or can be made."""
    if path is None:
        return None
    try:
        nearest = next((place for place in (path, *path.parents) if place.exists()), None)
    except OSError as error:
        raise FolderError(f"cannot write to {short(path)}: {error.strerror}: name another folder with --out") from error
    if not is_text(str(path)) or (nearest is not None and not nearest.is_dir()):
        why = "exists and holds something else" if is_text(str(path)) else "is not UTF-8"
        raise FolderError(f"{nearest or path} {why}: name another folder with --out")
    return path


def out_flag(about: str) -> Any:
    """The flag --out for a folder."""
    return typer.Option("--out", "-o", callback=check_out, help=about)


def _check_tracker(name: str | None) -> str | None:
    """Check the tracker before any query is spent."""
    if name is not None:
        from rlab.folders.tracking import check_tracker

        check_tracker(name)
    return name


_TRACK = "Log the finished run to mlflow, wandb or tensorboard (each is an extra)"
_DRY_RUN = (
    "Print samples, options and, for attacks, the maximum number of queries and their cost; query and write nothing"
)
Track = Annotated[str | None, typer.Option("--track", metavar="TRACKER", callback=_check_tracker, help=_TRACK)]
Wait = Annotated[bool, typer.Option("--wait", help="Wait while another process uses the folder")]
DryRun = Annotated[bool, typer.Option("--dry-run", help=_DRY_RUN)]


@dataclass(frozen=True)
class RunFlags:
    """The flags of a command that leaves a run folder."""

    folder: Annotated[Path | None, out_flag("Run folder (default: a new one below runs/)")] = None
    page: Annotated[bool, typer.Option("--page/--no-page", help="Write report.html, a page about the run")] = True
    tracker: Track = None
    wait: Wait = False

    def opened(self, command: str) -> AbstractContextManager[Path]:
        """Lock the folder and yield it."""
        return run_folder(self.folder, command, self.wait)

    def finish(
        self, report: Report, folder: Path, data: Samples | None = None, page: Path | None = None, **figures: Any
    ) -> None:
        """Write and print the page of a finished run, log it, and write its figures as JSON; exit with 1 if it failed.

        `data` rebuild inputs that an attack did not store, and `page` is a page that is written already; a read-only medium gets
        none.
        """
        if self.page and page is None and not is_read_only(folder):
            from rlab.folders.reports import report_run  # imports matplotlib

            page = report_run(folder, data=data)
        view = report.view(0, folder)
        tell_page(view, brief=True)
        out.print(f"Run folder: [bold]{plain(folder)}[/bold]  ([dim]rlab show {typed(folder)}[/dim])", soft_wrap=True)
        track(folder, self.tracker)
        summary(command=report.verb, out=folder, page=page, **{**report.summary(), **figures})
        if page is not None:
            out.print(f"Page: [bold]{plain(page)}[/bold]", soft_wrap=True)
        if view.verdict is not None and not view.verdict.passed:
            raise typer.Exit(1)


def track(folder: Path, name: str | None) -> None:
    """Log a finished run, if a tracker is named."""
    if name is not None:
        from rlab.folders.tracking import track_run

        out.print(f"Tracked: [bold]{plain(track_run(folder, name))}[/bold]")


@contextmanager
def run_folder(folder: Path | None, command: str, wait: bool) -> Iterator[Path]:
    """Lock the folder of this run, by default a new one below runs/.

    After Ctrl-C, the error says what is saved and how to resume.
    """
    named = folder is not None
    with ExitStack() as stack:
        if folder is not None:
            tell = (lambda who: note.print(f"waiting for {who}", markup=False)) if wait else None
            stack.enter_context(hold(folder, command, wait=tell))
        else:
            folder = stack.enter_context(_new_folder(command))
        try:
            yield folder
        except KeyboardInterrupt as stop:
            raise KeyboardInterrupt(_stopped(folder, named, str(stop))) from stop


@contextmanager
def _new_folder(command: str) -> Iterator[Path]:
    first = Path("runs") / f"{command.replace(' ', '-')}-{datetime.now():%Y%m%d-%H%M%S}"
    with ExitStack() as stack:
        for number in count(1):  # several runs may start in the same second
            made = first if number == 1 else first.with_name(f"{first.name}-{number}")
            with suppress(FileExistsError):
                stack.enter_context(hold(made, command, new=True))
                break
        yield made


def _stopped(folder: Path, named: bool, saved: str) -> str:
    """What is saved and the command to resume; for nested folders, those of the innermost."""
    if saved.startswith("stopped"):
        return saved
    if not (folder / RUN).exists():
        return "stopped before anything was saved"
    words = shlex.join(["rlab", *sys.argv[1:], *([] if named else ["--out", str(folder)])])
    return f"stopped; {saved or f'finished work is saved in {folder}'}; resume with: {words}"


def tell_data(understood: Understood) -> None:
    """Print what was understood of the data and the model."""
    out.print(plain(understood), soft_wrap=True)


def prepare(options: AttackOptions, models: list[ModelOptions], data: Any) -> tuple[Any, Samples, list[Victim]]:
    """Load the data and the models, fill in the options, and print all of it."""
    batch = options.suited_data().open() if isinstance(options, RunOptions) else data.suited(several=False).open()
    filled, defaulted = options.filled(batch)
    placed = [place(options, model)[1] if isinstance(options, WorkerOptions) else model for model in models]
    victims = [load_model(model, batch.bounds) for model in placed]
    batch = relabelled(batch, victims[0].own_classes) if victims else batch
    tell_data(Understood(batch, tuple(victims), defaulted))
    return filled, batch, victims


def tell_options(
    options: AttackOptions, models: list[ModelOptions], data: Any, folder: Path | None, attacks: int = 0
) -> None:
    """Print what a command would do; `attacks` on each sample, or 0 if it does more than attacks, bound its queries."""
    filled, batch, _ = prepare(options, models, data)
    price = max([0.0, *(model.price for model in models)])
    tell_plan({"samples": len(batch), **filled.plain()}, folder, len(batch) * filled.budget * attacks, price)


def tell_plan(facts: Mapping[str, Any], folder: Path | None, rows: int = 0, price: float = 0.0) -> None:
    """Print what a command would do; `rows` is the maximum number of its queries, 0 if it is unknown."""
    where = str(folder or "a new folder below runs/")
    for name, value in facts.items():
        out.print(plain(f"{name}: {', '.join(map(str, value)) if isinstance(value, list | tuple) else value}"))
    limit = "not known in advance: --max-queries N sets a limit"
    out.print(f"queries at most: {f'{rows:,}' if rows else limit}")
    if rows and price:
        out.print(f"cost at most: {rows * price:.6g}")
    out.print(f"out: {plain(where)}")
    cost = {"cost_at_most": rows * price} if rows and price else {}
    summary(dry_run=True, rows_at_most=rows or None, **cost, **{**facts, "out": where})
