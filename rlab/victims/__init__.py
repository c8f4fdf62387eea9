"""Models to be attacked, whatever they run on, behind one call that checks, chunks and counts."""

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
