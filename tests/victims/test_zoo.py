from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from benchmarks.victims import cifar_victim
from benchmarks.victims.residual import cifar_resnet, resnet18, wide_resnet
from rlab.errors import InputError
from rlab.victims import TorchVictim, demo_victim, zoo
from rlab.victims.zoo import DEMOS, small_cnn


@pytest.mark.parametrize(("rank", "size"), [(1, (256,)), (1, (33,)), (2, (8, 8)), (2, (9, 5)), (3, (8, 16, 16))])
def test_one_small_network_for_every_rank(rank: int, size: tuple[int, ...]) -> None:
    model = small_cnn(rank, channels=2, classes=5)
    assert model(torch.rand(3, 2, *size)).shape == (3, 5)
    assert 5_000 < sum(p.numel() for p in model.parameters()) < 110_000


def test_impossible_networks_are_refused() -> None:
    with pytest.raises(InputError, match="rank 1, 2 or 3"):
        small_cnn(4, 1, 2)
    with pytest.raises(InputError, match="multiple of 4"):
        small_cnn(2, 1, 2, width=6)
    with pytest.raises(InputError, match="6 n \\+ 2"):
        cifar_resnet(21)
    with pytest.raises(InputError, match="digits, ecg, clips"):
        demo_victim("cats")


@pytest.mark.parametrize(
    ("model", "parameters"),
    [(cifar_resnet(20), 269_722), (cifar_resnet(56), 853_018), (resnet18(), 11_173_962), (wide_resnet(), 2_243_546)],
)
def test_networks_have_the_published_number_of_parameters(model: nn.Module, parameters: int) -> None:
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert model.eval()(torch.rand(2, 3, 32, 32)).shape == (2, 10)


def test_a_shipped_file_states_its_own_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_cnn(1, 2, 4, width=8)
    about = {"rank": "1", "channels": "2", "classes": "4", "width": "8", "mean": "[0.1, 0.2]", "std": "[1.0, 2.0]"}
    (tmp_path / "assets").mkdir()
    save_file(model.state_dict(), tmp_path / "assets" / "demo_ecg.safetensors", {**about, "bounds": "[-5.0, 5.0]"})
    monkeypatch.setattr(zoo, "files", lambda package: tmp_path)
    victim = demo_victim("ecg")
    x = torch.rand(3, 2, 40) * 8 - 4
    assert victim.bounds == (-5.0, 5.0)
    assert torch.allclose(victim(x), TorchVictim(model, mean=(0.1, 0.2), std=(1.0, 2.0), bounds=(-5, 5))(x))


@pytest.mark.parametrize("name", DEMOS)
def test_demo_victims_ship_with_the_package(name: str) -> None:
    victim = demo_victim(name)
    assert isinstance(victim, TorchVictim)
    assert sum(p.numel() for p in victim.model.parameters()) < 110_000


@pytest.mark.real
@pytest.mark.parametrize(("name", "least"), [("resnet20", 0.9), ("cnn_a_mix", 0.74)])
def test_published_weights_reach_their_accuracy(real: Path, name: str, least: float) -> None:
    data = np.load(real / "cifar10" / "test_0_4999.npz", allow_pickle=False)
    x, y = torch.from_numpy(data["x"][:500]).permute(0, 3, 1, 2) / 255, torch.from_numpy(data["y"][:500])
    victim = cifar_victim(name)
    assert (victim(x).argmax(1) == y).float().mean() > least
    assert victim.rows == {"search": 500}
