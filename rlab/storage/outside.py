"""Read files from users safely: only regular files, of limited size, depth and number of values."""

from __future__ import annotations

import math
import os
import re
import stat
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from rlab.errors import InputError, OptionError
from rlab.redact import REFERENCE, remember

MOST_TEXT = 2**30  # bytes of a table
MOST_DECLARED = 2**20  # bytes of a configuration
MOST_FLOAT = 1e30  # leaves room for arithmetic in single precision
MOST_VALUES, MOST_DEPTH = 100_000, 50  # of a configuration, with every use of an alias counted in full


def regular(path: Path, what: str = "file") -> int:
    """Return a file's size in bytes; refuse missing files, and pipes and devices, which could block."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"there is no {what} {str(path)!r}: check the path") from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the {what} {short(path)}: {error}") from error
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a pipe, a socket or a device"
        raise InputError(f"expected the {what} {str(path)!r} to be a file, but it is {kind}: name a file")
    return status.st_size


def read_text(path: Path, what: str = "file", most: int = MOST_TEXT) -> str:
    """Read a text file of at most `most` bytes, without its byte-order mark."""
    if (size := regular(path, what)) > most:
        raise InputError(f"the {what} {str(path)!r} has {size:,} bytes, more than {most:,}: name a smaller file")
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the {what} {str(path)!r} as UTF-8 text ({error}): save it as UTF-8") from error


def read_lines(path: Path, what: str = "file") -> list[str]:
    """Read the lines of a text file that are not blank, without spaces at their ends."""
    return [text for line in read_text(path, what).splitlines() if (text := line.strip())]


def short(value: object, most: int = 120) -> str:
    """Return the value's repr, shortened to fit a sentence."""
    text = repr(value) if not isinstance(value, Path) else repr(str(value))
    return text if len(text) <= most else f"{text[: most - 4]} ..."


def parse_toml(text: str) -> Any:
    return _parse(text, tomllib.loads)


def parse_yaml(text: str) -> Any:
    """Parse plain values; refuse endless aliases and excessive nesting while reading."""
    return _parse(text, lambda text: yaml.load(text, _Loader))  # _Loader is a SafeLoader


def _parse(text: str, load: Callable[[str], Any]) -> Any:
    try:
        return checked(load(text))
    except RecursionError as error:
        raise InputError("it is nested too deeply") from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise InputError(" ".join(str(error).split())) from error


def checked(values: Any) -> Any:
    """Return plain values unchanged; refuse huge numbers, text that UTF-8 cannot encode, and excessive nesting."""
    waiting: list[tuple[Any, int]] = [(values, 0)]
    while waiting:
        value, depth = waiting.pop()
        if depth > MOST_DEPTH:
            raise InputError(f"expected at most {MOST_DEPTH} levels of nesting, got more")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            bits = value.bit_length()  # Python refuses to print a number with thousands of digits
            got = value if bits < 200 else f"a number of {bits} bits"
            raise InputError(f"expected numbers of at most 64 bits, got {got}")
        if isinstance(value, float) and MOST_FLOAT < abs(value) < math.inf:
            raise InputError(f"expected numbers up to {MOST_FLOAT:g}, got {value:g}")
        if isinstance(value, str) and not is_text(value):
            raise InputError(f"expected text that UTF-8 can encode, got {short(value)}")
        if isinstance(value, Mapping):
            waiting += [(part, depth + 1) for pair in value.items() for part in pair]
        elif isinstance(value, list | tuple | set):
            waiting += [(part, depth + 1) for part in value]
    return values


def is_text(text: str) -> bool:
    """Whether UTF-8 can encode the text; surrogates, as in undecodable file names, cannot be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Loader(yaml.SafeLoader):
    """A SafeLoader that counts the values it builds; an alias counts as much as its target."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.count = 0
        self.sizes: dict[int, int] = {}  # number of values in each finished node

    def compose_node(self, parent: Any, index: Any) -> Any:
        is_alias, before = self.check_event(yaml.AliasEvent), self.count
        node = super().compose_node(parent, index)
        if is_alias and id(node) not in self.sizes:
            raise yaml.YAMLError("an alias refers to a value that contains it")
        self.count += self.sizes[id(node)] if is_alias else 1
        self.sizes.setdefault(id(node), self.count - before)
        if self.count > MOST_VALUES:
            raise yaml.YAMLError(f"expected at most {MOST_VALUES:,} values with aliases expanded, got more")
        return node


def expand(text: str) -> str:
    """Replace each `${NAME}` with that environment variable, whose value is a secret from now on."""

    def value(reference: re.Match[str]) -> str:
        if not (secret := os.environ.get(reference[1])):
            raise OptionError(f"{reference[0]} needs the environment variable {reference[1]}: export it first")
        remember(secret, reference[0])
        return secret

    return REFERENCE.sub(value, text)
