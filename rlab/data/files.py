"""What a path holds; a folder is listed once, however many questions are asked about it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from rlab.errors import DataError

SYSTEM = ("__MACOSX",)  # folders that an archiver of the system adds


@dataclass(frozen=True)
class Place:
    """A file, or a folder and all files in it and below it, except hidden ones."""

    path: Path

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Sorted paths of the files, relative to the folder; none if there is no folder."""
        return tuple(sorted(_below(self.path))) if self.path.is_dir() else ()

    @cached_property
    def endings(self) -> frozenset[str]:
        """The suffixes of the files, in lower case."""
        return frozenset(_ending(name) for name in self.names)

    def holds(self, endings: Collection[str]) -> bool:
        return not self.endings.isdisjoint(endings)

    def files(self, endings: Sequence[str], what: str) -> list[str]:
        """The names of the files with these suffixes."""
        if not self.path.is_dir():
            raise DataError(f"there is no folder {str(self.path)!r}: check the path")
        found = [name for name in self.names if _ending(name) in endings]
        if not found:
            expected = f"expected files ending in {', '.join(endings)}"
            raise DataError(f"the folder {str(self.path)!r} holds no {what}: {expected}")
        return found


def _ending(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def _below(folder: str | Path, prefix: str = "") -> Iterator[str]:
    with suppress(PermissionError), os.scandir(folder) as entries:  # such as lost+found
        for entry in entries:
            if entry.name.startswith(".") or entry.name in SYSTEM:
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _below(entry.path, f"{prefix}{entry.name}/")
            elif entry.is_file():
                yield prefix + entry.name


def refuse_two_levels(folder: Path, names: Sequence[str]) -> None:
    """Refuse folders such as train and test that hold only folders, several of the same names: either level may be the classes."""
    parts = [PurePosixPath(name).parts for name in names]
    below: dict[str, set[str]] = {}
    for first, second, *_ in parts:
        below.setdefault(first, set()).add(second)
    shared = sorted(set.intersection(*below.values()))
    if min(map(len, parts)) > 2 and len(below) > 1 and len(shared) > 1:
        tops, inner = (", ".join(every[:3]) + (", ..." if len(every) > 3 else "") for every in (sorted(below), shared))
        raise DataError(
            f"cannot tell which folders in {str(folder)!r} are the classes, {tops} or, in each of them, {inner}: name one of "
            f"the folders ({str(folder / min(below))!r}), or pass classes (-D classes=FILE, one name per line) or labels"
        )
