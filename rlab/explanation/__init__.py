"""Explains decisions: maps and masks from attacks, the usual methods beside them, and scores of all."""

from rlab.explanation.compared import MethodComparison
from rlab.explanation.judge import MethodJudge
from rlab.explanation.run import parse_methods

__all__ = ["MethodComparison", "MethodJudge", "parse_methods"]
