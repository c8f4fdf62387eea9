"""`rlab demo`: attack small built-in models on embedded signals, images and clips."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from rlab.cli.declared import Wait, check_out, out, run_folder
from rlab.cli.ending import Paged, tell_page, write_report
from rlab.core.defaults import POLICY
from rlab.data.load import DataOptions
from rlab.folders.demo import SCENES
from rlab.present.table import plain, terminal, typed
from rlab.results.tables import MEDIANS, summary_table
from rlab.runs.understood import say_nothing
from rlab.storage.resume import open_run
from rlab.verbs import attack


def command(
    folder: Annotated[
        Path | None,
        typer.Option("--out", callback=check_out, help="Folder for the three runs (default: a new one below runs/)"),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, max=400, help="Samples in each of the three parts")] = 8,
    policy: Annotated[str, typer.Option(help="Search policy")] = POLICY,
    seed: Annotated[int, typer.Option(help="Random seed")] = 0,
    page: Paged = True,
    wait: Wait = False,
) -> None:
    """Attack a signal, an image and a clip classifier on embedded data. This needs no network and no GPU, and
    takes under three minutes.
    """
    torch.set_num_threads(1)  # fastest for models this small, also on a busy machine
    chunk = max(1, samples // 4)  # the bar advances with each chunk
    results = {}
    with run_folder(folder, "demo", wait) as folder, open_run(folder, {"command": "demo"}) as resume:
        resume.create()
        for name, (title, source) in SCENES.items():
            out.print(f"[dim]{title} ({source})[/dim]")
            data = DataOptions(path=f"demo:{name}", limit=samples)
            how: dict[str, Any] = {"policy": policy, "budget": 1000, "chunk": chunk, "seed": seed}
            results[title] = attack(f"demo:{name}", data, out=folder / name, announce=say_nothing, **how)
        written = write_report(folder, page)
    out.print(terminal(summary_table(results, "The smallest changes that make the models wrong")))
    out.print(f"[dim]{MEDIANS}[/dim]")
    out.print(f"Every flip was verified from the stored file. Runs: [bold]{plain(folder)}[/bold]", soft_wrap=True)
    out.print(f"[dim]Details: rlab show {typed(folder / 'digits')}[/dim]", soft_wrap=True)
    tell_page(written)
