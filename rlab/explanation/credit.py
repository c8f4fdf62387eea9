"""Our map: what the model's decision rests on, from answers alone.

1. A field of influence from random sets of patches over several grids (rlab.explanation.field).
2. Episodes of attack guided by the field, which may not reuse each other's patches (rlab.explanation.episode).
3. The field spread over what looks alike (rlab.explanation.spread) says how far the decision's object reaches: the mask is
   cut from it.
4. The heat map holds the same values, dealt out anew: the highest go to the patches that the episodes took, in the order
   they took them, the rest stay in the order of the spread field.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from rlab.errors import InputError
from rlab.explanation.base import Case, Method
from rlab.explanation.blank import blank_bank
from rlab.explanation.episode import Episode
from rlab.explanation.field import Prior, ask_sets, random_sets, solve_field
from rlab.explanation.maps import even_grid, raise_patches, to_unit
from rlab.explanation.spread import Spread


@dataclass(frozen=True)
class Usual:
    """What suits a kind of data where nothing else is asked for."""

    grids: tuple[int, ...]  # patches along an axis, of the sets
    fine: int  # of the episodes
    cells: int  # of the field
    reach: float
    lift: float
    spread: bool  # a signal's value says nothing of which wave it belongs to


USUAL = (
    Usual((8, 16, 32), 32, 128, 0.08, 1.0, False),
    Usual((7, 10, 14), 14, 28, 0.1, 0.5, True),
    Usual((3, 4, 6), 6, 9, 0.15, 1.0, True),
)  # by rank from 1


@dataclass(frozen=True)
class Credit(Method):
    """`blank` is the filter that hides a patch; None is a Gaussian blur of a sixteenth of the longest axis."""

    name = "credit"
    sets: int = 900  # questions for the field
    episodes: int = 2
    episode: Episode = field(default_factory=Episode)
    blank: str | None = None
    spread: Spread | None = field(default_factory=Spread)
    reach: float | None = None  # see Prior
    lift: float | None = None  # power that values are raised to, before and after spreading; below 1 widens the mask

    def __post_init__(self) -> None:
        if self.sets < 6:
            raise InputError(f"expected at least 6 sets to ask about, got {self.sets}")

    def draw(self, case: Case) -> Tensor:
        return self.pair(case)[0]

    def pair(self, case: Case) -> tuple[Tensor, Tensor]:
        usual = USUAL[len(case.size) - 1]
        bank = blank_bank(case.x0, case.bounds, case.seeds.tolist(), self.blank)
        cells = even_grid(case.size, usual.cells)
        influence = self._field(case, bank, Prior(cells, self.reach or usual.reach))
        credit = self._credit(case, bank, raise_patches(influence, cells))
        lift = self.lift or usual.lift
        cover = to_unit(raise_patches(influence.clamp(min=0), cells)) ** lift
        if self.spread is not None and usual.spread:
            cover = to_unit(self.spread(cover, case.x0, case.bounds)) ** lift
        return deal(cover, credit), cover

    def _field(self, case: Case, bank: Tensor, prior: Prior) -> Tensor:
        hidden, scores, first = [], [], 0
        grids = [even_grid(case.size, along) for along in USUAL[len(case.size) - 1].grids]
        for index, grid in enumerate(grids):
            count = self.sets // len(grids) + (index < self.sets % len(grids))
            sets = random_sets(case.seeds, first, count, len(grid))
            first += count
            scores.append(ask_sets(case, bank, grid, sets))
            hidden.append(prior.cells.reduce(grid.expand(sets.float())))
        return solve_field(torch.cat(hidden, 1), torch.cat(scores, 1), prior)

    def _credit(self, case: Case, bank: Tensor, influence: Tensor) -> Tensor:
        """(n, *size): what the episodes took, a later one at half the credit; 0 elsewhere."""
        grid = even_grid(case.size, USUAL[len(case.size) - 1].fine)
        promise = grid.reduce(influence)
        used = torch.zeros_like(promise, dtype=torch.bool)
        total = torch.zeros_like(promise)
        for one in range(self.episodes):
            earned = self.episode(case, bank, grid, promise, used)
            total += earned * 0.5**one
            used |= earned > 0
        return grid.expand(total)


def deal(cover: Tensor, credit: Tensor) -> Tensor:
    """(n, *size) both: the values of `cover` given out anew, highest first to the points by credit, then by cover."""
    values, earned = cover.flatten(1), credit.flatten(1)
    by_cover = values.argsort(dim=1, descending=True, stable=True)
    by_credit = earned.gather(1, by_cover).argsort(dim=1, descending=True, stable=True)
    order = by_cover.gather(1, by_credit)
    return torch.empty_like(values).scatter_(1, order, values.gather(1, by_cover)).view_as(cover)
