"""RLAT, the baseline that moves a network's features against it."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.harden.rlat import Rlat, shifted


def test_each_layer_moves_by_its_length_and_the_loss_rises():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    x, y = torch.randn(16, 6), torch.randint(0, 3, (16,))
    rlat = Rlat(("0",), 0.02)
    shifts = rlat.steps(net, x, y)
    assert set(shifts) == {"", "0"}
    for layer, features in (("", x), ("0", net[0](x))):
        assert torch.allclose(shifts[layer].norm(dim=1), 0.02 * features.norm(dim=1), rtol=1e-4)
    before = F.cross_entropy(net(x), y)
    with shifted(net, lambda layer, output: shifts[layer], ("0",)):
        assert F.cross_entropy(net(x + shifts[""]), y) > before
    assert torch.equal(F.cross_entropy(net(x), y), before)  # the hooks are gone


def test_it_learns():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    x = torch.randn(128, 4)
    y = (x[:, 0] > 0).long()
    optimizer = torch.optim.SGD(net.parameters(), 0.2)
    losses = [float(Rlat(("0",), 0.02)(net, x, y, optimizer)) for _ in range(60)]
    assert losses[-1] < 0.5 * losses[0]
