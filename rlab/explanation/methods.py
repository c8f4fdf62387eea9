"""Methods by name, with options in brackets: 'credit', 'rise(masks=1000)', 'mask(budget=300)', 'gradcam'."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Sequence
from typing import Any

from rlab.errors import InputError
from rlab.explanation.base import Method
from rlab.explanation.black_box import CaptumOcclusion, Middle, Occlusion, Rise
from rlab.explanation.credit import Credit
from rlab.explanation.minimal import Instant, MinimalMask
from rlab.explanation.white_box import AblationCam, GradCam, GradCamPlusPlus, IntegratedGradients, ScoreCam
from rlab.options import AttackOptions
from rlab.runs.config import check

OURS = (Credit, MinimalMask, Instant)
BASELINES = (
    Rise,
    Occlusion,
    CaptumOcclusion,
    Middle,
    GradCam,
    GradCamPlusPlus,
    AblationCam,
    ScoreCam,
    IntegratedGradients,
)
METHODS: dict[str, type[Method]] = {method.name: method for method in (*OURS, *BASELINES)}
DEFAULT = "credit"


def parse_method(spec: str | Method, attack: AttackOptions | None = None) -> Method:
    """'name' or 'name(option=value)' -> a method; `attack` is for one that attacks, its own options go before."""
    if isinstance(spec, Method):
        return spec
    match = re.fullmatch(r"\s*([\w+]+)\s*(?:\((.*)\))?\s*", spec)
    if match is None:
        raise InputError(f"expected a method like 'credit' or 'rise(masks=1000)', got {spec!r}")
    name, options = match[1], _options(match[2] or "", spec)
    if name not in METHODS:
        near = difflib.get_close_matches(name, METHODS, n=1, cutoff=0.4)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise InputError(f"unknown method {name!r}.{hint} There are {', '.join(METHODS)}")
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


def _options(text: str, spec: str) -> dict[str, Any]:
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError(text)
        return {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (SyntaxError, ValueError):
        raise InputError(f"expected a method like 'credit' or 'rise(masks=1000)', got {spec!r}") from None
