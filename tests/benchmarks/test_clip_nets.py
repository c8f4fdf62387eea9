from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from benchmarks.victims.clip_nets import C3D, FrameNet, SlowFast, c3d, shift, slowfast, tsm, tsn
from benchmarks.victims.clips import CLIP_MEAN, CLIP_NETS, CLIP_STD, clip_victim
from benchmarks.victims.published import load_published
from rlab.errors import DataError, InputError, ModelError
from rlab.victims.resolve import load_victim

NAMES = sorted(CLIP_NETS)


@pytest.mark.parametrize("name", NAMES)
def test_compact_networks_are_small_take_any_size_and_see_every_frame(name: str) -> None:
    torch.manual_seed(0)
    net = CLIP_NETS[name](6).eval()
    assert 1_000_000 < sum(p.numel() for p in net.parameters()) < 2_000_000  # 2 bytes each on disk
    with torch.inference_mode():
        assert net(torch.rand(2, 3, 16, 32, 48)).shape == (2, 6)
        assert net(torch.rand(1, 3, 8, 40, 40)).shape == (1, 6)
        x = torch.rand(3, 3, 8, 32, 32)
        assert torch.allclose(net(x)[1:2], net(x[1:2]), atol=1e-5)  # rows do not depend on their neighbours
    x = torch.rand(1, 3, 8, 48, 48).requires_grad_()
    net(x)[0, 0].backward()
    assert x.grad is not None
    assert bool((x.grad.abs().amax((0, 1, 3, 4)) > 0).all())


@pytest.mark.parametrize("name", NAMES)
def test_only_tsn_is_blind_to_the_order_of_frames(name: str) -> None:
    torch.manual_seed(0)
    net = CLIP_NETS[name](6).eval().double()
    x, foreign = torch.rand(2, 1, 3, 8, 32, 32).double()
    with torch.inference_mode():
        turned, other = (float((net(x) - net(seen)).abs().max()) for seen in (x.flip(2), foreign))
    assert (turned > 1e-4 * other) == (name != "tsn")


def test_channels_move_between_frames_of_one_clip() -> None:
    x = torch.arange(2 * 3 * 8.0).view(6, 8, 1, 1)  # two clips of three frames, a value for each frame and channel
    moved = shift(x, 3).view(2, 3, 8)
    clip = x.view(2, 3, 8)
    assert moved[:, :2, 0].tolist() == clip[:, 1:, 0].tolist()
    assert moved[:, 2, 0].tolist() == moved[:, 0, 1].tolist() == [0, 0]
    assert moved[:, 1:, 1].tolist() == clip[:, :2, 1].tolist()
    assert moved[:, :, 2:].tolist() == clip[:, :, 2:].tolist()


@pytest.mark.parametrize(
    ("make", "classes", "millions", "shape"),
    [
        (c3d, 487, 79.991, (16, 112, 112)),
        (c3d, 101, 78.410, (16, 112, 112)),
        (tsn, 400, 24.328, (8, 224, 224)),
        (tsm, 400, 24.328, (8, 224, 224)),
        (slowfast, 400, 34.480, (32, 224, 224)),
    ],
)
def test_full_size_networks_have_the_published_number_of_parameters_and_input(
    make: Callable[[int], nn.Module], classes: int, millions: float, shape: tuple[int, ...]
) -> None:
    with torch.device("meta"):  # shapes alone, no arithmetic
        net = make(classes).eval()
        assert net(torch.empty(2, 3, *shape)).shape == (2, classes)
    assert sum(p.numel() for p in net.parameters()) / 1e6 == pytest.approx(millions, abs=1e-3)


def test_frames_that_cannot_be_divided_are_refused() -> None:
    with pytest.raises(DataError):
        CLIP_NETS["slowfast"](6)(torch.rand(1, 3, 6, 32, 32))


# Published names, made from ours by rules written down the other way round.
Back = Callable[[str], str]


def _swap(*pairs: tuple[str, str]) -> Back:
    def named(key: str) -> str:
        for pattern, replacement in pairs:
            key = re.sub(pattern, replacement, key)
        return key

    return named


_MM = (
    (r"downsample\.0\.", "downsample.conv."),
    (r"downsample\.1\.", "downsample.bn."),
    (r"conv(\d[ab]?)\.", r"conv\1.conv."),
    (r"bn(\d)\.", r"conv\1.bn."),
)
_BACKBONE = ((r"^", "backbone."), (r"backbone\.fc8?\.", "cls_head.fc_cls."))
_MODULE = ((r"^", "module.base_model."), (r"module\.base_model\.fc\.", "module.new_fc."))
C3D_SPORTS = _swap((r"conv([12])a\.", r"conv\1."))
MMACTION = _swap(*_MM, *_BACKBONE)
TSN_OFFICIAL = _swap(*_MODULE)
TSM_OFFICIAL = _swap((r"(layer\d\.\d\.conv1\.)", r"\1net."), *_MODULE)
TSM_MMACTION = _swap(*_MM, (r"(layer\d\.\d\.conv1\.conv\.)", r"\1net."), *_BACKBONE)
SLOWFAST_MMACTION = _swap(
    *_MM,
    (r"^lateral\.0\.conv", "slow_path.conv1_lateral.conv"),
    (r"^lateral\.(\d)\.conv", r"slow_path.layer\1_lateral.conv"),
    (r"^(slow|fast)\.", r"\1_path."),
    *_BACKBONE,
)


