"""The report of `rlab learn`: how well the students agree with the model, and what they learned from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rlab.learning.simulator import SimulatorCard, read_simulator
from rlab.present.page import Bar, Bars, Facts, Number, Page, Section
from rlab.present.report import Metric, PathLike, Report
from rlab.present.table import Cells, Share, Table


@dataclass(frozen=True)
class Learned(Report):
    """The card of a simulator."""

    verb: ClassVar[str] = "learn"
    card: SimulatorCard

    @classmethod
    def load(cls, folder: PathLike) -> Learned:
        """Read the card in the folder of `rlab learn`."""
        return cls(read_simulator(Path(folder)).card)

    def records(self) -> list[dict[str, Any]]:
        """One row per student."""
        pairs = zip(self.card.students, self.card.agreements, strict=True)
        return [{"student": each.architecture, "width": each.width, "agreement": share} for each, share in pairs]

    def metrics(self) -> Mapping[str, Metric]:
        return {"agreement of the mean": Share(self.card.agreement, 1), "queries": self.card.queries}

    def settings(self) -> Mapping[str, Any]:
        return {"students": len(self.card.students), "seed": self.card.seed, "answers": self.card.answers}

    def view(self, samples: int = 24, folder: Path | None = None) -> Page:
        card = self.card
        rows: list[Cells] = [[row["student"], row["width"], Share(row["agreement"], 1)] for row in self.records()]
        facts = {
            "inputs": " × ".join(map(str, card.shape)),
            "classes": f"{card.classes}{', several per sample' if card.multilabel else ''}",
            "answers": f"{card.clean:,} about clean inputs, {card.distorted:,} about distorted ones",
            "from": ", ".join(card.origins),
            "kept aside": f"{card.aside:,} answers",
            "seed": str(card.seed),
            "made by": f"rlab {card.version}",
        }
        numbers = [Number("agreement of the mean", Share(card.agreement, 1)), Number("queries", card.queries)]
        lead = f"{len(rows)} students of a model agree with it on {card.agreement:.1%} of inputs kept aside."
        names = [f"{each.architecture}, width {each.width}" for each in card.students]
        bars = [Bar(name, share, f"{share:.1%}") for name, share in zip(names, card.agreements, strict=True)]
        table = Table(["student", "width", "agreement"], rows)
        section = Section("Students", [Bars("agreement with the model", bars), table, Facts(facts)])
        return Page(f"Simulator{'' if folder is None else f' {folder.name}'}", [section], lead=lead, numbers=numbers)
