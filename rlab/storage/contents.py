"""Recognise an object in a later run: digests of all parts that decide what it does, and one mark of them all."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

from rlab.storage.parts import SAME, Parts
from rlab.storage.parts import parts_of as parts_of

_WITHOUT, _AND = " without ", "; "


@dataclass(frozen=True)
class Contents:
    """Digests of an object's parts by path. A mark is one digest of all as text, with the paths that it leaves out."""

    thing: object
    parts: Mapping[str, str]
    unknown: Mapping[str, str]  # the type of each part that a later run could not recognise
    tensors: Mapping[int, tuple[int, str]]

    @classmethod
    def of(cls, thing: object) -> Contents:
        walk = Parts(thing)
        return cls(thing, walk.digests, walk.unknown, walk.tensors)

    @property
    def likeness(self) -> str:
        """One digest of all parts, in which an unknown part counts by its type."""
        return self._whole(())

    def _whole(self, left_out: Sequence[str]) -> str:
        kept = (f"{path}\0{digest}" for path, digest in sorted(self.parts.items()) if not _below(path, left_out))
        return hashlib.sha256("\0".join(kept).encode()).hexdigest()[:24]

    def mark(self, without: Iterable[str] = ()) -> str:
        """A mark that only the same contents fit; if a part is unknown, none do."""
        left_out = sorted(without)
        whole = uuid4().hex[:24] if self.lost(left_out) else self._whole(left_out)
        return whole + (_WITHOUT + _AND.join(left_out) if left_out else "")

    def lost(self, left_out: Sequence[str] = ()) -> list[str]:
        """The unknown parts in words."""
        return [f"{path or 'itself'} ({kind})" for path, kind in self.unknown.items() if not _below(path, left_out)]

    def fits(self, mark: object) -> bool:
        """Whether these contents have this mark, but for the parts that it leaves out."""
        return isinstance(mark, str) and self.mark(left_out_of(mark)) == mark

    def mark_among(self, marks: Iterable[str]) -> str:
        """The first of these marks that fits, or else a new one."""
        return next((mark for mark in sorted({*marks}) if self.fits(mark)), self.mark())

    def settled(self, mark: str = "") -> str:
        """A mark that also leaves out what changed since these contents were digested, because the object was used."""
        before, after = self.parts, Parts(self.thing, self.tensors).digests
        differ = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
        moved = {path for path in differ for part in (before, after) if part.get(path, "").startswith(SAME)}
        left_out = {path for path in differ if not _below(path, moved)}  # what only moved still decides
        return self.mark({*left_out_of(mark), *left_out})


def left_out_of(mark: str) -> list[str]:
    """The paths that a mark leaves out."""
    names = mark.partition(_WITHOUT)[2]
    return names.split(_AND) if names else []


def _below(path: str, names: Iterable[str]) -> bool:
    return any(path == name or path.startswith((f"{name}.", f"{name}[", f"{name}<")) for name in names)
