"""Functions that users name: module:function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlab.errors import ModelError
from rlab.guard import contained, import_named


def find_function(spec: str) -> Callable[..., Any]:
    """'package.module:function' -> the function; the current folder is searched too."""
    module, _, name = spec.partition(":")
    try:
        with contained():
            function: object = import_named(module)
            for part in name.split("."):
                function = getattr(function, part)
    except (ModuleNotFoundError, AttributeError, ValueError) as error:
        raise ModelError(f"cannot find {spec}: {error}") from error
    except Exception as error:  # the user's module may raise anything
        raise ModelError(f"cannot import {module}: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise ModelError(f"expected {spec} to be a function, got {type(function).__name__}")
    return function


def call_function(spec: str) -> object:
    function = find_function(spec)
    try:
        with contained():
            return function()
    except Exception as error:
        advice = "; it is called without arguments and returns the model" if isinstance(error, TypeError) else ""
        raise ModelError(f"{spec}() failed: {type(error).__name__}: {error}{advice}") from error
