"""`rlab train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlab.cli.declared import Wait, check_out, out, run_folder
from rlab.errors import InputError, MissingExtra
from rlab.present.table import plain
from rlab.runs.config import read_config
from rlab.training.controller import ControllerOptions, train_controller
from rlab.training.directions import PriorOptions, train

KINDS = ("prior", "controller", "clips")


def command(
    config: Annotated[
        Path, typer.Argument(help="YAML or TOML file, e.g. agents/images.yaml, which `rlab examples images` writes.")
    ],
    folder: Annotated[
        Path,
        typer.Option(
            "--out", "-o", callback=check_out, help="Folder for what is trained, its log and where it stands."
        ),
    ],
    minutes: Annotated[float | None, typer.Option(help="How long, in place of the file's.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda, in place of the file's.")] = None,
    wait: Wait = False,
) -> None:
    """Train a direction prior on models of yours; `kind: controller` trains the belief search's controller, and `kind: clips`
    the agents for clips (needs the extra 'train'). A training that was stopped goes on.
    """
    kind = read_config(config).get("kind", "prior")
    if kind not in KINDS:
        raise InputError(f"expected kind to be one of {', '.join(KINDS)} in {config}, got {kind!r}")
    with run_folder(folder, "train", wait):
        _train(kind, config, folder, minutes, device)


def _train(kind: str, config: Path, folder: Path, minutes: float | None, device: str | None) -> None:
    if kind == "clips":
        try:
            from rlab.training.pair import PairOptions
            from rlab.training.pair import train as train_pair
        except ImportError as error:
            raise MissingExtra("torchrl", "train") from error
        pair_options = PairOptions.read(config, minutes, device)
        agents = train_pair(*pair_options.load(), pair_options, folder, tell)
        return out.print(f"Agents: [bold]{plain(agents)}[/bold]")
    if kind == "controller":
        controller_options = ControllerOptions.read(config, minutes, device)
        controller = train_controller(controller_options.load(), controller_options, folder, tell)
        return out.print(f"Controller: [bold]{plain(controller)}[/bold]")
    options = PriorOptions.read(config, minutes, device)
    prior = train(*options.load(), options, folder, tell)
    out.print(
        f"Prior: [bold]{plain(prior)}[/bold]\nUse it: rlab attack MODEL DATA --policy {plain(prior)}", highlight=False
    )


def tell(figures: dict[str, float]) -> None:
    """One line for each validation."""
    if "gain" in figures:
        return out.print(
            f"{figures['progress']:>4.0%}  area gained on the rule {figures['gain']:.3f}  loss {figures['loss']:.3g}"
        )
    if "prior" in figures:
        return out.print(f"{figures['prior']:>4.0%} of the prior  loss {figures['prior_loss']:.3g}")
    line = f"success {figures['success']:.1%}  queries {figures['median_queries']:g} (search {figures['median_search']:g})  "
    if "shared" not in figures:
        return out.print(f"{line}L2 {figures['median_l2']:.3g}")
    out.print(
        f"{figures['progress']:>4.0%}  {line}MAP {figures['median_map255']:.3g}  frames {figures['frames']:.1f}  "
        f"reward {figures['shared']:.3g}  loss {figures['loss']:.3g}"
    )
