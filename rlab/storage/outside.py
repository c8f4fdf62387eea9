"""Files from outside: only regular ones are opened, and how much they hold is known before it is built."""

from __future__ import annotations

import math
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rlab.errors import InputError
from rlab.redact import REFERENCE, remember

MOST_TEXT = 2**30  # bytes of a table
MOST_DECLARED = 2**20  # bytes of a configuration
MOST_FLOAT = 1e30  # what is computed with in single precision must leave room
MOST_VALUES, MOST_DEPTH = 100_000, 50  # of a configuration, what its aliases repeat counted as often as they do


def regular(path: Path, what: str = "file") -> int:
    """The size of a file in bytes; what is missing, or would wait for someone when opened (a pipe, a device), is refused."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"there is no {what} {str(path)!r}: check the path") from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the {what} {short(path)}: {error}") from error
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "a pipe, a socket or a device"
        raise InputError(f"expected the {what} {str(path)!r} to be a file, it is {kind}: name a file")
    return found.st_size


def read_text(path: Path, what: str = "file", most: int = MOST_TEXT) -> str:
    """The whole of a text file, without a byte-order mark."""
    if (size := regular(path, what)) > most:
        raise InputError(f"the {what} {str(path)!r} has {size:,} bytes, expected at most {most:,}: name a smaller one")
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the {what} {str(path)!r} as UTF-8 text ({error}): save it as such") from error


def short(value: object, most: int = 120) -> str:
    """As it is shown in a sentence."""
    text = repr(value) if not isinstance(value, Path) else repr(str(value))
    return text if len(text) <= most else f"{text[: most - 4]} ..."


def parse_toml(text: str) -> Any:
    try:
        return checked(tomllib.loads(text))
    except (RecursionError, ValueError) as error:
        raise InputError(_reason(error)) from error


def parse_yaml(text: str) -> Any:
    """Plain values; what repeats itself without end, or is nested beyond reason, is refused while it is read."""
    try:
        return checked(yaml.load(text, _Loader))  # _Loader is a SafeLoader
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:
        raise InputError(_reason(error)) from error


def _reason(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())


def checked(values: Any) -> Any:
    """Plain values as they came, where numbers can be computed with, texts can be written, and nesting has an end."""
    waiting: list[tuple[Any, int]] = [(values, 0)]
    while waiting:
        value, depth = waiting.pop()
        if depth > MOST_DEPTH:
            raise InputError(f"expected values nested at most {MOST_DEPTH} deep, got more")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise InputError(f"expected numbers of at most 64 bits, got {_digits(value)}")
        if isinstance(value, float) and MOST_FLOAT < abs(value) < math.inf:
            raise InputError(f"expected numbers up to {MOST_FLOAT:g}, got {value:g}")
        if isinstance(value, str) and not is_text(value):
            raise InputError(f"expected text that can be written as UTF-8, got {short(value)}")
        if isinstance(value, Mapping):
            waiting += [(part, depth + 1) for pair in value.items() for part in pair]
        elif isinstance(value, list | tuple | set):
            waiting += [(part, depth + 1) for part in value]
    return values


def _digits(value: int) -> str:
    """A number of many digits cannot be written out."""
    return str(value) if value.bit_length() < 200 else f"one of {value.bit_length()} bits"


def is_text(text: str) -> bool:
    """Whether it can be written as UTF-8: names of files that are not, and halves of characters, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Loader(yaml.SafeLoader):
    """Counts what it builds; an alias counts as much as what it stands for."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.count, self.depth = 0, 0
        self.sizes: dict[int, int] = {}  # of finished nodes

    def compose_node(self, parent: Any, index: Any) -> Any:
        is_alias, before = self.check_event(yaml.AliasEvent), self.count
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise yaml.YAMLError(f"expected values nested at most {MOST_DEPTH} deep, got more")
        node = super().compose_node(parent, index)
        self.depth -= 1
        if is_alias and id(node) not in self.sizes:
            raise yaml.YAMLError("an alias stands for what it is part of")
        self.count += self.sizes[id(node)] if is_alias else 1
        self.sizes.setdefault(id(node), self.count - before)
        if self.count > MOST_VALUES:
            raise yaml.YAMLError(f"expected at most {MOST_VALUES:,} values, aliases counted, got more")
        return node


def expand(text: str) -> str:
    """`${NAME}` -> what the environment holds under that name, a secret from here on."""

    def value(reference: re.Match[str]) -> str:
        if not (found := os.environ.get(reference[1])):
            raise InputError(f"{reference[0]} is named, and the environment has no {reference[1]}: export it first")
        remember(found, reference[0])
        return found

    return REFERENCE.sub(value, text)
