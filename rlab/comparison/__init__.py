"""Compares attacks, rlab's and others', on the same victim, samples and budget; every row is counted."""

from rlab.comparison.comparison import Comparison, run_comparison
from rlab.comparison.libraries import ATTACKS
from rlab.comparison.options import CompareOptions, PolicyContender, outcome_of
from rlab.comparison.outcome import AttackOutcome, Contender, Figures, at_equal_l2, l2_ratio, query_ratio
from rlab.comparison.peers import NAMES, PEERS, PeerContender, SurrogateSet, parse_peer

__all__ = [
    "ATTACKS", "NAMES", "PEERS", "AttackOutcome", "CompareOptions", "Comparison", "Contender", "Figures",
    "PeerContender", "PolicyContender", "SurrogateSet", "at_equal_l2", "l2_ratio", "outcome_of", "parse_peer",
    "query_ratio", "run_comparison",
]  # fmt: skip
