"""Small damages to valid bytes (cut, flip, insert, splice, swap) and to the values of a tree."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

KINDS = ("cut", "flip", "insert", "splice", "swap", "overwrite")
DEEP: Any = []
for _ in range(60):
    DEEP = [DEEP]
VALUES: list[Any] = [
    *(None, True, -1, 0, 7, 2**40, 2**70, 0.5, 1e300, math.nan, math.inf, -math.inf),
    *("", "x", "1e999", "-5", "nan", "[/red]", "../../escaped", "/dev/zero", "caf\u00e9", "\ud800", "\x00", "a" * 5000),
    *([], {}, [1, "x"], {"x": 1}, [[]] * 50, DEEP),
]


@dataclass(frozen=True)
class Edit:
    """Apply `kind` at the share `at` of the bytes, over `length` bytes, with `content` to insert or as the source position."""

    kind: str
    at: float
    length: int
    content: bytes

    def __call__(self, data: bytes) -> bytes:
        start = int(self.at * len(data))
        stop = min(len(data), start + self.length)
        other = int.from_bytes(self.content[:4], "little") % (len(data) or 1)
        match self.kind:
            case "cut":
                return data[:start] if self.length > 40 else data[:start] + data[stop:]
            case "flip":
                flipped = bytes(byte ^ (1 << self.length % 8) for byte in data[start : start + 1])
                return data[:start] + flipped + data[start + 1 :]
            case "insert":
                return data[:start] + self.content + data[start:]
            case "splice":
                return data[:start] + data[other : other + self.length] + data[start:]
            case "swap":
                first, second = sorted((start, other))
                stop = min(len(data), second + self.length)
                return data[:first] + data[second:stop] + data[first:second] + data[stop:]
            case _:
                return data[:start] + self.content + data[start + len(self.content) :]


SPECIAL = [b"\x00" * 8, b"\xff" * 8, b"\xff\xff\xff\x7f", b"[" * 300, b"\n", b",", b'"', b"9" * 20, b"nan"]
edits = st.builds(
    Edit,
    st.sampled_from(KINDS),
    st.floats(0, 1, exclude_max=True),
    st.integers(1, 64),
    st.binary(min_size=1, max_size=16) | st.sampled_from(SPECIAL),
)


@dataclass(frozen=True)
class Change:
    """Change, remove or duplicate the `where`-th value of a tree."""

    where: int
    how: str
    value: Any

    def __call__(self, tree: Any) -> Any:
        changed = copy.deepcopy(tree)
        places = list(_places(changed))
        if not places:
            return self.value
        holder, key = places[self.where % len(places)]
        if self.how == "remove":
            del holder[key]
        elif self.how == "rename" and isinstance(holder, dict):
            holder[f"{key}s"] = holder.pop(key)
        elif self.how == "nest":
            holder[key] = [holder[key], holder[key]]
        else:
            holder[key] = self.value
        return changed


def _places(tree: Any) -> list[tuple[Any, Any]]:
    keys = list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    return [(tree, key) for key in keys] + [place for key in keys for place in _places(tree[key])]


changes = st.builds(
    Change,
    st.integers(0, 500),
    st.sampled_from(["set", "set", "set", "remove", "rename", "nest"]),
    st.sampled_from(VALUES),
)


def apply_all(damages: list[Callable[[Any], Any]], valid: Any) -> Any:
    for damage in damages:
        valid = damage(valid)
    return valid
