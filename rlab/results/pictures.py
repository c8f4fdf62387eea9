"""Figures of samples, the samples that tell most, and flips at a glance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import ImageDraw

from rlab.core.status import Status
from rlab.predictions.kinds import Prediction
from rlab.present.figures import Answers, Panel, View, draw_panels
from rlab.present.inline import address, figure_png, image_address, to_image
from rlab.present.layers import SMOOTH_FROM, Array, Layers, Version, magnification
from rlab.present.page import Picture, Strip, Triple
from rlab.present.style import BEFORE, CHANGE, INK, WIDE
from rlab.results.data import ResultData
from rlab.results.predicted import class_words, predicted, true_label
from rlab.results.sample import TOP, Sample
from rlab.storage.names import file_name

COLUMNS = 6  # frames of a clip
SHOWN = 6  # flips at a glance
SIDE = 224  # pixels of a small picture; larger ones are reduced
VERSIONS: dict[Version, str] = {
    "original": "original",
    "perturbed": "perturbed",
    "difference": "difference × {}",
    "marked": "distorted patches",
}
_UNITS: dict[Prediction, str] = {
    "classes": "probability",
    "boxes": "score of the object",
    "map": "intersection over union",
    "numbers": "value",
}


def draw_sample(result: ResultData, index: int) -> Figure:
    """The sample before and after, its distorted patches, and the model's output."""
    sample = Sample.of(result, index)
    layers, answers = sample.layers, Answers(_UNITS[sample.setting.target], sample.answers()[:TOP])
    if layers.signal:
        return draw_panels(sample.title(WIDE), [[View("", layers), answers]])
    names = {version: name.format(layers.factor) for version, name in VERSIONS.items()}
    if not layers.clip:
        views: list[Panel] = [View(name + layers.note, layers, version) for version, name in names.items()]
        return draw_panels(sample.title(WIDE), [[*views, answers]])
    frames = {frame: f", {layers.name(frame)}" for frame in pick_frames(layers)}
    counts = {frame: f"{layers.weight[frame]:.0f} distorted patches" for frame in frames}
    rows: list[list[Panel]] = [
        [
            View((counts[frame] if version == "marked" else name) + when, layers, version, frame)
            for frame, when in frames.items()
        ]
        for version, name in names.items()
    ]
    return draw_panels(sample.title(WIDE), [*rows, [answers]])


