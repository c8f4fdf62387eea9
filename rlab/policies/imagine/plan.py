"""Plans: attacks on the simulator before the first query. They cost no query."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from rlab.core.env import CONFIDENCE, AttackEnv, State, Task
from rlab.policies.belief import BeliefPolicy
from rlab.policies.belief.candidates import summed
from rlab.policies.belief.state import BeliefState
from rlab.priors.surrogates import SurrogatePrior

SAFETY = (0.0, 0.1, 0.25, 0.5, 1.0)  # by how much a plan flips the simulator, in units of its initial margin
AIMS = (0.1, 0.5)  # the same, for what the imagined attacks aim at
STEPS = 48  # of each imagined attack


@torch.no_grad()
def make_plans(
    belief: BeliefPolicy, memory: BeliefState, simulator: SurrogatePrior, state: State, task: Task, unit: Tensor
) -> Tensor:
    """(n, l, p): for each safety, the cheapest of all imagined assignments that flips the simulator by that much.

    Zeros, the untouched input, stand for no plan. `memory` is the belief's before the first query, `unit` (n,) the simulator's
    initial margin.
    """
    env = AttackEnv(lambda x, sample, phase: simulator.mean_scores(x), replace(task, labels=False))
    clean, assignments, margins = simulator.mean_scores(state.x0), list[Tensor](), list[Tensor]()
    for aim in AIMS:
        # A margin that a noisy model must keep is just what a safe plan has to reach.
        now = env.start(state.y, state.sample, state.seed, state.bank, state.scale, clean, aim * unit / CONFIDENCE)
        imagined = belief.restart(memory, now, env.task)
        imagined = replace(imagined, answers=replace(imagined.answers, noise=torch.zeros_like(unit)))
        for _ in range(STEPS):
            proposal = belief.propose(now, imagined, env.task)
            now, _ = env.step(now, proposal)
            imagined = proposal.memory
            assignments.append(proposal.assignment)
            margins.append(task.goal.margin(now.answer, state.y) / unit)
    tried, margin = torch.stack(assignments, 1), torch.stack(margins, 1)
    spent, plans = summed(memory.geometry.cost, tried), []
    for safety in SAFETY:
        least, at = torch.where(margin < -safety, spent, torch.inf).min(1)
        cheapest = tried.gather(1, at[:, None, None].expand(-1, 1, tried.shape[2]))[:, 0]
        plans.append(torch.where(least.isfinite()[:, None], cheapest, 0))
    return torch.stack(plans, 1)
