"""The page of a folder of `rlab learn`."""

from __future__ import annotations

from pathlib import Path

from rlab.learning.simulator import read_simulator
from rlab.present.page import Facts, Number, Page, Section
from rlab.present.table import Share, Table


def simulator_page(folder: Path) -> Page:
    """How well the students agree with the model, and what they learned from."""
    card = read_simulator(folder).card
    students = Table(
        ["student", "width", "agreement"],
        [
            [about.architecture, about.width, Share(share, 1)]
            for about, share in zip(card.students, card.agreements, strict=True)
        ],
    )
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
    lead = f"{len(card.students)} students of a model agree with it on {card.agreement:.1%} of inputs kept aside."
    return Page(f"Simulator {folder.name}", [Section("Students", [students, Facts(facts)])], lead=lead, numbers=numbers)
