"""Goals from text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import get_args

from rlab.core.goals.base import Goal
from rlab.core.goals.boxes import ANY, SCORE, Appear, Misclassify, Move, Precision, Vanish
from rlab.core.goals.classes import Below, MultiLabel, Relative, Targeted, Untargeted
from rlab.core.goals.maps import Grow, Lose, MapIoU, Pixels
from rlab.core.goals.numbers import Above, Deviate, Direction, Under
from rlab.errors import InputError, OptionError
from rlab.predictions.kinds import Prediction

# How each goal is written, for help and errors.
FORMS: dict[Prediction, tuple[str, ...]] = {
    "classes": (
        *("untargeted", "targeted:CLASS", *(f"targeted:{name}" for name in get_args(Relative))),
        *("below:PROBABILITY", "multilabel[:LABEL]"),
    ),
    "boxes": (
        *("vanish[:SCORE]", "vanish-all[:SCORE]", "misclassify[:SCORE]"),
        *("move:IOU[:SCORE]", "appear[:CLASS[:SCORE]]", "map50:VALUE[:SCORE]"),
    ),
    "map": ("iou:CLASS:VALUE", "pixels:SHARE", "lose:CLASS[:SHARE]", "grow:CLASS[:SHARE]"),
    "numbers": ("deviate:[+-]AMOUNT[%]", "above:VALUE", "under:VALUE"),
}
USUAL: dict[Prediction, str] = {
    "classes": "untargeted",
    "boxes": "vanish",
    "map": "pixels:0.2",
    "numbers": "deviate:10%",
}


def with_positions(text: str, classes: Sequence[str] | None) -> str:
    """The text of a goal with the position of a class in place of its name; `classes` None takes any name for position 0."""
    name, _, rest = text.partition(":")
    first = rest.split(":")[0]
    if name not in _OF_CLASSES or not first or first.lstrip("-").isdecimal() or first in (*_RELATIVE, ANY):
        return text
    if classes is None:
        return f"{name}:0{rest[len(first) :]}"
    longest = sorted(classes, key=len, reverse=True)  # a name may contain a colon
    found = next((one for one in longest if rest == one or rest.startswith(f"{one}:")), None)
    if found is None:
        known = ", ".join(classes[:12]) if classes else "no names, so write its number"
        raise OptionError(f"the goal {text!r} names the class {first!r}, but the classes of the data have {known}")
    return f"{name}:{classes.index(found)}{rest[len(found) :]}"


def parse_goal(text: str) -> Goal:
    """Parse 'untargeted', 'targeted:3', 'vanish:0.5' or 'deviate:10%'; the inverse of `str(goal)`."""
    name, *values = text.split(":")
    try:
        if name in _MAKERS and all(values):
            return _MAKERS[name](*values)
    except InputError:
        raise
    except (TypeError, ValueError, ArithmeticError):
        pass
    raise OptionError(
        "expected a goal like untargeted, targeted:3, below:0.2 or multilabel:2, of a detector vanish or move:0.5, of a map "
        f"pixels:0.2 or iou:12:0.5, of numbers deviate:10% or above:70, got {text!r}"
    )


def _deviate(text: str) -> Goal:
    directions: dict[str, Direction] = {"+": "up", "-": "down"}
    amount, relative = text.lstrip("+-").removesuffix("%"), text.endswith("%")
    value = Decimal(amount).scaleb(-2 if relative else 0)
    return Deviate(float(value), relative, directions.get(text[0], "both"))


_OF_CLASSES = ("targeted", "multilabel", "appear", "iou", "lose", "grow")
_RELATIVE: dict[str, Relative] = {name: name for name in get_args(Relative)}
_MAKERS: dict[str, Callable[..., Goal]] = {
    "untargeted": Untargeted,
    "targeted": lambda target: Targeted(_RELATIVE[target] if target in _RELATIVE else int(target)),
    "below": lambda probability: Below(float(probability)),
    "multilabel": lambda label=None: MultiLabel(None if label is None else int(label)),
    "vanish": lambda score=SCORE: Vanish(float(score)),
    "vanish-all": lambda score=SCORE: Vanish(float(score), every=True),
    "misclassify": lambda score=SCORE: Misclassify(float(score)),
    "move": lambda overlap, score=SCORE: Move(float(score), overlap=float(overlap)),
    "appear": lambda label=ANY, score=SCORE: Appear(float(score), label=None if label == ANY else int(label)),
    "map50": lambda value, score=SCORE: Precision(float(score), value=float(value)),
    "iou": lambda label, value: MapIoU(int(label), float(value)),
    "pixels": lambda share: Pixels(float(share)),
    "lose": lambda label, share=0.5: Lose(int(label), float(share)),
    "grow": lambda label, share=0.1: Grow(int(label), float(share)),
    "deviate": _deviate,
    "above": lambda value: Above(float(value)),
    "under": lambda value: Under(float(value)),
}
