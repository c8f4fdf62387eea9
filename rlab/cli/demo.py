"""`rlab demo`: attack small built-in models on embedded signals, images and clips."""

from __future__ import annotations

from typing import Annotated, Any

import torch
import typer

from rlab.cli.build import declared
from rlab.cli.folder import RunFlags
from rlab.cli.speak import out
from rlab.core.defaults import POLICY
from rlab.data.load import DataOptions
from rlab.folders.demo import SCENES, Demo
from rlab.runs.understood import say_nothing
from rlab.storage.resume import open_run
from rlab.verbs import attack


@declared()
def command(
    run: RunFlags,
    samples: Annotated[int, typer.Option(min=1, max=400, help="Samples in each of the three parts")] = 8,
    policy: Annotated[str, typer.Option(help="Search policy")] = POLICY,
    seed: Annotated[int, typer.Option(help="Random seed")] = 0,
) -> None:
    """Attack a signal, an image and a clip classifier on embedded data. This needs no network and no GPU, and
    takes under three minutes.
    """
    torch.set_num_threads(1)  # fastest for models this small, also on a busy machine
    how: dict[str, Any] = {"policy": policy, "budget": 1000, "chunk": max(1, samples // 4), "seed": seed}
    results = {}
    with run.opened("demo") as folder:
        with open_run(folder, {"command": "demo"}) as resume:
            resume.create()
            for name, (title, source) in SCENES.items():
                out.print(f"[dim]{title} ({source})[/dim]")
                data = DataOptions(path=f"demo:{name}", limit=samples)
                results[name] = attack(f"demo:{name}", data, out=folder / name, announce=say_nothing, **how)
        run.finish(Demo(results), folder)
