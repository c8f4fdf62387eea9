"""A module of a user and its helper, as text: models of all kinds, filters, a prior, a policy and a goal."""

HELPER = """
SCALE = 1.0
def scaled(x):
    return x * SCALE
"""
MODULE = """
import functools
import numpy as np
import torch
from torch import nn
import rlab, my_helper
from my_helper import scaled
from rlab.core.goals import Goal, Untargeted
from rlab.policies.base import Policy
from rlab.policies.random import Random
from rlab.priors.base import Prior

OFFSET = 0.0
TABLE = {"w": np.array([1.0, -1.0])}

def centred(x):
    return x - 0.5

class Settings:
    def __init__(self, power): self.power = power

class Base(nn.Module):
    def read(self, x): return x.flatten(1)

class Net(Base):
    gain = 1.0
    def __init__(self, seed=0, shift=0.0, slope=0.1, power=1, table=1.0, steps=(1,), hidden=0.0, training=False, act=None):
        super().__init__()
        torch.manual_seed(seed)
        self.layer, self.act, self.calls = nn.Linear(16, 2), nn.LeakyReLU(slope), 0
        self.shift, self.settings, self.table, self.steps = shift, Settings(power), {"w": np.full(2, table)}, list(steps)
        self.register_buffer("hidden", torch.full((2,), hidden), persistent=False)
        self.last = act or (lambda x: x)
    @property
    def twice(self): return 2.0
    def forward(self, x):
        from my_helper import SCALE
        self.calls += 1
        out = self.act(self.layer(centred(scaled(self.read(x))))) * self.gain + self.shift + OFFSET
        return self.last(my_helper.scaled(out) + self.hidden * SCALE)

def net(): return Net()

def pair():
    class Pair(Net):
        def forward(self, x): return super().forward(x), -super().forward(x)
    return Pair()

def scores(x, w=TABLE["w"]):
    return np.stack([x.reshape(len(x), -1).mean(1), np.full(len(x), 0.5)], 1) * np.abs(w)

def labels(x): return scores(x).argmax(1)

def closure(factor, parts=(1.0,)):
    def inner(x): return scores(x) * factor + sum(parts)
    return inner

def defaults(factor=1.0):
    def inner(x, by=factor, *, more=factor): return scores(x) * by * more
    return inner

def weighed(x, w, factor=1.0): return scores(x) * w * factor

def logged(function):
    @functools.wraps(function)
    def wrapper(*given): return function(*given)
    return wrapper

def from_table(x): return scores(x) * TABLE["w"] ** 2

class Callable:
    count = 0
    def __init__(self, factor): self.factor = factor
    def __call__(self, x):
        Callable.count += 1
        return scores(x) * self.factor
    def method(self, x): return scores(x) * self.factor

class Own(rlab.Victim):
    def __init__(self, factor):
        super().__init__(outputs="logits")
        self.factor, self.asked = factor, []
    def _predict(self, x):
        self.asked.append(len(x))
        return torch.stack([x.flatten(1).mean(1), torch.full((len(x),), 0.5)], 1) * self.factor

def brighter(x, severity, generator): return (x + severity).clamp(0, 1)

def by(amount):
    def shifted(x, severity, generator): return (x + amount * severity).clamp(0, 1)
    return shifted

class Mine(Policy):
    def __init__(self, share): self.share, self.inner = share, Random()
    def begin(self, state, task): return self.inner.begin(state, task)
    def observe(self, state, memory, task): return self.inner.observe(state, memory, task)
    def propose(self, state, memory, task): return self.inner.propose(state, memory, task)

class Edges(Prior):
    def __init__(self, step): self.step = step
    def directions(self, x, y, scale, goal): return (x - x.roll(self.step, -1))[:, None]

class Lead(Goal):
    def __init__(self, by): self.by = by
    def margin(self, scores, labels): return Untargeted().margin(scores, labels) + self.by

def doubled(answer): return 2.0 * answer
def halved(answer): return answer / 2.0
"""
