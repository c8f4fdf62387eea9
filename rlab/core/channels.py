"""Groups of channels: which leads of an ECG, bands of an image or electrodes of an EEG a patch distorts together."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlab.core.grid import UNTOUCHED
from rlab.errors import OptionError

TOGETHER, EACH = "together", "each"
LEADS = ("I", "II", "III", "aVR", "aVL", "aVF", "V1", "V2", "V3", "V4", "V5", "V6")
TWELVE = "II,III,aVF;I,aVL,aVR;V1,V2,V3;V4,V5,V6"  # neighbours in the body: inferior, high lateral, the chest in halves


def is_twelve_lead(names: Sequence[str]) -> bool:
    """Whether these are the standard twelve leads, in any order."""
    return sorted(name.casefold() for name in names) == sorted(name.casefold() for name in LEADS)


def parse_channels(spec: str, count: int, names: Sequence[str] = ()) -> tuple[int, ...]:
    """'together', 'each' or 'I,II,III;V1-V3' -> the group of each of `count` channels, -1 for one that stays untouched.

    Channels without names are counted from 1. () stands for all channels together.
    """
    if spec.strip() == TOGETHER or (spec.strip() == EACH and count == 1):
        return ()
    if spec.strip() == EACH:
        return tuple(range(count))
    known = [name.casefold() for name in names] or [str(channel + 1) for channel in range(count)]
    groups = [[part.strip() for part in group.split(",")] for group in spec.split(";")]
    own = [UNTOUCHED] * count
    for number, group in enumerate(groups):
        for channel in (channel for part in group for channel in _members(part, known, names)):
            if own[channel] != UNTOUCHED:
                raise OptionError(f"the channel {_name(channel, names)} is named twice in {spec!r}: name it once")
            own[channel] = number
    return () if set(own) == {0} else tuple(own)


def _members(part: str, known: Sequence[str], names: Sequence[str]) -> list[int]:
    """'V1' or 'V1-V3' -> positions; a name may contain a hyphen itself, as those of bipolar electrodes do."""
    word = part.casefold()
    if word in known:
        return [known.index(word)]
    ends = ((word[: at.start()].strip(), word[at.end() :].strip()) for at in re.finditer("-", word))
    for first, last in ((first, last) for first, last in ends if first in known and last in known):
        numbered = _between(first, last)
        if numbered and all(name in known for name in numbered):
            return [known.index(name) for name in numbered]
        if known.index(first) < known.index(last):
            return list(range(known.index(first), known.index(last) + 1))
    channels, ranges = (", ".join(names), "V1-V3") if names else (f"1 to {len(known)}, which have no names", "1-3")
    raise OptionError(
        f"expected {TOGETHER}, {EACH} or groups of the channels {channels}, got {part!r}: separate channels by commas and "
        f"groups by semicolons, and write ranges like {ranges}"
    )


def _between(first: str, last: str) -> list[str]:
    """'v1' and 'v3' -> v1, v2, v3; nothing if the names do not differ in a rising number alone."""
    ends = [re.fullmatch(r"(.*?)(\d+)", name) for name in (first, last)]
    if ends[0] is None or ends[1] is None or ends[0][1] != ends[1][1]:
        return []
    return [f"{ends[0][1]}{number}" for number in range(int(ends[0][2]), int(ends[1][2]) + 1)]


def group_names(groups: Sequence[Sequence[int]], names: Sequence[str] = ()) -> tuple[str, ...]:
    """The channels of each group in words, three or more consecutive numbers as a range: 'V1-V3', 'I, II, III'."""
    return tuple(_joined([_name(channel, names) for channel in group]) for group in groups)


def _name(channel: int, names: Sequence[str]) -> str:
    return names[channel] if names else str(channel + 1)


def _joined(names: Sequence[str]) -> str:
    run = len(names) > 2 and _between(names[0], names[-1]) == list(names)
    return f"{names[0]}-{names[-1]}" if run else ", ".join(names)
