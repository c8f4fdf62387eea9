"""Small plain networks to attack: the demo's, two published for CIFAR-10, nets for ECG beats and for clips."""

from rlab.victims.zoo.clips import clip_victim
from rlab.victims.zoo.ecg import beat_cnn, beat_resnet, beat_transformer
from rlab.victims.zoo.images import cifar_resnet, demo_victim, small_cnn

__all__ = ["beat_cnn", "beat_resnet", "beat_transformer", "cifar_resnet", "clip_victim", "demo_victim", "small_cnn"]
