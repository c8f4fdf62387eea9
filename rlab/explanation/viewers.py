"""Explanations to play with on a page: the inputs that are kept for it, and every method's map over them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.explanation.base import Explanation
from rlab.explanation.pictures import about, arrays
from rlab.present.page import Block, Text, Viewers
from rlab.present.viewer import Viewer
from rlab.results.plots.moving import can_encode
from rlab.results.viewers import NO_FILM
from rlab.results.viewers.heat import Heat, heat_stage
from rlab.storage.files import finite, read_arrays, write_arrays

INPUTS = "inputs.safetensors"
LEGEND = (
    "Heat is where the decision rests, by each method, fainter where it is less sure; the line, or the bar beneath a signal, is "
    "its mask."
)
COLUMNS = 6  # of pictures, at most
FILMS = 24  # on a page: where there are more maps of clips, they stand still
_TOLD = ("ids", "bounds", "classes", "unit", "rate", "r_peaks", "leads")


def save_inputs(batch: Batch, folder: Path, limit: int) -> None:
    """The first `limit` inputs, to be shown: where values have bounds, in 256 steps."""
    if not limit:
        return (folder / INPUTS).unlink(missing_ok=True)
    shown = batch[: min(limit, len(batch))]
    x, (low, high) = shown.x, shown.bounds
    if torch.isfinite(torch.tensor(shown.bounds)).all():
        x = ((x - low) / (high - low) * 255).round().clamp(0, 255).to(torch.uint8)
    known = {"x": x, "y": shown.y} | ({} if shown.masks is None else {"masks": shown.masks})
    told = {name: getattr(shown, name) for name in _TOLD}
    write_arrays(folder / INPUTS, {name: each.contiguous() for name, each in known.items()}, json.dumps(finite(told)))


def has_inputs(folder: Path) -> bool:
    return (folder / INPUTS).is_file()


def read_inputs(folder: Path) -> Batch:
    kept, told = read_arrays(folder / INPUTS)
    try:
        return _batch(kept, told)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{folder / INPUTS} cannot be read ({error}): take it away, or explain again") from error


def _batch(kept: Mapping[str, Tensor], told: str | None) -> Batch:
    stored: dict[str, Any] = {name: json.loads(told or "{}")[name] for name in _TOLD}
    low, high = map(float, stored["bounds"])
    x = kept["x"].float() / 255 * (high - low) + low if kept["x"].dtype == torch.uint8 else kept["x"]
    stored |= {name: tuple(stored[name]) for name in ("ids", "classes", "leads")} | {"bounds": (low, high)}
    stored["r_peaks"] = stored["r_peaks"] and tuple(map(tuple, stored["r_peaks"]))
    return Batch(x, kept["y"], masks=kept.get("masks"), **stored)


def sample_viewers(
    explanations: Mapping[str, Explanation],
    batch: Batch,
    row: int,
    among: int,
    notes: Mapping[str, str] | None = None,
    cell: str = "",
) -> list[Block]:
    """One sample: the input with its ground truth, then the map of each method; `among` is how many maps the page has, `cell`
    what the ids of a notebook's cell begin with."""
    moving, notes = among <= FILMS and not cell, notes or {}
    first = next(iter(explanations.values()))
    shown = [
        _viewer(
            "input", Heat(batch.x[row].numpy(), None, None, **_known(batch, row)), f"{cell}input-{row}", "", 1, False
        )
    ]
    for number, (name, explanation) in enumerate(explanations.items()):
        x, heat, mask = arrays(explanation, batch, row)
        told = about(explanation, batch, row)
        heat = heat if told.sure is None else heat * told.sure
        view = Heat(x, heat, mask, frames=told.frames, **_known(batch, row))
        shown.append(_viewer(name, view, f"{cell}map-{row}-{number}", notes.get(name, ""), among, moving))
    title = ", ".join(about(first, batch, row).title.splitlines()[:-1])
    explained = f"explained: {batch.label_name(int(first.labels[row]))}"
    line = f"{batch.ids[row]}: {', '.join(part for part in (title, explained) if part)}."
    columns = min(len(shown), 2 if batch.kind == "signal" else COLUMNS)
    return [Text(line), Viewers(shown, columns, small=batch.kind != "signal")]


def legend(batch: Batch) -> list[Block]:
    still = batch.kind == "video" and not can_encode()
    return [Text(LEGEND), *([Text(NO_FILM, quiet=True)] if still else [])]


def _known(batch: Batch, row: int) -> dict[str, Any]:
    return {
        "bounds": batch.bounds, "truth": None if batch.masks is None else batch.masks[row].numpy(), "rate": batch.rate,
        "unit": batch.unit, "leads": batch.leads, "r_peaks": batch.r_peaks[row] if batch.r_peaks is not None else (),
    }  # fmt: skip


def _viewer(name: str, shown: Heat, own: str, note: str, among: int, moving: bool) -> Viewer:
    return Viewer(own, name, "", "", note, (), heat_stage(shown, among, moving))
