"""Sources read in chunks exactly what the loaders read at once, and refuse files that changed."""

from __future__ import annotations

import io
import json
import os
import sys
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from rlab.data import source as source_module
from rlab.data.batch import Batch
from rlab.data.load import DataOptions, load
from rlab.data.source import Decoded, Source, read_ahead
from rlab.data.take import Take
from rlab.errors import DataError, InputError, OptionError
from rlab.runs.fingerprint import data_fingerprint
from tests.data.clip_files import write_counted as write_clip
from tests.data.test_wfdb_records import write as write_record

N = 23
X = np.random.default_rng(0).integers(0, 256, (N, 9, 8, 3), dtype=np.uint8)
Y = np.arange(N) % 3


def encoded(pixels: Any, kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, kind)
    return out.getvalue()


def folder(path: Path) -> dict[str, Any]:
    for i, pixels in enumerate(X):
        (path / f"{Y[i]}").mkdir(parents=True, exist_ok=True)
        (path / f"{Y[i]}" / f"{i:03d}.png").write_bytes(encoded(pixels))
    return {}


def npz(path: Path) -> dict[str, Any]:
    with path.open("wb") as file:
        np.savez(file, x=X, y=Y, masks=X[..., 0] > 99, ids=[f"s{i}" for i in range(N)], classes=["a", "b", "c"])
    return {}


def packed(path: Path) -> dict[str, Any]:
    with path.open("wb") as file:
        np.savez_compressed(file, x=X.astype(np.float64) / 255, y=Y)
    return {}


def npy(path: Path) -> dict[str, Any]:
    with path.open("wb") as file:
        np.save(file, X)
    np.save(path.parent / "y.npy", Y)
    return {"labels": str(path.parent / "y.npy")}


def parquet(path: Path, label: Any = None) -> dict[str, Any]:
    images = [{"bytes": encoded(pixels), "path": f"{i}.png"} for i, pixels in enumerate(X)]
    pq.write_table(pa.table({"image": images, "label": Y if label is None else label}), path, row_group_size=7)
    return {}


def tar(path: Path, members: list[tuple[str, bytes]] | None = None) -> dict[str, Any]:
    usual = [(f"{i:04d}.{end}", b) for i in range(N) for end, b in (("png", encoded(X[i])), ("cls", b"%d" % Y[i]))]
    with tarfile.open(path, "w") as archive:
        for name, content in usual if members is None else members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return {}


MAKERS: dict[str, tuple[str, Callable[[Path], dict[str, Any]]]] = {
    "folder": ("images", folder), "npz": ("a.npz", npz), "compressed npz": ("c.npz", packed), "npy": ("x.npy", npy),
    "parquet": ("t.parquet", parquet), "webdataset": ("s.tar", tar),
}  # fmt: skip


@pytest.fixture(params=MAKERS)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    name, make = MAKERS[request.param]
    return tmp_path / name, make(tmp_path / name)


@pytest.mark.parametrize("more", [{}, {"limit": 9, "shuffle": True, "seed": 3}])
def test_a_source_reads_what_the_loader_reads(stored: tuple[Path, dict[str, Any]], more: dict[str, Any]) -> None:
    path, options = stored
    whole = load(path, **options, **more)
    source = load(path, stream=True, **options, **more)
    assert isinstance(source, Source)
    assert (len(source), source.ids, source.shape, source.bounds) == (len(whole), whole.ids, whole.shape, whole.bounds)
    assert torch.equal(source.y, whole.y)
    chunks = [slice(at, min(at + 4, len(source))) for at in range(0, len(source), 4)]
    with read_ahead(source, chunks) as read:
        batches = [batch for batch, _ in map(read, chunks) if batch is not None]
    assert torch.equal(torch.cat([batch.x for batch in batches]), whole.x)
    assert torch.equal(torch.cat([batch.y for batch in batches]), whole.y)
    assert sum((batch.ids for batch in batches), ()) == whole.ids
    if whole.masks is not None:
        assert torch.equal(torch.cat([batch.masks for batch in batches if batch.masks is not None]), whole.masks)
    assert torch.equal(source[[5, 0, 6, 7]].x, whole.x[[5, 0, 6, 7]])
    assert torch.equal(source.select(Take(3, order="first"))[:].x, whole.x[:3])


@pytest.mark.parametrize("name", ["npz", "npy", "parquet", "webdataset"])
def test_all_formats_hold_the_same(name: str, tmp_path: Path) -> None:
    file, make = MAKERS[name]
    batch = load(tmp_path / file, **make(tmp_path / file))
    assert torch.equal(batch.x, torch.from_numpy(X).permute(0, 3, 1, 2) / 255)
    assert batch.y.tolist() == Y.tolist()


