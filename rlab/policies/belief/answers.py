"""What the belief assumes before the first query, and the queries with their answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from rlab.core.batched import Rows
from rlab.policies.belief.geometry import Geometry


@dataclass(frozen=True)
class Assumptions:
    """What is assumed before the first query."""

    hypotheses: tuple[tuple[float, float, float, float, float], ...]  # (beta, s, sigma, mu, tau)
    regions: tuple[Tensor, ...] = ()  # levels, each (p,): the region of a patch
    rho: float = 0.3  # standard deviation of region effects
    curvature: float = 1.0  # how much further than tau a large drop may lie from the line
    log_prior: tuple[float, ...] = ()  # of the hypotheses, up to a constant; () if all are alike

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """The number of regions in each level."""
        return tuple(int(level.max()) + 1 for level in self.regions)

    @cached_property
    def table(self) -> Tensor:
        """(h, 5): the hypotheses."""
        return torch.tensor(self.hypotheses, device=self.regions[0].device if self.regions else None)

    @cached_property
    def odds(self) -> Tensor:
        """(h,): the log prior of the hypotheses."""
        return torch.tensor(self.log_prior or (0.0,) * len(self.hypotheses), device=self.table.device)

    @cached_property
    def membership(self) -> Tensor:
        """(regions of all levels, p): 1 where a patch lies in a region."""
        parts = [one_hot(level, count).T for level, count in zip(self.regions, self.counts, strict=True)]
        return torch.cat(parts).float() if parts else torch.zeros(0, 1)

    def sizes(self, entries: int, device: torch.device) -> Tensor:
        """(m,): for each effect the root of its level's number of regions; finer regions vary more."""
        parts = [torch.full((count * entries,), count**0.5, device=device) for count in self.counts]
        return torch.cat(parts) if parts else torch.zeros(0, device=device)


@dataclass(frozen=True)
class History(Rows):
    """The last T queries and their answers, with the products that the T x T system needs."""

    tried: Tensor  # (n, T, p) assignments
    code: Tensor  # (n, Q) codes of all queries, forgotten ones included
    drop: Tensor  # (n, T, a)
    inner: Tensor  # (n, T, T) products of the changes
    weighted: Tensor  # (n, T, T) the same with the geometry's weights
    shared: Tensor  # (n, T, T) products of the regions' masses
    along: Tensor  # (n, T, k) along the directions
    whole: Tensor  # (n, T) expected before any query, for mu = 1
    regional: Tensor  # (n, T, m) masses by region
    site: Tensor  # (n, T) variance that a label leaves open
    noise: Tensor  # (n,) standard deviation of the model's own answers

    @property
    def queries(self) -> int:
        """The number of queries, forgotten ones included."""
        return self.code.shape[1]

    @property
    def codes(self) -> Tensor:
        """(n, T): codes of the remembered queries."""
        return self.code[:, self.queries - self.drop.shape[1] :]


def no_answers(geometry: Geometry, model: Assumptions, rivals: int, noise: Tensor | None = None) -> History:
    """Before the first query."""
    mass, directions = geometry.mass, geometry.projection.shape[2]
    n, entries, p = mass.shape
    return History(
        tried=torch.zeros(n, 0, p, dtype=torch.long, device=mass.device),
        code=torch.zeros(n, 0, dtype=torch.long, device=mass.device),
        drop=mass.new_zeros(n, 0, rivals),
        inner=mass.new_zeros(n, 0, 0),
        weighted=mass.new_zeros(n, 0, 0),
        shared=mass.new_zeros(n, 0, 0),
        along=mass.new_zeros(n, 0, directions),
        whole=mass.new_zeros(n, 0),
        regional=mass.new_zeros(n, 0, sum(model.counts) * (entries - 1)),
        site=mass.new_zeros(n, 0),
        noise=mass.new_zeros(n) if noise is None else noise,
    )


