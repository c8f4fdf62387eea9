"""Small plain networks to attack: the demo's, two published for CIFAR-10, nets for ECG beats and for clips."""

from rlab.victims.zoo.cifar import (
    CIFAR_RESNET_MEAN,
    CIFAR_RESNET_STD,
    CNN_A_MEAN,
    CNN_A_STD,
    cifar_resnet,
    cnn_a,
)
from rlab.victims.zoo.clip_c3d import c3d
from rlab.victims.zoo.clip_frames import tsm, tsn
from rlab.victims.zoo.clip_published import load_published
from rlab.victims.zoo.clip_slowfast import slowfast
from rlab.victims.zoo.clips import (
    CLIP_FRAMES,
    CLIP_MEAN,
    CLIP_NETS,
    CLIP_SIZE,
    CLIP_STD,
    c3d_small,
    clip_victim,
    is_clip_net,
    slowfast_small,
    tsm_small,
    tsn_small,
)
from rlab.victims.zoo.ecg import BEAT_MEAN, BEAT_NETS, BEAT_STD, beat_cnn, beat_resnet, beat_transformer
from rlab.victims.zoo.small import DEMOS, demo_victim, small_cnn

__all__ = [
    "BEAT_MEAN",
    "BEAT_NETS",
    "BEAT_STD",
    "CIFAR_RESNET_MEAN",
    "CIFAR_RESNET_STD",
    "CLIP_FRAMES",
    "CLIP_MEAN",
    "CLIP_NETS",
    "CLIP_SIZE",
    "CLIP_STD",
    "CNN_A_MEAN",
    "CNN_A_STD",
    "DEMOS",
    "beat_cnn",
    "beat_resnet",
    "beat_transformer",
    "c3d",
    "c3d_small",
    "cifar_resnet",
    "clip_victim",
    "cnn_a",
    "demo_victim",
    "is_clip_net",
    "load_published",
    "slowfast",
    "slowfast_small",
    "small_cnn",
    "tsm",
    "tsm_small",
    "tsn",
    "tsn_small",
]
