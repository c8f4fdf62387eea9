"""Changes after which a run folder must not give its old result: the cells of the table 'same folder, something changed'.

A change edits a module of the user, which is imported again, or builds something else from it. Each verb runs before and after it
into the same folder (tests.runs.stale).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import rlab
from tests.runs.user_module import HELPER, MODULE

Make = Callable[[Any], dict[str, Any]]  # from the user's module to the keywords of a verb
TORCH = ("explain", "corrupt", "compare", "harden", "benchmark", "run")
DATA = ("explain", "corrupt", "compare", "harden", "benchmark")
ANY = ("explain", "corrupt", "compare", "benchmark", "run")


def net(**made: Any) -> Make:
    return lambda mine: {"model": mine.Net(**made)}


def victim(**options: Any) -> Make:
    def make(mine: Any) -> dict[str, Any]:
        given = dict(options)
        given |= {"score": getattr(mine, given["score"])} if "score" in given else {}
        return {"model": rlab.TorchVictim(mine.pair() if "output" in given else mine.Net(), **given)}

    return make


def function(**options: Any) -> Make:
    return lambda mine: {"model": rlab.CallableVictim(mine.scores, **options)}


def labels(classes: int) -> Make:
    return lambda mine: {"model": rlab.CallableVictim(mine.labels, outputs="labels", classes=classes), "policy": "auto"}


def data(**changed: Any) -> Make:
    return lambda mine: {"model": mine.Net(), "data": samples(**changed)}


def with_(**options: Callable[[Any], Any]) -> Make:
    return lambda mine: {"model": mine.Net(), **{name: make(mine) for name, make in options.items()}}


def filters(make: Callable[[Any], Any]) -> Make:
    return with_(model=lambda mine: mine.scores, palette=lambda mine: [make(mine)])


def model(make: Callable[[Any], Any]) -> Make:
    return lambda mine: {"model": make(mine)}


def samples(**changed: Any) -> rlab.Batch:
    seed = changed.pop("seed", 1)
    x = torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(seed)) * 0.5
    x[0, 0, 0, 0] += changed.pop("more", 0.0)
    made: dict[str, Any] = {"x": x, "y": torch.tensor([1, 1, 0]), "ids": ("a", "b", "c"), "bounds": (0.0, 1.0)}
    return rlab.Batch(**made | changed)


def hooked(amount: float) -> Make:
    def make(mine: Any) -> dict[str, Any]:
        module = mine.Net()
        module.layer.register_forward_hook(lambda layer, given, out: out + amount)
        return {"model": module}

    return make


def replaced(factor: float) -> Make:
    def make(mine: Any) -> dict[str, Any]:
        mine.centred = lambda x: x - factor
        return {"model": mine.Net()}

    return make


def executed(source: str) -> Make:
    def make(mine: Any) -> dict[str, Any]:
        made: dict[str, Any] = {"scores": mine.scores}
        exec(f"def own(x):\n    return scores(x) * {source}", made)
        return {"model": made["own"]}

    return make


def fitted(depth: int) -> Make:
    def make(mine: Any) -> dict[str, Any]:
        from sklearn.tree import DecisionTreeClassifier

        x = np.random.default_rng(0).random((40, 16))
        return {"model": DecisionTreeClassifier(max_depth=depth, random_state=0).fit(x, x.mean(1) > 0.5)}

    return make


@dataclass(frozen=True)
class Change:
    """`make` is called before and after; an edit replaces a text of the user's module or of its helper in between."""

    name: str
    kind: str  # model, code, reading, surrogate, filter, policy, goal or data
    before: Make
    after: Make
    old: str = ""
    new: str = ""
    verbs: tuple[str, ...] = ANY  # that take it, beside attack

    def edited(self, source: str) -> str:
        return source.replace(self.old, self.new) if self.old else source


def edit(
    name: str, old: str, new: str, make: Make | None = None, verbs: tuple[str, ...] = (), kind: str = "code"
) -> Change:
    assert (old in MODULE) or (old in HELPER), old
    made = make or net()
    return Change(name, kind, made, made, old, new, verbs)


def two(name: str, kind: str, before: Make, after: Make, verbs: tuple[str, ...] = ()) -> Change:
    return Change(name, kind, before, after, verbs=verbs)


def by_name(mine: Any) -> dict[str, Any]:
    return {"model": "my_mine:net"}


