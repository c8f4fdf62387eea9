"""The page of a training: the model card, the last figures, and a curve of every logged figure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlab.errors import InputError
from rlab.present.chart import Chart, Curve
from rlab.present.page import Block, Charts, Facts, Page, Section, Text
from rlab.present.table import number
from rlab.priors.file import read_tensors
from rlab.storage.outside import read_text

LOG = "log.jsonl"
_TRAINED = ("prior.safetensors", "agent.safetensors")


def training_page(folder: Path) -> Page:
    """The page of a folder that `rlab train` wrote or is writing."""
    log: list[dict[str, float]] = [json.loads(line) for line in read_text(folder / LOG).splitlines()]
    last = {name: value for line in log for name, value in line.items()}
    blocks: list[Block] = [Facts({name.replace("_", " "): number(value) for name, value in last.items()})]
    curves = [_curve(name, log) for name in last]
    charts = [Chart(c.name.replace("_", " "), [c], "line of the log") for c in curves if len(c.x) > 1]
    if charts:
        blocks += [Text("Each line of the log is one point."), Charts(charts)]
    cards = [Section(path.name, [Facts(card_facts(path))]) for path in trained_files(folder)]
    return Page(f"Training {folder.name}", [Section("Training", blocks), *cards])


def _curve(name: str, log: Sequence[Mapping[str, float]]) -> Curve:
    """The finite values of a figure, by the line of the log."""
    known = {at: line[name] for at, line in enumerate(log) if math.isfinite(line.get(name, math.nan))}
    return Curve(name, list(known), list(known.values()))


def trained_files(folder: Path) -> list[Path]:
    return [path for name in _TRAINED if (path := folder / name).is_file()]


def read_card(path: Path) -> tuple[str, Mapping[str, Any]]:
    """The kind and the card in the file of a prior or agent."""
    header = read_tensors(path, "agent file", weights=False)[0]
    about = header.get("about") if isinstance(header, Mapping) else None
    if not isinstance(about, Mapping):
        raise InputError(f"{path} has no training card: expected a file of `rlab train`")
    return _words(header.get("kind", "agent")), about


def card_facts(path: Path) -> dict[str, str]:
    kind, about = read_card(path)
    return {"kind": kind, **{str(name): _words(value) for name, value in about.items()}}


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_words(inner)}" for name, inner in value.items())
    return ", ".join(map(_words, value)) if isinstance(value, list) else str(value)
