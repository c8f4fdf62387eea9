"""Write the pictures of a run: the overview and typical samples."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import matplotlib
import torch
from matplotlib.figure import Figure

from rlab.core.status import Status
from rlab.data.kinds import Kind, kind_of
from rlab.errors import OptionError
from rlab.present.style import STYLE
from rlab.results.data import ResultData
from rlab.results.plots.moving import can_encode, draw_video, write_gif, write_mp4
from rlab.results.plots.overview import draw_overview
from rlab.results.plots.pixels import draw_image
from rlab.results.plots.sample import Sample
from rlab.results.plots.signal import draw_signal
from rlab.storage.files import replacing, write_atomically
from rlab.storage.names import file_name

OVERVIEW = "overview.png"
DRAW: dict[Kind, Callable[[Sample], Figure]] = {"signal": draw_signal, "image": draw_image, "video": draw_video}


def draw_sample(result: ResultData, index: int) -> Figure:
    """The sample before and after, its distorted patches, and the model's output."""
    with matplotlib.rc_context(STYLE):
        return DRAW[kind_of(result.setting.size)](Sample.of(result, index))


def save_pictures(result: ResultData, folder: Path, limit: int = 6) -> list[Path]:
    """Write the overview and up to `limit` samples, clips also as films -> the files."""
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
        if kind_of(result.setting.size) == "video":
            written.append(_write_moving(Sample.of(result, index), path))
    return written


def choose(result: ResultData, limit: int) -> list[int]:
    """Indices of flips near the median distance of their class, class by class, and of one sample that held."""
    has = result.inputs.has
    spent = [i for i, status in enumerate(result.status) if status is Status.SPENT and has(i)]
    won = [i for i in _by_class(result) if has(i)]
    if not won:
        attacked, there = result.attacked.tolist(), filter(has, range(len(result)))
        return sorted(there, key=lambda i: (i not in spent, not attacked[i], i))[:limit]
    kept_free = 1 if spent and limit > 1 else 0
    return won[: limit - kept_free] + spent[:kept_free]


def _by_class(result: ResultData) -> list[int]:
    """Flips, the most typical of every class first, classes with the most flips first."""
    groups: dict[object, list[int]] = defaultdict(list)
    for i in result.succeeded.nonzero().flatten().tolist():
        groups[str(result.labels[i].tolist())].append(i)
    l2 = result.final["l2"].double()
    turns = []
    for members in sorted(groups.values(), key=lambda members: (-len(members), members[0])):
        off = (l2[members] - l2[members].median()).abs()
        turns.append([members[j] for j in torch.argsort(off, stable=True).tolist()])
    return [turn[i] for i in range(max(map(len, turns), default=0)) for turn in turns if i < len(turn)]


def file_stem(result: ResultData, index: int) -> str:
    """A file name that is unique by the index and safe on every system."""
    return f"sample-{index:05d}-{file_name(result.ids[index].replace('.', '-'))}"


def _write_moving(sample: Sample, path: Path) -> Path:
    """Write an mp4, or a GIF without an encoder, next to `path`."""
    suffix, write = (".mp4", write_mp4) if can_encode() else (".gif", write_gif)
    with tempfile.TemporaryDirectory() as elsewhere:
        write(sample, film := Path(elsewhere, f"film{suffix}"))
        write_atomically(path.with_suffix(suffix), film.read_bytes())
    return path.with_suffix(suffix)


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
