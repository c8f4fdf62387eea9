"""Methods by name, with options in brackets ('rise(masks=1000)'), applied to a batch or to the result of an attack."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from torch import Tensor

from rlab.core.channels import TOGETHER
from rlab.core.vectors import wide
from rlab.data.batch import Batch
from rlab.errors import DataError, OptionError
from rlab.explanation.base import RULE, Drawn, ExplanationTask, Method, options_of
from rlab.explanation.belief import belief
from rlab.explanation.black_box import linear, middle, occlusion, rise
from rlab.explanation.explanation import Explanation
from rlab.explanation.maps import BY_RANK, even_grid, hiding_filter
from rlab.explanation.scores import refuse_unscored
from rlab.explanation.waves import waves
from rlab.explanation.white_box import CAMS, activation_map, integrated_gradients
from rlab.filters.palette import refuse_pixels
from rlab.progress import showing
from rlab.results.result import AttackResult
from rlab.runs.attack import run_attack
from rlab.runs.options import AttackOptions
from rlab.storage.config import check, did_you_mean, parse_call
from rlab.victims.base import Victim

BUDGET = 1000  # of the method 'mask'
DEFAULT = "belief"


def minimal_mask(task: ExplanationTask, *, attack: AttackOptions) -> Drawn:
    """The patches that had to change for the decision to flip, without those that cleanup restored; none without a flip.

    Defaults: patches and a blur as in the other methods, and 1,000 queries.
    """
    kept = ("bounds", "unit", "leads", "rate", "r_peaks")
    batch = Batch(task.x0.cpu(), task.labels.cpu(), **{name: getattr(task.batch, name) for name in kept})
    grid = even_grid(task.size, BY_RANK[len(task.size) - 1].sets[-1])
    usual = {"palette": (hiding_filter(task.size),), "patch": grid.patch, "budget": BUDGET}
    usual |= {"channels": TOGETHER}  # a map is over positions
    own = {name: value for name, value in usual.items() if getattr(attack, name) is None}
    built = attack.model_copy(update={**own, "seed": int(task.seeds[0])}).build(batch)
    # Our own filter needs no check, which costs more than the attack on large inputs.
    ours = "palette" in own
    result = AttackResult.of(built.search(task.victim, batch)) if ours else run_attack(built, task.victim, batch)
    task.meter.counts += result.queries
    mask = (result.masks & wide(result.succeeded, result.masks)).to(task.x0.device)
    return Drawn(mask.float(), mask=mask)


METHODS = {
    method.name: method
    for method in (
        Method("belief", belief),
        Method("waves", waves),
        Method("mask", minimal_mask, flips=True),
        Method("rise", rise),
        Method("drise", partial(rise, masks=5000, cells=16)),
        Method("kernel_shap", partial(linear, "KernelShap")),
        Method("lime", partial(linear, "Lime")),
        Method("occlusion", occlusion),
        Method("middle", middle),
        *(Method(name, partial(activation_map, weights), gradients=True) for name, weights in CAMS.items()),
        Method("integrated_gradients", integrated_gradients, gradients=True),
    )
}


def parse_method(spec: str | Method, attack: AttackOptions | None = None) -> Method:
    """'name' or 'name(option=value)' -> a method; `attack` holds the run's options, for methods that attack or group channels."""
    if isinstance(spec, Method):
        return spec
    name, given = parse_call(spec, "a method like 'belief' or 'rise(masks=1000)'")
    if name not in METHODS:
        raise OptionError(f"unknown method {name!r}.{did_you_mean(name, METHODS)} Known methods: {', '.join(METHODS)}")
    method, what, run = METHODS[name], f"the method {name!r}", {} if attack is None else dict(attack)
    if method.flips:
        checked = check(AttackOptions, run | given, what)
        refuse_pixels(checked.palette, what)
        return replace(method, options={"attack": checked})
    kind = options_of(method.draw)
    if "channels" in kind.model_fields and run.get("channels") is not None:
        given = {"channels": run["channels"], **given}
    return replace(method, options=dict(check(kind, given, what)))


def parse_methods(words: Sequence[str], attack: AttackOptions | None = None, scored: bool = False) -> list[Method]:
    """Several methods, in separate words or separated by commas; `scored` refuses those that cannot be scored."""
    specs = [part for word in words for part in re.split(r",(?![^(]*\))", word) if part.strip()]
    methods = [parse_method(spec, attack) for spec in specs]
    names = [method.name for method in methods]
    if twice := [name for name in names if names.count(name) > 1]:
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
    inputs = _inputs(result) if all(map(result.inputs.has, range(len(result)))) else None
    return Explanation(
        "mask", mask.float(), mask, result.labels, result.queries.sum(1), "the attack's patches",
        ids=result.ids, classes=result.setting.classes, inputs=inputs,
    )  # fmt: skip


def _inputs(result: AttackResult) -> Batch:
    known = {name: getattr(result.setting, name) for name in ("bounds", "classes", "unit", "rate", "leads")}
    peaks = result.r_peaks if any(result.r_peaks) else None
    return Batch(result.original, result.labels, result.ids, r_peaks=peaks, **known)


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
        method = replace(METHODS[DEFAULT], options={"queries": queries})
        return method(victim, after, after.y, seed, instead=result.original[rows])
