"""A corpus of damaged files: each is made here, refused in one sentence with exit code 2, and leaves nothing behind."""

from __future__ import annotations

import io
import json
import os
import shutil
import struct
import zipfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import save_file
from torch import full, zeros

from rlab.data import fields
from rlab.data.load import load
from rlab.present.table import plain
from rlab.priors.file import read_weights
from tests.mutation.inputs import MODEL, _write_record
from tests.mutation.test_mutations import contents, within

X = np.random.default_rng(0).random((4, 1, 8, 8), np.float32)
Y = np.array([0, 1, 0, 1])
Make = Callable[[Path], object]


def npy_bytes(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def claims(descr: str, shape: tuple[int, ...], content: bytes = b"") -> bytes:
    """An array whose header says what it likes."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})
    return stream.getvalue() + content


def npz(x: bytes, y: bytes | None = None, **more: bytes) -> Make:
    def make(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as file:
            for name, content in {"x": x, "y": npy_bytes(Y) if y is None else y, **more}.items():
                file.writestr(f"{name}.npy", content)

    return make


def patched(at: int, value: int) -> Make:
    """An .npz with one byte of both headers of its first member changed; `at` is that of the local one."""

    def make(path: Path) -> None:
        npz(npy_bytes(X))(path)
        data = bytearray(path.read_bytes())
        data[data.find(b"PK\x03\x04") + at] = value
        data[data.find(b"PK\x01\x02") + at + 2] = value
        path.write_bytes(data)

    return make


def images(content: bytes, name: str = "a.png") -> Make:
    def make(path: Path) -> None:
        (path / "0").mkdir(parents=True)
        (path / "0" / name).write_bytes(content)

    return make


def picture(array: Any, form: str) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, form)
    return stream.getvalue()


def bomb() -> bytes:
    stream = io.BytesIO()
    Image.new("1", (20000, 20000)).save(stream, "PNG")
    return stream.getvalue()


def not_utf8(path: Path) -> None:
    images(picture(np.zeros((8, 8), np.uint8), "PNG"))(path)
    os.rename(os.fsencode(path / "0" / "a.png"), os.fsencode(path / "0") + b"/\xff.png")


def record(old: str, new: str) -> Make:
    def make(path: Path) -> None:
        _write_record(path, np.random.default_rng(0))
        header = (path / "100.hea").read_text()
        assert old in header
        (path / "100.hea").write_text(header.replace(old, new))

    return make


DATA: dict[str, tuple[str, Make]] = {
    "npy as npz": ("d.npz", lambda path: path.write_bytes(npy_bytes(X))),
    "npz as npy": ("d.npy", npz(npy_bytes(X))),
    "pipe": ("d.npz", os.mkfifo),
    "device": ("d.npz", lambda path: path.symlink_to("/dev/zero")),
    "folder": ("d.npz", Path.mkdir),
    "encrypted": ("d.npz", patched(6, 1)),
    "unknown compression": ("d.npz", patched(8, 99)),
    "terabytes": ("d.npz", npz(claims("<f4", (10**6, 3, 1000, 1000)))),
    "negative": ("d.npz", npz(claims("<f4", (-1, 8, 8)))),
    "no bytes a value": ("d.npz", npz(claims("<U0", (10**12,)))),
    "nested header": ("d.npz", npz(b"\x93NUMPY\x01\x00" + struct.pack("<H", 9000) + b"-" * 8999 + b"\n")),
    "pickle": ("d.npz", npz(npy_bytes(np.array([{}] * 4, object)))),
    "complex": ("d.npz", npz(npy_bytes(X.astype(complex)))),
    "beyond float32": ("d.npz", npz(npy_bytes(X.astype(np.float64) * 1e300))),
    "no samples": ("d.npz", npz(npy_bytes(X[:0]), npy_bytes(Y[:0]))),
    "no pixels": ("d.npz", npz(npy_bytes(X[..., :0]))),
    "no channels": ("d.npz", npz(npy_bytes(X[:, :0]))),
    "one number": ("d.npz", npz(npy_bytes(np.float32(3)))),
    "labels 1e30": ("d.npz", npz(npy_bytes(X), npy_bytes(np.full(4, 1e30)))),
    "labels inf": ("d.npz", npz(npy_bytes(X), npy_bytes(np.full(4, np.inf)))),
    "labels nan": ("d.npz", npz(npy_bytes(X), npy_bytes(np.full(4, np.nan)))),
    "labels of 64 bits": ("d.npz", npz(npy_bytes(X), npy_bytes(np.full(4, 2**63, np.uint64)))),
    "labels latin-1": ("d.npz", npz(npy_bytes(X), npy_bytes(np.array([b"\xe9"] * 4)))),
    "labels half a character": ("d.npz", npz(npy_bytes(X), npy_bytes(np.array(["\ud800"] * 4)))),
    "labels of no classes": ("d.npz", npz(npy_bytes(X), npy_bytes(np.zeros((4, 0))))),
    "classes that are none": ("d.npz", npz(npy_bytes(X), classes=npy_bytes(np.array(3)))),
    "text as png": ("d", images(b"hello")),
    "float pixels": ("d", images(picture(X[0, 0], "TIFF"), "a.tif")),
    "wide pixels": ("d", images(picture((X[0, 0] * 2e9).astype(np.int32), "TIFF"), "a.tif")),
    "bomb": ("d", images(bomb())),
    "name that is not UTF-8": ("d", not_utf8),
    "bad first line": ("d.csv", lambda path: path.write_text("0,1.0,oops,2.0\n1,1.0,2.0,2.5\n")),
    "latin-1 table": ("d.csv", lambda path: path.write_bytes(b"caf\xe9,1.0\n")),
    "endless cell": ("d.csv", lambda path: path.write_text('0,"' + "1" * 200_000 + '"\n')),
    "record elsewhere": ("d", record("100.dat", "/dev/zero")),
    "record of terabytes": ("d", record(" 400", " 400000000000")),
    "record without time": ("d", record("100 1 100 ", "100 1 0 ")),
}
IMAGES = {"rank": 2, "channels": 3, "heads": 2}
DEEP = "[" * 5000
TEXTS = {
    "nested yaml": ("c.yaml", f"model: {DEEP}"),
    "nested toml": ("c.toml", f"model = {DEEP}{']' * 5000}"),
    "dotted toml": ("c.toml", ".".join(["a"] * 3000) + " = 1"),
    "yaml of itself": ("c.yaml", "model: &a [*a]"),
    "yaml that multiplies": ("c.yaml", "a: &a [1]\n" + "".join(f"{c}: &{c} [{f'*{b},' * 9}]\n" for b, c in pairwise("abcdefgh"))),
    "yaml of many digits": ("c.yaml", "budget: " + "9" * 5000),
    "yaml of 65 bits": ("c.yaml", "model: my_model:bright\ndata: d.npz\nbudget: 18446744073709551616"),
    "half a character": ("c.yaml", 'model: "\\ud800"\ndata: d.npz'),
    "no date": ("c.yaml", "model: 2024-13-45"),
    "infinite penalty": ("c.yaml", "model: my_model:bright\ndata: d.npz\nl2_penalty: .inf"),
    "penalty that is no number": ("c.yaml", "model: my_model:bright\ndata: d.npz\nl2_penalty: .nan"),
}  # fmt: skip
WORDS = {
    "price in words": "--policy auto(price='x')",
    "restore in words": "--policy belief(restore='maybe')",
    "infinite temperature": "--policy belief(temperature=1e999)",
    "endless blur": "--palette gaussian_blur@10000",
    "endless motion": "--palette motion_blur@1e5",
    "endless draws": "--palette gaussian_noise*99999999999",
    "decibels": "--palette gaussian_noise@-1e30dB",
    "size": "--size 1000000",
    "frames": "-D frames=1000000",
    "limit beyond 64 bits": "--limit 99999999999999999999",
    "budget beyond 64 bits": "--budget 9223372036854775808",
    "labels from a pipe": "--labels /dev/stdin",
    "nested option": f"-D limit={DEEP}",
    "no number for a bound": "-D bounds=[.nan,1]",
    "out below a file": "--out my_model.py/x",
    "out too long": f"--out {'x' * 5000}",
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "my_model.py").write_text(MODEL)
    return tmp_path


def refused(place: Path, *words: str) -> str:
    """What the command said of it, in one line."""
    names = sorted(os.listdir(place))
    said = within(place, *words)
    assert said.code == 2, said
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    assert sorted(os.listdir(place)) == names
    return said.err


@pytest.mark.parametrize("name", DATA)
def test_data(place: Path, name: str, recwarn: pytest.WarningsRecorder) -> None:
    file, make = DATA[name]
    make(place / file)
    labels = ["--labels", "y.csv"] if file.endswith("npy") else []
    refused(place, "attack", "my_model:bright", file, *labels, "--out", "out")
    assert not [seen for seen in recwarn if not issubclass(seen.category, DeprecationWarning)]


@pytest.mark.parametrize("name", TEXTS)
def test_configurations(place: Path, name: str) -> None:
    file, text = TEXTS[name]
    (place / file).write_text(text)
    refused(place, "attack", "--config", file)


@pytest.mark.parametrize("name", WORDS)
def test_options(place: Path, name: str) -> None:
    images(picture(np.zeros((8, 8), np.uint8), "PNG"))(place / "d")
    refused(place, "attack", "my_model:bright", "d", *WORDS[name].split())


@pytest.mark.parametrize(
    "method", ["rise(masks='x')", "rise(masks=-1)", "rise(masks=1000000000)", "occlusion(along=0)"]
)
def test_methods(place: Path, method: str) -> None:
    npz(npy_bytes(X))(place / "d.npz")
    refused(place, "explain", "my_model:bright", "d.npz", "--method", method)


@pytest.mark.parametrize(
    ("header", "weights"),
    [
        ("null", zeros(1)),
        ("[]", zeros(1)),
        ('{"version": 2, "kind": "prior", "about": null}', zeros(1)),
        ('{"version": 2, "kind": "prior"}', zeros(1)),
        ('{"version": 2, "kind": "prior", "network": {}}', full((1,), float("nan"))),
        (json.dumps({"version": 2, "kind": "prior", "network": IMAGES | {"width": 4096}}), zeros(1)),
        (json.dumps({"version": 2, "kind": "prior", "network": IMAGES | {"width": 10**9}}), zeros(1)),
        (json.dumps({"version": 2, "kind": "clips", "network": {"prior_levels": 10**6, "heads": 1}}), zeros(1)),
        (DEEP, zeros(1)),
    ],
)  # fmt: skip
def test_agent_files(place: Path, header: str, weights: Any) -> None:
    save_file({"w": weights}, place / "a.safetensors", metadata={"rlab": header})
    npz(npy_bytes(X))(place / "d.npz")
    refused(place, "attack", "my_model:bright", "d.npz", "--policy", "a.safetensors")


def test_an_agent_without_a_card_is_read(place: Path) -> None:
    save_file({"w": zeros(1)}, place / "a.safetensors", metadata={"rlab": '{"version": 2, "kind": "prior"}'})
    assert read_weights(place / "a.safetensors")[0].about == {}


def test_two_labels_for_one_file(place: Path) -> None:
    images(picture(np.zeros((8, 8), np.uint8), "PNG"))(place / "d")
    (place / "y.csv").write_text("file,label\na.png,1\na.png,0\n")
    assert "two labels" in refused(place, "attack", "my_model:bright", "d", "--labels", "y.csv")


def test_one_label_too_many_is_no_header(place: Path) -> None:
    np.save(place / "d.npy", X)
    (place / "y.csv").write_text("1\n0\n1\n0\n1\n")
    assert "5 labels for 4 samples" in refused(place, "attack", "my_model:bright", "d.npy", "--labels", "y.csv")


def test_what_is_not_asked_for_is_not_read(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An array that nobody needs may claim what it likes."""
    monkeypatch.setattr(fields, "free_bytes", lambda: 10**6)
    npz(npy_bytes(X), other=claims("<f4", (10**9,)))(place / "d.npz")
    assert len(load(place / "d.npz")) == 4


@pytest.mark.parametrize("name", ["[bold]x[/red]", "[/]", "\x1b[31mred"])
def test_names_are_shown_as_they_are(place: Path, name: str) -> None:
    """Neither markup nor control characters of a name reach the terminal."""
    npz(npy_bytes(X))(place / "d.npz")
    words = (
        "attack",
        "my_model:bright",
        "d.npz",
        "--budget",
        5,
        "--pictures",
        0,
        "--palette",
        "dead_pixel",
        "--out",
        "run",
    )
    assert within(place, *words).code == 0
    shutil.move(place / "run", place / name.replace("/", "|"))
    said = within(place, "show", name.replace("/", "|"))
    assert said.code == 0, said
    assert "\x1b" not in said.out
    assert name.replace("/", "|").replace("\x1b", "�") in said.out.replace("\n", "")


def test_names_that_are_not_text_are_spelled_out() -> None:
    assert plain(Path("ab\udcff")) == "ab\\udcff"


FILTERS = """
import torch

def some(x, severity, generator):
    if float(x.mean()) > 0.6:
        raise ZeroDivisionError("on this one only")
    return x
def hole(x, severity, generator):
    return torch.where(x.mean() > 0.6, torch.full_like(x, torch.nan), x * (1 - severity))
def shape(x, severity, generator):
    return (x * (1 - severity))[..., : 8 if float(x.mean()) < 0.6 else 4]
def kind(x, severity, generator):
    return (x * (1 - severity)).double() if float(x.mean()) > 0.6 else x * (1 - severity)
def inside(x, severity, generator):
    return x.mul_(1 - severity) if float(x.mean()) > 0.6 else x * (1 - severity)
def leaves(x, severity, generator):
    raise SystemExit(0)
"""


@pytest.mark.parametrize("name", ["some", "hole", "shape", "kind", "inside", "leaves"])
def test_filters_that_fail_on_some_samples(place: Path, name: str) -> None:
    """The last sample of many is the one they fail on, so that no trial beforehand meets it."""
    (place / "my_filters.py").write_text(FILTERS)
    x = np.full((9, 1, 8, 8), 0.4, np.float32)
    x[7] = 0.9
    x[:, :, ::2] += 0.01
    np.savez(place / "d.npz", x=x, y=np.array([1, 1, 1, 1, 1, 1, 1, 0, 1]))
    before = contents(place)
    palette = [f"my_filters:{name}", "dead_pixel"]
    said = within(
        place, "attack", "my_model:bright", "d.npz", "--palette", " ".join(palette), "--out", "out", "--budget", 5
    )
    assert said.code == 2, said
    assert f"the filter {name!r}" in said.err
    assert contents(place) == before