def pick_frames(layers: Layers) -> list[int]:
    """Frames of a clip, one per part of it: the one with the most distorted patches, else the middle."""
    count = layers.weight
    stretches = np.array_split(np.arange(len(count)), min(COLUMNS, len(count)))
    return [int(s[len(s) // 2] if (count[s] == count[s].max()).all() else s[count[s].argmax()]) for s in stretches]


def render_episode(x0: Array, x: Array, bounds: tuple[float, float]) -> NDArray[np.uint8]:
    """An episode's input before and now: x0, x (c, *size) -> (height, width, 3); of a clip, the frame that changed most."""
    layers = Layers(x0, bounds, x)
    frame = int(np.abs(layers.change).sum((0, 2, 3)).argmax()) if layers.clip else 0
    now: list[Panel] = [] if layers.signal else [View("now", layers, "perturbed", frame)]
    figure: Any = draw_panels([], [[View("before", layers, "original", frame), *now]])
    figure.canvas.draw()
    return np.array(figure.canvas.buffer_rgba())[..., :3]


def easiest(result: ResultData, most: int | None = None) -> list[int]:
    """The flipped samples whose inputs are at hand, those with the smallest L2 first."""
    won = result.succeeded.nonzero().flatten()
    order = torch.argsort(result.final["l2"][won], stable=True)
    return [i for i in won[order].tolist() if result.inputs.has(i)][:most]


def telling(result: ResultData, most: int = SHOWN) -> list[int]:
    """Flipped samples: the easiest of each confusion first, then the easiest of all."""
    near = easiest(result)
    first: dict[tuple[str, str], int] = {}
    for i in near:
        first.setdefault(_confusion(result, i), i)
    chosen = list(first.values())[:most]
    return [*chosen, *(i for i in near if i not in chosen)][:most]


def choose(result: ResultData, limit: int) -> list[int]:
    """Indices of the most telling flips; without flips, of samples that held, then of others that were attacked."""
    if flips := telling(result, limit):
        return flips
    attacked, there = result.attacked.tolist(), filter(result.inputs.has, range(len(result)))
    return sorted(there, key=lambda i: (result.status[i] is not Status.SPENT, not attacked[i], i))[:limit]


def _confusion(result: ResultData, i: int) -> tuple[str, str]:
    setting, label = result.setting, result.labels[i]
    read = predicted(setting, result.after[i], label)
    return class_words(setting, true_label(setting, label)), class_words(setting, read)


def strip_of(result: ResultData, shown: Sequence[int]) -> list[Strip]:
    """Flips at a glance, with links to the samples that the page shows in full; none without flips."""
    triples = [_triple(result, i, f"sample-{i}" if i in shown else "") for i in telling(result)]
    return [Strip(triples)] if triples else []


def _triple(result: ResultData, i: int, link: str) -> Triple:
    sample, (label, read) = Sample.of(result, i), _confusion(result, i)
    setting, drawn = sample.setting, sample.layers.signal
    (before, change, after), note = small_pictures(sample.layers)
    about = f"{sample.id}, {label}"
    pictures = (
        Picture(before, f"original of {about}", "original", drawn=drawn),
        Picture(change, f"what was changed in {about}", note, drawn=drawn),
        Picture(after, f"perturbed {about}, read as {read}", "perturbed", drawn=drawn),
    )
    far = f"L2 {result.final['l2'][i]:.3g}{setting.l2_unit}, {len(sample.touched)} of {len(setting.grid)} patches"
    return Triple(label, read, far, pictures, link, smooth=drawn or min(setting.size[-2:]) >= SMOOTH_FROM)


def small_pictures(layers: Layers) -> tuple[tuple[str, str, str], str]:
    """Original, difference and perturbed as data: URLs, and what was done to the difference.

    Of a clip the frame, and of a signal the lead that changed most.
    """
    change = np.abs(layers.change)
    if layers.signal:
        lead = int(change.max(1).argmax())
        x0, moved = layers.x[lead], layers.change[lead]
        low, high = min(x0.min(), (x0 + moved).min()), max(x0.max(), (x0 + moved).max())
        half, middle = float(0.55 * (high - low) or 1.0), (low + high) / 2
        factor = magnification(float(change[lead].max()) / half)
        lines = (((x0 - middle) / half, BEFORE), (factor * moved / half, CHANGE), ((x0 + moved - middle) / half, INK))
        first, second, third = (_curve(values, colour) for values, colour in lines)
        return (first, second, third), f"difference × {factor}" + (f", {layers.lead(lead)}" if layers.leads else "")
    frame = int(change.sum((0, 2, 3)).argmax()) if layers.clip else 0
    first, second, third = (_small(layers, version, frame) for version in ("original", "difference", "perturbed"))
    return (first, second, third), f"difference × {layers.factor}" + (f", frame {frame + 1}" if layers.clip else "")


def _small(layers: Layers, version: Version, frame: int) -> str:
    """A small picture with the outlines that belong to it, such as boxes."""
    picture = to_image(layers.seen(version, frame), most=SIDE)
    pen, scale = ImageDraw.Draw(picture), picture.width / layers.x.shape[-1]
    for mark in (mark for mark in layers.marks if mark.frame and version in mark.versions):
        for x, y, wide, high in mark.places:
            corners = [round(scale * at) for at in (x, y, x + wide, y + high)]
            pen.rectangle(corners, outline=mark.colour, width=max(1, picture.width // 100))
    return image_address(picture)


def _curve(values: Array, colour: str) -> str:
    """(n,) in [-1, 1] -> a line on white."""
    figure = Figure((2.4, 1.6), dpi=100)
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set_axis_off()
    ax.set(xlim=(0, max(len(values) - 1, 1)), ylim=(-1.05, 1.05))
    ax.plot(values, color=colour, linewidth=1.4)
    return address(figure_png(figure))


def file_stem(result: ResultData, index: int) -> str:
    """A file name that is unique by the index and safe on every system."""
    return f"sample-{index:05d}-{file_name(result.ids[index].replace('.', '-'))}"
