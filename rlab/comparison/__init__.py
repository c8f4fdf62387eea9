"""Attacks side by side: ours and other libraries' on the same victim, samples and budget, every row counted."""

from rlab.comparison.comparison import CompareOptions, Comparison, PolicyContender, compare, outcome_of
from rlab.comparison.libraries import ATTACKS, LibraryContender, parse_library_attack
from rlab.comparison.outcome import (
    AttackOutcome,
    Contender,
    Figures,
    l2_ratio,
    queries_at_l2,
    query_ratio,
    ratio_at_equal_l2,
)

__all__ = [
    "ATTACKS",
    "AttackOutcome",
    "CompareOptions",
    "Comparison",
    "Contender",
    "Figures",
    "LibraryContender",
    "PolicyContender",
    "compare",
    "l2_ratio",
    "outcome_of",
    "parse_library_attack",
    "queries_at_l2",
    "query_ratio",
    "ratio_at_equal_l2",
]
