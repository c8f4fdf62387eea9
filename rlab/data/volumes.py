"""Load medical volumes and images: NIfTI files, and DICOM files, alone or as the slices of a series."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import interpolate, pad

from rlab.data.decode import frame_indices
from rlab.data.fields import UNIT, DataFields, check_room
from rlab.data.files import files_below
from rlab.data.fitting import place
from rlab.data.labels import labels_of
from rlab.data.source import Source, Unreadable, reader, reading, reads
from rlab.errors import DataError, MissingExtra, optional
from rlab.storage.config import Bounds
from rlab.storage.outside import regular

NIFTI, DICOM = (".nii", ".gz"), (".dcm", ".dicom")
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Study:
    """One sample: the files of its slices, or the one file that holds it."""

    name: str
    files: tuple[Path, ...]


@reads("target", "labels", "label_column", "classes", "bounds", "size", "resize", "frames", "slice")
def volumes(source: DataFields) -> Source:
    """Load volumes (b, channels, slices, h, w), or with kind='image' one slice of each (b, channels, h, w).

    A NIfTI file (.nii, .nii.gz) is a volume, in the orientation right, anterior, superior. DICOM files in one folder that belong
    to one series are the slices of a volume; others are images. Labels come from a table or from folders.
    `bounds` is a window of intensities (Hounsfield units, for CT): values outside it are cut. Without it, each sample is
    scaled to [0, 1] by its own range. `frames` is the number of slices, spread evenly; `slice` counts from 0 (default: the middle).
    """
    studies = find_studies(source.location)
    labels, classes = labels_of(source, [study.name for study in studies])
    rows = source.take.rows(labels)
    chosen = [studies[row] for row in rows]
    bounds = source.bounds or UNIT
    try:
        first = _read(chosen[0], source)
    except Unreadable as why:
        raise DataError(f"cannot read the first volume, {chosen[0].name!r}, which {why}: replace it") from why
    ids, files = tuple(study.name for study in chosen), tuple(file for study in chosen for file in study.files)
    ends = list(accumulate(len(study.files) for study in chosen))
    parts = tuple(range(end - len(study.files), end) for study, end in zip(chosen, ends, strict=True))
    read = reader(lambda study: _read(study, source), chosen, ids, bounds)
    return Source(read, first.shape, labels[rows], ids, files, parts=parts, bounds=bounds, **source.facts(classes))


def find_studies(folder: Path) -> list[Study]:
    """The samples of a folder: every NIfTI file, every series of DICOM files in one folder, every other DICOM file."""
    found = files_below(folder, (*NIFTI, *DICOM), "volumes")
    names = [name for name in found if name.lower().endswith((".nii", ".nii.gz", *DICOM))]
    if not names:
        raise DataError(f"the folder {str(folder)!r} holds no volumes: expected files ending in .nii, .nii.gz or .dcm")
    groups: dict[tuple[str, str], list[str]] = {}
    for name in names:
        parent = name.rpartition("/")[0]
        series = _series(folder / name) if name.lower().endswith(DICOM) else ""
        groups.setdefault((parent, series) if series else (name, ""), []).append(name)
    studies, series_of = [], Counter(parent for parent, _ in groups)
    for (parent, series), members in groups.items():
        alone = len(members) == 1
        home = parent or folder.resolve().name
        own = f"{home}/{series[-12:]}" if series_of[parent] > 1 else home
        studies.append(Study(members[0] if alone else own, tuple(folder / name for name in members)))
    return sorted(studies, key=lambda study: study.name)


def _series(file: Path) -> str:
    """The series that a DICOM file belongs to; '' if its header cannot be read."""
    try:
        with reading():
            regular(file)
            header = _pydicom().dcmread(file, stop_before_pixels=True, specific_tags=["SeriesInstanceUID"])
            return str(header.SeriesInstanceUID)
    except Unreadable:  # reading the values gives the reason
        return ""


def _read(study: Study, source: DataFields) -> Floats:
    """Values (c, slices, h, w) or (c, h, w) within the bounds."""
    with reading():
        whole = _dicom(study.files) if study.files[0].suffix.lower() in DICOM else _nifti(study.files[0])
    if not np.isfinite(whole).all():
        raise Unreadable("holds NaN or infinite values")
    depth = whole.shape[1]
    if source.kind == "image" or depth == 1:
        if source.slice is not None and source.slice >= depth:
            raise Unreadable(f"has {depth} slices, so there is no slice {source.slice}")
        at = depth // 2 if source.slice is None else source.slice
        return _sized(_scaled(whole[:, at], source.bounds), source)
    if source.frames is not None:
        whole = whole[:, frame_indices(depth, source.frames, "uniform")]
    return _sized(_scaled(whole, source.bounds), source)


def _scaled(values: Floats, bounds: Bounds | None) -> Floats:
    if bounds is not None:
        return values.clip(*bounds)
    low, high = float(values.min()), float(values.max())
    return (values - low) / (high - low) if high > low else np.zeros_like(values)


def _sized(values: Floats, source: DataFields) -> Floats:
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
    if values.ndim == 3:
        values = values[..., None]
    return np.ascontiguousarray(values.transpose(3, 2, 1, 0))


def _dicom(files: Sequence[Path]) -> Floats:
    """(c, slices, rows, columns) in the order of the slices' positions."""
    slices = []
    for file in files:
        header = _pydicom().dcmread(file, stop_before_pixels=True)
        sizes = (int(header.get("NumberOfFrames", 1) or 1), int(header.Rows), int(header.Columns))
        check_room(2 * len(files), (int(header.get("SamplesPerPixel", 1)), *sizes))
        slices.append((_position(header), str(file), _pixels(_pydicom().dcmread(file), sizes)))
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
