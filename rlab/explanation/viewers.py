"""Interactive explanations on a page: the stored inputs, and every method's map over them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlab.data.batch import Batch
from rlab.errors import FolderError
from rlab.explanation.pictures import Overlay, is_clinical, picture, shown_of
from rlab.present.page import Block, Folded, Gallery, Picture, Text, Viewers
from rlab.present.viewer import Viewer
from rlab.results.plots.moving import can_encode
from rlab.results.viewers import NO_FILM
from rlab.results.viewers.heat import heat_stage
from rlab.results.viewers.pixels import small_address
from rlab.storage.files import finite, read_arrays, write_arrays

if TYPE_CHECKING:
    from rlab.explanation.explanation import Explanation

INPUTS = "inputs.safetensors"
LEGEND = (
    "Each map lies over its input: the stronger the colour, the more the decision depends on that place according to the method. "
    "It is paler where the method is less sure. A line, or a bar below a signal, marks the mask and the ground truth, if any."
)
COLUMNS = 6  # maximum per row
FILMS = 24  # maximum per page; with more maps of clips, none moves
_FACTS = ("ids", "bounds", "classes", "unit", "rate", "r_peaks", "leads", "target")


def save_inputs(batch: Batch, folder: Path, limit: int) -> None:
    """Store the first `limit` inputs for the page, bounded values in 256 steps."""
    if not limit:
        return (folder / INPUTS).unlink(missing_ok=True)
    shown = batch[: min(limit, len(batch))]
    x, (low, high) = shown.x, shown.bounds
    if torch.isfinite(torch.tensor(shown.bounds)).all():
        x = ((x - low) / (high - low) * 255).round().clamp(0, 255).to(torch.uint8)
    stored = {"x": x, "y": shown.y} | ({} if shown.masks is None else {"masks": shown.masks})
    facts = {name: getattr(shown, name) for name in _FACTS}
    write_arrays(folder / INPUTS, {name: each.contiguous() for name, each in stored.items()}, json.dumps(finite(facts)))


def has_inputs(folder: Path) -> bool:
    return (folder / INPUTS).is_file()


def read_inputs(folder: Path) -> Batch:
    arrays, facts = read_arrays(folder / INPUTS)
    try:
        return _batch(arrays, facts)
    except (KeyError, TypeError, ValueError) as error:
        raise FolderError(f"cannot read {folder / INPUTS} ({error}): remove it, or explain again") from error


def _batch(arrays: Mapping[str, Tensor], text: str | None) -> Batch:
    stored = {"target": "classes"} | json.loads(text or "{}")  # folders of 0.2.0 name no target
    facts: dict[str, Any] = {name: stored[name] for name in _FACTS}
    low, high = map(float, facts["bounds"])
    x = arrays["x"].float() / 255 * (high - low) + low if arrays["x"].dtype == torch.uint8 else arrays["x"]
    facts |= {name: tuple(facts[name]) for name in ("ids", "classes", "leads")} | {"bounds": (low, high)}
    facts["r_peaks"] = facts["r_peaks"] and tuple(map(tuple, facts["r_peaks"]))
    return Batch(x, arrays["y"], masks=arrays.get("masks"), **facts)


def sample_viewers(
    explanations: Mapping[str, Explanation],
    batch: Batch,
    row: int,
    among: int,
    notes: Mapping[str, str] | None = None,
    cell: str = "",
) -> list[Block]:
    """One sample: the input with its ground truth, then the map of each method.

    `among` is the number of maps on the page; `cell` is a prefix for ids in a notebook cell.
    """
    moving, input_ = among <= FILMS and not cell, shown_of(batch, row)
    overs = {name: Overlay.of(explanation, batch, row) for name, explanation in explanations.items()}
    stages = {"input": heat_stage(input_, None, 1, moving=False)}
    stages |= {name: heat_stage(input_, over, among, moving) for name, over in overs.items()}
    shown = [
        Viewer(f"{cell}map-{row}-{number}", name, "", "", (notes or {}).get(name, ""), (), stage)
        for number, (name, stage) in enumerate(stages.items())
    ]
    classes, label = next(iter(overs.values())).classes, int(next(iter(explanations.values())).labels[row])
    facts = ", ".join(part for part in (classes, f"explained: {batch.label_name(label)}") if part)
    columns = min(len(shown), 2 if batch.kind == "signal" else COLUMNS)
    viewers = Viewers(shown, columns, small=batch.kind != "signal")
    if not is_clinical(batch):
        return [Text(f"{batch.ids[row]}: {facts}."), viewers]
    sheets = [
        Picture(small_address(picture(explanation, batch, row), among), f"{name}: twelve leads with heat")
        for name, explanation in explanations.items()
    ]
    return [Text(f"{batch.ids[row]}: {facts}."), Gallery(sheets), Folded("Every lead in full length", [viewers])]


def legend(batch: Batch) -> list[Block]:
    """How to read the maps, and why clips do not move if they cannot be encoded."""
    still = batch.kind == "video" and not can_encode()
    return [Text(LEGEND), *([Text(NO_FILM, quiet=True)] if still else [])]
