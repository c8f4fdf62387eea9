"""Harden: train on what was found, and prove that it helped. The package itself can be called: `rlab.hardening(model, data)`."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from rlab.hardening.compare import METHODS, HardeningComparison, compare_hardening
from rlab.hardening.config import HardenConfig
from rlab.hardening.hardened import Hardened
from rlab.hardening.hardening import harden
from rlab.hardening.measure import Measured, Trial, measure
from rlab.hardening.page import write_page

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
    """`rlab.hardening` is this package once anything of it is imported, and the function before: both can be called."""

    def __call__(self, *args: Any, **options: Any) -> Hardened:
        return harden(*args, **options)


sys.modules[__name__].__class__ = _Callable
