"""Models to attack: torch, scikit-learn, Keras, files of other runtimes, functions and HTTP, behind one call that counts."""

from rlab.victims.base import Victim as Victim
from rlab.victims.callables import CallableVictim as CallableVictim
from rlab.victims.callables import SklearnVictim as SklearnVictim
from rlab.victims.grpc import GrpcVictim as GrpcVictim
from rlab.victims.http import HttpVictim as HttpVictim
from rlab.victims.meter import QueryMeter as QueryMeter
from rlab.victims.runtimes import KerasVictim as KerasVictim
from rlab.victims.runtimes import OnnxVictim as OnnxVictim
from rlab.victims.runtimes import OpenVinoVictim as OpenVinoVictim
from rlab.victims.runtimes import TfliteVictim as TfliteVictim
from rlab.victims.torch_module import TorchVictim as TorchVictim
from rlab.victims.zoo import demo_victim as demo_victim
