"""A run in one picture, which has the charts and bars of its page, and the files with pictures of a run and of its samples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from rlab.core.status import Status
from rlab.data.kinds import Kind, kind_of
from rlab.errors import OptionError
from rlab.present.figures import draw_panels
from rlab.present.style import STYLE, WIDE, flow, plain
from rlab.results.charts import attack_charts, class_bars, place_panels, time_charts
from rlab.results.data import ResultData
from rlab.results.plots.clip import draw_video
from rlab.results.plots.pixels import draw_image
from rlab.results.plots.sample import Sample
from rlab.results.plots.signal import draw_signal
from rlab.results.sentences import run_sentence
from rlab.results.strip import telling
from rlab.results.tables import figures_line
from rlab.storage.files import replacing
from rlab.storage.names import file_name

OVERVIEW = "overview.png"
DRAW: dict[Kind, Callable[[Sample], Figure]] = {"signal": draw_signal, "image": draw_image, "video": draw_video}


def draw_overview(result: ResultData) -> Figure:
    setting = result.setting
    named = f"{plain(setting.policy, 40)}  ·  {plain(setting.goal, 40)}  ·  budget {setting.budget}"
    facts = [plain(part, 200) for part in (*run_sentence(result).split("; "), figures_line(result))]
    lines = [named, *flow([*facts, f"{result.total_queries:,} queries in total"], WIDE - 0.25)]  # drawn text is wider
    charts = [*attack_charts({"": result}), *time_charts(result)]
    bars = [*place_panels(result), *class_bars(result)]
    return draw_panels(lines, [row for row in (charts, bars) if row])


def draw_sample(result: ResultData, index: int) -> Figure:
    """The sample before and after, its distorted patches, and the model's output."""
    with matplotlib.rc_context(STYLE):
        return DRAW[kind_of(result.setting.size)](Sample.of(result, index))


def save_pictures(result: ResultData, folder: Path, limit: int = 6) -> list[Path]:
    """Write the overview and up to `limit` samples -> the files."""
    if limit < 0:
        raise OptionError(f"expected a number of sample pictures of 0 or more, got {limit}")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / OVERVIEW]
    save_figure(draw_overview(result), written[0])
    for index in choose(result, limit):
        path = folder / f"{file_stem(result, index)}.png"
        save_figure(draw_sample(result, index), path)
        written.append(path)
    return written


def choose(result: ResultData, limit: int) -> list[int]:
    """Indices of the most telling flips; without flips, of samples that held, then of others that were attacked."""
    if flips := telling(result, limit):
        return flips
    attacked, there = result.attacked.tolist(), filter(result.inputs.has, range(len(result)))
    return sorted(there, key=lambda i: (result.status[i] is not Status.SPENT, not attacked[i], i))[:limit]


def file_stem(result: ResultData, index: int) -> str:
    """A file name that is unique by the index and safe on every system."""
    return f"sample-{index:05d}-{file_name(result.ids[index].replace('.', '-'))}"


def save_figure(figure: Figure, path: Path) -> None:
    """Write a PNG atomically, without following a link."""
    with replacing(path) as file:
        figure.savefig(file, format="png")


def save_vector(figure: Figure, stem: Path) -> list[Path]:
    """Write `stem`.svg and `stem`.pdf, with text as text."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("svg", "pdf")]
    with matplotlib.rc_context({**STYLE, "svg.fonttype": "none", "pdf.fonttype": 42}):
        for path in paths:
            with replacing(path) as file:
                figure.savefig(file, format=path.suffix[1:])
    return paths
