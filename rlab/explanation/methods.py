"""Methods by name, with options in brackets: 'credit', 'rise(masks=1000)', 'gradcam'."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Sequence
from typing import Any

from rlab.errors import InputError
from rlab.explanation.base import Method
from rlab.explanation.black import Middle, Occlusion, Rise
from rlab.explanation.cams import AblationCam, GradCam, GradCamPlusPlus, ScoreCam
from rlab.explanation.captum_methods import CaptumOcclusion, IntegratedGradients
from rlab.explanation.credit import Credit
from rlab.explanation.minimal import Instant, MinimalMask

OURS: tuple[type[Method], ...] = (Credit, MinimalMask, Instant)
BLACK: tuple[type[Method], ...] = (Rise, Occlusion, CaptumOcclusion, Middle)
WHITE: tuple[type[Method], ...] = (GradCam, GradCamPlusPlus, AblationCam, ScoreCam, IntegratedGradients)
METHODS: dict[str, Callable[..., Method]] = {one.name: one for one in (*OURS, *BLACK, *WHITE)}
DEFAULT = "credit"


def parse_method(spec: str | Method) -> Method:
    """'name' or 'name(option=value)' -> a method."""
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
        return METHODS[name](**options)
    except TypeError:
        raise InputError(f"the method {name!r} does not take the options {', '.join(options)}") from None


def parse_methods(words: Sequence[str]) -> list[Method]:
    """Several, each by itself or with commas between; no name twice."""
    specs = [part for word in words for part in re.split(r",(?![^(]*\))", word) if part.strip()]
    found = [parse_method(spec) for spec in specs]
    names = [one.name for one in found]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InputError(f"the method {twice[0]!r} is named twice: name it once, with the options you want")
    return found


def _options(text: str, spec: str) -> dict[str, Any]:
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError(text)
        return {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (SyntaxError, ValueError):
        raise InputError(f"expected a method like 'credit' or 'rise(masks=1000)', got {spec!r}") from None