def test_a_changed_file_is_refused_and_changes_the_fingerprint(stored: tuple[Path, dict[str, Any]]) -> None:
    path, options = stored
    source = load(path, stream=True, **options)
    assert data_fingerprint(source) == data_fingerprint(load(path, stream=True, **options))
    (file,) = source.files[len(source) // 2]
    os.utime(file, ns=(1, 1))
    with pytest.raises(DataError):
        source[:]
    assert data_fingerprint(source) != data_fingerprint(load(path, stream=True, **options))


def test_small_data_are_read_at_once_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(tmp_path / "images")
    options = DataOptions(path=str(tmp_path / "images"))
    assert not isinstance(options.open(), Source)
    monkeypatch.setattr(sys.modules["rlab.data.load"], "HELD", 4 * X.size - 1)
    assert isinstance(options.open(), Source)
    assert not isinstance(options.model_copy(update={"stream": False}).open(), Source)
    with pytest.raises(OptionError):
        options.model_copy(update={"stream": True}).load()


@pytest.mark.parametrize("broken", [b"", b"no image", encoded(X[0])[:-30]])
def test_samples_that_cannot_be_decoded_are_skipped_and_listed(broken: bytes, tmp_path: Path) -> None:
    folder(tmp_path / "images")
    (tmp_path / "images" / "1" / "001.png").write_bytes(broken)
    source = load(tmp_path / "images", stream=True)
    batch = source[:]
    assert [name for name, _ in batch.left_out] == ["1/001.png"]
    assert len(batch) == N - 1
    with pytest.raises(DataError):
        source[[source.ids.index("1/001.png")]]
    with pytest.raises(DataError):
        load(tmp_path / "images")


def test_images_of_several_sizes_need_a_size(tmp_path: Path) -> None:
    folder(tmp_path / "images")
    (tmp_path / "images" / "2" / "002.png").write_bytes(encoded(X[2][:5]))
    with pytest.raises(DataError):
        load(tmp_path / "images", stream=True)[:]
    assert load(tmp_path / "images", stream=True, size=6)[:].shape == (3, 6, 6)


def test_columns_and_labels_of_parquet(tmp_path: Path) -> None:
    names = np.array(["cat", "dog", "elk"])[Y]
    parquet(tmp_path / "train-0.parquet", names)
    parquet(tmp_path / "test-0.parquet", names)
    assert len(load(tmp_path)) == 2 * N
    batch = load(tmp_path, split="test")
    assert (batch.classes, batch.y.tolist(), batch.ids[1]) == (("cat", "dog", "elk"), Y.tolist(), "test-0:000001")


def test_members_of_a_tar_file_are_data(tmp_path: Path) -> None:
    """Names that lead out of the folder have no effect; links, folders and texts are ignored."""
    picture = encoded(X[0])
    path = tmp_path / "in" / "a.tar"
    path.parent.mkdir()
    tar(path, [("../../up.png", picture), ("../../up.json", b'{"label": 2}'), ("note.txt", b"x"), ("0.cls", b"1")])
    with tarfile.open(path, "a") as archive:
        link = tarfile.TarInfo("0.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    batch = load(path)
    assert (len(batch), batch.y.tolist()) == (1, [2])
    assert sorted(item.name for item in tmp_path.rglob("*")) == ["a.tar", "in"]


@pytest.mark.parametrize(
    ("name", "content", "options", "error", "sentence"),
    [
        ("", parquet, {"split": "val"}, OptionError, "check split"),
        ("", parquet, {"label_column": "name"}, OptionError, "no column 'name'"),
        ("a.parquet", {"a": [1.0], "label": [0]}, {}, DataError, "no column of images"),
        ("a.parquet", b"PAR1 nothing", {}, DataError, "as Parquet"),
        ("a.tar", [("0.png", encoded(X[0]))], {}, DataError, "no label"),
        ("a.tar", [("0.cls", b"1")], {}, DataError, "holds no images"),
        ("a.tar", b"\x1f\x8b" + bytes(600), {}, DataError, "as a tar file"),
    ],
)
def test_errors(
    tmp_path: Path, name: str, content: Any, options: dict[str, Any], error: type[InputError], sentence: str
) -> None:
    path = tmp_path / name
    if callable(content):
        content(path / "test-0.parquet")
    elif isinstance(content, dict):
        pq.write_table(pa.table(content), path)
    elif isinstance(content, list):
        tar(path, content)
    else:
        path.write_bytes(content)
    with pytest.raises(error, match=sentence):
        load(path, **options)


def test_arrays_stored_by_columns(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", x=np.asfortranarray(X), y=Y)
    np.savez(tmp_path / "c.npz", x=X, y=Y)
    assert torch.equal(load(tmp_path / "f.npz", stream=True)[:].x, load(tmp_path / "c.npz", stream=True)[:].x)


def test_class_names_of_hugging_face(tmp_path: Path) -> None:
    images = [{"bytes": encoded(pixels), "path": None} for pixels in X]
    label = {"names": ["a", "b", "c"], "_type": "ClassLabel"}
    features = {"info": {"features": {"image": {"_type": "Image"}, "label": label}}}
    table = pa.table({"image": images, "label": Y})
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps(features)}), tmp_path / "a.parquet")
    assert load(tmp_path / "a.parquet", stream=True).classes == ("a", "b", "c")


