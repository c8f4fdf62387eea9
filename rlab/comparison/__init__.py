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
from rlab.comparison.peers import NAMES, PEERS, PeerContender, SurrogateSet, parse_peer

__all__ = [
    "ATTACKS",
    "NAMES",
    "PEERS",
    "AttackOutcome",
    "CompareOptions",
    "Comparison",
    "Contender",
    "Figures",
    "LibraryContender",
    "PeerContender",
    "PolicyContender",
    "SurrogateSet",
    "compare",
    "l2_ratio",
    "outcome_of",
    "parse_library_attack",
    "parse_peer",
    "queries_at_l2",
    "query_ratio",
    "ratio_at_equal_l2",
]
