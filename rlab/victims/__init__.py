"""Models to attack: torch, scikit-learn, Keras, files of other runtimes, functions and HTTP, behind one call that counts."""

from rlab.victims.base import QueryMeter, Victim
from rlab.victims.callables import CallableVictim, SklearnVictim
from rlab.victims.grpc import GrpcVictim
from rlab.victims.http import HttpVictim
from rlab.victims.runtimes import KerasVictim, OnnxVictim, OpenVinoVictim, TfliteVictim
from rlab.victims.torch_module import TorchVictim
from rlab.victims.zoo import demo_victim

__all__ = [
    "CallableVictim",
    "GrpcVictim",
    "HttpVictim",
    "KerasVictim",
    "OnnxVictim",
    "OpenVinoVictim",
    "QueryMeter",
    "SklearnVictim",
    "TfliteVictim",
    "TorchVictim",
    "Victim",
    "demo_victim",
]
