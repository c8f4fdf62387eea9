"""What can go wrong, as sentences a user can act on: what was expected, what came, what to do."""

import contextlib
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

from rlab.redact import redact


class _WithoutSecrets:
    """An error whose sentence is safe to print and to keep."""

    def __str__(self) -> str:
        return str(redact(super().__str__()))


class InputError(_WithoutSecrets, ValueError):
    """The user's input cannot be used; the command line prints the sentence and exits with 2."""


class OptionError(InputError):
    """An option, a flag, a configuration key or the name of a policy, filter or goal cannot be used."""


class KeywordError(OptionError, TypeError):
    """A Python function or class got a keyword that it does not have."""


class DataError(InputError):
    """The samples, their labels or the files that hold them cannot be used."""


class AttackError(DataError):
    """An attack from elsewhere failed; a comparison goes on without it."""


class ModelError(InputError):
    """The model cannot be loaded, or does not fit the data or the task."""


class FolderError(InputError):
    """A run or benchmark folder is damaged, unfinished, in use, or belongs to something else."""


class VictimError(_WithoutSecrets, RuntimeError):
    """The model did not answer, or answered with something that is not scores."""


class WorkerLost(VictimError):
    """A worker has died; the answers that it was given are kept."""


class BudgetError(RuntimeError):
    """A row was about to reach the victim beyond its sample's budget; always a bug of the caller."""


class MissingExtra(ImportError):
    """An optional package is needed; the sentence names the extra that brings it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"the package {package!r} is not installed: pip install 'rlab-robustness[{extra}]'")


def optional(module: str, missing: MissingExtra) -> Any:
    """A module of an optional package, imported now; `missing` if it is not installed."""
    try:
        return import_module(module)
    except (ImportError, OSError) as error:  # OSError: a library that it loads is missing
        raise missing from error


class Notice(UserWarning):
    """What a user should know once, and nothing is wrong with."""


_INSIDE = (f"{Path(__file__).parent}/", contextlib.__file__)  # files that a notice does not point to


def give_notice(sentence: str) -> None:
    """Give a notice at the line of the user's code that led to it."""
    frame, level = sys._getframe(1), 2
    while frame.f_code.co_filename.startswith(_INSIDE) and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    warnings.warn(sentence, Notice, stacklevel=level)
