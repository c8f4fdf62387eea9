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


def transformer(leads: int = 1, classes: int = 5) -> nn.Module:
    return BeatTransformer(leads, classes)


MAKERS = [beat_cnn, beat_resnet, transformer]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(("leads", "classes", "time"), [(1, 5, 260), (12, 3, 187), (2, 2, 1000)])
def test_any_leads_classes_and_length(make, leads: int, classes: int, time: int) -> None:
    assert make(leads, classes).eval()(torch.randn(3, leads, time)).shape == (3, classes)


@pytest.mark.parametrize("make", MAKERS)
def test_gain_and_offset_of_an_electrode_do_not_matter(make) -> None:
    torch.manual_seed(0)
    net, x = make().eval().double(), torch.randn(4, 1, 260, dtype=torch.float64)
    with torch.no_grad():
        assert torch.allclose(net(x), net(3 * x + 2), atol=1e-4)
        assert not torch.allclose(net(x), net(x.flip(2)), atol=1e-3)


@pytest.mark.parametrize("make", MAKERS)
def test_a_flat_line_gets_a_finite_answer(make) -> None:
    assert torch.isfinite(make().eval()(torch.zeros(2, 1, 260))).all()


@pytest.mark.parametrize("make", MAKERS)
def test_rows_are_judged_one_by_one(make) -> None:
    torch.manual_seed(0)
    net, x = make().eval(), torch.randn(5, 1, 260)
    with torch.inference_mode():
        assert torch.allclose(net(x)[2:3], net(x[2:3]), atol=1e-5)


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
