"""Harden: train on what was found, and prove that it helped. The package itself can be called: `rlab.harden(model, data)`."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from rlab.harden.compare import METHODS, HardeningComparison, compare_hardening
from rlab.harden.config import HardenConfig
from rlab.harden.hardened import Hardened
from rlab.harden.hardening import harden
from rlab.harden.measure import Measured, Trial, measure
from rlab.harden.page import write_page

__all__ = [
    "METHODS",
    "HardenConfig",
    "Hardened",
    "HardeningComparison",
    "Measured",
    "Trial",
    "compare_hardening",
    "harden",
    "measure",
    "write_page",
]


class _Callable(ModuleType):
    """`rlab.harden` is this package once anything of it is imported, and the function before: both can be called."""

    def __call__(self, *args: Any, **options: Any) -> Hardened:
        return harden(*args, **options)


sys.modules[__name__].__class__ = _Callable
