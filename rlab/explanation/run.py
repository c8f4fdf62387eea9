"""Methods by name, with options in brackets ('rise(masks=1000)'), applied to a batch or to the result of an attack."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from rlab.core.channels import TOGETHER
from rlab.core.vectors import wide
from rlab.data.batch import Batch
from rlab.errors import DataError, OptionError
from rlab.explanation.base import RULE, ExplanationTask, Method
from rlab.explanation.belief import Belief
from rlab.explanation.black_box import Drise, KernelShap, Lime, Middle, Occlusion, Rise
from rlab.explanation.explanation import Explanation
from rlab.explanation.maps import BY_RANK, even_grid, hiding_filter
from rlab.explanation.scores import refuse_unscored
from rlab.explanation.waves import Waves
from rlab.explanation.white_box import AblationCam, GradCam, GradCamPlusPlus, IntegratedGradients, ScoreCam
from rlab.filters.palette import refuse_pixels
from rlab.progress import showing
from rlab.results.result import AttackResult
from rlab.runs.attack import run_attack
from rlab.runs.options import AttackOptions
from rlab.storage.config import check, did_you_mean, parse_call
from rlab.victims.base import Victim

BUDGET = 1000  # of the method 'mask'


@dataclass(frozen=True)
class MinimalMask(Method):
    """The patches that had to change for the decision to flip, without those that cleanup restored.

    Defaults: patches and a blur as in the other methods, and 1,000 queries. It is not scored: a set of patches that flips the
    model is no ranking of what the decision depends on.
    """

    name = "mask"
    flips = True
    classes_only = True
    scored = False
    attack: AttackOptions = field(default_factory=lambda: check(AttackOptions, {}))

    @classmethod
    def of(cls, options: Mapping[str, Any], attack: AttackOptions) -> Method:
        checked = check(AttackOptions, dict(attack) | dict(options), "the method 'mask'")
        refuse_pixels(checked.palette, "the method 'mask'")
        return cls(checked)

    def draw(self, task: ExplanationTask) -> Tensor:
        """1 in the set, 0 elsewhere; zeros if the model did not flip within the budget."""
        batch = task.inputs
        grid = even_grid(task.size, BY_RANK[len(task.size) - 1].sets[-1])
        own = {"palette": (hiding_filter(task.size),), "patch": grid.patch, "budget": BUDGET}
        own |= {"channels": TOGETHER}  # a map is over positions
        own = {name: value for name, value in own.items() if getattr(self.attack, name) is None}
        attack = self.attack.model_copy(update={**own, "seed": int(task.seeds[0])}).build(batch)
        # Our own filter needs no check, which costs more than the attack on large inputs.
        ours = "palette" in own
        result = AttackResult.of(attack.search(task.victim, batch)) if ours else run_attack(attack, task.victim, batch)
        task.meter.counts += result.queries
        return (result.masks & wide(result.succeeded, result.masks)).float().to(task.x0.device)

    def cut(self, extent: Tensor, rule: str) -> Tensor:
        return extent > 0


OURS = (Belief, Waves, MinimalMask)
BLACK_BOX = (Rise, Drise, KernelShap, Lime, Occlusion, Middle)
WHITE_BOX = (GradCam, GradCamPlusPlus, AblationCam, ScoreCam, IntegratedGradients)
METHODS: dict[str, type[Method]] = {method.name: method for method in (*OURS, *BLACK_BOX, *WHITE_BOX)}
DEFAULT = "belief"


def parse_method(spec: str | Method, attack: AttackOptions | None = None) -> Method:
    """'name' or 'name(option=value)' -> a method; `attack` holds default options for a method that attacks."""
    if isinstance(spec, Method):
        return spec
    name, options = parse_call(spec, "a method like 'belief' or 'rise(masks=1000)'")
    if name not in METHODS:
        raise OptionError(f"unknown method {name!r}.{did_you_mean(name, METHODS)} Known methods: {', '.join(METHODS)}")
    return METHODS[name].of(options, attack or check(AttackOptions, {}))


def parse_methods(words: Sequence[str], attack: AttackOptions | None = None, scored: bool = False) -> list[Method]:
    """Several methods, in separate words or separated by commas; `scored` refuses those that cannot be scored."""
    specs = [part for word in words for part in re.split(r",(?![^(]*\))", word) if part.strip()]
    methods = [parse_method(spec, attack) for spec in specs]
    names = [method.name for method in methods]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise OptionError(f"the method {twice[0]!r} is named twice: name it once, with the options you want")
    if scored:
        refuse_unscored(methods)
    return methods


def explain_batch(
    victim: Victim,
    batch: Batch,
    method: str | Method = DEFAULT,
    *,
    labels: Tensor | None = None,
    seed: int = 0,
    rule: str = RULE,
    progress: bool = True,
) -> Explanation:
    """Explain every sample with a map and a mask; `labels` (n,) are the classes to explain (default: the predicted ones)."""
    with showing(progress):
        return parse_method(method)(victim, batch, labels, seed, rule)


def explain_result(
    result: AttackResult,
    victim: Victim | None = None,
    method: str | Method = DEFAULT,
    *,
    seed: int = 0,
    rule: str = RULE,
    progress: bool = True,
) -> Explanation:
    """Explain an attack by the patches that had to change or, if you pass the victim, its inputs by a method.

    Those patches show what went wrong and localise badly: pass the victim to see where it looks. Without the victim, samples that
    were not flipped have an empty mask; with it, the predicted classes are explained.
    """
    if victim is not None:
        return explain_batch(victim, _inputs(result), method, seed=seed, rule=rule, progress=progress)
    if result.labels.dim() > 1:
        raise DataError("an attack on several labels at once has no single class to explain: pass the victim")
    mask = result.masks & wide(result.succeeded, result.masks)
    queries, seconds = result.queries.sum(1), float(result.seconds.sum())
    kept = all(map(result.inputs.has, range(len(result))))
    known: dict[str, Any] = {
        "ids": result.ids,
        "classes": result.setting.classes,
        "inputs": _inputs(result) if kept else None,
    }
    return Explanation("mask", mask.float(), mask, result.labels, queries, "the attack's patches", seconds, **known)


def _inputs(result: AttackResult) -> Batch:
    s = result.setting
    return Batch(
        result.original, result.labels, result.ids, bounds=s.bounds, classes=s.classes, unit=s.unit, rate=s.rate,
        r_peaks=result.r_peaks if any(result.r_peaks) else None, leads=s.leads,
    )  # fmt: skip


def explain_flip(
    result: AttackResult, victim: Victim, *, queries: int | None = None, seed: int = 0, progress: bool = True
) -> Explanation:
    """Explain each flip: how much restoring each place of the perturbed input lowers the new class.

    Only flipped samples are explained, in the result's order.
    """
    rows = result.succeeded.nonzero().flatten()
    if not len(rows):
        raise DataError("the attack flipped no sample: raise its budget, or explain the inputs")
    after = replace(_inputs(result)[rows.tolist()], x=result.perturbed[rows], y=result.after[rows].argmax(1))
    with showing(progress):
        return Belief(queries)(victim, after, after.y, seed, instead=result.original[rows])
