"""The palette and the patch, which attacks and learning declare alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field, PlainSerializer, field_validator

from rlab.core import defaults
from rlab.core.channels import parse_channels
from rlab.core.grid import PatchGrid
from rlab.data.batch import Samples
from rlab.data.wfdb import read_noise
from rlab.filters.base import Filter
from rlab.filters.clinical import recorded_filter, reversal_filters
from rlab.filters.named import Distortion
from rlab.filters.palette import PIXELS, FreePixels, Palette, Round, Spec
from rlab.filters.palettes import members
from rlab.storage.config import Accepts, Options

NSTDB, _LEVELS = "nstdb:", "12,6dB"  # recorded noise, and its usual SNR: two of the six levels of the database


class PaletteOptions(Options):
    """What may happen to a patch, and how large patches are; the default of None depends on the kind of data."""

    palette: Annotated[
        tuple[Any, ...] | None,
        Accepts(Spec | Sequence[Spec] | None),
        PlainSerializer(lambda specs: [*map(spec_name, specs)], when_used="json-unless-none"),
    ] = Field(
        None,
        description="filters, e.g. gaussian_noise@0.2 or module:function (see `rlab filters`); clinical, recorder, audio or "
        "paper for a set of them; nstdb:FOLDER for recorded noise; or pixels for any values (default: clinical for ECG, "
        "audio for sound)",
    )
    patch: Annotated[int | tuple[int, ...] | None, Accepts(int | str | Sequence[int] | None)] = Field(
        None, description="patch size, one number or one per axis: 8 or 2,8,8 (default: depends on the data)"
    )
    channels: Annotated[str | None, Accepts(str | Sequence[str] | Sequence[Sequence[str | int]] | None)] = Field(
        None,
        description="channels that a patch distorts together: together, each (every channel alone), or groups such as "
        "'I,II,III;V1-V3' by name, '1-3;4' by number; channels left out stay untouched (default: together; four groups of "
        "three leads for a 12-lead ECG). Not -D channels, which reads images in colour or grey",
    )

    @field_validator("palette", mode="before")
    @classmethod
    def _specs(cls, value: Any) -> Any:
        """Accept one filter, a list, or names separated by spaces."""
        if value is None:
            return None
        listed = value if isinstance(value, list | tuple) else [value]
        texts = [str(spec) if isinstance(spec, Distortion) else spec for spec in listed]
        specs = [part for spec in texts for part in (spec.split() if isinstance(spec, str) else [spec])]
        if wrong := [type(spec).__name__ for spec in specs if not isinstance(spec, str) and not callable(spec)]:
            raise ValueError(f"expected filters such as gaussian_noise@0.2 or functions, got {wrong[0]}")
        return tuple(specs)

    @field_validator("patch", mode="before")
    @classmethod
    def _sides(cls, value: Any) -> Any:
        """Accept '8' or '2,8,8', as on the command line."""
        sides = parse_numbers(value, "a patch like 8 or 2,8,8")
        return sides[0] if isinstance(value, str) and len(sides) == 1 else sides

    @field_validator("channels", mode="before")
    @classmethod
    def _groups(cls, value: Any) -> Any:
        """Accept a list of groups, each a text or a list of channels."""
        if not isinstance(value, list | tuple):
            return value
        return ";".join(group if isinstance(group, str) else ",".join(map(str, group)) for group in value)


def parse_numbers(value: Any, expected: str) -> Any:
    """Turn '2,8,8' into numbers; leave what is not text as it is."""
    if not isinstance(value, str):
        return value
    try:
        return tuple(int(part) for part in value.split(","))
    except ValueError:
        raise ValueError(f"expected {expected}") from None


def make_palette(
    specs: Sequence[Spec], batch: Samples, own: Mapping[str, Filter] | None = None, rounded: Round | None = None
) -> Palette:
    """The palette for data like this batch; `own` holds further filters by name, `rounded` rounds distorted inputs."""
    if tuple(specs) == (PIXELS,):
        return FreePixels(rounded)
    single, made = single_filters(specs, batch)
    built = Palette.of(single, batch.rank, batch.shape[0], batch.rate, batch.unit, {**made, **(own or {})})
    return replace(built, rounded=rounded)


def single_filters(specs: Sequence[Spec], batch: Samples) -> tuple[list[Spec], dict[str, Filter]]:
    """Single filters in place of named palettes and recordings, and the filters by name that are built for these data."""
    single, recorded = _with_recordings(specs, batch.rate)
    own = {**reversal_filters(batch.leads), **recorded}
    return [one for spec in single for one in members(spec, batch.rank, batch.rate, batch.unit, own)], own


def _with_recordings(specs: Sequence[Spec], rate: float | None) -> tuple[list[Spec], dict[str, Filter]]:
    """Replace 'nstdb:FOLDER@12dB' by one spec for each kind of recorded noise, and build their filters."""
    single, filters = list[Spec](), dict[str, Filter]()
    for spec in specs:
        if not isinstance(spec, str) or not spec.startswith(NSTDB):
            single.append(spec)
            continue
        folder, _, severity = spec.removeprefix(NSTDB).partition("@")
        found = {name: recorded_filter(name, noise) for name, noise in read_noise(folder, rate).items()}
        filters |= found
        single += [f"{name}@{severity or _LEVELS}" for name in found]
    return single, filters


def is_whole(palette: Palette) -> bool:
    """Whether a filter happens to whole records only."""
    return any(entry.filter.whole for entry in palette.entries)


def refuse_parts(palette: Palette, grid: PatchGrid) -> None:
    """Raise an error if a filter is for whole records only and a patch is a part of a record or holds only some channels."""
    if is_whole(palette) and (grid.patch != grid.size or grid.channels):
        kind = next(entry.filter for entry in palette.entries if entry.filter.whole)
        patch = ",".join(map(str, grid.size))
        whole = f"--patch {patch} --channels together"
        raise kind.error(f"happens to a whole record, not to a part of it: pass {whole}, or name other filters")


def make_grid(batch: Samples, patch: int | Sequence[int] | None, channels: str | None) -> PatchGrid:
    """The patches for data like this batch; None stands for the default of the data."""
    sides = defaults.patch(batch) if patch is None else patch
    spec = defaults.channels(batch) if channels is None else channels
    return PatchGrid.of(batch.size, sides, parse_channels(spec, batch.shape[0], batch.leads))


def spec_name(spec: Spec) -> str:
    """Name a palette entry; the name of a caller's function is valid only within its process."""
    return spec if isinstance(spec, str) else f"{getattr(spec, 'name', getattr(spec, '__name__', 'filter'))}"
