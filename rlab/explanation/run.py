"""Methods by name, and the two ways in: a victim's decisions on a batch, or an attack that has been run already.

Options of a method stand in brackets: 'belief', 'rise(masks=1000)', 'mask(budget=300)', 'gradcam'.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from torch import Tensor

from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.explanation.base import Explanation, Method
from rlab.explanation.belief import Belief
from rlab.explanation.black_box import Middle, Occlusion, Rise
from rlab.explanation.captum_methods import CaptumOcclusion, KernelShap, Lime
from rlab.explanation.credit import Credit
from rlab.explanation.maps import each
from rlab.explanation.minimal import Instant, MinimalMask
from rlab.explanation.sensitivity import Hsic, Sobol
from rlab.explanation.white_box import AblationCam, GradCam, GradCamPlusPlus, IntegratedGradients, ScoreCam
from rlab.results.result import AttackResult
from rlab.runs.options import AttackOptions
from rlab.storage.config import check, did_you_mean, parse_call
from rlab.victims.base import Victim

OURS = (Belief, Credit, MinimalMask, Instant)
BLACK_BOX = (Rise, Sobol, Hsic, KernelShap, Lime, Occlusion, CaptumOcclusion, Middle)
WHITE_BOX = (GradCam, GradCamPlusPlus, AblationCam, ScoreCam, IntegratedGradients)
METHODS: dict[str, type[Method]] = {method.name: method for method in (*OURS, *BLACK_BOX, *WHITE_BOX)}
DEFAULT = "belief"


def parse_method(spec: str | Method, attack: AttackOptions | None = None) -> Method:
    """'name' or 'name(option=value)' -> a method; `attack` is for one that attacks, its own options go before."""
    if isinstance(spec, Method):
        return spec
    name, options = parse_call(spec, "a method like 'belief' or 'rise(masks=1000)'")
    if name not in METHODS:
        raise InputError(f"unknown method {name!r}.{did_you_mean(name, METHODS)} There are {', '.join(METHODS)}")
    try:
        return METHODS[name].of(options, attack or check(AttackOptions, {}))
    except TypeError:
        raise InputError(f"the method {name!r} does not take the options {', '.join(options)}") from None


def parse_methods(words: Sequence[str], attack: AttackOptions | None = None) -> list[Method]:
    """Several, each by itself or with commas between; no name twice."""
    specs = [part for word in words for part in re.split(r",(?![^(]*\))", word) if part.strip()]
    methods = [parse_method(spec, attack) for spec in specs]
    names = [method.name for method in methods]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InputError(f"the method {twice[0]!r} is named twice: name it once, with the options you want")
    return methods


def explain_batch(
    victim: Victim,
    batch: Batch,
    method: str | Method = DEFAULT,
    *,
    labels: Tensor | None = None,
    seed: int = 0,
    rule: str = "otsu",
) -> Explanation:
    """A map and a mask for every sample; `labels` (n,) None explains the predicted class."""
    return parse_method(method)(victim, batch, labels, seed, rule)


def explain_result(
    result: AttackResult,
    victim: Victim | None = None,
    method: str | Method = DEFAULT,
    *,
    seed: int = 0,
    rule: str = "otsu",
) -> Explanation:
    """An attack's own answer: the patches that had to change; with the victim, the map of a method on the same inputs.

    Samples the attack did not flip have an empty mask; with the victim, all inputs are explained as it predicts them.
    """
    if victim is not None:
        s = result.setting
        inputs = Batch(x=result.original, y=result.labels, ids=result.ids, bounds=s.bounds, classes=s.classes)
        return explain_batch(victim, inputs, method, seed=seed, rule=rule)
    if result.labels.dim() > 1:
        raise InputError("an attack on several labels at once has no one class to explain: pass the victim")
    mask = result.masks & each(result.succeeded, result.masks)
    queries, seconds = result.queries.sum(1), float(result.seconds.sum())
    return Explanation("mask", mask.float(), mask, result.labels, queries, "the attack's own set", seconds)


def explain_flip(result: AttackResult, victim: Victim, *, queries: int | None = None, seed: int = 0) -> Explanation:
    """What changed the model's mind: by how much putting each place of a flipped input back lowers the new class.

    Only the samples that the attack flipped are explained, in the result's order.
    """
    rows = result.succeeded.nonzero().flatten()
    if not len(rows):
        raise InputError("the attack flipped no sample, so nothing changed: raise its budget, or explain the inputs")
    s = result.setting
    after = Batch(
        x=result.perturbed[rows],
        y=result.after[rows].argmax(1),
        ids=tuple(result.ids[i] for i in rows.tolist()),
        bounds=s.bounds,
        classes=s.classes,
    )
    return Belief(queries)(victim, after, after.y, seed, instead=result.original[rows])
