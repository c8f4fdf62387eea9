from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import rlab
from benchmarks.victims.beat_nets import BEAT_MEAN, BEAT_STD, BeatTransformer, beat_cnn, beat_resnet, positions

MAKERS = [beat_cnn, beat_resnet, BeatTransformer]


@pytest.mark.parametrize("make", MAKERS)
def test_any_leads_and_length_rows_one_by_one_whatever_the_gain_and_offset(make) -> None:
    for leads, classes, time in ((1, 5, 260), (12, 3, 187), (2, 2, 1000)):
        assert make(leads, classes).eval()(torch.randn(3, leads, time)).shape == (3, classes)
    torch.manual_seed(0)
    net, x = make(1, 5).eval().double(), torch.randn(4, 1, 260, dtype=torch.float64)
    with torch.inference_mode():
        assert torch.isfinite(net(torch.zeros_like(x))).all()  # a flat line
        assert torch.allclose(net(x)[2:3], net(x[2:3]), atol=1e-5)
        assert torch.allclose(net(x), net(3 * x + 2), atol=1e-4)
        assert not torch.allclose(net(x), net(x.flip(2)), atol=1e-3)


def test_positions_are_the_paper_s() -> None:
    found = positions(7, 6)
    for at in (0, 3, 6):
        for pair in range(3):
            angle = at / 10_000 ** (2 * pair / 6)
            assert found[at, 2 * pair] == pytest.approx(math.sin(angle), abs=1e-5)
            assert found[at, 2 * pair + 1] == pytest.approx(math.cos(angle), abs=1e-5)


@pytest.mark.parametrize("make", [beat_cnn, beat_resnet])
def test_weights_load_by_the_factory_s_name(make: Callable[[], nn.Module], tmp_path: Path) -> None:
    torch.manual_seed(1)
    net = make().eval()
    halved = {k: v.half() if v.is_floating_point() else v for k, v in net.state_dict().items()}
    save_file(halved, tmp_path / "w.safetensors")
    factory = f"benchmarks.nets:{make.__name__}"
    victim = rlab.load_victim(
        str(tmp_path / "w.safetensors"), factory=factory, mean=BEAT_MEAN, std=BEAT_STD, bounds=(-math.inf, math.inf)
    )
    x = torch.randn(3, 1, 260)
    with torch.no_grad():
        want = net((x - BEAT_MEAN[0]) / BEAT_STD[0]).log_softmax(1)
    assert torch.allclose(victim(x), want, atol=0.05)
    assert victim.rows == {"search": 3}


@pytest.mark.filterwarnings("ignore:input's size at dim=1")
def test_a_lead_too_many_is_a_clear_sentence() -> None:
    victim = rlab.TorchVictim(beat_cnn(leads=1), bounds=(-math.inf, math.inf))
    with pytest.raises(rlab.VictimError, match=r"the model failed on inputs of shape \(2, 2, 260\)"):
        victim(torch.randn(2, 2, 260))
