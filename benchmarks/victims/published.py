"""Published checkpoints of the full-size video networks, mapped to ours by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.victims.clip_nets import C3D, FrameNet, SlowFast
from rlab.errors import ModelError
from rlab.victims.weights import fit_weights, read_state_dict

_PATHS = ((0, "slow"), (1, "fast"))  # numbers in PySlowFast and PyTorchVideo
Rules = tuple[tuple[str, str], ...]  # pattern, replacement; applied in turn

# mmaction2 keeps a convolution and its norm in one module, in 2D and 3D networks.
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
    *((rf"^s1\.pathway{i}_stem\.(conv|bn)\.", rf"{path}.\g<1>1.") for i, path in _PATHS),
    (r"^s(\d)_fuse\.conv_f2s\.", r"lateral-\1.conv."),
    (r"^s(\d)_fuse\.bn\.", r"lateral-\1.bn."),
    *((rf"^s(\d)\.pathway{i}_res(\d+)\.", rf"{path}.stage-\1.\2.") for i, path in _PATHS),
    (r"\.branch1_bn\.", ".downsample.1."),
    (r"\.branch1\.", ".downsample.0."),
    (r"^head\.projection\.", "fc."),
    # PyTorchVideo counts its blocks from 0, the stem being the first
    *((rf"^blocks\.0\.multipathway_blocks\.{i}\.conv\.", f"{path}.conv1.") for i, path in _PATHS),
    *((rf"^blocks\.0\.multipathway_blocks\.{i}\.norm\.", f"{path}.bn1.") for i, path in _PATHS),
    (r"^blocks\.(\d)\.multipathway_fusion\.conv_fast_to_slow\.", r"lateral.\1.conv."),
    (r"^blocks\.(\d)\.multipathway_fusion\.norm\.", r"lateral.\1.bn."),
    *((rf"^blocks\.(\d)\.multipathway_blocks\.{i}\.res_blocks\.(\d+)\.", rf"{path}.layer\1.\2.") for i, path in _PATHS),
    (r"\.branch1_conv\.", ".downsample.0."),
    (r"\.branch1_norm\.", ".downsample.1."),
    (r"^blocks\.\d\.proj\.", "fc."),
    *((rf"\.branch2\.(conv_{letter}|{letter})\.", f".conv{number}.") for number, letter in enumerate("abc", 1)),
    *((rf"\.branch2\.(norm_{letter}|{letter}_bn)\.", f".bn{number}.") for number, letter in enumerate("abc", 1)),
)
_IGNORED = ("data_preprocessor.",)  # mean and std, which the victim's wrapper has


def load_published(net: nn.Module, path: str | Path) -> nn.Module:
    """Load a published checkpoint (.safetensors or a torch file) into `c3d`, `tsn`, `tsm` or `slowfast`.

    It knows the names of the networks' own repositories, torchvision, mmaction2, PySlowFast and PyTorchVideo."""
    weights = rename(net, read_state_dict(Path(path)))
    counters = {key: value for key, value in net.state_dict().items() if key.endswith("num_batches_tracked")}
    return fit_weights(net, counters | weights, path)


def rename(net: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A checkpoint's tensors under the names of `net`; names that no rule knows stay as they are."""
    kept = {key: value for key, value in weights.items() if not key.startswith(_IGNORED)}
    match net:
        case C3D():
            return {_renamed(key, _C3D): value for key, value in kept.items()}
        case FrameNet():
            return {_renamed(key, _FRAMES): value for key, value in kept.items()}
        case SlowFast():
            return _slow_first(net, kept, {_renamed(key, _SLOWFAST): value for key, value in kept.items()})
    raise ModelError(f"expected a network of c3d, tsn, tsm or slowfast, got {type(net).__name__}")


def _renamed(key: str, rules: Rules) -> str:
    for pattern, replacement in rules:
        key = re.sub(pattern, replacement, key)
    # PySlowFast counts stages from 1, the stem being the first
    key = re.sub(r"stage-(\d)", lambda match: f"layer{int(match[1]) - 1}", key)
    return re.sub(r"lateral-(\d)", lambda match: f"lateral.{int(match[1]) - 1}", key)


def _slow_first(net: SlowFast, kept: Mapping[str, Tensor], renamed: dict[str, Tensor]) -> dict[str, Tensor]:
    """mmaction2's last layer takes the fast path's features before the slow path's; ours the other way round."""
    if "cls_head.fc_cls.weight" not in kept:
        return renamed
    fast = net.fast.width_out
    weight = kept["cls_head.fc_cls.weight"]
    return renamed | {"fc.weight": torch.cat([weight[:, fast:], weight[:, :fast]], 1)}
