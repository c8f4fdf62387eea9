"""The page of `rlab demo`: its three runs, one below the other."""

from __future__ import annotations

from pathlib import Path

from rlab.data.kinds import kind_of
from rlab.present.page import Block, Page, Section, Text
from rlab.results.page import easiest, summary_blocks
from rlab.results.plots.sample import Sample
from rlab.results.result import AttackResult
from rlab.results.tables import MEDIANS, summary_table
from rlab.results.viewers import make_viewer, shelf

SCENES = {
    "ecg": ("signal: ECG beats, two leads", "simulated"),
    "digits": ("image: handwritten digits", "real, from scikit-learn"),
    "clips": ("video: moving digits", "real digits, simulated motion"),
}  # title and origin of the data, by the name of the run's folder
SHOWN = 3  # samples of each run


def demo_page(folder: Path) -> Page:
    results = {name: AttackResult.load(folder / name) for name in SCENES}
    titles = {SCENES[name][0]: result for name, result in results.items()}
    first = Section("All three", [summary_table(titles), Text(MEDIANS, quiet=True)])
    sections = [Section(SCENES[name][0], _blocks(name, result)) for name, result in results.items()]
    flipped = sum(int(result.succeeded.sum()) for result in results.values())
    attacked = sum(int(result.attacked.sum()) for result in results.values())
    lead = f"{flipped} of {attacked} samples were flipped, and every flip was verified from its stored file."
    return Page("The smallest changes that make three models wrong", [first, *sections], lead=lead)


def _blocks(name: str, result: AttackResult) -> list[Block]:
    rows = easiest(result, SHOWN)
    viewers = [make_viewer(Sample.of(result, i), f"{name}-{i}", len(rows)) for i in rows]
    told = f"{result.sentence}. The data are {SCENES[name][1]}."
    return [Text(told), *shelf(viewers, kind_of(result.setting.size)), *summary_blocks(result)]
