"""Published checkpoints of the full-size video networks, mapped to ours by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from rlab.errors import InputError
from rlab.victims.weights import read_state_dict, refuse_misfit
from rlab.victims.zoo.clip_c3d import C3D
from rlab.victims.zoo.clip_frames import FrameNet
from rlab.victims.zoo.clip_slowfast import SlowFast

Rules = tuple[tuple[str, str], ...]  # pattern, replacement; all are applied, in turn

# mmaction2 has a convolution and its norm in one module; the same holds for its 2D and 3D networks.
_MMACTION: Rules = (
    (r"^backbone\.", ""),
    (r"\.downsample\.conv\.", ".downsample.0."),
    (r"\.downsample\.bn\.", ".downsample.1."),
    (r"(^|\.)conv(\d)\.bn\.", r"\1bn\2."),
    (r"(^|\.)conv(\d[ab]?)\.conv\.", r"\1conv\2."),
)
_C3D: Rules = (
    *_MMACTION,
    (r"^cls_head\.fc_cls\.", "fc8."),
    (r"^conv([12])\.", r"conv\1a."),  # as the Sports-1M weights are named
)
_FRAMES: Rules = (
    (r"^(module\.)?base_model\.", ""),
    (r"^(module\.)?new_fc\.", "fc."),
    (r"\.net\.", "."),  # TSM wraps the convolutions before which it shifts
    *_MMACTION,
    (r"^cls_head\.(fc_cls|new_fc)\.", "fc."),
)
_SLOWFAST: Rules = (
    *_MMACTION,
    (r"^cls_head\.fc_cls\.", "fc."),
    (r"^slow_path\.conv1_lateral\.", "lateral.0."),
    (r"^slow_path\.layer(\d)_lateral\.", r"lateral.\1."),
    (r"^(slow|fast)_path\.", r"\1."),
    # PySlowFast
    (r"^s1\.pathway0_stem\.conv\.", "slow.conv1."),
    (r"^s1\.pathway0_stem\.bn\.", "slow.bn1."),
    (r"^s1\.pathway1_stem\.conv\.", "fast.conv1."),
    (r"^s1\.pathway1_stem\.bn\.", "fast.bn1."),
    (r"^s(\d)_fuse\.conv_f2s\.", r"lateral-\1.conv."),
    (r"^s(\d)_fuse\.bn\.", r"lateral-\1.bn."),
    (r"^s(\d)\.pathway0_res(\d+)\.", r"slow.stage-\1.\2."),
    (r"^s(\d)\.pathway1_res(\d+)\.", r"fast.stage-\1.\2."),
    (r"\.branch1_bn\.", ".downsample.1."),
    (r"\.branch1\.", ".downsample.0."),
    (r"^head\.projection\.", "fc."),
    # PyTorchVideo counts its blocks from 0, the stem being the first
    (r"^blocks\.0\.multipathway_blocks\.0\.conv\.", "slow.conv1."),
    (r"^blocks\.0\.multipathway_blocks\.0\.norm\.", "slow.bn1."),
    (r"^blocks\.0\.multipathway_blocks\.1\.conv\.", "fast.conv1."),
    (r"^blocks\.0\.multipathway_blocks\.1\.norm\.", "fast.bn1."),
    (r"^blocks\.(\d)\.multipathway_fusion\.conv_fast_to_slow\.", r"lateral.\1.conv."),
    (r"^blocks\.(\d)\.multipathway_fusion\.norm\.", r"lateral.\1.bn."),
    (r"^blocks\.(\d)\.multipathway_blocks\.0\.res_blocks\.(\d+)\.", r"slow.layer\1.\2."),
    (r"^blocks\.(\d)\.multipathway_blocks\.1\.res_blocks\.(\d+)\.", r"fast.layer\1.\2."),
    (r"\.branch1_conv\.", ".downsample.0."),
    (r"\.branch1_norm\.", ".downsample.1."),
    (r"^blocks\.\d\.proj\.", "fc."),
    *((rf"\.branch2\.(conv_{letter}|{letter})\.", f".conv{number}.") for number, letter in enumerate("abc", 1)),
    *((rf"\.branch2\.(norm_{letter}|{letter}_bn)\.", f".bn{number}.") for number, letter in enumerate("abc", 1)),
)
_IGNORED = ("data_preprocessor.",)  # mean and std, which the victim's wrapper has


def load_published(net: nn.Module, path: str | Path) -> nn.Module:
    """`net` (`c3d`, `tsn`, `tsm` or `slowfast`) with a published checkpoint's weights, .safetensors or a torch file.

    Known are the names of the networks' own repositories, of torchvision, mmaction2, PySlowFast and PyTorchVideo."""
    found = rename(net, read_state_dict(Path(path)))
    counters = {key: value for key, value in net.state_dict().items() if key.endswith("num_batches_tracked")}
    try:
        missing, unexpected = net.load_state_dict(counters | found, strict=False)
    except RuntimeError as error:  # shapes that differ: the first line is a heading
        said = str(error).strip().splitlines()[1].strip()
        raise InputError(f"{path} does not fit the model: {said}") from error
    refuse_misfit(path, missing, unexpected)
    return net


def rename(net: nn.Module, found: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A checkpoint's tensors under the names of `net`; names that no rule knows stay as they are."""
    kept = {key: value for key, value in found.items() if not key.startswith(_IGNORED)}
    match net:
        case C3D():
            return {_renamed(key, _C3D): value for key, value in kept.items()}
        case FrameNet():
            return {_renamed(key, _FRAMES): value for key, value in kept.items()}
        case SlowFast():
            return _slow_first(net, kept, {_renamed(key, _SLOWFAST): value for key, value in kept.items()})
    raise InputError(f"expected a network of c3d, tsn, tsm or slowfast, got {type(net).__name__}")


def _renamed(key: str, rules: Rules) -> str:
    for pattern, replacement in rules:
        key = re.sub(pattern, replacement, key)
    # PySlowFast counts stages from 1, the stem being the first
    key = re.sub(r"stage-(\d)", lambda found: f"layer{int(found[1]) - 1}", key)
    return re.sub(r"lateral-(\d)", lambda found: f"lateral.{int(found[1]) - 1}", key)


def _slow_first(net: SlowFast, found: Mapping[str, Tensor], renamed: dict[str, Tensor]) -> dict[str, Tensor]:
    """mmaction2's last layer takes the fast path's features before the slow path's; ours the other way round."""
    if "cls_head.fc_cls.weight" not in found:
        return renamed
    fast = net.fast.width_out
    weight = found["cls_head.fc_cls.weight"]
    return renamed | {"fc.weight": torch.cat([weight[:, fast:], weight[:, :fast]], 1)}
