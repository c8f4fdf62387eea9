"""Weights in eight bits, and that every claim's command can be parsed."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from benchmarks.__main__ import CLAIMS
from benchmarks.victims.cifar_nets import mixer
from benchmarks.victims.compact import SCALE, compact, expanded, save
from rlab.victims.weights import load_weights


def test_eight_bits_keep_each_channel_within_half_a_step() -> None:
    torch.manual_seed(0)
    weight = torch.randn(4, 3, 5, 5) * torch.tensor([1e-3, 1.0, 50.0, 0.0]).view(4, 1, 1, 1)
    weights = {"conv.weight": weight, "bn.weight": torch.rand(4), "bn.steps": torch.tensor(7)}
    stored = compact(weights)
    assert stored["conv.weight"].dtype == torch.int8
    again = expanded(stored)
    step = weight.flatten(1).abs().amax(1).view(4, 1, 1, 1) / 127
    assert bool(((again["conv.weight"] - weight).abs() <= 0.6 * step).all())
    assert torch.equal(again["bn.weight"], weights["bn.weight"].half())
    assert again["bn.steps"] == 7
    assert set(again) == set(weights)
    assert set(compact(weights, eight_bits=False)) == set(weights)


def test_a_network_reads_them_with_the_loader_of_rlab(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net, x = mixer().eval(), torch.rand(2, 3, 32, 32)
    save(net, tmp_path / "w.safetensors", {"steps": "1"})
    again = load_weights(mixer(), tmp_path / "w.safetensors").eval()
    assert "4.weight" + SCALE not in again.state_dict()
    with torch.no_grad():
        assert torch.allclose(net(x), again(x), atol=0.05)
        assert not torch.equal(net(x), again(x))
    held = load_file(tmp_path / "w.safetensors")
    assert torch.equal(again.state_dict()["0.0.weight"], expanded(held)["0.0.weight"])


@pytest.mark.parametrize("name", CLAIMS)
def test_every_claim_loads_and_shows_its_help(name: str) -> None:
    claim = import_module(f"benchmarks.{name}.run").CLAIM
    assert claim.name == name
    assert "--quick" in claim.parser().format_help()
