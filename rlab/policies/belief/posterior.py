"""The belief: how much every change would lower the margin, given the queries so far.

The margin of each rival (each class that could win) is taken as linear in the perturbation, drop(delta) = <g, delta>, with an
unknown g:

    g = sum_k b_k d_k + e,   b_k ~ N(beta, s^2),   e ~ N(0, sigma^2 I),   plus effects of (entry, region) ~ N(0, rho^2)

with prior directions d_k; where these are right, e varies more where they are large. A query is an assignment and its drops, in
units of the initial margin. After T queries the belief is exact Gaussian conditioning with a T x T system; which (beta, s, sigma,
mu, tau) holds for a sample is weighted by the evidence (marginal likelihood) of its answers; with s = 0 the directions count for
nothing. A draw from the belief costs as much as its mean (Matheron's rule: condition a draw from the prior).
Shapes: n samples, f entries, p patches, k directions, m region effects, a rivals, T queries.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.core.vectors import cholesky
from rlab.policies.belief.answers import Assumptions, History
from rlab.policies.belief.geometry import Geometry

_ROUNDING = 100  # times the type's precision is added to variances, so that repeated queries stay solvable


def kernel(answers: History, model: Assumptions, hypotheses: Tensor) -> Tensor:
    """hypotheses (n, h, 5) -> (n, h, T, T): covariance of the drops of the queries, including noise."""
    fixed = model.rho**2 * answers.shared[:, None] + torch.diag_embed(variances(answers, model, hypotheses))
    scale, sigma = (hypotheses[..., i, None, None] ** 2 for i in (1, 2))
    directed = (answers.along @ answers.along.transpose(1, 2))[:, None]
    inner = torch.where(scale > 0, answers.weighted[:, None], answers.inner[:, None])
    out = scale * directed + sigma * inner + fixed
    out.diagonal(dim1=2, dim2=3).mul_(1 + _ROUNDING * torch.finfo(out.dtype).eps)
    return out


def factor(covariance: Tensor) -> Tensor:
    """(..., T, T) -> its Cholesky factor; the check for success does not wait for a GPU."""
    root, solved = cholesky(covariance)
    torch._assert_async(solved.all(), "a covariance of queries is not positive definite")
    return root


def solve(root: Tensor, b: Tensor) -> Tensor:
    """x with (root root^T) x = b; torch.cholesky_solve would wait for a GPU."""
    half = torch.linalg.solve_triangular(root, b, upper=False)
    return torch.linalg.solve_triangular(root.mT, half, upper=True)


def variances(answers: History, model: Assumptions, hypotheses: Tensor) -> Tensor:
    """hypotheses (n, h, 5) -> (n, h, T): noise of each drop; far from the start the margin is not linear."""
    drop = answers.drop.amax(2).abs().clamp(max=1.5)
    bent = hypotheses[..., 4, None] ** 2 * (1 + (model.curvature * drop) ** 2)[:, None]
    return bent + (answers.noise.square()[:, None] + answers.site)[:, None]


def expected(answers: History, hypotheses: Tensor) -> Tensor:
    """hypotheses (n, h, 5) -> (n, h, T): the drops expected of the queries before any of them was made."""
    beta, mu = hypotheses[..., 0, None], hypotheses[..., 3, None]
    return beta * answers.along.sum(2)[:, None] + mu * answers.whole[:, None]


def evidence(answers: History, model: Assumptions) -> Tensor:
    """(n, h): the log probability of each hypothesis and of the drops under it, averaged over the rivals."""
    drop = answers.drop
    known = model.table.to(drop).expand(len(drop), -1, -1)
    if not drop.shape[1]:
        return model.odds.to(drop).expand(known.shape[:2])
    root = factor(kernel(answers, model, known))
    residual = drop[:, None] - expected(answers, known)[..., None]  # (n, h, T, a)
    z = torch.linalg.solve_triangular(root, residual, upper=False)
    fit = -0.5 * z.square().sum(2).mean(2) - root.diagonal(dim1=2, dim2=3).log().sum(2)
    return fit + model.odds.to(drop)


def choose(weights: Tensor, uniform: Tensor) -> Tensor:
    """log weights (n, h), uniform (n,) -> (n,): a hypothesis drawn by its weight."""
    return (weights.softmax(1).cumsum(1) < uniform[:, None]).sum(1).clamp(max=weights.shape[1] - 1)


@dataclass(frozen=True)
class Posterior:
    """The belief about n samples, to take means and draws from."""

    geometry: Geometry
    answers: History
    model: Assumptions
    hypothesis: Tensor  # (n, 5), one for each sample
    near: Tensor | None = None  # (n, a) the rivals to consider; None for all

    def mean_and_deviation(self, normals: Tensor) -> tuple[Tensor, Tensor]:
        """How much each single change lowers each margin: (n, a, f, p) and (n, f, p), whose sum is a fair draw, from
        normals (n, f p + k + m + T). All rivals share the deviation, so one factorisation serves both, and a draw at any
        temperature, which multiplies the deviation, costs one product."""
        geometry, answers = self.geometry, self.answers
        beta, mu = self.hypothesis[:, 0, None, None], self.hypothesis[:, 3, None, None]
        effect = beta * geometry.projection[:, 1:].sum(2) + mu * geometry.lift[:, 1:]
        deviation, at_tried = self._deviation(normals)
        drop = answers.drop
        if self.near is not None:
            drop = drop.gather(2, self.near[:, None].expand(-1, drop.shape[1], -1))
        residual = drop - expected(answers, self.hypothesis[:, None])[:, 0, :, None]
        learned = self._condition(torch.cat([residual, -at_tried[..., None]], 2))
        return effect[:, None] + learned[:, :-1], deviation + learned[:, -1]

    @property
    def _weight(self) -> Tensor:
        """(n, p): how much the rest may vary at each patch; evenly if the hypothesis gives nothing on the directions."""
        return torch.where(self.hypothesis[:, 1, None] > 0, self.geometry.weight, 1.0)

    def _deviation(self, normals: Tensor) -> tuple[Tensor, Tensor]:
        """A draw from the prior minus its mean, (n, f, p), and the same at each query, (n, T), including noise."""
        geometry, answers = self.geometry, self.answers
        (n, f, p), k = geometry.cost.shape, geometry.projection.shape[2]
        white, directed, region, noise = normals.split([f * p, k, answers.regional.shape[2], answers.drop.shape[1]], 1)
        scale, sigma = self.hypothesis[:, 1, None] * directed, self.hypothesis[:, 2]
        rest = (geometry.root @ white.view(n, p, f, 1))[..., 0].transpose(1, 2) * sigma[:, None, None]
        rest = rest * self._weight.sqrt()[:, None]
        effects = self.model.rho * self.model.sizes(f, normals.device) * region
        effect = (geometry.projection[:, 1:] * scale[:, None, :, None]).sum(2) + rest
        effect = effect + self._spread(effects[:, None])[:, 0]
        padded = torch.cat([torch.zeros_like(rest[:, :1]), rest], 1)
        at_tried = (answers.along * scale[:, None]).sum(2) + padded.gather(1, answers.tried).sum(2)
        at_tried = at_tried + (answers.regional * effects[:, None]).sum(2)
        return effect, at_tried + noise * variances(answers, self.model, self.hypothesis[:, None])[:, 0].sqrt()

    def _condition(self, residual: Tensor) -> Tensor:
        """(n, T, a) -> (n, a, f, p): what the residuals of the queries say about every change."""
        geometry, answers = self.geometry, self.answers
        (n, queries, a), (f, p) = residual.shape, geometry.cost.shape[1:]
        if not queries:
            return residual.new_zeros(n, a, f, p)
        root = factor(kernel(answers, self.model, self.hypothesis[:, None])[:, 0])
        weight = solve(root, residual).transpose(1, 2)  # (n, a, T)
        scale, sigma = self.hypothesis[:, 1, None, None] ** 2, self.hypothesis[:, 2, None, None, None] ** 2
        directed = scale * (weight @ answers.along)  # (n, a, k)
        effect = torch.einsum("nfkp,nak->nafp", geometry.projection[:, 1:], directed)
        counts = residual.new_zeros(n, a, f + 1, p)  # the weight of the queries that put each entry at each patch
        index = answers.tried[:, None].expand(n, a, queries, p)
        counts.scatter_add_(2, index, sigma * weight[..., None] * self._weight[:, None, None])
        for i in range(1, f + 1):
            effect.addcmul_(counts[:, :, i, None], geometry.gram[:, None, i, 1:])
        size = self.model.rho * self.model.sizes(f, residual.device)
        return effect + self._spread(size**2 * (weight @ answers.regional))

    def _spread(self, effects: Tensor) -> Tensor:
        """Region effects (n, a, m) -> (n, a, f, p), in proportion to the mass of an entry at a patch."""
        mass = self.geometry.mass[:, None, 1:]
        by_entry = effects.unflatten(2, (-1, mass.shape[2])).transpose(2, 3)  # (n, a, f, regions)
        return (by_entry @ self.model.membership.to(effects)) * mass
