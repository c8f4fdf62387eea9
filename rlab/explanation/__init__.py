"""Explains decisions: maps and masks from attacks, the usual methods beside them, and scores of all."""

from rlab.explanation.explanation import MethodComparison
from rlab.explanation.run import parse_methods
from rlab.explanation.scores import MethodJudge

__all__ = ["MethodComparison", "MethodJudge", "parse_methods"]
