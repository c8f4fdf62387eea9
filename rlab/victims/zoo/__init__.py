"""Small plain networks to attack: the demo's, two published for CIFAR-10, nets for ECG beats and for clips."""

from rlab.victims.zoo.cifar import (
    CIFAR_RESNET_MEAN,
    CIFAR_RESNET_STD,
    CNN_A_MEAN,
    CNN_A_STD,
    cifar_resnet,
    cnn_a,
)
from rlab.victims.zoo.small import DEMOS, demo_victim, small_cnn

__all__ = [
    "CIFAR_RESNET_MEAN",
    "CIFAR_RESNET_STD",
    "CNN_A_MEAN",
    "CNN_A_STD",
    "DEMOS",
    "cifar_resnet",
    "cnn_a",
    "demo_victim",
    "small_cnn",
]