def observe(
    answers: History, geometry: Geometry, model: Assumptions, assignment: Tensor, drop: Tensor, most: int
) -> History:
    """With one more query, assignment (n, p) and drop (n, a); beyond `most` queries the oldest is forgotten."""
    gram, mass = geometry.gram, geometry.mass
    n, p = assignment.shape
    tried = torch.cat([answers.tried, assignment[:, None]], 1)
    own = gram.gather(1, assignment[:, None, None].expand(n, 1, gram.shape[2], p))[:, 0]
    products = own.gather(1, tried)  # (n, T + 1, p)
    changed = mass.gather(1, assignment[:, None])[:, 0]
    lifted = geometry.lift.gather(1, assignment[:, None])[:, 0].sum(1, keepdim=True)
    parts = [
        _by_region(*level, assignment, changed, mass.shape[1] - 1)
        for level in zip(model.regions, model.counts, strict=True)
    ]
    regional = torch.cat([answers.regional, torch.cat([changed[:, :0], *parts], 1)[:, None]], 1)
    weighted = regional[:, -1:] * model.sizes(mass.shape[1] - 1, mass.device) ** 2
    after = History(
        tried=tried,
        code=torch.cat([answers.code, code_of(assignment)[:, None]], 1),
        drop=torch.cat([answers.drop, drop[:, None]], 1),
        inner=_bordered(answers.inner, products.sum(2)),
        weighted=_bordered(answers.weighted, (products @ geometry.weight[:, :, None])[..., 0]),
        shared=_bordered(answers.shared, (regional @ weighted.transpose(1, 2))[..., 0]),
        along=torch.cat([answers.along, along(geometry.projection, assignment[:, None])], 1),
        whole=torch.cat([answers.whole, lifted], 1),
        regional=regional,
        site=torch.cat([answers.site, torch.zeros_like(lifted)], 1),
        noise=answers.noise,
    )
    return after if tried.shape[1] <= most else _forget_oldest(after)


def _forget_oldest(answers: History) -> History:
    rows = {name: getattr(answers, name)[:, 1:] for name in ("tried", "drop", "along", "whole", "regional", "site")}
    products = {name: getattr(answers, name)[:, 1:, 1:] for name in ("inner", "weighted", "shared")}
    return replace(answers, **rows, **products)


def code_of(assignment: Tensor) -> Tensor:
    """Assignments (..., p) -> (...): a hash that tells them apart."""
    return (assignment * _key(assignment.shape[-1], assignment.device)).sum(-1)


def repeats(assignment: Tensor, codes: Tensor) -> Tensor:
    """assignment (n, ..., p), codes (n, T) -> (n, ...) bool: whether it is one of these queries."""
    own = code_of(assignment)
    return (own[..., None] == codes.view(len(codes), *(1,) * (own.dim() - 1), codes.shape[1])).any(-1)


@cache
def _key(patches: int, device: torch.device) -> Tensor:
    return torch.randint(2**62, (patches,), generator=torch.Generator().manual_seed(0)).to(device)


def along(projection: Tensor, tried: Tensor) -> Tensor:
    """projection (n, f + 1, k, p), tried (n, T, p) -> (n, T, k): how far each query went along each direction."""
    (n, queries, p), k = tried.shape, projection.shape[2]
    index = tried[:, :, None].expand(n, queries, k, p)
    return projection.gather(1, index).sum(3)


def _bordered(products: Tensor, row: Tensor) -> Tensor:
    """Symmetric (n, T, T) with one more row and column (n, T + 1)."""
    return torch.cat([torch.cat([products, row[:, None, :-1]], 1), row[:, :, None]], 2)


def _by_region(level: Tensor, count: int, assignment: Tensor, changed: Tensor, entries: int) -> Tensor:
    """(n, count * f): the mass that each entry changes in each region of a level."""
    index = level[None] * entries + (assignment - 1).clamp(min=0)
    return changed.new_zeros(len(changed), count * entries).scatter_add_(1, index, changed)
