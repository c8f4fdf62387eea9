"""The page sections of an attack: figures and curves, the easiest flips, all samples, classes; and its notebook output."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import torch

from rlab.present.notebook import SAMPLES, blocks_html
from rlab.present.page import (
    Beside,
    Block,
    Charts,
    Code,
    Facts,
    Folded,
    Gallery,
    Page,
    Picture,
    Section,
    Text,
)  # fmt: skip
from rlab.present.table import Cells, Table
from rlab.results.breakdown import class_table
from rlab.results.charts import attack_charts, place_panels, time_charts
from rlab.results.data import ResultData
from rlab.results.metrics import figures_of, key_numbers
from rlab.results.pictures import choose, strip_of
from rlab.results.pictures import easiest as easiest
from rlab.results.sample import Sample
from rlab.results.sentences import run_sentence
from rlab.results.stages import WITHIN as STAGE_QUERIES
from rlab.results.stages import StageFacts, read_stages, stages_line
from rlab.results.tables import MEDIANS, detail_table, run_facts
from rlab.results.titles import title_of
from rlab.results.viewers import make_viewer, shelf, viewer_blocks
from rlab.storage.names import CONFIG
from rlab.storage.outside import read_text

ROWS = 5000  # maximum in the table of samples
WORDS = (
    "A palette entry is a distortion and, after the @, its severity; `rlab filters` explains each of them. A patch is the smallest "
    "region that is distorted as a whole. A query is one input that reaches the model."
)


def attack_sections(result: ResultData, samples: int = 6) -> list[Section]:
    """Summary, the easiest flips, all samples, and the tables by class."""
    classes = class_table(result)
    shown = easiest(result, samples)
    links = {i: f"sample-{i}" for i in shown}
    table = detail_table(result, ROWS, links)
    more = [Text(f"The first {ROWS:,} of {len(result):,} samples.", quiet=True)] if len(result) > ROWS else []
    return [
        Section("Attack", [*strip_of(result, shown), *summary_blocks(result)]),
        *([Section("Easiest flips", gallery_blocks(result, shown))] if samples else []),
        Section("Samples", [*more, table]),
        *([Section("By class", [classes])] if len(classes.rows) > 1 else []),
    ]


def attack_page(result: ResultData, samples: int = 24, folder: Path | None = None) -> Page:
    """The page of an attack, with the configuration and the stages in its folder, if it has one."""
    config = None if folder is None else folder / CONFIG
    stages = [] if folder is None else read_stages(folder)
    learning = [stages_section(result, stages)] if stages else []
    sections = [*attack_sections(result, samples), *learning, _settings(result, config)]
    title = title_of(config, len(result), result.setting.size)
    return Page(title, sections, lead=f"{run_sentence(result)}.", numbers=key_numbers(result))


def overview_page(result: ResultData) -> Page:
    """What one figure of the whole run shows."""
    title, lead = title_of(None, len(result), result.setting.size), f"{run_sentence(result)}."
    return Page(title, [Section("Attack", summary_blocks(result))], lead=lead, numbers=key_numbers(result))


def _settings(result: ResultData, config: Path | None) -> Section:
    s = result.setting
    facts = {
        "samples": f"{len(result)} of size {' × '.join(map(str, s.size))}",
        "palette": ", ".join(s.palette),
        "patches": f"{' × '.join(map(str, s.patch))}, {len(s.grid)} in total",
        **({"channels": "; ".join(s.groups)} if s.groups else {}),
        "goal": s.goal,
        "policy": s.policy,
        "budget": f"{s.budget} queries per sample",
        "seed": f"{s.seed}",
    }
    blocks: list[Block] = [Facts(facts), Text(WORDS, quiet=True)]
    if config is not None and config.is_file():
        blocks.append(Code(f"rlab attack --config {config} --out runs/again\n\n{read_text(config)}"))
    return Section("Settings", blocks)


def summary_blocks(result: ResultData) -> list[Block]:
    note = f"{MEDIANS} Every flip was verified from the stored file."
    folded = Folded("All figures of the run", [Facts(run_facts(result)), Text(note, quiet=True)])
    charts = [*attack_charts({"": result}), *time_charts(result)]
    places: list[Block] = [Gallery([each]) if isinstance(each, Picture) else each for each in place_panels(result)]
    return [*([Charts(charts)] if charts else []), *([Beside(places)] if len(places) > 1 else places), folded]


def stages_section(result: ResultData, stages: Sequence[StageFacts]) -> Section:
    """The distances in each stage, and what its students learned from."""
    keys, edges = [f"within_{q}" for q in STAGE_QUERIES], [*(facts.first for facts in stages), len(result)]
    heads, rows = ["samples", "clean answers", "answers to proposals", "agreement"], list[Cells]()
    for facts, (first, last) in zip(stages, pairwise(edges), strict=True):
        figures = figures_of(result.where(torch.arange(first, last)))
        learned = (facts.clean, facts.distorted, f"{facts.agreement:.1%}")
        rows.append([f"{first + 1:,} to {last:,}", *learned, *(figures[key].text for key in keys)])
    heads += [figures_of(result)[key].name for key in keys]
    words = (
        "The same students serve all samples of a stage. Agreement is measured on inputs that they did not learn from."
    )
    return Section("Learning", [Text(stages_line(stages)), Table(heads, rows), Text(words, quiet=True)])


def gallery_blocks(result: ResultData, rows: list[int]) -> list[Block]:
    if not rows and result.succeeded.any():
        return [Text("The inputs were not kept: `rlab report RUN --data PATH` rebuilds them.")]
    if not rows:
        return [Text("No sample was flipped within the budget.")]
    which = f"The {len(rows)} flipped samples" if len(rows) > 1 else "The flipped sample"
    words = f"{which} with the smallest L2. Move the slider between original and perturbed."
    return [Text(words), *viewer_blocks(result, rows)]


def result_html(result: ResultData) -> str:
    """A result as the output of a notebook cell: the sentence, the five figures, the anytime curve and three samples."""
    own, rows = uuid4().hex[:8], choose(result, SAMPLES)  # ids of several cells must differ
    viewers = [make_viewer(Sample.of(result, i), f"cell-{own}-{i}", SAMPLES, still=True) for i in rows]
    shown = shelf(viewers)
    charts = attack_charts({"": result})
    blocks: list[Block] = [Text(f"{run_sentence(result)}."), *([Charts(charts)] if charts else []), *shown]
    return blocks_html(blocks, key_numbers(result))
