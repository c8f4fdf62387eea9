"""Where a decision rests: masks and heat maps from an attack, the methods people use beside them, and scores for both."""

from rlab.explain.base import Explanation, Method
from rlab.explain.judge import Contest, Judge, Judged
from rlab.explain.methods import METHODS, parse_method, parse_methods
from rlab.explain.run import explain_batch, explain_result

__all__ = [
    "METHODS",
    "Contest",
    "Explanation",
    "Judge",
    "Judged",
    "Method",
    "explain_batch",
    "explain_result",
    "parse_method",
    "parse_methods",
]
