"""`rlab repair`: repair a damaged run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlab.cli.declared import out
from rlab.folders.repair import repair_run


def command(run: Annotated[Path, typer.Argument(help="Run folder of any command", show_default=False)]) -> None:
    """Remove the damaged parts of a run folder, so that its command can make them again.

    No model is queried. Exit code 0: the folder is intact, or its command can resume; 2: it cannot be repaired.
    """
    mended = repair_run(run)
    for line in mended.done:
        out.print(line, markup=False)
    advice = f"Resume with: {mended.next}" if mended.lost else f"{run} is intact"
    out.print(advice, markup=False, soft_wrap=True)
