"""What is true of a sample and what the model predicted, in words and as figures, for each kind of prediction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.core.goals import parse_goal
from rlab.core.goals.boxes import OVERLAP, SCORE, Appear, BoxGoal, Move, ObjectGoal, Vanish
from rlab.core.setting import Setting
from rlab.predictions.boxes import Boxes, TargetBoxes, overlaps
from rlab.predictions.kinds import Prediction
from rlab.predictions.maps import IGNORED
from rlab.predictions.metrics import average_precision
from rlab.present.viewer import Answer

# Several classes where a sample has several labels; words for boxes, maps and numbers.
Label = int | tuple[int, ...] | str
_MOST = 3  # classes or objects listed by name
_FIGURES = 5  # objects or classes with figures


def class_words(setting: Setting, classes: Label) -> str:
    """Join class names, or numbers without names; 'nothing' if there are no classes."""
    if isinstance(classes, str):
        return classes
    listed = classes if isinstance(classes, tuple) else (classes,)
    return _listed([name_of(setting, k) for k in listed], "nothing")


def name_of(setting: Setting, label: int) -> str:
    """The name of a class, or its number."""
    return setting.classes[label] if 0 <= label < len(setting.classes) else f"class {label}"


def _box_words(setting: Setting, boxes: Boxes, i: int) -> str:
    return f"{name_of(setting, int(boxes.label[0, i]))} {float(boxes.score[0, i]):.2f}"


def _listed(words: Sequence[str], none: str) -> str:
    return " + ".join([*words[:_MOST], *([f"{len(words) - _MOST} more"] if len(words) > _MOST else [])]) or none


def true_label(setting: Setting, label: Tensor) -> Label:
    """What is true of a sample, from its row of labels."""
    if setting.target != "classes":
        return _KINDS[setting.target].true(setting, label)
    return tuple(label.nonzero().flatten().tolist()) if label.dim() else int(label)


def predicted(setting: Setting, answer: Tensor, label: Tensor) -> Label:
    """What the model predicted, from its answer (k,) and the sample's row of labels."""
    if setting.target != "classes":
        return "NaN" if bool(answer.isnan().any()) else _KINDS[setting.target].predicted(setting, answer, label)
    return tuple((answer > 0.5).nonzero().flatten().tolist()) if label.dim() else int(answer.argmax())


def answer_words(setting: Setting, answer: Tensor, label: Tensor) -> str:
    """What the model predicted, with the probability of a single class."""
    if answer.isnan().any():
        return "NaN"
    read = predicted(setting, answer, label)
    return class_words(setting, read) + (f" {answer[read]:.2f}" if isinstance(read, int) else "")


def figures(setting: Setting, label: Tensor, before: Tensor, after: Tensor) -> list[Answer]:
    """The figures to show before and after, for boxes, maps or numbers."""
    return _KINDS[setting.target].figures(setting, label, before.nan_to_num(), after.nan_to_num())


@dataclass(frozen=True)
class BoxChange:
    """A box that the model predicts before the attack, after it, or both."""

    xyxy: tuple[float, float, float, float]
    words: str
    fate: str  # kept, lost or new


def box_changes(setting: Setting, before: Tensor, after: Tensor) -> list[BoxChange]:
    """The boxes of both answers (k,): those that are kept, lost, and new."""
    least = _least(setting)
    first, second = Boxes.decode(before[None].nan_to_num()), Boxes.decode(after[None].nan_to_num())
    same = (overlaps(first.xyxy, second.xyxy)[0] >= OVERLAP) & (first.label[0][:, None] == second.label[0])
    counts = [boxes.score[0] >= least for boxes in (first, second)]
    same &= counts[0][:, None] & counts[1]
    found = []
    for boxes, counted, met, other in (
        (first, counts[0], same.any(1), "lost"),
        (second, counts[1], same.any(0), "new"),
    ):
        for i in counted.nonzero().flatten().tolist():
            if not (met[i] and other == "new"):
                x1, y1, x2, y2 = boxes.xyxy[0, i].tolist()
                fate = "kept" if met[i] else other
                found.append(BoxChange((x1, y1, x2, y2), _box_words(setting, boxes, i), fate))
    return found


def _least(setting: Setting) -> float:
    """The score from which on the run's goal counts a box."""
    goal = parse_goal(setting.goal)
    return goal.score if isinstance(goal, BoxGoal) else SCORE


def _true_boxes(setting: Setting, label: Tensor) -> str:
    objects = TargetBoxes.decode(label[None])
    counts = Counter(objects.label[0][objects.there[0]].tolist())
    return _listed([(f"{count} × " * (count > 1)) + name_of(setting, k) for k, count in counts.items()], "no object")


def _predicted_boxes(setting: Setting, answer: Tensor, label: Tensor) -> str:
    boxes = Boxes.decode(answer[None])
    rows = (boxes.score[0] >= _least(setting)).nonzero().flatten().tolist()
    return _listed([_box_words(setting, boxes, i) for i in rows], "nothing")


