"""Factories of the benchmarks' networks, for `factory=benchmarks.nets:vgg`."""

from benchmarks.victims.beat_nets import beat_cnn, beat_resnet
from benchmarks.victims.cifar_nets import (
    MEAN,
    NETS,
    STD,
    all_conv,
    efficientnet_lite0,
    efficientnet_lite1,
    efficientnet_lite2,
    inverted,
    mixer,
    resnet20,
    robust_all_conv,
    robust_cnn,
    vgg,
    vit,
    wide_resnet,
)  # fmt: skip
from benchmarks.victims.clips import c3d_small, slowfast_small, tsm_small, tsn_small

__all__ = [
    "MEAN", "NETS", "STD", "all_conv", "beat_cnn", "beat_resnet", "c3d_small", "efficientnet_lite0", "efficientnet_lite1",
    "efficientnet_lite2", "inverted", "mixer", "resnet20", "robust_all_conv", "robust_cnn", "slowfast_small", "tsm_small",
    "tsn_small", "vgg", "vit", "wide_resnet",
]  # fmt: skip
