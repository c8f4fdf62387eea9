"""`rlab demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer

from rlab.cli.declared import Wait, check_out, out, run_folder
from rlab.cli.scenes import run_demo
from rlab.core.defaults import POLICY
from rlab.present.table import plain, terminal
from rlab.results.tables import MEDIANS, summary_table


def command(
    folder: Annotated[
        Path | None,
        typer.Option("--out", callback=check_out, help="Folder for runs and pictures (default: a new one below runs/)"),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, max=400, help="Samples in each of the three parts")] = 40,
    policy: Annotated[str, typer.Option(help="Search policy")] = POLICY,
    seed: Annotated[int, typer.Option(help="Random seed")] = 0,
    wait: Wait = False,
) -> None:
    """Attack a signal, an image and a clip classifier on embedded data. No network, no GPU, under three minutes."""
    torch.set_num_threads(1)  # fastest for models this small, also on a busy machine
    with run_folder(folder, "demo", wait) as folder:
        results = run_demo(folder, samples, policy, seed, tell=lambda text: out.print(f"[dim]{text}[/dim]"))
    out.print(terminal(summary_table(results, "The smallest changes that make the models wrong")))
    out.print(f"[dim]{MEDIANS}[/dim]", highlight=False)
    shown = plain(folder)
    out.print(f"Every flip was verified from the stored file. Runs and pictures: [bold]{shown}[/bold]")
    out.print(f"[dim]Details: rlab show {shown}/digits[/dim]")