def check_same(path: Path) -> None:
    batch = load(path, stream=True)[:]
    assert torch.equal(batch.x, torch.from_numpy(X).permute(0, 3, 1, 2) / 255)
    assert batch.y.tolist() == Y.tolist()


def test_a_table_that_datasets_wrote(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", exc_type=ImportError)
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b", "c"])})
    images = [Image.fromarray(pixels) for pixels in X]
    datasets.Dataset.from_dict({"image": images, "label": Y.tolist()}, features=features).to_parquet(
        str(tmp_path / "hf.parquet")
    )
    check_same(tmp_path / "hf.parquet")
    assert load(tmp_path / "hf.parquet").classes == ("a", "b", "c")


def test_a_shard_that_webdataset_wrote(tmp_path: Path) -> None:
    webdataset = pytest.importorskip("webdataset", exc_type=ImportError)
    with webdataset.TarWriter(str(tmp_path / "wds.tar")) as sink:
        for i, pixels in enumerate(X):
            sink.write({"__key__": f"{i:05d}", "png": Image.fromarray(pixels), "cls": int(Y[i])})
    check_same(tmp_path / "wds.tar")


def in_chunks(source: Source, size: int) -> tuple[list[Batch], list[tuple[str, str]]]:
    chunks = [slice(at, min(at + size, len(source))) for at in range(0, len(source), size)]
    with read_ahead(source, chunks) as read:
        given = list(map(read, chunks))
    return [batch for batch, _ in given if batch is not None], [loss for _, losses in given for loss in losses]


def test_records_are_read_in_chunks_without_unusable_samples(tmp_path: Path) -> None:
    """The beats in a gap are skipped, a whole chunk among them; the others equal those read at once."""
    write_record(tmp_path, "100", gap=slice(400, 1300))
    write_record(tmp_path, "101")
    whole, source = load(tmp_path, window=1.0), load(tmp_path, window=1.0, stream=True)
    batches, losses = in_chunks(source, 2)
    assert torch.equal(torch.cat([batch.x for batch in batches]), whole.x)
    assert sum((batch.ids for batch in batches), ()) == whole.ids
    assert len(losses) == len(source) - len(whole) == 3
    assert {*losses, *source.left_out} == {*whole.left_out}
    assert (source.unit, source.rate) == (whole.unit, whole.rate)
    assert (source.leads, source.classes) == (whole.leads, whole.classes)
    assert sum((batch.r_peaks or () for batch in batches), ()) == whole.r_peaks
    assert whole.masks is not None
    assert torch.equal(torch.cat([batch.masks for batch in batches if batch.masks is not None]), whole.masks)
    os.utime(tmp_path / "101.dat", ns=(1, 1))
    with pytest.raises(DataError):
        source[-2:]


@pytest.mark.parametrize("size", [None, 16])
def test_clips_are_decoded_in_chunks(size: int | None, tmp_path: Path) -> None:
    for name in ("a/1.mp4", "a/2.mp4", "b/1.mp4", "b/2.mp4"):
        write_clip(tmp_path / name)
    (tmp_path / "a" / "broken.mp4").write_bytes(b"no clip")
    whole, source = load(tmp_path, frames=3, size=size), load(tmp_path, frames=3, size=size, stream=True)
    batches, losses = in_chunks(source, 2)
    assert source.shape == whole.shape
    assert torch.equal(torch.cat([batch.x for batch in batches]), whole.x)
    assert tuple(losses) == whole.left_out


def test_a_chunk_checks_only_the_files_that_hold_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = tuple(tmp_path / f"slice-{number}" for number in range(6))
    for file in files:
        file.write_bytes(b"1")

    def read(rows: Sequence[int]) -> Decoded:
        return Decoded(torch.zeros(len(rows), 1, 8), range(len(rows)))

    source = Source(read, (1, 8), torch.arange(3), ("a", "b", "c"), (files[:2], files[2:4], files[4:]))
    looked = mock.Mock(wraps=source_module.stamp)
    monkeypatch.setattr(source_module, "stamp", looked)
    source[[1]]
    assert [call.args[0] for call in looked.call_args_list] == list(files[2:4])
    part = source.select(Take(2, order="first"))
    assert list(part.paths(range(2))) == list(files[:4])
    files[3].write_bytes(b"22")
    part[[0]], source[[2]]
    for each in (part, source):
        with pytest.raises(DataError, match=r"slice-3.* changed during the run"):
            each[[1]]
