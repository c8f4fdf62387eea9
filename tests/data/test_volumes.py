"""Volumes and slices from NIfTI and DICOM files that the tests write."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from rlab.data.load import load
from rlab.errors import DataError

nibabel = pytest.importorskip("nibabel")
pydicom = pytest.importorskip("pydicom")
SHAPE = (5, 7, 9)  # slices, rows, columns
CUBE = np.random.default_rng(0).integers(-900, 900, SHAPE).astype(np.int16)


def write_nifti(path: Path, values: np.ndarray = CUBE, flip: bool = False) -> None:
    """Write (slices, rows, columns) with axes right, anterior, superior, or with the first axis to the left."""
    path.parent.mkdir(parents=True, exist_ok=True)
    stored, affine = values.transpose(2, 1, 0), np.eye(4)
    if flip:
        stored, affine = stored[::-1], np.diag([-1.0, 1, 1, 1])
    nibabel.save(nibabel.Nifti1Image(stored, affine), path)


def write_dicom(path: Path, values: np.ndarray, series: str, at: int = 0, **more: object) -> None:
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

    path.parent.mkdir(parents=True, exist_ok=True)
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = CTImageStorage, generate_uid()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    file = FileDataset(path, {}, file_meta=meta, preamble=b"\0" * 128)
    file.SOPClassUID, file.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    file.SeriesInstanceUID, file.Modality = series, "CT"
    file.Rows, file.Columns = values.shape
    file.SamplesPerPixel, file.PhotometricInterpretation = 1, "MONOCHROME2"
    file.BitsAllocated, file.BitsStored, file.HighBit, file.PixelRepresentation = 16, 16, 15, 1
    file.RescaleSlope, file.RescaleIntercept = 2, -1000
    file.ImagePositionPatient, file.ImageOrientationPatient = [0, 0, at], [1, 0, 0, 0, 1, 0]
    for name, value in more.items():
        setattr(file, name, value)
    file.PixelData = values.astype(np.int16).tobytes()
    file.save_as(path)


@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
@pytest.mark.parametrize("flip", [False, True])
def test_nifti_volumes_in_one_orientation(tmp_path, ending, flip):
    write_nifti(tmp_path / "ill" / f"a{ending}", flip=flip)
    write_nifti(tmp_path / "well" / f"b{ending}", CUBE[::-1])
    batch = load(tmp_path, bounds=(-500, 500))
    assert (batch.shape, batch.kind, batch.bounds) == ((1, *SHAPE), "video", (-500, 500))
    assert (batch.y.tolist(), batch.classes) == ([0, 1], ("ill", "well"))
    expected = torch.from_numpy(CUBE.clip(-500, 500)).float()
    assert torch.equal(batch.x[0, 0], expected)
    assert torch.equal(batch.x[1, 0], expected.flip(0))
    one = load(tmp_path, kind="image", slice=3, bounds=(-500, 500))
    assert torch.equal(one.x[0, 0], expected[3])
    assert load(tmp_path, frames=2, size=(4, 4)).shape == (1, 2, 4, 4)


def test_without_bounds_each_volume_fills_its_range(tmp_path):
    write_nifti(tmp_path / "k" / "a.nii")
    write_nifti(tmp_path / "k" / "b.nii", CUBE // 2)
    batch = load(tmp_path)
    assert batch.bounds == (0.0, 1.0)
    assert torch.equal(batch.x.flatten(1).amin(1), torch.zeros(2))
    assert torch.equal(batch.x.flatten(1).amax(1), torch.ones(2))


def test_a_series_of_dicom_files_is_a_volume_in_the_order_of_its_positions(tmp_path):
    for at in (3, 0, 4, 1, 2):  # the names say nothing about the order
        write_dicom(tmp_path / "ill" / "x" / f"{(at * 7) % 5}.dcm", CUBE[at], "1.2.3", at)
    (tmp_path / "labels.csv").write_text("id,label\nill/x,1\n")
    batch = load(tmp_path, bounds=(-2800, 800))
    assert (batch.ids, batch.shape) == (("ill/x",), (1, *SHAPE))
    assert torch.equal(batch.x[0, 0], torch.from_numpy(2.0 * CUBE - 1000).float().clip(-2800, 800))


def test_a_series_in_the_folder_itself_has_its_name(tmp_path):
    for at in range(2):
        write_dicom(tmp_path / "scan" / f"{at}.dcm", CUBE[at], "1.2.3", at)
    (tmp_path / "labels.csv").write_text("id,label\nscan,1\n")
    assert load(tmp_path / "scan", labels=str(tmp_path / "labels.csv")).ids == ("scan",)


def test_single_dicom_files_are_images(tmp_path):
    write_dicom(tmp_path / "ill" / "a.dcm", CUBE[0], "1.2.3")
    write_dicom(tmp_path / "well" / "b.dcm", CUBE[0], "1.2.4", PhotometricInterpretation="MONOCHROME1")
    (tmp_path / "well" / "c.dcm").write_bytes(b"no image")
    batch = load(tmp_path)
    assert (batch.shape, batch.ids) == ((1, *SHAPE[1:]), ("ill/a.dcm", "well/b.dcm"))
    assert torch.allclose(batch.x[0], 1 - batch.x[1])
    assert [name for name, _ in batch.left_out] == ["well/c.dcm"]


def test_bad_volumes(tmp_path):
    (tmp_path / "k").mkdir()
    (tmp_path / "k" / "a.nii").write_bytes(b"x" * 400)
    with pytest.raises(DataError, match=r"none of 1 samples can be read: k/a\.nii cannot be read"):
        load(tmp_path)
    write_nifti(tmp_path / "k" / "a.nii", np.full(SHAPE, np.nan, np.float32))
    with pytest.raises(DataError, match="holds NaN or infinite values"):
        load(tmp_path)
    write_nifti(tmp_path / "k" / "a.nii")
    with pytest.raises(DataError, match="has 5 slices, so there is no slice 9"):
        load(tmp_path, kind="image", slice=9)
