"""`rlab audit`: the whole pipeline from one file, with an exit code for CI."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlab.auditing import AuditOptions, run_audit
from rlab.auditing.load import load_audit
from rlab.auditing.record import StageRecord
from rlab.auditing.report import INTERVALS, requirements_table
from rlab.cli.build import declared
from rlab.cli.folder import DryRun, RunFlags, tell_data, tell_plan, track
from rlab.cli.speak import out, summary
from rlab.present.table import plain, terminal

_FLAGS = ("device", "batch_size", "seed", "until", "workers", "devices", "cluster")  # over the file


@declared(only=_FLAGS, queries=True)
def command(
    config: Annotated[
        Path, typer.Argument(metavar="FILE", help="Audit file, YAML or TOML (see docs/audit.md)", show_default=False)
    ],
    options: AuditOptions,
    run: RunFlags,
    dry_run: DryRun = False,
) -> None:
    """Run doctor, attack, explain, benchmark and optionally harden, write a report, and check the file's requirements.

    Exit code 0: all requirements are met; 1: some are not met, or there are too few samples to decide; 2: there is no verdict.
    To resume, repeat the command. If you only change requirements, the command makes no new queries, unless they need new
    measurements. The folder holds `report.html`, `audit.json`, `junit.xml` and `verdict.md`.
    """
    if dry_run:
        loaded = load_audit(options, run.folder or Path(), announce=tell_data)
        facts = {"stages": options.steps, "samples": len(loaded.batch), "requirements": len(options.requirements)}
        return tell_plan(facts, run.folder)
    with run.opened("audit") as folder:
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
    track(folder, run.tracker)
    met = audit.records()
    summary(command="audit", out=folder, passed=audit.passed, requirements=met, rows=rows.total, model_rows=rows.model)
    if not audit.passed:
        raise typer.Exit(1)


def _tell(stage: str, record: StageRecord, before: bool) -> None:
    when = "finished earlier" if before else f"{record.seconds:.0f} s"
    note = f"; {record.note}" if record.note else ""
    out.print(f"[dim]{stage}: {record.rows.total:,} queries, {when}{plain(note)}[/dim]")
