"""The belief: how much every change would lower the margin, after the queries so far.

The margin of each way to reach the goal (each class that could win) is taken as linear in the perturbation,
drop(delta) = <g, delta>, and g as unknown but believed:

    g = sum_k b_k d_k + e,   b_k ~ N(beta, s^2),   e ~ N(0, sigma^2 I),   plus effects of (entry, region) ~ N(0, rho^2)

with prior directions d_k. A query is an assignment and its drops, in units of the margin at the start. After T queries the belief
is exact Gaussian conditioning with a T x T system; which (beta, s, sigma, mu, tau) holds for a sample is weighed by the evidence
(marginal likelihood) of what it has seen. A draw from the belief costs as much as its mean (Matheron's rule: condition a
draw from the prior). Shapes: n samples, f entries, p patches, k directions, m region effects, a ways, T queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property

import torch
from torch import Tensor
from torch.nn.functional import one_hot

Memory = Mapping[str, Tensor]
_ROUNDING = (
    100  # of the type's own precision: what is added to variances, so that a query asked again and again stays solvable
)


@dataclass(frozen=True)
class Model:
    """What is assumed before the first query."""

    hypotheses: tuple[tuple[float, float, float, float, float], ...]  # (beta, s, sigma, mu, tau)
    regions: tuple[Tensor, ...] = ()  # levels, each (p,): the region of a patch
    rho: float = 0.3  # deviation of region effects
    curvature: float = 1.0  # how much more than tau a large drop may lie beside the line

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """How many regions each level has."""
        return tuple(int(level.max()) + 1 for level in self.regions)

    @cached_property
    def table(self) -> Tensor:
        """(h, 5): the hypotheses."""
        return torch.tensor(self.hypotheses, device=self.regions[0].device if self.regions else None)

    @cached_property
    def membership(self) -> Tensor:
        """(regions of all levels, p): 1 where a patch lies in a region."""
        parts = [one_hot(level, count).T for level, count in zip(self.regions, self.counts, strict=True)]
        return torch.cat(parts).float() if parts else torch.zeros(0, 1)

    def sizes(self, entries: int, device: torch.device) -> Tensor:
        """(m,): the root of how many regions a level has, for each of its effects; finer regions vary more."""
        parts = [torch.full((count * entries,), count**0.5, device=device) for count in self.counts]
        return torch.cat(parts) if parts else torch.zeros(0, device=device)


def empty(geometry: Memory, model: Model, ways: int) -> dict[str, Tensor]:
    """The memory of no query."""
    mass, projection = geometry["mass"], geometry["projection"]
    n, entries, p = mass.shape
    m = sum(model.counts) * (entries - 1)
    return {
        "tried": torch.zeros(n, 0, p, dtype=torch.long, device=mass.device),
        "code": torch.zeros(n, 0, dtype=torch.long, device=mass.device),
        "drop": mass.new_zeros(n, 0, ways),
        "inner": mass.new_zeros(n, 0, 0),
        "shared": mass.new_zeros(n, 0, 0),
        "along": mass.new_zeros(n, 0, projection.shape[2]),
        "whole": mass.new_zeros(n, 0),
        "regional": mass.new_zeros(n, 0, m),
        "site": mass.new_zeros(n, 0),  # variance of what a query's label leaves open
        "noise": mass.new_zeros(n),  # deviation of the model's own answers
    }


def observe(memory: Memory, model: Model, assignment: Tensor, drop: Tensor, most: int) -> dict[str, Tensor]:
    """The memory with one more query, assignment (n, p) and drop (n, a); of more than `most` the oldest is forgotten."""
    gram, projection, mass = memory["gram"], memory["projection"], memory["mass"]
    n, p = assignment.shape
    tried = torch.cat([memory["tried"], assignment[:, None]], 1)
    own = gram.gather(1, assignment[:, None, None].expand(n, 1, gram.shape[2], p))[:, 0]
    row = own.gather(1, tried).sum(2)  # (n, T + 1)
    changed = mass.gather(1, assignment[:, None])[:, 0]
    lifted = memory["lift"].gather(1, assignment[:, None])[:, 0].sum(1, keepdim=True)
    parts = [
        _by_region(*level, assignment, changed, mass.shape[1] - 1)
        for level in zip(model.regions, model.counts, strict=True)
    ]
    regional = torch.cat([memory["regional"], torch.cat([changed[:, :0], *parts], 1)[:, None]], 1)
    weighed = regional[:, -1:] * model.sizes(mass.shape[1] - 1, mass.device) ** 2
    queries = {
        "tried": tried,
        "code": torch.cat([memory["code"], code_of(assignment)[:, None]], 1),
        "drop": torch.cat([memory["drop"], drop[:, None]], 1),
        "inner": _bordered(memory["inner"], row),
        "shared": _bordered(memory["shared"], (regional @ weighed.transpose(1, 2))[..., 0]),
        "along": torch.cat([memory["along"], along(projection, assignment[:, None])], 1),
        "whole": torch.cat([memory["whole"], lifted], 1),
        "regional": regional,
        "site": torch.cat([memory["site"], torch.zeros_like(lifted)], 1),
    }
    if tried.shape[1] > most:
        queries = {key: value if key == "code" else value[:, 1:] for key, value in queries.items()}
        queries |= {key: queries[key][:, :, 1:] for key in ("inner", "shared")}
    return {**memory, **queries}


def code_of(assignment: Tensor) -> Tensor:
    """Assignments (..., p) -> (...): a number that tells them apart."""
    return (assignment * _key(assignment.shape[-1], assignment.device)).sum(-1)


@cache
def _key(patches: int, device: torch.device) -> Tensor:
    return torch.randint(2**62, (patches,), generator=torch.Generator().manual_seed(0)).to(device)


def queries_of(memory: Memory) -> int:
    """How many there were, the forgotten ones among them; a shape, so that no GPU is waited for."""
    return memory["code"].shape[1]


def codes_of(memory: Memory) -> Tensor:
    """(n, T): of the queries that are remembered."""
    return memory["code"][:, queries_of(memory) - memory["drop"].shape[1] :]


def along(projection: Tensor, tried: Tensor) -> Tensor:
    """projection (n, f + 1, k, p), tried (n, T, p) -> (n, T, k): how far each query went along each direction."""
    (n, queries, p), k = tried.shape, projection.shape[2]
    index = tried[:, :, None].expand(n, queries, k, p)
    return projection.gather(1, index).sum(3)  # one query's k x p places for each of the entries


def _bordered(products: Tensor, row: Tensor) -> Tensor:
    """Symmetric (n, T, T) with one more row and column (n, T + 1)."""
    return torch.cat([torch.cat([products, row[:, None, :-1]], 1), row[:, :, None]], 2)


def _by_region(level: Tensor, count: int, assignment: Tensor, changed: Tensor, entries: int) -> Tensor:
    """(n, count * f): the mass each entry changes in each region of a level."""
    index = level[None] * entries + (assignment - 1).clamp(min=0)
    return changed.new_zeros(len(changed), count * entries).scatter_add_(1, index, changed)


def kernel(memory: Memory, model: Model, hypotheses: Tensor) -> Tensor:
    """hypotheses (n, h, 5) -> (n, h, T, T): covariance of the drops of the queries so far, noise included."""
    along = memory["along"]
    fixed = model.rho**2 * memory["shared"][:, None] + torch.diag_embed(noise(memory, model, hypotheses))
    scale, sigma = (hypotheses[..., i, None, None] ** 2 for i in (1, 2))
    out = scale * (along @ along.transpose(1, 2))[:, None] + sigma * memory["inner"][:, None] + fixed
    out.diagonal(dim1=2, dim2=3).mul_(1 + _ROUNDING * torch.finfo(out.dtype).eps)
    return out


def factor(covariance: Tensor) -> Tensor:
    """(..., T, T) -> its Cholesky factor; whether it has one is checked without waiting for a GPU."""
    root, trouble = torch.linalg.cholesky_ex(covariance)
    torch._assert_async((trouble == 0).all(), "a covariance of queries is not positive definite")
    return root


def solve(root: Tensor, b: Tensor) -> Tensor:
    """x of (root root^T) x = b; torch.cholesky_solve waits for a GPU."""
    half = torch.linalg.solve_triangular(root, b, upper=False)
    return torch.linalg.solve_triangular(root.mT, half, upper=True)


def noise(memory: Memory, model: Model, hypotheses: Tensor) -> Tensor:
    """hypotheses (n, h, 5) -> (n, h, T): variances of what the line does not tell; far from the start it bends."""
    drop = memory["drop"].amax(2).abs().clamp(max=1.5)
    beside = hypotheses[..., 4, None] ** 2 * (1 + (model.curvature * drop) ** 2)[:, None]
    return beside + (memory["noise"].square()[:, None] + memory["site"])[:, None]


def expected(memory: Memory, hypotheses: Tensor) -> Tensor:
    """hypotheses (n, h, 5) -> (n, h, T): the drops that were expected of the queries before any was made."""
    beta, mu = hypotheses[..., 0, None], hypotheses[..., 3, None]
    return beta * memory["along"].sum(2)[:, None] + mu * memory["whole"][:, None]


def evidence(memory: Memory, model: Model) -> Tensor:
    """(n, h): the log probability of the queries so far under each hypothesis, the mean over the ways."""
    drop = memory["drop"]
    known = model.table.to(drop).expand(len(drop), -1, -1)
    if not drop.shape[1]:
        return drop.new_zeros(known.shape[:2])
    root = factor(kernel(memory, model, known))
    residual = drop[:, None] - expected(memory, known)[..., None]  # (n, h, T, a)
    z = torch.linalg.solve_triangular(root, residual, upper=False)
    return -0.5 * z.square().sum(2).mean(2) - root.diagonal(dim1=2, dim2=3).log().sum(2)


def choose(weights: Tensor, uniform: Tensor) -> Tensor:
    """log weights (n, h), uniform (n,) -> (n,): a hypothesis drawn by its weight."""
    return (weights.softmax(1).cumsum(1) < uniform[:, None]).sum(1).clamp(max=weights.shape[1] - 1)


@dataclass(frozen=True)
class Belief:
    """What is believed of n samples, ready to be drawn from."""

    memory: Memory
    model: Model
    hypothesis: Tensor  # (n, 5), one for each sample
    near: Tensor | None = None  # (n, a) the ways that are asked about; None for all

    def draw(self, normals: Tensor, temperature: Tensor) -> Tensor:
        """(n, a, f, p): what each single change would take off each margin; temperature (n,) 0 is the mean of the belief,
        1 a fair draw from it. normals (n, f p + k + m + T)."""
        mean, deviation = self.mean_and_deviation(normals)
        return mean + temperature[:, None, None, None] * deviation[:, None]

    def mean_and_deviation(self, normals: Tensor) -> tuple[Tensor, Tensor]:
        """(n, a, f, p) and (n, f, p), whose sum is a fair draw: the deviation is the same for all ways, so that one
        factorisation serves both and a draw of any temperature costs a product."""
        m = self.memory
        beta, mu = self.hypothesis[:, 0, None, None], self.hypothesis[:, 3, None, None]
        effect = beta * m["projection"][:, 1:].sum(2) + mu * m["lift"][:, 1:]
        deviation, at_tried = self._deviation(normals)
        drop = (
            m["drop"]
            if self.near is None
            else m["drop"].gather(2, self.near[:, None].expand(-1, m["drop"].shape[1], -1))
        )
        residual = drop - expected(m, self.hypothesis[:, None])[:, 0, :, None]
        learned = self._condition(torch.cat([residual, -at_tried[..., None]], 2))
        return effect[:, None] + learned[:, :-1], deviation + learned[:, -1]

    def _deviation(self, normals: Tensor) -> tuple[Tensor, Tensor]:
        """A draw from the prior less its mean, (n, f, p), and the same at each query, (n, T), noise included."""
        m = self.memory
        n, f, p, k = len(normals), m["cost"].shape[1], m["cost"].shape[2], m["projection"].shape[2]
        white, along, region, beside = normals.split([f * p, k, m["regional"].shape[2], m["drop"].shape[1]], 1)
        scale, sigma = self.hypothesis[:, 1, None] * along, self.hypothesis[:, 2]
        rest = (m["root"] @ white.view(n, p, f, 1))[..., 0].transpose(1, 2) * sigma[:, None, None]
        effects = self.model.rho * self.model.sizes(f, normals.device) * region
        effect = (m["projection"][:, 1:] * scale[:, None, :, None]).sum(2) + rest + self._spread(effects[:, None])[:, 0]
        padded = torch.cat([torch.zeros_like(rest[:, :1]), rest], 1)
        at_tried = (m["along"] * scale[:, None]).sum(2) + padded.gather(1, m["tried"]).sum(2)
        at_tried = (
            at_tried
            + (m["regional"] * effects[:, None]).sum(2)
            + beside * noise(m, self.model, self.hypothesis[:, None])[:, 0].sqrt()
        )
        return effect, at_tried

    def _condition(self, residual: Tensor) -> Tensor:
        """(n, T, a) -> (n, a, f, p): what the residuals of the queries say of every change."""
        m = self.memory
        (n, queries, a), (f, p) = residual.shape, m["cost"].shape[1:]
        if not queries:
            return residual.new_zeros(n, a, f, p)
        root = factor(kernel(m, self.model, self.hypothesis[:, None])[:, 0])
        weight = solve(root, residual).transpose(1, 2)  # (n, a, T)
        scale, sigma = self.hypothesis[:, 1, None, None] ** 2, self.hypothesis[:, 2, None, None, None] ** 2
        along = scale * (weight @ m["along"])  # (n, a, k)
        effect = torch.einsum("nfkp,nak->nafp", m["projection"][:, 1:], along)
        counts = residual.new_zeros(n, a, f + 1, p)  # the weight of the queries that put each entry at each patch
        index = m["tried"][:, None].expand(n, a, queries, p)
        counts.scatter_add_(2, index, (sigma * weight[..., None]).expand(n, a, queries, p))
        for i in range(1, f + 1):
            effect.addcmul_(counts[:, :, i, None], m["gram"][:, None, i, 1:])
        size = self.model.rho * self.model.sizes(f, residual.device)
        return effect + self._spread(size**2 * (weight @ m["regional"]))

    def _spread(self, effects: Tensor) -> Tensor:
        """Region effects (n, a, m) -> (n, a, f, p), in proportion to the mass an entry has at a patch."""
        mass = self.memory["mass"][:, None, 1:]
        by_entry = effects.unflatten(2, (-1, mass.shape[2])).transpose(2, 3)  # (n, a, f, regions)
        return (by_entry @ self.model.membership.to(effects)) * mass
