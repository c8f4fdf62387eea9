"""Where a decision rests: masks and heat maps from an attack, the methods people use beside them, and scores for both."""

from rlab.explanation.base import Explanation, Method
from rlab.explanation.judge import MethodComparison, MethodJudge, ScoredMethod
from rlab.explanation.methods import METHODS, parse_method, parse_methods
from rlab.explanation.options import ExplainOptions
from rlab.explanation.run import explain_batch, explain_result

__all__ = [
    "METHODS",
    "ExplainOptions",
    "Explanation",
    "Method",
    "MethodComparison",
    "MethodJudge",
    "ScoredMethod",
    "explain_batch",
    "explain_result",
    "parse_method",
    "parse_methods",
]