def box_flip_words(setting: Setting, label: Tensor, before: Tensor, after: Tensor) -> str:
    """What happened to the objects of the goal: 'dog is no longer found (score 0.93 → 0.12)'."""
    goal, objects = parse_goal(setting.goal), TargetBoxes.decode(label[None])
    was, now = (Boxes.decode(rows[None].nan_to_num()) for rows in (before, after))
    if not isinstance(goal, ObjectGoal):
        new = [box.words for box in box_changes(setting, before, after) if box.fate == "new"]
        fell = " → ".join(f"{float(average_precision(boxes, objects, OVERLAP)):.2f}" for boxes in (was, now))
        return (
            f"{_listed(new, 'a box')} appeared" if isinstance(goal, Appear) else f"the average precision fell ({fell})"
        )
    scores, words = [_object_scores(objects, boxes) for boxes in (was, now)], []
    aimed = TargetBoxes.decode(goal.aim(before[None].nan_to_num(), label[None])).there[0]
    for i in (aimed & (goal.objects(now, objects)[0] <= 0)).nonzero().flatten().tolist():
        near = overlaps(objects.xyxy, now.xyxy)[0, i] >= OVERLAP
        best = int(torch.where(near, now.score[0], -1.0).argmax())
        fate = f"is no longer found (score {scores[0][i]:.2f} → {scores[1][i]:.2f})"
        if not isinstance(goal, Vanish):
            moved = isinstance(goal, Move)
            fate = "is no longer covered by its box" if moved else f"is found as {_box_words(setting, now, best)}"
        words.append(f"{name_of(setting, int(objects.label[0, i]))} {fate}")
    return _listed(words, "nothing changed")


def _object_scores(objects: TargetBoxes, boxes: Boxes) -> list[float]:
    """The best score of each object's class on the object."""
    near = (overlaps(objects.xyxy, boxes.xyxy) >= OVERLAP) & (objects.label[:, :, None] == boxes.label[:, None])
    scores: list[float] = torch.where(near, boxes.score[:, None], 0.0).amax(2)[0].tolist()
    return scores


def _object_figures(setting: Setting, label: Tensor, before: Tensor, after: Tensor) -> list[Answer]:
    objects = TargetBoxes.decode(label[None])
    was, now = (_object_scores(objects, Boxes.decode(rows[None])) for rows in (before, after))
    rows = objects.there[0].nonzero().flatten().tolist()[:_FIGURES]
    return [Answer(name_of(setting, int(objects.label[0, i])), True, was[i], now[i]) for i in rows]


def _ious(answer: Tensor, label: Tensor, classes: Sequence[int]) -> list[float]:
    """The intersection over union of each class, over the points (p,) whose class is known."""
    known, found = label != IGNORED, []
    for k in classes:
        true, here = (label == k) & known, (answer == k) & known
        found.append(float((true & here).sum()) / max(1.0, float((true | here).sum())))
    return found


def _present(label: Tensor) -> list[int]:
    """The classes of a map, the largest first."""
    values, counts = label[label != IGNORED].unique(return_counts=True)
    return [int(values[i]) for i in counts.argsort(descending=True, stable=True)]


def _predicted_map(setting: Setting, answer: Tensor, label: Tensor) -> str:
    each = _ious(answer, label, _present(label))
    return f"IoU {sum(each) / max(1, len(each)):.2f}"


def _map_figures(setting: Setting, label: Tensor, before: Tensor, after: Tensor) -> list[Answer]:
    shown = _present(label)[:_FIGURES]
    both = zip(shown, _ious(before, label, shown), _ious(after, label, shown), strict=True)
    return [Answer(f"IoU of {name_of(setting, k)}", True, first, second) for k, first, second in both]


def _number_words(setting: Setting, values: Tensor) -> str:
    return ", ".join(f"{value:.4g}" for value in values.tolist()[:_FIGURES])


def _number_figures(setting: Setting, label: Tensor, before: Tensor, after: Tensor) -> list[Answer]:
    names = [name_of(setting, k) if setting.classes else f"value {k + 1}" for k in range(min(len(label), _FIGURES))]
    rows = zip(names, label.tolist(), before.tolist(), after.tolist(), strict=False)
    return [Answer(f"{name} (true {true:.4g})", False, was, now, (true, was, now)) for name, true, was, now in rows]


@dataclass(frozen=True)
class _Kind:
    """How one kind of prediction is shown."""

    true: Callable[[Setting, Tensor], str]
    predicted: Callable[[Setting, Tensor, Tensor], str]
    figures: Callable[[Setting, Tensor, Tensor, Tensor], list[Answer]]


_KINDS: dict[Prediction, _Kind] = {
    "boxes": _Kind(_true_boxes, _predicted_boxes, _object_figures),
    "map": _Kind(lambda s, label: class_words(s, tuple(_present(label))), _predicted_map, _map_figures),
    "numbers": _Kind(_number_words, lambda setting, answer, label: _number_words(setting, answer), _number_figures),
}
