"""Video: a temporal agent that keeps frames and a spatial agent that picks patches on them, coarse to fine.

After Robustness Evaluation for Video Models with Reinforcement Learning, https://arxiv.org/abs/2506.05431.
"""

from rlab.papers.video.pair import Pair
from rlab.papers.video.policy import PairPolicy
from rlab.papers.video.view import PairConfig

__all__ = ["Pair", "PairConfig", "PairPolicy"]
