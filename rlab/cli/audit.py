"""`rlab audit`: the whole pipeline from one file, with an exit code for CI."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from rlab.auditing import AuditOptions, run_audit
from rlab.auditing.load import load_audit
from rlab.auditing.record import StageRecord
from rlab.auditing.report import INTERVALS, requirements_table
from rlab.cli.declared import BatchSize, Device, Out, Wait, flag_of, gather, out, run_folder, tell_data
from rlab.cli.ending import Track, track
from rlab.cli.plan import DryRun, tell_plan
from rlab.cli.spoken import querying, summary
from rlab.present.table import plain, terminal
from rlab.runs.sharing import WorkerOptions


@dataclass(frozen=True)
class AuditFlags:
    device: Device = None
    batch_size: BatchSize = None
    seed: Annotated[int | None, typer.Option(help="Random seed (default: the file's)")] = None
    until: Annotated[
        str | None, typer.Option(help="When attacks stop: flip, steady or budget (default: the file's)")
    ] = None
    workers: Annotated[int | None, flag_of(WorkerOptions, "workers")] = None
    devices: Annotated[list[str] | None, flag_of(WorkerOptions, "devices")] = None
    cluster: Annotated[str | None, flag_of(WorkerOptions, "cluster")] = None


@querying
def command(
    file: Annotated[Path, typer.Argument(help="Audit file, YAML or TOML (see docs/audit.md)", show_default=False)],
    flags: AuditFlags,
    folder: Out = None,
    tracker: Track = None,
    wait: Wait = False,
    dry_run: DryRun = False,
) -> None:
    """Run doctor, attack, explain, benchmark and optionally harden, write a report, and check the file's requirements.

    Exit code 0: all requirements are met; 1: some are not met, or there are too few samples to decide; 2: there is no verdict.
    To resume, repeat the command. If you only change requirements, the command makes no new queries, unless they need new
    measurements. The folder holds `report.html`, `audit.json`, `junit.xml` and `verdict.md`.
    """
    options: AuditOptions = gather(AuditOptions, vars(flags) | {"config": file}, "the audit")
    if dry_run:
        loaded = load_audit(options, folder or Path(), announce=tell_data)
        facts = {"stages": options.steps, "samples": len(loaded.batch), "requirements": len(options.requirements)}
        return tell_plan(facts, folder)
    with run_folder(folder, "audit", wait) as folder:
        audit = run_audit(options, folder, tell=_tell, progress=True, announce=tell_data)
    if audit.verdicts:
        out.print(terminal(requirements_table(audit.verdicts)))
    if any(verdict.undecided for verdict in audit.verdicts):
        out.print(f"[dim]{INTERVALS}[/dim]")
    for stage, why in audit.left_out.items():
        out.print(plain(f"{stage} was skipped: {why}"))
    rows = audit.rows
    out.print(f"{rows.total:,} queries, {rows.model:,} of them to the audited model")
    undecided = all(verdict.passed or verdict.undecided for verdict in audit.verdicts)
    failed = "[yellow]undecided[/yellow]" if undecided else "[red]failed[/red]"
    word = "[green]passed[/green]" if audit.passed else failed
    out.print(f"{word}  Report: [bold]{plain(audit.page)}[/bold]")
    track(folder, tracker)
    met = audit.records()
    summary(command="audit", out=folder, passed=audit.passed, requirements=met, rows=rows.total, model_rows=rows.model)
    if not audit.passed:
        raise typer.Exit(1)


def _tell(stage: str, record: StageRecord, before: bool) -> None:
    when = "finished earlier" if before else f"{record.seconds:.0f} s"
    note = f"; {record.note}" if record.note else ""
    out.print(f"[dim]{stage}: {record.rows.total:,} queries, {when}{plain(note)}[/dim]")
