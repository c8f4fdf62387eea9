"""The part of `rlab train` that is for the two agents of video, chosen by `kind: clips` in the configuration."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from rlab.errors import MissingExtra


def compass_line(figures: dict[str, float]) -> str:
    """How far the compass is, which is trained before the agent."""
    return f"{figures['compass']:>4.0%} of the compass  loss {figures['compass_loss']:.3g}"


def train_pair(config: Path, folder: Path, minutes: float | None, device: str | None, out: Console) -> None:
    try:
        from rlab.training.pair import read_training, train
    except ImportError as error:
        raise MissingExtra("torchrl", "train") from error

    def tell(figures: dict[str, float]) -> None:
        if "compass" in figures:
            return out.print(compass_line(figures))
        out.print(
            f"{figures['progress']:>4.0%}  success {figures['success']:.1%}  queries {figures['median_queries']:g} "
            f"(search {figures['median_search']:g})  MAP {figures['median_map255']:.3g}  frames {figures['frames']:.1f}  "
            f"reward {figures['shared']:.3g}  loss {figures['loss']:.3g}"
        )

    out.print(f"Agents: [bold]{train(read_training(config, minutes, device), folder, tell)}[/bold]")
