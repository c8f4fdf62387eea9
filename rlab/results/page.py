"""The page sections of an attack: figures and curves, the easiest flips, all samples, classes; and its notebook output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import torch
from torch import Tensor

from rlab.core.trace import DISTANCE_NAMES
from rlab.present.chart import Chart, Curve
from rlab.present.notebook import SAMPLES, blocks_html
from rlab.present.page import (
    Beside,
    Block,
    Charts,
    Code,
    Facts,
    Folded,
    Gallery,
    Number,
    Page,
    Picture,
    Section,
    Text,
)  # fmt: skip
from rlab.present.table import Cells, Share, Table
from rlab.results.charts import attack_charts, place_panels, time_charts
from rlab.results.data import ResultData
from rlab.results.pictures import choose, strip_of
from rlab.results.pictures import easiest as easiest
from rlab.results.sample import Sample
from rlab.results.sentences import run_sentence
from rlab.results.stages import WITHIN as STAGE_QUERIES
from rlab.results.stages import StageFacts, stage_medians, stages_line
from rlab.results.tables import MEDIANS, breakdown_tables, detail_table, reach_line, run_facts
from rlab.results.titles import Names
from rlab.results.viewers import make_viewer, shelf, viewer_blocks
from rlab.stats import Estimate, median_estimate, share_estimate
from rlab.storage.outside import read_text

ROWS = 5000  # maximum in the table of samples
WORDS = (
    "A palette entry is a distortion and, after the @, its severity; `rlab filters` explains each of them. A patch is the smallest "
    "region that is distorted as a whole. A query is one input that reaches the model."
)


def attack_sections(result: ResultData, samples: int = 6) -> list[Section]:
    """Summary, the easiest flips, all samples, and the tables by class."""
    classes = breakdown_tables(result, limit=1000)
    shown = easiest(result, samples)
    links = {i: f"sample-{i}" for i in shown}
    table = detail_table(result, ROWS, links)
    more = [Text(f"The first {ROWS:,} of {len(result):,} samples.", quiet=True)] if len(result) > ROWS else []
    return [
        Section("Attack", [*strip_of(result, shown), *summary_blocks(result)]),
        *([Section("Easiest flips", gallery_blocks(result, shown))] if samples else []),
        Section("Samples", [*more, table]),
        *([Section("By class", classes)] if classes else []),
    ]


def attack_page(
    result: ResultData,
    samples: int = 24,
    config: Path | None = None,
    stages: Sequence[StageFacts] = (),
) -> Page:
    """The page of an attack; `config` is the configuration file of its folder, `stages` are those of a run that learned."""
    learning = [stages_section(result, stages)] if stages else []
    sections = [*attack_sections(result, samples), *learning, _settings(result, config)]
    names = Names.read(config) if config is not None and config.is_file() else Names()
    title = names.title(len(result), result.setting.size)
    return Page(title, sections, lead=f"{run_sentence(result)}.", numbers=key_numbers(result))


def overview_page(result: ResultData) -> Page:
    """What one figure of the whole run shows."""
    title, lead = Names().title(len(result), result.setting.size), f"{run_sentence(result)}."
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


def key_numbers(result: ResultData) -> list[Number]:
    """The five key figures, with 95% intervals."""
    setting, won, attacked = result.setting, result.succeeded, result.attacked
    first = torch.tensor([flips[0][0] if flips else math.nan for flips in result.improvements])
    name = DISTANCE_NAMES[setting.distance]
    unit = "" if setting.distance == "l0" else setting.l2_unit
    early = min(20, setting.budget)
    return [
        Number("flipped, verified", Share(share_estimate(int(won.sum()), int(attacked.sum())), 0)),
        Number(f"{name} within {early} queries", _median(result.best_within(early)[attacked]), unit),
        Number(f"{name} in the end", _median(result.distances()[1][won]), unit),
        Number("queries to flip", _median(first[won])),
        Number(f"patches of {len(setting.grid)}", _median(result.final["l0_patches"][won])),
    ]


def _median(values: Tensor) -> Estimate:
    """The median, with an interval if there are enough values."""
    if not len(values):
        return Estimate(math.nan)
    estimate = median_estimate(values)
    return Estimate(estimate.value) if math.isinf(estimate.low) else estimate


def summary_blocks(result: ResultData) -> list[Block]:
    note = f"{MEDIANS} Every flip was verified from the stored file."
    reach = [Text(line)] if (line := reach_line(result)) else []
    folded = Folded("All figures of the run", [Facts(run_facts(result)), *reach, Text(note, quiet=True)])
    charts = [*attack_charts({"": result}), *time_charts(result)]
    places: list[Block] = [Gallery([each]) if isinstance(each, Picture) else each for each in place_panels(result)]
    return [*([Charts(charts)] if charts else []), *([Beside(places)] if len(places) > 1 else places), folded]


def stages_section(result: ResultData, stages: Sequence[StageFacts]) -> Section:
    """The curve over stages, and what the students learned from."""
    name, setting = DISTANCE_NAMES[result.setting.distance], result.setting
    edges = [*(facts.first for facts in stages), len(result)]
    shown = [q for q in STAGE_QUERIES if q < setting.budget]
    medians = {q: stage_medians(result, stages, q) for q in shown}
    curves = [Curve(f"within {q} queries", edges, [*values, values[-1]]) for q, values in medians.items()]
    chart = Chart("Distance by stage", curves, "sample", f"median {name}", steps=True)
    learned: list[Cells] = [[facts.clean, facts.distorted, f"{facts.agreement:.1%}"] for facts in stages]
    rows: list[Cells] = [
        [f"{first + 1:,} to {last:,}", *cells, *(setting.format_distance(medians[q][number]) for q in shown)]
        for number, (cells, (first, last)) in enumerate(zip(learned, pairwise(edges), strict=True))
    ]
    heads = ["samples", "clean answers", "answers to proposals", "agreement", *(f"{name} within {q}" for q in shown)]
    words = (
        "The same students serve all samples of a stage. Agreement is measured on inputs that they did not learn from."
    )
    blocks: list[Block] = [Text(stages_line(stages)), *([Charts([chart])] if curves else []), Table(heads, rows)]
    return Section("Learning", [*blocks, Text(words, quiet=True)])


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
