"""Compares attacks, rlab's and others', on the same victim, samples and budget; every row is counted."""

from rlab.comparison.comparison import Comparison, run_comparison
from rlab.comparison.libraries import ATTACKS, parse_library
from rlab.comparison.options import CompareOptions, PolicyContender, outcome_of
from rlab.comparison.outcome import AttackOutcome, Contender, Figures, l2_ratio, query_ratio

__all__ = [
    "ATTACKS", "AttackOutcome", "CompareOptions", "Comparison", "Contender", "Figures",
    "PolicyContender", "l2_ratio", "outcome_of", "parse_library", "query_ratio", "run_comparison",
]  # fmt: skip
