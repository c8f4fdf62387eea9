"""Checks of models that return boxes, maps or numbers: do the answers fit what is true, or would they in another reading?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from rlab.core.goals.boxes import OVERLAP, SCORE
from rlab.diagnosis.probe import PHASE, Probe
from rlab.diagnosis.report import FEWEST, RISE, Finding, error, note, options, passed, warning
from rlab.errors import InputError, VictimError
from rlab.predictions.boxes import DECODE, UNDECODED, Boxes, TargetBoxes, all_missed, overlaps
from rlab.predictions.kinds import WORDS, Prediction
from rlab.predictions.maps import IGNORED

_FEW = 0.3  # share of objects found, or of points right, below which results would say little
_EQUAL = 1e-4  # difference allowed between two answers to the same inputs, relative to their range
Judged = tuple[list[Finding], float | None]  # the findings, and the share that is right


def row_findings(probe: Probe) -> Judged:
    """Findings, and the share that is right (None for numbers)."""
    kind, x, y = probe.victim.prediction, probe.batch.x, probe.batch.y
    if probe.batch.target != kind:
        what = f"the model returns {WORDS[kind]}, but the data hold {WORDS[probe.batch.target]}"
        return [error("targets", what, "load data with such targets", f"-D target={kind}")], None
    try:
        rows, again = (probe.victim(x.to(probe.victim.device), PHASE).cpu() for _ in range(2))
    except (VictimError, InputError) as problem:
        return [error("model", str(problem), "fix the model, or how its outputs are read")], None
    if rows.isnan().any():
        what = f"{int(rows.isnan().any(1).sum())} of {len(rows)} answers hold NaN"
        return [error("nan", what, "fix the model or its input range")], None
    findings, share = _KINDS[kind](rows, y, probe)
    scale = float(rows.max() - rows.min()) or 1.0
    if float((rows - again).abs().max()) > _EQUAL * scale:
        random = warning("random", "two answers to the same inputs differ", "pass --noisy", "--noisy")
    else:
        random = passed("random", f"two answers to {len(rows)} inputs are equal")
    return [*findings, random], share


def _boxes(rows: Tensor, y: Tensor, probe: Probe) -> Judged:
    boxes, objects = Boxes.decode(rows), TargetBoxes.decode(y)
    share = found_share(boxes, objects)
    height, width = probe.batch.size[-2:]
    place, size = boxes.xyxy[..., :2], boxes.xyxy[..., 2:]
    scaled = boxes.xyxy * torch.tensor([width, height] * 2)
    centred, cornered = torch.cat([place - size / 2, place + size / 2], -1), torch.cat([place, place + size], -1)
    convert, reorder = "; convert them to corners with score=", "; reorder them with score="
    readings = (
        ("box-scale", scaled, "the boxes are shares of the input", options(box_scale="unit")),
        ("box-format", centred, "the boxes are centre and size", options(box_format="xywh")),
        ("box-corner", cornered, f"the boxes are a corner and the size{convert}", ""),
        ("box-order", boxes.xyxy[..., [1, 0, 3, 2]], f"the boxes are top, left, bottom, right{reorder}", ""),
    )
    for name, xyxy, cause, flag in readings:
        if (other := found_share(replace(boxes, xyxy=xyxy), objects)) > share + RISE:
            what = f"the model finds {share:.0%} of the objects, and {other:.0%} if {cause.partition(';')[0]}"
            return [error(name, what, cause, flag)], share

    def moved(shift: int) -> float:
        return found_share(
            replace(boxes, label=torch.where(boxes.label < 0, boxes.label, boxes.label + shift)), objects
        )

    if off := _off_by_one(share, moved, "finds {:.0%} of the objects"):
        change = "correct the numbers of classes: some models count the background as class 0"
        return [error("label-offset", off, change)], share
    if all_missed(rows, y):
        return [error("found", UNDECODED, DECODE)], share
    return _judged(share, "objects", "found"), share


def found_share(boxes: Boxes, objects: TargetBoxes) -> float:
    """The share of objects that a box of their class finds."""
    same = (objects.label[:, :, None] == boxes.label[:, None]) & (boxes.score >= SCORE)[:, None]
    hit = ((overlaps(objects.xyxy, boxes.xyxy) >= OVERLAP) & same).any(2)
    return float(hit[objects.there].float().mean()) if objects.there.any() else 0.0


def _map(rows: Tensor, y: Tensor, probe: Probe) -> Judged:
    known = y != IGNORED

    def right(shift: int) -> float:
        return float((rows + shift == y)[known].float().mean()) if known.any() else 0.0

    if off := _off_by_one(share := right(0), right, "gets {:.0%} of the pixels right"):
        return [error("label-offset", off, "correct the numbers of classes in the masks or the model")], share
    return _judged(share, "pixels", "right"), share


def _off_by_one(share: float, shifted: Callable[[int], float], seen: str) -> str:
    """What is seen if the model's class numbers are off by one; '' if they are not."""
    for shift, how in ((-1, "high"), (1, "low")):
        if (other := shifted(shift)) > share + RISE:
            return f"the model {seen.format(share)}, and {other:.0%} if its class numbers are 1 too {how}"
    return ""


def _judged(share: float, what: str, how: str) -> list[Finding]:
    seen = f"{share:.0%} of the {what} are {how}"
    if share < _FEW:
        change = "check the inputs' range, and that data and model number the classes alike (-D classes=FILE)"
        return [warning("found", seen, change)]
    return [passed("found", seen), *([note("found", seen, "the others are not attacked")] if share < 1 else [])]


def _numbers(rows: Tensor, y: Tensor, probe: Probe) -> Judged:
    if rows.shape[1] != y.shape[1]:
        what = f"the model predicts {rows.shape[1]} numbers per sample, but the data have {y.shape[1]}"
        return [error("targets", what, "select an output of the model, or other targets")], None
    off, guess = (rows - y).abs().mean(), (y - y.mean(0)).abs().mean()
    seen = f"the mean error is {float(off):.3g}; always answering the mean gives {float(guess):.3g}"
    if len(rows) >= FEWEST and not (rows.amax(0) > rows.amin(0)).any():
        return [error("constant", "the model gives every sample the same answer", "check its weights and inputs")], None
    if len(rows) >= FEWEST and off > guess:
        return [warning("error", seen, "check the scale of the inputs and the unit of the targets")], None
    return [passed("error", seen)], None


_KINDS: dict[Prediction, Callable[[Tensor, Tensor, Probe], Judged]] = {
    "boxes": _boxes,
    "map": _map,
    "numbers": _numbers,
}
