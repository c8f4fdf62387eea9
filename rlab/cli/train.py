"""`rlab train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlab.cli.build import declared
from rlab.cli.folder import Track, Wait, out_flag, run_folder, track
from rlab.cli.speak import out, summary
from rlab.present.table import plain
from rlab.storage.config import read_config
from rlab.verbs import TRAINED, train


@declared()
def command(
    config: Annotated[Path, typer.Argument(help="YAML or TOML file, e.g. the one that `rlab examples images` writes")],
    folder: Annotated[Path, out_flag("Folder for the trained file, its log and checkpoints")],
    minutes: Annotated[float | None, typer.Option(help="Training time in minutes (default: the file's)")] = None,
    device: Annotated[str | None, typer.Option(help="Device: cpu or cuda (default: the file's)")] = None,
    tracker: Track = None,
    wait: Wait = False,
) -> None:
    """Train a direction prior on your models, or the agent of a paper: `kind: dual_action` for signals and images, `kind:
    two_agents` for video.

    To resume a stopped training, repeat the command.
    """
    with run_folder(folder, "train", wait):
        trained = train(config, folder, minutes=minutes, device=device, tell=tell)
    track(folder, tracker)
    summary(command="train", kind=read_config(config).get("kind", TRAINED[0]), out=folder, file=trained)
    out.print(f"Trained: [bold]{plain(trained)}[/bold]\nUse it: rlab attack MODEL DATA --policy {plain(trained)}")


def tell(figures: dict[str, float]) -> None:
    """One line for the first update, and one for each validation."""
    if "update_seconds" in figures:
        seconds, minutes = figures["update_seconds"], figures["planned_minutes"]
        fitting = max(1, round(60 * minutes / max(seconds, 1e-9)))
        return out.print(f"the first update took {seconds:.3g} s: {minutes:g} minutes have time for about {fitting:,}")
    done = f"{figures['progress']:>4.0%}  " if "progress" in figures else ""
    line = f"success {figures['success']:.1%}  queries {figures['median_queries']:g} (search {figures['median_search']:g})  "
    distance = f"L2 {figures['median_l2']:.3g}"
    if "frames" in figures:
        distance = f"MAP {figures['median_map255'] / 255:.3g}  frames {figures['frames']:.1f}"
    learned = "".join(f"  {name} {figures[name]:.3g}" for name in ("reward", "loss") if name in figures)
    out.print(f"{done}{line}{distance}{learned}")
