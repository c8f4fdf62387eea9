"""The report of a training: the model cards, the last figures, and a curve of every logged figure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rlab.errors import InputError
from rlab.present.chart import Chart, Curve
from rlab.present.page import Block, Charts, Facts, Page, Section, Text
from rlab.present.report import PathLike, Report
from rlab.present.table import number
from rlab.priors.file import read_header
from rlab.storage.outside import read_text

LOG = "log.jsonl"
_TRAINED = ("prior.safetensors", "agent.safetensors")


@dataclass(frozen=True)
class Training(Report):
    """What a training logged, a line for each validation, and the cards of what it has written so far."""

    verb: ClassVar[str] = "train"
    log: tuple[Mapping[str, float], ...]
    cards: Mapping[str, Mapping[str, Any]]  # by file name

    @classmethod
    def load(cls, folder: PathLike) -> Training:
        """Read the folder that `rlab train` wrote or is writing."""
        path = Path(folder)
        log = tuple(json.loads(line) for line in read_text(path / LOG).splitlines())
        files = [file for name in _TRAINED if (file := path / name).is_file()]
        return cls(log, {file.name: {"kind": kind, **card} for file in files for kind, card in [read_card(file)]})

    @property
    def last(self) -> dict[str, float]:
        return {name: value for line in self.log for name, value in line.items()}

    def records(self) -> list[dict[str, Any]]:
        """One row per line of the log."""
        return [dict(line) for line in self.log]

    def metrics(self) -> Mapping[str, float]:
        return self.last

    def series(self) -> Sequence[tuple[int, Mapping[str, float]]]:
        finite = ({name: value for name, value in line.items() if math.isfinite(value)} for line in self.log)
        return list(enumerate(finite))

    def settings(self) -> Mapping[str, Any]:
        return {name: value for card in self.cards.values() for name, value in card.get("config", {}).items()}

    def view(self, samples: int = 24, folder: Path | None = None) -> Page:
        """The last figures, a curve of each, and the model cards."""
        blocks: list[Block] = [Facts({name.replace("_", " "): number(value) for name, value in self.last.items()})]
        curves = [_curve(name, self.log) for name in self.last]
        charts = [Chart(c.name.replace("_", " "), [c], "line of the log") for c in curves if len(c.x) > 1]
        if charts:
            blocks += [Text("Each line of the log is one point."), Charts(charts)]
        cards = [Section(name, [Facts(_shown(card))]) for name, card in self.cards.items()]
        return Page(f"Training{'' if folder is None else f' {folder.name}'}", [Section("Training", blocks), *cards])


def _curve(name: str, log: Sequence[Mapping[str, float]]) -> Curve:
    """The finite values of a figure, by the line of the log."""
    known = {at: line[name] for at, line in enumerate(log) if math.isfinite(line.get(name, math.nan))}
    return Curve(name, list(known), list(known.values()))


def read_card(path: Path) -> tuple[str, Mapping[str, Any]]:
    """The kind and the card in the file of a prior or agent."""
    header = read_header(path)
    if not header.about:
        raise InputError(f"{path} has no training card: expected a file of `rlab train`")
    return header.kind, header.about


def card_facts(path: Path) -> dict[str, str]:
    kind, about = read_card(path)
    return _shown({"kind": kind, **about})


def _shown(card: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): _words(value) for name, value in card.items()}


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_words(inner)}" for name, inner in value.items())
    return ", ".join(map(_words, value)) if isinstance(value, list) else str(value)
