"""A result as the output of a notebook cell."""

from __future__ import annotations

from uuid import uuid4

from rlab.present.notebook import SAMPLES, blocks_html
from rlab.present.page import Charts, Text
from rlab.results.charts import attack_charts
from rlab.results.data import ResultData
from rlab.results.page import key_numbers
from rlab.results.plots.sample import Sample
from rlab.results.plots.save import choose
from rlab.results.sentences import run_sentence
from rlab.results.viewers import make_viewer, shelf


def result_html(result: ResultData) -> str:
    """The sentence, the five figures, the anytime curve and three samples."""
    own, rows = uuid4().hex[:8], choose(result, SAMPLES)  # ids of several cells must differ
    viewers = [make_viewer(Sample.of(result, i), f"cell-{own}-{i}", SAMPLES, moving=False) for i in rows]
    shown = shelf(viewers, result.setting.grid.rank, moving=False) if viewers else []
    charts = attack_charts({"": result})
    return blocks_html(
        [Text(f"{run_sentence(result)}."), *([Charts(charts)] if charts else []), *shown], key_numbers(result)
    )
