"""The page of a training: what was trained, how it stands, and the curve of every figure that was logged."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from rlab.errors import InputError
from rlab.present.inline import figure_address
from rlab.present.page import Block, Facts, Gallery, Page, Picture, Section, Text
from rlab.present.plots.style import INK, STYLE, WIDE, new_figure, plain
from rlab.present.table import number
from rlab.priors.file import read_tensors
from rlab.runs.outside import read_text

LOG = "log.jsonl"
_TRAINED = ("prior.safetensors", "controller.safetensors", "agent.safetensors")
_COLUMNS = 4  # of panels


def training_page(folder: Path) -> Page:
    """Of a folder that `rlab train` wrote, or is writing."""
    log: list[dict[str, float]] = [json.loads(line) for line in read_text(folder / LOG).splitlines()]
    last = {name: value for line in log for name, value in line.items()}
    blocks: list[Block] = [Facts({name.replace("_", " "): number(value) for name, value in last.items()})]
    curves = {name: [line.get(name, math.nan) for line in log] for name in last}
    curves = {name: values for name, values in curves.items() if sum(map(math.isfinite, values)) > 1}
    if curves:
        picture = figure_address(draw_training(curves))
        blocks += [
            Text("Each line of the log is one point."),
            Gallery([Picture(picture, "Every figure over the training")]),
        ]
    cards = [
        Section(path.name, [Facts(card_facts(path))]) for path in (folder / name for name in _TRAINED) if path.is_file()
    ]
    return Page(f"Training {folder.name}", [Section("Training", blocks), *cards])


def card_facts(path: Path) -> dict[str, str]:
    """What the file of a prior, an agent or a controller says of itself."""
    header = read_tensors(path, "agent file", weights=False)[0]
    about = header.get("about") if isinstance(header, Mapping) else None
    if not isinstance(about, Mapping):
        raise InputError(f"{path} does not say what it was trained on: expected a file of `rlab train`")
    return {"kind": _words(header.get("kind", "agent")), **{str(name): _words(value) for name, value in about.items()}}


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_words(inner)}" for name, inner in value.items())
    return ", ".join(map(_words, value)) if isinstance(value, list) else str(value)


def draw_training(curves: Mapping[str, Sequence[float]]) -> Figure:
    """One panel a figure, in the order in which they were logged."""
    with matplotlib.rc_context(STYLE):
        rows = math.ceil(len(curves) / _COLUMNS)
        figure = new_figure(WIDE, 2.2 * rows)
        for at, (name, values) in enumerate(curves.items()):
            ax = figure.add_subplot(rows, _COLUMNS, at + 1, title=plain(name.replace("_", " "), 40))
            points = [(step, value) for step, value in enumerate(values) if math.isfinite(value)]
            ax.plot(*zip(*points, strict=True), color=INK, linewidth=1.4)
        return figure
