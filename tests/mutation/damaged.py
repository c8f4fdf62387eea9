"""Functions that create damaged files, and invalid options."""

from __future__ import annotations

import io
import os
import struct
import zipfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.mutation.inputs import write_record

X = np.random.default_rng(0).random((4, 1, 8, 8), np.float32)
Y = np.array([0, 1, 0, 1])
Make = Callable[[Path], object]


def npy_bytes(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def claims(descr: str, shape: tuple[int, ...], content: bytes = b"") -> bytes:
    """Return an array with any header."""
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
    """Create an .npz with one byte changed in both headers of its first member; `at` is its place in the local header."""

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
        write_record(path, np.random.default_rng(0))
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
    "penalty in words": "--policy auto(l2_penalty='x')",
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