def _slowfast(head: str, block: str, **pairs: tuple[str, str]) -> Back:
    """Names of two pathways, 0 slow and 1 fast; `pairs` holds templates for convolutions and norms."""
    rules = [(r"^fc\.", head)]
    for ours, at in (("conv", 0), ("bn", 1)):
        rules += [(rf"^lateral\.{n}\.{ours}\.", pairs["lateral"][at].format(n, n + 1)) for n in range(4)]
        rules += [(rf"^{path}\.{ours}1\.", pairs["stem"][at].format(p)) for p, path in enumerate(("slow", "fast"))]
        rules += [(rf"(layer.*\.){ours}{n}\.", r"\1" + pairs["branch"][at].format(a)) for n, a in enumerate("abc", 1)]
        rules += [(rf"downsample\.{at}\.", pairs["shortcut"][at])]
    for p, path in enumerate(("slow", "fast")):
        rules += [(rf"^{path}\.layer{n}\.(\d)\.", block.format(p, n, n + 1)) for n in range(1, 5)]
    return _swap(*rules)


SLOWFAST_OFFICIAL = _slowfast(
    "head.projection.", r"s{2}.pathway{0}_res\1.", lateral=("s{1}_fuse.conv_f2s.", "s{1}_fuse.bn."),
    stem=("s1.pathway{}_stem.conv.", "s1.pathway{}_stem.bn."), branch=("branch2.{}.", "branch2.{}_bn."),
    shortcut=("branch1.", "branch1_bn."),
)  # fmt: skip
_FUSION, _STEM = "blocks.{0}.multipathway_fusion.", "blocks.0.multipathway_blocks.{}."
SLOWFAST_PYTORCHVIDEO = _slowfast(
    "blocks.6.proj.", r"blocks.{1}.multipathway_blocks.{0}.res_blocks.\1.", stem=(f"{_STEM}conv.", f"{_STEM}norm."),
    lateral=(f"{_FUSION}conv_fast_to_slow.", f"{_FUSION}norm."), branch=("branch2.conv_{}.", "branch2.norm_{}."),
    shortcut=("branch1_conv.", "branch1_norm."),
)  # fmt: skip


def a_c3d() -> nn.Module:
    return C3D(5, width=4, hidden=16)


def a_tsn(shifts: bool = False) -> nn.Module:
    return FrameNet(5, (1, 2), width=8, shifts=shifts)


a_tsm = partial(a_tsn, shifts=True)


def a_slowfast(lateral_norm: bool = True) -> nn.Module:
    return SlowFast(5, (2, 1, 1, 1), width=16, narrow=4, alpha=4, lateral_norm=lateral_norm)


LAYOUTS: dict[str, tuple[Callable[[], nn.Module], Back, str]] = {
    "c3d, Sports-1M": (a_c3d, C3D_SPORTS, "conv1.weight"),
    "c3d, mmaction2": (a_c3d, MMACTION, "backbone.conv3b.conv.bias"),
    "tsn, official": (a_tsn, TSN_OFFICIAL, "module.base_model.layer2.1.bn3.running_var"),
    "tsn, torchvision": (a_tsn, _swap(), "layer1.0.downsample.1.weight"),
    "tsn, mmaction2": (a_tsn, MMACTION, "backbone.layer1.0.downsample.bn.running_mean"),
    "tsm, official": (a_tsm, TSM_OFFICIAL, "module.base_model.layer1.0.conv1.net.weight"),
    "tsm, mmaction2": (a_tsm, TSM_MMACTION, "backbone.layer1.0.conv1.conv.net.weight"),
    "slowfast, PySlowFast": (a_slowfast, SLOWFAST_OFFICIAL, "s2.pathway0_res0.branch2.a_bn.weight"),
    "slowfast, PyTorchVideo": (
        a_slowfast,
        SLOWFAST_PYTORCHVIDEO,
        "blocks.1.multipathway_blocks.1.res_blocks.0.branch2.norm_c.bias",
    ),
}


