"""The loaders on public data sets; skipped if $RLAB_REAL has none."""

from pathlib import Path

import pytest

from rlab.data.load import load

pytestmark = pytest.mark.real


def test_cifar10(real: Path):
    batch = load(real / "cifar10" / "test_0_4999.npz", limit=4, order="first")
    assert batch.x.shape == (4, 3, 32, 32)
    assert batch.y.tolist() == [3, 8, 8, 0]


def test_imagenet_pngs(real: Path):
    batch = load(real / "imagenet" / "nips17", limit=2, order="first")
    assert batch.x.shape == (2, 3, 299, 299)
    assert dict(zip(batch.ids, batch.y.tolist(), strict=True))["00c3cd597f1ee96f.png"] == 137


def test_pets_by_either_column(real: Path):
    table = str(real / "pets" / "labels.csv")
    by_breed = load(real / "pets" / "images", labels=table, label_column="breed", size=64, limit=3, order="first")
    by_index = load(
        real / "pets" / "images", labels=table, label_column="imagenet_index", size=64, limit=3, order="first"
    )
    assert by_breed.x.shape == (3, 3, 64, 64)
    assert [by_breed.classes[i] for i in by_breed.y] == ["Egyptian_Mau"] * 3
    assert by_index.y.tolist() == [285] * 3


@pytest.mark.slow
def test_mit_bih_beats(real: Path):
    batch = load(real / "mitdb", split="test", limit=50, shuffle=True)
    assert batch.x.shape == (50, 1, 260)
    assert (batch.unit, batch.rate) == ("mV", 360)
    assert set(batch.y.tolist()) <= set(range(5))
    assert len(set(batch.y.tolist())) > 1
    assert batch.masks is not None
    assert batch.masks.any(1).all()
    one = load(real / "mitdb" / "100")
    assert one.x.shape == (2271, 2, 260)
    assert [one.classes[i] for i in one.y].count("S") == 33


@pytest.mark.slow
def test_mit_bih_whole_split(real: Path):
    batch = load(real / "mitdb", split="test", leads=("MLII",))
    assert batch.x.shape == (22686, 1, 260)
    assert batch.r_peaks is not None
    assert all(130 in r_peaks for r_peaks in batch.r_peaks)  # each beat's own R is in its middle
    assert {reason for _, reason in batch.left_out} == {"at the record's border"}


def test_a_saturated_lead_of_mit_bih(real: Path):
    batch = load(real / "mitdb" / "223")
    assert [reason for _, reason in batch.left_out].count("lead V1 is saturated") == 6
    assert len(batch) + len(batch.left_out) == len(load(real / "mitdb" / "223", leads=("MLII",)))


def test_ucf_groups(real: Path):
    train, test = (
        load(real / "ucf6", groups=groups, frames=16, size=(72, 96), stream=True) for groups in ("8-25", "4-7")
    )
    assert (len(train), len(test)) == (529, 112)
    assert train.classes == test.classes
    assert not set(train.ids) & set(test.ids)
    first = test[:2]
    assert first.x.shape == (2, 3, 16, 72, 96)


def test_ucf_clips(real: Path):
    batch = load(real / "ucf6", limit=3, frames=4, size=48, shuffle=True)
    assert batch.x.shape == (3, 3, 4, 48, 48)
    assert len(batch.classes) == 6
    assert all(batch.classes[y] in name for name, y in zip(batch.ids, batch.y.tolist(), strict=True))
