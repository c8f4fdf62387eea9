"""Models to attack: torch, scikit-learn, ONNX, functions and HTTP, behind one call that checks and counts."""

from rlab.victims.base import QueryMeter, Victim
from rlab.victims.callables import CallableVictim, OnnxVictim, SklearnVictim
from rlab.victims.http import HttpVictim
from rlab.victims.torch_module import TorchVictim
from rlab.victims.zoo import demo_victim

__all__ = [
    "CallableVictim",
    "HttpVictim",
    "OnnxVictim",
    "QueryMeter",
    "SklearnVictim",
    "TorchVictim",
    "Victim",
    "demo_victim",
]
