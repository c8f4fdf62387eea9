"""Where a decision rests: masks and heat maps from an attack, the methods people use beside them, and scores for both."""

from rlab.explanation.run import parse_methods
from rlab.explanation.scores import MethodComparison, MethodJudge

__all__ = ["MethodComparison", "MethodJudge", "parse_methods"]
