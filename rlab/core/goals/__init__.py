"""What counts as a model error. A goal's margin is positive while the model is right and negative once it errs."""

from rlab.core.goals.base import Goal, RowGoal, check_kinds, refuse_other_labels
from rlab.core.goals.boxes import Appear, Misclassify, Move, Precision, Vanish
from rlab.core.goals.classes import Below, MultiLabel, Targeted, Untargeted
from rlab.core.goals.maps import Grow, Lose, MapIoU, Pixels
from rlab.core.goals.numbers import Above, Deviate, Under
from rlab.core.goals.parse import FORMS, USUAL, parse_goal, with_positions

__all__ = [
    "FORMS", "USUAL", "Above", "Appear", "Below", "Deviate", "Goal", "Grow", "Lose", "MapIoU", "Misclassify", "Move",
    "MultiLabel", "Pixels", "Precision", "RowGoal", "Targeted", "Under", "Untargeted", "Vanish", "check_kinds",
    "parse_goal", "refuse_other_labels", "with_positions",
]  # fmt: skip
