"""Small plain networks to attack: the demo's, and two published for CIFAR-10."""

from rlab.victims.zoo.images import cifar_resnet, demo_victim, small_cnn

__all__ = ["cifar_resnet", "demo_victim", "small_cnn"]
