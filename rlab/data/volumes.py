"""Load medical volumes and images: NIfTI files, and DICOM files, alone or as the slices of a series."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch.nn.functional import interpolate, pad

from rlab.data.clips import frame_indices
from rlab.data.fields import UNIT, Frames, Labelled, Sized, check_room
from rlab.data.files import Place
from rlab.data.fitting import place
from rlab.data.labels import labels_of
from rlab.data.source import Source, Unreadable, decoded, reading
from rlab.errors import MissingExtra, optional
from rlab.storage.outside import regular

DICOM = (".dcm", ".dicom")
VOLUMES = (".nii", ".gz", *DICOM)
_SERIES, _START = (
    0x000E0020,
    2**14,
)  # the tag of the name of a series as it is stored, and bytes of a header to look for it
_LONG = (
    b"OB",
    b"OD",
    b"OF",
    b"OL",
    b"OV",
    b"OW",
    b"SQ",
    b"UC",
    b"UN",
    b"UR",
    b"UT",
    b"SV",
    b"UV",
)  # lengths of 32 bits
Floats = NDArray[np.float32]


class VolumeOptions(Labelled, Sized):
    frames: Frames = None
    slice: int | None = Field(None, ge=0, description="volumes, with kind=image: slice, from 0 (default: the middle)")


def volumes(source: VolumeOptions) -> Source:
    """Load volumes (b, channels, slices, h, w), or with kind='image' one slice of each (b, channels, h, w).

    A NIfTI file (.nii, .nii.gz) is a volume, in the orientation right, anterior, superior. DICOM files in one folder that belong
    to one series are the slices of a volume; others are images. Labels come from a table or from folders.
    `bounds` is a window of intensities (Hounsfield units, for CT): values outside it are cut. Without it, each sample is
    scaled to [0, 1] by its own range. `frames` is the number of slices, spread evenly; `slice` counts from 0 (default: the middle).
    """
    studies = find_studies(source.place)
    names = list(studies)
    labels, classes = labels_of(source, names)
    rows = source.take.rows(labels)
    chosen = {names[row]: studies[names[row]] for row in rows}
    facts = source.facts(classes) | {"bounds": source.bounds or UNIT}
    return decoded(lambda files: _read(files, source), chosen, labels[rows], list(chosen.values()), **facts)


def find_studies(folder: Place) -> dict[str, tuple[Path, ...]]:
    """The files of each sample of a folder by its name: every NIfTI file, every series of DICOM files, every other DICOM file."""
    names = [name for name in folder.files(VOLUMES, "volumes") if name.lower().endswith((".nii", ".nii.gz", *DICOM))]
    groups: dict[tuple[str, str], list[str]] = {}
    for name in names:
        series = _series(folder.path / name) if name.lower().endswith(DICOM) else ""
        groups.setdefault((name.rpartition("/")[0], series) if series else (name, ""), []).append(name)
    studies, series_of = dict[str, tuple[Path, ...]](), Counter(parent for parent, _ in groups)
    for (parent, series), members in groups.items():
        home = parent or folder.path.resolve().name
        own = members[0] if len(members) == 1 else f"{home}/{series[-12:]}" if series_of[parent] > 1 else home
        studies[own] = tuple(folder.path / name for name in members)
    return dict(sorted(studies.items()))


def _series(file: Path) -> str:
    """The series that a DICOM file belongs to; '' if its header cannot be read."""
    regular(file)
    with file.open("rb") as opened:
        start = opened.read(_START)
    at, length = 132, 0  # elements in order: tag, type, length, value; pydicom takes forty times as long
    while at + 12 < len(start) and length < _START:
        tag, kind, length = struct.unpack_from("<L2sH", start, at)
        if kind in _LONG:
            (length,) = struct.unpack_from("<L", start, at + 8)
        elif not kind.isalpha():
            break  # types are not written
        at += 12 if kind in _LONG else 8
        if tag == _SERIES:
            return start[at : at + length].decode("ascii", "replace").strip("\0 ")
        at += length
    try:
        with reading():
            return str(
                _pydicom().dcmread(file, stop_before_pixels=True, specific_tags=["SeriesInstanceUID"])[0x20, 0xE].value
            )
    except Unreadable:  # reading the values gives the reason
        return ""


def _read(files: Sequence[Path], source: VolumeOptions) -> Floats:
    """Values (c, slices, h, w) or (c, h, w) within the bounds."""
    whole = _dicom(files) if files[0].suffix.lower() in DICOM else _nifti(files[0])
    if not np.isfinite(whole).all():
        raise Unreadable("holds NaN or infinite values")
    depth = whole.shape[1]
    if source.kind == "image" or depth == 1:
        if source.slice is not None and source.slice >= depth:
            raise Unreadable(f"has {depth} slices, so there is no slice {source.slice}")
        whole = whole[:, depth // 2 if source.slice is None else source.slice]
    elif source.frames is not None:
        whole = whole[:, frame_indices(depth, source.frames, "uniform")]
    if source.bounds is not None:
        return _sized(whole.clip(*source.bounds), source)
    low, high = float(whole.min()), float(whole.max())
    return _sized((whole - low) / (high - low) if high > low else np.zeros_like(whole), source)


def _sized(values: Floats, source: VolumeOptions) -> Floats:
    """(c, ..., h, w) resized in the plane of a slice."""
    put = place((values.shape[-2], values.shape[-1]), source.size, source.resize or "crop")
    if put.scaled == put.original == put.size:
        return values
    (top, left), (height, width) = put.corner, put.size
    flat = torch.from_numpy(np.ascontiguousarray(values)).flatten(0, -3)[:, None]
    scaled = interpolate(flat, put.scaled, mode="bilinear", antialias=True)[:, 0]
    sides = (left, width - left - put.scaled[1], top, height - top - put.scaled[0])  # negative where it is cropped
    low = float(values.min()) if source.bounds is None else source.bounds[0]
    out: Floats = pad(scaled, sides, value=low).clamp(*(source.bounds or UNIT)).numpy()
    return out.reshape(*values.shape[:-2], height, width)


def _nifti(file: Path) -> Floats:
    """(c, slices, rows, columns); a fourth axis counts channels."""
    regular(file)
    nibabel = optional("nibabel", MissingExtra("nibabel", "medical"))
    image = nibabel.load(file)
    shape = tuple(int(length) for length in image.shape)
    if len(shape) not in (3, 4) or not all(shape):
        raise ValueError(f"it has shape {shape}, not three axes or four")
    check_room(2, shape)
    values = np.asarray(nibabel.as_closest_canonical(image).dataobj, dtype=np.float32)
    return np.ascontiguousarray(values.reshape(*values.shape[:3], -1).transpose(3, 2, 1, 0))


def _dicom(files: Sequence[Path]) -> Floats:
    """(c, slices, rows, columns) in the order of the slices' positions."""
    slices = []
    for file in files:
        header = _pydicom().dcmread(file, defer_size="1 KB")
        sizes = (int(header.get("NumberOfFrames", 1) or 1), int(header.Rows), int(header.Columns))
        check_room(2 * len(files), (int(header.get("SamplesPerPixel", 1)), *sizes))
        slices.append((_position(header), str(file), _pixels(header, sizes)))
    parts = [part for _, _, part in sorted(slices, key=lambda each: each[:2])]
    if len({part.shape for part in parts}) > 1:
        raise ValueError("its slices differ in size")
    return np.concatenate(parts, axis=1)


def _position(header: Any) -> float:
    """How far a slice lies along the normal of its plane; its number, if it has no position."""
    where, turn = header.get("ImagePositionPatient"), header.get("ImageOrientationPatient")
    if where is None or turn is None:
        return float(header.get("InstanceNumber", 0) or 0)
    across, down, corner = (np.array(part, np.float64) for part in (turn[:3], turn[3:], where))
    return float(np.cross(across, down) @ corner)


def _pixels(dataset: Any, sizes: tuple[int, int, int]) -> Floats:
    """(c, frames, rows, columns) in the unit of the modality, bright for dense."""
    colours = int(dataset.get("SamplesPerPixel", 1))
    values = np.asarray(dataset.pixel_array, dtype=np.float32).reshape(*sizes, colours)
    if str(dataset.get("PhotometricInterpretation", "")) == "MONOCHROME1":  # stored with dark for dense
        values = values.max() + values.min() - values
    slope, intercept = float(dataset.get("RescaleSlope", 1)), float(dataset.get("RescaleIntercept", 0))
    return np.moveaxis(values * slope + intercept, -1, 0)


def _pydicom() -> Any:
    return optional("pydicom", MissingExtra("pydicom", "medical"))
