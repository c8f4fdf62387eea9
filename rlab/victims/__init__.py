"""Models to be attacked, whatever they run on, behind one call that checks, chunks and counts."""

from rlab.victims.base import PHASES, QueryMeter, Unanswered, Victim
from rlab.victims.callables import CallableVictim
from rlab.victims.http import HttpVictim
from rlab.victims.onnx import OnnxVictim
from rlab.victims.resolve import load_victim
from rlab.victims.sklearn import SklearnVictim
from rlab.victims.torch_module import TorchVictim
from rlab.victims.zoo import demo_victim

__all__ = [
    "PHASES",
    "CallableVictim",
    "HttpVictim",
    "OnnxVictim",
    "QueryMeter",
    "SklearnVictim",
    "TorchVictim",
    "Unanswered",
    "Victim",
    "demo_victim",
    "load_victim",
]
