"""The most telling flips as small pictures: original, difference and perturbed side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from rlab.data.kinds import kind_of
from rlab.present.colours import to_colours
from rlab.present.inline import SMOOTH_FROM, image_address, to_image
from rlab.present.page import Picture, Strip, Triple
from rlab.present.style import BEFORE, INK
from rlab.results.data import ResultData
from rlab.results.plots.pixels import FATES, boxes_of, magnification, magnify, to_unit
from rlab.results.plots.sample import Sample
from rlab.results.predicted import BoxChange, class_words, predicted, true_label

SHOWN = 6  # triples
SIDE = 224  # pixels; larger pictures are reduced
WIDE, HIGH, PEN = 240, 160, 2  # pixels of a drawn signal and of its line
CHANGE = "#B35900"


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


def strip_of(result: ResultData, shown: list[int]) -> list[Strip]:
    """The strip, with links to the samples that the page shows in full; none without flips."""
    triples = [_triple(result, i, f"sample-{i}" if i in shown else "") for i in telling(result)]
    return [Strip(triples)] if triples else []


def _confusion(result: ResultData, i: int) -> tuple[str, str]:
    setting, label = result.setting, result.labels[i]
    return class_words(setting, true_label(setting, label)), class_words(
        setting, predicted(setting, result.after[i], label)
    )


def _triple(result: ResultData, i: int, link: str) -> Triple:
    sample, (label, read) = Sample.of(result, i), _confusion(result, i)
    setting = sample.setting
    (before, change, after), note = small_pictures(sample)
    about, drawn = f"{sample.id}, {label}", kind_of(setting.size) == "signal"
    pictures = (
        Picture(before, f"original of {about}", "original", drawn=drawn),
        Picture(change, f"what was changed in {about}", note, drawn=drawn),
        Picture(after, f"perturbed {about}, read as {read}", "perturbed", drawn=drawn),
    )
    far = f"L2 {result.final['l2'][i]:.3g}{setting.l2_unit}, {len(sample.touched)} of {len(setting.grid)} patches"
    return Triple(label, read, far, pictures, link, smooth=drawn or min(setting.size[-2:]) >= SMOOTH_FROM)


def small_pictures(sample: Sample) -> tuple[tuple[str, str, str], str]:
    """Original, difference and perturbed as data: URLs, and what was done to the difference."""
    return (_drawn if kind_of(sample.setting.size) == "signal" else _seen)(sample)


def _seen(sample: Sample) -> tuple[tuple[str, str, str], str]:
    """An image, or the frame of a clip that changed most, and what was done to the difference."""
    x0, x = to_unit(sample)
    when = ""
    if len(sample.setting.size) > 2:
        frame = int(np.abs(x - x0).sum((0, 2, 3)).argmax())
        x0, x, when = x0[:, frame], x[:, frame], f", frame {frame + 1}"
    change, factor = magnify(x - x0)
    before, difference, after = (to_image(colours, most=SIDE) for colours in (to_colours(x0), change, to_colours(x)))
    for picture, missing in ((before, "new"), (after, "lost")):
        _draw_boxes(picture, [box for box in boxes_of(sample) if box.fate != missing], picture.width / x0.shape[-1])
    return (image_address(before), image_address(difference), image_address(after)), f"difference × {factor}{when}"


def _draw_boxes(picture: Image.Image, boxes: Sequence[BoxChange], scale: float) -> None:
    """The boxes of one side of the attack, in the colours of the page."""
    pen = ImageDraw.Draw(picture)
    for box in boxes:
        corners = [round(scale * value) for value in box.xyxy]
        pen.rectangle(
            (*corners[:2], *np.maximum(corners[2:], corners[:2])),
            outline=FATES[box.fate],
            width=max(1, picture.width // 100),
        )


def _drawn(sample: Sample) -> tuple[tuple[str, str, str], str]:
    """The lead of a signal that changed most, with its name."""
    change = sample.x1 - sample.x0
    lead = int(np.abs(change).max(1).argmax())
    x0, x, names = sample.x0[lead], sample.x1[lead], sample.setting.leads
    low, high = float(min(x0.min(), x.min())), float(max(x0.max(), x.max()))
    half = 0.55 * (high - low) or 1.0
    factor = magnification(float(np.abs(change[lead]).max()) / half)
    middle = (low + high) / 2
    pictures = (
        _curve((x0 - middle) / half, BEFORE),
        _curve(factor * change[lead] / half, CHANGE),
        _curve((x - middle) / half, INK),
    )
    name = f", {names[lead]}" if lead < len(names) else ""
    return pictures, f"difference × {factor}{name}"


def _curve(values: NDArray[np.float32], colour: str) -> str:
    """(n,) in [-1, 1] -> a line on white; many points become the lowest and highest of each column."""
    step = max(1, math.ceil(2 * len(values) / WIDE))
    parts = np.pad(values, (0, -len(values) % step), mode="edge").reshape(-1, step)
    points = np.stack([parts.min(1), parts.max(1)], 1).reshape(-1) if step > 1 else values
    across = np.linspace(PEN, WIDE - PEN, len(points))
    down = PEN + (1 - points.clip(-1, 1)) / 2 * (HIGH - 2 * PEN)
    picture = Image.new("RGB", (WIDE, HIGH), "white")
    ImageDraw.Draw(picture).line(list(zip(across.tolist(), down.tolist(), strict=True)), colour, PEN, "curve")
    return image_address(picture)
