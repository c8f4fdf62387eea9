"""Harden a model in your own PyTorch loop: attack half of every batch with the current weights.

python examples/harden_pytorch.py
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

import rlab
from rlab.core.goals import Untargeted
from rlab.hardening.adversaries import GradientAdversary, PerturbationSpace


def main(epochs: int = 3) -> float:
    """Train the demo's digits model and return its accuracy on attacked test digits."""
    victim = rlab.demo_victim("digits")  # wraps the model: mean, std, bounds
    train, test = rlab.load("demo:digits", split="train"), rlab.load("demo:digits")
    space = PerturbationSpace(
        train.bounds, [["gaussian_noise@0.1..0.4", "dead_pixel@1.0"]], [1, 2], entries=4, goal=Untargeted()
    )
    adversary = GradientAdversary(
        space, radius_range=(0.02, 0.25)
    )  # or PolicyAdversary(space, policy, budget, overshoot)
    optimizer = torch.optim.AdamW(victim.model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        for step, rows in enumerate(torch.randperm(len(train)).split(64)):
            x, y, half = train.x[rows], train.y[rows], len(rows) // 2
            victim.model.eval()
            adversaries = adversary(victim, x[:half], y[:half], seed=1000 * epoch + step)
            victim.model.train()
            scores = victim.scores_with_grad(torch.cat([adversaries.x, x[half:]]), "train")
            loss = F.nll_loss(scores, y)  # the scores of a victim are log-probabilities
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        victim.model.eval()
        robust = 1 - float(adversary(victim, test.x, test.y, seed=7).flipped.float().mean())
        clean = float((victim(test.x).argmax(1) == test.y).float().mean())
        print(f"epoch {epoch + 1}: clean {clean:.1%}, attacked {robust:.1%}")
    return robust


if __name__ == "__main__":
    main()
