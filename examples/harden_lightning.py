"""Harden a model in a Lightning module: each training step attacks half of its batch. Needs the extra `lightning`.

python examples/harden_lightning.py
"""

from __future__ import annotations

from typing import Any

import lightning
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import rlab
from rlab.core.goals import Untargeted
from rlab.hardening.adversaries import GradientAdversary, PerturbationSpace


class Hardening(lightning.LightningModule):
    """A victim that wraps a torch module, and the adversary that makes its training samples."""

    def __init__(self, victim: rlab.TorchVictim, adversary: GradientAdversary) -> None:
        super().__init__()
        self.model, self.victim, self.adversary = victim.model, victim, adversary

    def training_step(self, batch: tuple[Tensor, Tensor], number: int) -> Tensor:
        (x, y), half = batch, len(batch[0]) // 2
        self.model.eval()
        adversaries = self.adversary(self.victim, x[:half], y[:half], seed=int(self.global_step))
        self.model.train()
        return F.nll_loss(self.victim.scores_with_grad(torch.cat([adversaries.x, x[half:]]), "train"), y)

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.model.parameters(), lr=1e-3)


def main() -> None:
    train, test = rlab.load("demo:digits", split="train"), rlab.load("demo:digits")
    space = PerturbationSpace(
        train.bounds, [["gaussian_noise@0.1..0.4", "dead_pixel@1.0"]], [1, 2], entries=4, goal=Untargeted()
    )
    module = Hardening(rlab.demo_victim("digits"), GradientAdversary(space, radius_range=(0.02, 0.25)))
    loader = DataLoader(TensorDataset(train.x, train.y), batch_size=64, shuffle=True)
    lightning.Trainer(max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False).fit(module, loader)
    module.victim.model.eval()
    robust = 1 - float(module.adversary(module.victim, test.x, test.y, seed=7).flipped.float().mean())
    print(f"accuracy on attacked test digits: {robust:.1%}")


if __name__ == "__main__":
    main()