SCORES = model(lambda mine: mine.scores)
CHANGES = (
    edit("a line of forward", "self.shift + OFFSET", "self.shift - OFFSET", verbs=TORCH),
    edit("a method of a base class", "return x.flatten(1)\n", "return x.flatten(1) + 0\n", verbs=TORCH),
    edit("an attribute of the class", "gain = 1.0", "gain = 2.0", verbs=TORCH),
    edit("a constant of the module", "OFFSET = 0.0", "OFFSET = 0.5", verbs=TORCH),
    edit("a function that forward calls", "x - 0.5", "x - 0.25", verbs=TORCH),
    edit("a function of another module", "x * SCALE", "x * SCALE * 2", verbs=TORCH),
    edit("a constant of another module", "SCALE = 1.0", "SCALE = 3.0", verbs=ANY),
    edit("a model by name", "self.shift + OFFSET", "self.shift - OFFSET", by_name, verbs=("corrupt", "compare")),
    edit("a helper of a model by name", "SCALE = 1.0", "SCALE = 3.0", by_name, verbs=("corrupt", "compare")),
    edit("a function", "np.full(len(x), 0.5)], 1) * np.abs", "np.full(len(x), 0.4)], 1) * np.abs", SCORES, verbs=ANY),
    edit("a table that a function uses", "np.array([1.0, -1.0])", "np.array([1.0, -2.0])", model(lambda m: m.from_table)),
    edit("a wrapped function", "0.5)], 1) * np", "0.4)], 1) * np", model(lambda m: m.logged(m.scores))),
    edit("the code of a callable", "return scores(x) * self.factor\n    def", "return scores(x)\n    def",
         model(lambda m: m.Callable(2.0))),
    edit("a property", "return 2.0", "return 3.0"),
    two("weights", "model", net(), net(seed=1), TORCH),
    two("a plain attribute", "model", net(), net(shift=0.1), TORCH),
    two("a buffer that is not stored", "model", net(), net(hidden=0.1), TORCH),
    two("an array in a dict", "model", net(), net(table=2.0), TORCH),
    two("a list", "model", net(), net(steps=(1, 2)), ("harden",)),
    two("a setting of a layer", "model", net(), net(slope=0.3), TORCH),
    two("an object of an object", "model", net(), net(power=2), ("harden",)),
    two("a lambda in an attribute", "model", net(act=lambda x: x * 2), net(act=lambda x: x * 3), ("compare",)),
    two("a hook", "model", hooked(0.1), hooked(0.2), ("harden", "compare")),
    two("a replaced global", "model", net(), replaced(0.3), TORCH),
    two("a number in a closure", "model", model(lambda m: m.closure(1.0)), model(lambda m: m.closure(2.0)), ANY),
    two("a list in a closure", "model", model(lambda m: m.closure(1.0)), model(lambda m: m.closure(1.0, [2.0])), ANY),
    two("default arguments", "model", model(lambda m: m.defaults(1.0)), model(lambda m: m.defaults(2.0)), ("compare",)),
    two("an argument of a partial", "model", model(lambda m: m.functools.partial(m.weighed, w=2.0)),
        model(lambda m: m.functools.partial(m.weighed, w=3.0)), ANY),
    two("an array of a partial", "model", model(lambda m: m.functools.partial(m.weighed, w=np.ones(2))),
        model(lambda m: m.functools.partial(m.weighed, w=np.full(2, 2.0)))),
    two("an attribute of a callable", "model", model(lambda m: m.Callable(1.0)), model(lambda m: m.Callable(2.0)), ANY),
    two("the object of a method", "model", model(lambda m: m.Callable(1.0).method), model(lambda m: m.Callable(2.0).method)),
    two("a lambda", "model", model(lambda m: lambda x: m.scores(x)), model(lambda m: lambda x: -m.scores(x)), ("compare",)),
    two("a function without source", "model", executed("1.0"), executed("2.0"), ("compare",)),
    two("an estimator", "model", fitted(2), fitted(3), ("compare", "corrupt")),
    two("an own victim", "model", model(lambda m: m.Own(1.0)), model(lambda m: m.Own(2.0)), ANY),
    two("the output", "reading", victim(output=0), victim(output=1), ANY),
    two("the score", "reading", victim(score="doubled"), victim(score="halved"), ANY),
    two("the outputs", "reading", function(outputs="logits"), function(outputs="probabilities"), ANY),
    two("mean and std", "reading", victim(), victim(mean=0.5, std=0.5), TORCH),
    two("the layout", "reading", victim(), victim(layout="channels_last"), TORCH),
    two("autocast", "reading", victim(), victim(autocast=True), TORCH),
    two("the number of classes", "reading", labels(2), labels(3)),
    two("a surrogate", "surrogate", with_(surrogate=lambda m: m.Net(1)), with_(surrogate=lambda m: m.Net(2)), ("compare",)),
    edit("a surrogate's code", "self.shift + OFFSET", "self.shift - OFFSET", with_(model=lambda m: m.scores,
         surrogate=lambda m: m.Net()), ("compare",), "surrogate"),
    edit("a surrogate by name", "self.shift + OFFSET", "self.shift - OFFSET", with_(model=lambda m: m.scores,
         surrogate=lambda m: "my_mine:net"), ("compare",), "surrogate"),
    edit("a filter", "(x + severity)", "(x + severity / 2)", filters(lambda m: m.brighter), ("compare", "benchmark"), "filter"),
    two("a filter's closure", "filter", filters(lambda m: m.by(1.0)), filters(lambda m: m.by(0.5)),
        ("compare", "benchmark")),
    edit("a filter by name", "(x + severity)", "(x + severity / 2)", filters(lambda m: "my_mine:brighter@0.5"),
         ("compare", "benchmark"), "filter"),
    two("a prior", "policy", with_(policy=lambda m: rlab.Belief(prior=m.Edges(1), temperature=0)),
        with_(policy=lambda m: rlab.Belief(prior=m.Edges(3), temperature=1)), ("benchmark",)),
    two("a prior's field", "policy", with_(policy=lambda m: rlab.Belief(prior=m.Edges(1))),
        with_(policy=lambda m: rlab.Belief(prior=m.Edges(3)))),
    two("an own policy's field", "policy", with_(policy=lambda m: m.Mine(0.1)), with_(policy=lambda m: m.Mine(0.2))),
    edit("an own policy's code", "self.inner.begin(state, task)", "self.inner.begin(task=task, state=state)",
         with_(policy=lambda m: m.Mine(0.1)), kind="policy"),
    two("an own goal's field", "goal", with_(goal=lambda m: m.Lead(0.1)), with_(goal=lambda m: m.Lead(0.2)), ("compare",)),
    edit("an own goal's code", "+ self.by", "- self.by", with_(goal=lambda m: m.Lead(0.1)), ("compare",), "goal"),
    two("a value", "data", data(), data(more=0.01), DATA),
    two("a label", "data", data(), data(y=torch.tensor([1, 1, 1])), DATA),
    two("an id", "data", data(), data(ids=("a", "b", "z")), DATA),
    two("the bounds", "data", data(), data(bounds=(0.0, 2.0)), DATA),
    two("eight bits", "data", data(), data(eight_bit=True), DATA),
    two("the rate", "data", data(), data(rate=10.0), DATA),
    two("the unit", "data", data(), data(unit="mV"), DATA),
    two("the names of classes", "data", data(), data(classes=("dark", "bright")), DATA),
)  # fmt: skip
REPEATS: dict[str, Make] = {  # that a second call recognises
    "a module": net(), "a function": SCORES, "a closure": model(lambda m: m.closure(2.0)), "by name": by_name,
    "a partial": model(lambda m: m.functools.partial(m.weighed, w=np.ones(2))), "a callable": model(lambda m: m.Callable(2.0)),
    "a method": model(lambda m: m.Callable(2.0).method), "a wrapped function": model(lambda m: m.logged(m.scores)),
    "a lambda": model(lambda m: lambda x: m.scores(x)), "a function without source": executed("2.0"), "an estimator": fitted(2),
    "an own victim": model(lambda m: m.Own(2.0)), "a score": victim(score="doubled"), "a hook": hooked(0.1),
    "a surrogate": with_(surrogate=lambda m: m.Net(1)), "a filter": filters(lambda m: m.by(1.0)),
    "an own policy": with_(policy=lambda m: m.Mine(0.1)), "an own goal": with_(goal=lambda m: m.Lead(0.1)),
    "an own prior": with_(policy=lambda m: rlab.Belief(prior=m.Edges(1))),
}  # fmt: skip