def trained(net: nn.Module) -> nn.Module:
    """With running statistics and counters other than those of a new network."""
    torch.manual_seed(7)
    with torch.no_grad():
        for value in net.state_dict().values():
            value.copy_(torch.rand(value.shape) * 0.2 + 0.1 if value.is_floating_point() else torch.tensor(9))
    return net.eval()


def inputs(net: nn.Module) -> Tensor:
    return torch.rand(1, 3, 16, 112, 112) if isinstance(net, C3D) else torch.rand(2, 3, 8, 32, 32)


@pytest.mark.parametrize("name", LAYOUTS)
def test_published_names_are_understood(name: str, tmp_path: Path) -> None:
    make, published, known = LAYOUTS[name]
    suffix = ".safetensors" if "mmaction2" in name or "PyTorchVideo" in name else ".pth"  # each ending for some of them
    source, path = trained(make()), tmp_path / f"weights{suffix}"
    weights = {published(key): value for key, value in source.state_dict().items()}
    assert known in weights
    assert len(weights) == len(source.state_dict())
    wrapper = "model_state" if "PySlowFast" in name else "state_dict"
    if suffix == ".pth":
        torch.save({wrapper: weights, "epoch": 3}, path)
    else:
        save_file({key: value.clone() for key, value in weights.items()}, path)
    loaded = load_published(make(), path).eval()
    x = inputs(source)
    with torch.inference_mode():
        assert torch.equal(loaded(x), source(x))


def test_mmaction_slowfast_takes_the_fast_features_first(tmp_path: Path) -> None:
    source = trained(a_slowfast(lateral_norm=False))
    assert isinstance(source, SlowFast)
    fast = source.fast.width_out
    weights = {SLOWFAST_MMACTION(key): value.clone() for key, value in source.state_dict().items()}
    assert "backbone.slow_path.layer2_lateral.conv.weight" in weights
    head = source.fc.weight.detach()
    weights["cls_head.fc_cls.weight"] = torch.cat([head[:, -fast:], head[:, :-fast]], 1)
    weights["data_preprocessor.mean"] = torch.ones(3)
    save_file(weights, tmp_path / "w.safetensors")
    loaded = load_published(a_slowfast(lateral_norm=False), tmp_path / "w.safetensors").eval()
    x = inputs(source)
    with torch.inference_mode():
        assert torch.equal(loaded(x), source(x))


def test_weights_that_do_not_fit_are_refused_by_name(tmp_path: Path) -> None:
    weights = {MMACTION(key): value.clone() for key, value in a_tsn().state_dict().items()}
    path = tmp_path / "w.safetensors"

    def refused(change: dict[str, Tensor | None], match: str) -> None:
        save_file({key: value for key, value in (weights | change).items() if value is not None}, path)
        with pytest.raises(InputError, match=match) as found:
            load_published(a_tsn(), path)
        assert "\n" not in str(found.value)

    refused({"backbone.conv1.conv.weight": None}, r"does not fit the model: it lacks conv1\.weight")
    refused({"backbone.extra.weight": torch.ones(2)}, r"extra\.weight")
    refused({"cls_head.fc_cls.weight": torch.ones(7, 64)}, r"size mismatch for fc\.weight")
    with pytest.raises(InputError, match="no such file"):
        load_published(a_tsn(), tmp_path / "none.pth")
    with pytest.raises(ModelError):
        load_published(nn.Linear(2, 2), path)


def test_a_files_counters_may_be_absent(tmp_path: Path) -> None:
    weights = {key: v.clone() for key, v in a_tsn().state_dict().items() if "num_batches" not in key}
    save_file(weights, tmp_path / "w.safetensors")
    loaded = a_tsn()
    load_published(loaded, tmp_path / "w.safetensors")
    assert all(torch.equal(loaded.state_dict()[key], value) for key, value in weights.items())


def test_a_trained_file_names_its_network(tmp_path: Path) -> None:
    net = CLIP_NETS["tsm"](6).eval()
    path = tmp_path / "tsm.safetensors"
    halves = {k: v.half() if v.is_floating_point() else v for k, v in net.state_dict().items()}
    save_file(halves, path)
    with pytest.raises(ModelError):
        clip_victim(path)
    with pytest.raises(ModelError):
        clip_victim(tmp_path / "none.safetensors")
    save_file(halves, path, {"net": "tsm", "classes": "a,b,c,d,e,f"})
    victim, x = clip_victim(str(path)), torch.rand(2, 3, 8, 32, 32)
    with torch.inference_mode():
        expected = net((x - CLIP_MEAN[0]) / CLIP_STD[0]).log_softmax(1)
    assert torch.allclose(victim(x), expected, atol=0.02)
    options = {"factory": "benchmarks.nets:tsm_small", "mean": CLIP_MEAN, "std": CLIP_STD, "outputs": "logits"}
    assert torch.allclose(load_victim(str(path), **options)(x), victim(x), atol=1e-5)  # as the command line names it
