"""From what a detector, a segmentation network or a regressor returns to rows of fixed width (`rlab.predictions`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from rlab.errors import VictimError
from rlab.predictions.boxes import Boxes
from rlab.predictions.maps import encode_map
from rlab.victims.answers import to_numbers
from rlab.victims.reading import Reading

_SLACK = 1e-3  # by which scores may leave 0..1
_OVERLAP = 0.5  # above which the better one of two boxes of a class remains
Reader = Callable[[object, tuple[int, ...], Reading], Tensor]  # an answer to inputs (n, c, *size) -> rows (n, k)


def _read_boxes(answer: object, shape: tuple[int, ...], how: Reading) -> Tensor:
    listed = _listed(answer)
    if listed is not None:
        found = Boxes.of(listed)
    elif (pair := _pair(answer)) is not None:
        found = _of_arrays(*pair, shape, how)
    else:
        found = _of_array(to_numbers(answer), shape, how)
    if len(found.score) != shape[0]:
        raise VictimError(f"expected the boxes of {shape[0]} inputs, got those of {len(found.score)}")
    return found.encode()


def _listed(answer: object) -> list[tuple[Tensor, Tensor, Tensor]] | None:
    """Boxes, scores and classes of each input in a list as torchvision's or ultralytics' detectors return it."""
    if not isinstance(answer, Sequence) or not answer:
        return None
    if all(isinstance(one, Mapping) and {"boxes", "scores", "labels"} <= one.keys() for one in answer):
        return [_triple(one["boxes"], one["scores"], one["labels"]) for one in answer]
    parts = [getattr(one, "boxes", None) for one in answer]
    if all(hasattr(part, "xyxy") and hasattr(part, "conf") and hasattr(part, "cls") for part in parts):
        return [_triple(part.xyxy, part.conf, part.cls) for part in parts]  # type: ignore[union-attr]
    return None


def _triple(boxes: object, scores: object, labels: object) -> tuple[Tensor, Tensor, Tensor]:
    place, score, label = (to_numbers(part) for part in (boxes, scores, labels))
    if place.shape != (len(score), 4) or label.shape != score.shape:
        shapes = ", ".join(str(tuple(part.shape)) for part in (place, score, label))
        raise VictimError(f"expected boxes (k, 4), scores (k,) and classes (k,) for each input, got shapes {shapes}")
    _check_scores(score)
    return place, score, label


def _pair(answer: object) -> tuple[Tensor, Tensor] | None:
    """Boxes (n, k, 4) and scores (n, k, c) as two arrays, in either order, or as Hugging Face's detectors return them."""
    if hasattr(answer, "pred_boxes") and hasattr(answer, "logits"):
        return to_numbers(answer.pred_boxes), to_numbers(answer.logits).softmax(-1)[..., :-1]
    parts = list(answer.values()) if isinstance(answer, Mapping) else answer
    if not isinstance(parts, Sequence) or len(parts) != 2:
        return None
    first, second = map(to_numbers, parts)
    if not first.dim() == second.dim() == 3 or first.shape[:2] != second.shape[:2]:
        return None
    return (first, second) if first.shape[2] == 4 else (second, first)


def _of_array(answer: Tensor, shape: tuple[int, ...], how: Reading) -> Boxes:
    """(n, k, 4 + c), or the same with columns for boxes."""
    values = answer.transpose(1, 2) if how.box_layout == "columns" and answer.dim() == 3 else answer
    fewest = {"scores": 5, "objectness": 6, "class": 6}[how.box_columns or "scores"]
    if values.dim() != 3 or values.shape[2] < fewest:
        wanted = (
            f"an array (n, boxes, {fewest} or more)" if how.box_layout != "columns" else "an array (n, values, boxes)"
        )
        raise VictimError(f"expected the model to return {wanted}, got shape {tuple(answer.shape)}")
    place, rest = values[..., :4], values[..., 4:]
    if how.box_columns == "class":
        _check_scores(rest[..., 0])
        corners = _corners(place, shape, how)
        return Boxes.of([(corners[row], rest[row, :, 0], rest[row, :, 1]) for row in range(len(values))])
    scores = rest[..., :1] * rest[..., 1:] if how.box_columns == "objectness" else rest
    return _of_arrays(place, scores, shape, how)


def _of_arrays(place: Tensor, scores: Tensor, shape: tuple[int, ...], how: Reading) -> Boxes:
    """Boxes (n, k, 4) and scores (n, k, c)."""
    if place.shape[2] != 4:
        raise VictimError(f"expected boxes of 4 values, got shape {tuple(place.shape)}")
    _check_scores(scores)
    return Boxes.of_candidates(_corners(place, shape, how), scores, how.box_overlap or _OVERLAP)


def _corners(place: Tensor, shape: tuple[int, ...], how: Reading) -> Tensor:
    """Boxes (..., 4) as left, top, right and bottom in pixels."""
    if how.box_format == "xywh":
        middle, half = place[..., :2], place[..., 2:] / 2
        place = torch.cat([middle - half, middle + half], -1)
    return place * torch.tensor([*shape[:-3:-1]] * 2, device=place.device) if how.box_scale == "unit" else place


def _check_scores(scores: Tensor) -> None:
    seen = scores.detach()[~scores.isnan()]
    if len(seen) and (float(seen.min()) < -_SLACK or float(seen.max()) > 1 + _SLACK):
        span = f"{float(seen.min()):.4g} to {float(seen.max()):.4g}"
        raise VictimError(f"expected scores of boxes in 0..1, got {span}: check box_columns, or convert with score=")


def _read_map(answer: object, shape: tuple[int, ...], how: Reading) -> Tensor:
    """Classes (n, *size) or scores (n, c, *size), also as "out" of torchvision's networks."""
    values = to_numbers(answer["out"] if isinstance(answer, Mapping) and "out" in answer else answer)
    rank = len(shape) - 2
    if values.dim() not in (rank + 1, rank + 2) or len(values) != shape[0]:
        wanted = f"a map of classes ({shape[0]}, *size) or of scores ({shape[0]}, classes, *size)"
        raise VictimError(f"expected the model to return {wanted}, got shape {tuple(values.shape)}")
    lost = values.isnan().flatten(1).any(1)
    if values.dim() == rank + 2 and values.shape[1] > 1:
        values = values.argmax(1)
    elif values.dim() == rank + 2:  # a single probability or logit of each point
        probable = bool(((values >= 0) & (values <= 1)).all())
        values = (values[:, 0] > (0.5 if probable else 0.0)).long()
    elif not torch.equal(values.nan_to_num(), values.nan_to_num().round()):
        raise VictimError("expected class numbers in a map, got fractions: return scores (n, classes, *size)")
    rows = encode_map(values, shape[2:]).float()
    return torch.where(lost[:, None], torch.nan, rows)


def _read_numbers(answer: object, shape: tuple[int, ...], how: Reading) -> Tensor:
    values = to_numbers(answer)
    rows = values[:, None] if values.dim() == 1 else values
    if rows.dim() != 2 or len(rows) != shape[0]:
        raise VictimError(f"expected numbers for each of {shape[0]} inputs, got shape {tuple(values.shape)}")
    return rows


READERS: dict[str, Reader] = {"boxes": _read_boxes, "map": _read_map, "numbers": _read_numbers}
