"""`rlab repair`: what can be mended of a damaged run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlab.cli.declared import out
from rlab.folders.repair import repair_run


def command(
    run: Annotated[Path, typer.Argument(help="A run folder of any command.", show_default=False)],
) -> None:
    """Mend a damaged run folder: what is whole is kept, what is not is taken out, so that its command makes it again.

    No model is asked. Exit code 0: the folder is whole, or its command can go on with it; 2: it cannot be helped.
    """
    mended = repair_run(run)
    for line in mended.done:
        out.print(line, highlight=False, markup=False)
    told = f"Go on with: {mended.next}" if mended.lost else f"{run} is whole, as far as it got"
    out.print(told, highlight=False, markup=False, soft_wrap=True)
