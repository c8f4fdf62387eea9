"""`rlab audit`: the whole pipeline from one file, with an exit code for CI."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rlab.auditing import AuditOptions, run_audit
from rlab.auditing.load import load_audit
from rlab.auditing.record import StageRecord
from rlab.cli.build import declared
from rlab.cli.folder import DryRun, RunFlags, tell_data, tell_plan
from rlab.cli.speak import out
from rlab.present.table import plain

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
        for stage, why in audit.left_out.items():
            out.print(plain(f"{stage} was skipped: {why}"))
        figures: dict[str, Any] = {"passed": audit.passed, "requirements": audit.records()}
        run.finish(audit, folder, page=audit.page, **figures, rows=audit.rows.total, model_rows=audit.rows.model)


def _tell(stage: str, record: StageRecord, before: bool) -> None:
    when = "finished earlier" if before else f"{record.seconds:.0f} s"
    note = f"; {record.note}" if record.note else ""
    out.print(f"[dim]{stage}: {record.rows.total:,} queries, {when}{plain(note)}[/dim]")
