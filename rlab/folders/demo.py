"""The report of `rlab demo`: its three attacks, one below the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rlab.present.page import Block, Page, Section, Text
from rlab.present.report import Metric, PathLike, Report
from rlab.results.page import easiest, summary_blocks
from rlab.results.result import AttackResult
from rlab.results.sample import Sample
from rlab.results.tables import MEDIANS, summary_table
from rlab.results.viewers import make_viewer, shelf

SCENES = {
    "ecg": ("signal: ECG beats, two leads", "simulated"),
    "digits": ("image: handwritten digits", "real, from scikit-learn"),
    "clips": ("video: moving digits", "real digits, simulated motion"),
}  # title and origin of the data, by the name of the run's folder
_SHOWN = 3  # samples of each run


@dataclass(frozen=True)
class Demo(Report):
    """An attack for each scene, by the name of its folder."""

    verb: ClassVar[str] = "demo"
    attacks: Mapping[str, AttackResult]

    @classmethod
    def load(cls, folder: PathLike) -> Demo:
        return cls({name: AttackResult.load(Path(folder) / name) for name in SCENES})

    def records(self) -> list[dict[str, Any]]:
        """One row per sample of the three attacks."""
        return [{"scene": name, **row} for name, result in self.attacks.items() for row in result.records()]

    def metrics(self) -> Mapping[str, Metric]:
        return {
            f"{name}: {key}": value for name, attack in self.attacks.items() for key, value in attack.metrics().items()
        }

    def view(self, samples: int = 24, folder: Path | None = None) -> Page:
        titles = {SCENES[name][0]: result for name, result in self.attacks.items()}
        first = Section("All three", [summary_table(titles), Text(MEDIANS, quiet=True)])
        sections = [Section(SCENES[name][0], _scene(name, result)) for name, result in self.attacks.items()]
        flipped = sum(int(result.succeeded.sum()) for result in self.attacks.values())
        attacked = sum(int(result.attacked.sum()) for result in self.attacks.values())
        lead = f"{flipped} of {attacked} samples were flipped, and every flip was verified from its stored file."
        return Page("The smallest changes that make three models wrong", [first, *sections], lead=lead)


def _scene(name: str, result: AttackResult) -> list[Block]:
    rows = easiest(result, _SHOWN)
    viewers = [make_viewer(Sample.of(result, i), f"{name}-{i}", len(rows)) for i in rows]
    words = f"{result.sentence}. The data are {SCENES[name][1]}."
    return [Text(words), *shelf(viewers), *summary_blocks(result)]
