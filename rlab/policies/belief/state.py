"""What the belief search remembers of each sample."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rlab.core.batched import Rows
from rlab.core.pruning import Calm
from rlab.policies.belief.answers import History
from rlab.policies.belief.geometry import Geometry


@dataclass(frozen=True)
class BeliefState(Rows):
    """n samples, a rivals, h hypotheses."""

    geometry: Geometry
    answers: History
    at_input: Tensor  # (n, f + 1, k, p) projections at the untouched input; k = 0 unless the prior is local
    rivals: Tensor  # (n, a) the classes that could win, as indices into the goal's alternatives
    need: Tensor  # (n, a) the drop that flips, for each rival
    weights: Tensor  # (n, h) log weights of the hypotheses
    bold: Tensor  # (n,) the drop to aim at before the first flip, in units of what is needed
    shrink: Tensor  # (n,) the share of the best distance to aim at after it
    rate: Tensor  # (n,) effect over cost of the last proposal's last step
    level: Tensor  # (n,) the level of patch groups that proposals are made of
    idle: Tensor  # (n,) queries without a flip, halved by each flip
    misses: Tensor  # (n,) queries without a flip at this level
    calm: Calm  # since the last clear gain
    renewed: Tensor  # (n,) the distance at which the directions were last computed
