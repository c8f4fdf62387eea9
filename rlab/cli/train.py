"""`rlab train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlab.cli.declared import Wait, out, out_flag, run_folder
from rlab.cli.ending import Track, track
from rlab.cli.spoken import spoken, summary
from rlab.present.table import plain
from rlab.storage.config import read_config
from rlab.verbs import TRAINED, train

_NAMES = {"prior": "Prior", "dual_action": "Agent", "two_agents": "Agents"}


@spoken
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
    kind = read_config(config).get("kind", TRAINED[0])
    how = f"\nUse it: rlab attack MODEL DATA --policy {plain(trained)}"
    out.print(f"{_NAMES[kind]}: [bold]{plain(trained)}[/bold]{how}")
    track(folder, tracker)
    summary(command="train", kind=kind, out=folder, file=trained)


def tell(figures: dict[str, float]) -> None:
    """One line for the first update, and one for each validation."""
    if "update_seconds" in figures:
        seconds, minutes = figures["update_seconds"], figures["planned_minutes"]
        fitting = max(1, round(60 * minutes / max(seconds, 1e-9)))
        return out.print(f"the first update took {seconds:.3g} s: {minutes:g} minutes have time for about {fitting:,}")
    if "prior" in figures:
        return out.print(f"{figures['prior']:>4.0%} of the prior  loss {figures['prior_loss']:.3g}")
    line = f"success {figures['success']:.1%}  queries {figures['median_queries']:g} (search {figures['median_search']:g})  "
    distance = f"L2 {figures['median_l2']:.3g}"
    if "frames" in figures:
        distance = f"MAP {figures['median_map255'] / 255:.3g}  frames {figures['frames']:.1f}"
    done = f"{figures['progress']:>4.0%}  " if "progress" in figures else ""
    learned = f"  reward {figures['reward']:.3g}  loss {figures['loss']:.3g}" if "reward" in figures else ""
    out.print(f"{done}{line}{distance}{learned}")
