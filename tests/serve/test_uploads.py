"""Uploaded files: which are refused before they are read, how they are read, and the runs made from them."""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import httpx
import numpy as np
import pytest
import torch
from PIL import Image

from rlab.data.load import load
from rlab.errors import InputError
from rlab.folders.reports import page_of
from rlab.results.result import AttackResult
from rlab.serve.own import examine, main, read_own
from tests.serve.cases import served

CLIPS = {
    "model": "demo:clips", "data": "demo:clips", "policy": "square", "patch": [4, 8, 8], "palette": "dead_pixel", "budget": 12,
}  # fmt: skip
MODELS = {name: {"model": name, "data": name, "budget": 40} for name in ("demo:digits", "demo:ecg")}


def png(height: int = 20, width: int = 30) -> bytes:
    pixels, file = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8), io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def giant_png() -> bytes:
    """A header that promises 60,000 × 60,000 pixels."""
    chunks = (
        b"IHDR" + struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0),
        b"IDAT" + zlib.compress(bytes(100)),
        b"IEND",
    )
    packed = (struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def npz(declared: int | None = None, members: int = 1) -> bytes:
    """Arrays of a million zeros, which the directory may say to be of another size."""
    file, array = io.BytesIO(), io.BytesIO()
    np.save(array, np.zeros(10**6, np.uint8))
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for k in range(members):
            packed.writestr(f"x{k}.npy", array.getvalue() if members == 1 else b"")
        packed.infolist()[0].file_size = declared or packed.infolist()[0].file_size
    return file.getvalue()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def client(runs: Path) -> Iterator[httpx.Client]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rlab.serve.actions.MOST_UPLOAD", 2**20)
        with served(runs, models=MODELS) as client:
            token = re.search(r'name="csrf" content="([^"]+)"', client.get("/own").text)
            assert token
            client.headers.update({"Origin": str(client.base_url).rstrip("/"), "X-CSRF": token[1]})
            yield client


BAD = {
    "oversized": ("a.png", bytes(2**20 + 1), 413),
    "a zip bomb": ("a.npz", npz(2**31), 413),
    "a zip of many": ("a.npz", npz(members=101), 413),
    "pixels without end": ("a.png", giant_png(), 413),
    "no zip": ("a.npz", b"PK no", 422),
    "no image": ("a.png", b"GIF8", 422),
    "a pickle": ("a.pkl", b"x", 422),
    "a page": ("a.html", b"<script>", 422),
    "no ending": ("a", b"x", 422),
    "nothing": ("a.csv", b"", 422),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_refused_before_they_are_decoded(client: httpx.Client, runs: Path, case: str):
    name, content, code = BAD[case]
    asked = {"file": name, "model": "demo:digits", "do": "attack"}
    assert client.post("/own", params=asked, content=content).status_code == code
    assert list(runs.iterdir()) == []


def test_a_body_without_a_length_is_counted(client: httpx.Client, runs: Path):
    parts = (bytes(2**16) for _ in range(17))
    answer = client.post("/own", params={"file": "a.csv", "model": "demo:digits", "do": "attack"}, content=parts)
    assert answer.status_code == 413
    assert list(runs.iterdir()) == []


@pytest.mark.parametrize(
    "asked", [{"model": "timm:resnet18"}, {"model": "demo:clips"}, {"do": "harden"}, {"file": "../../a"}]
)
def test_only_models_and_actions_of_the_server_are_accepted(client: httpx.Client, runs: Path, asked: dict[str, str]):
    words = {"file": "a.png", "model": "demo:digits", "do": "attack"} | asked
    assert client.post("/own", params=words, content=png()).status_code == 422
    assert list(runs.iterdir()) == []


def test_an_image_is_resized_for_the_model(tmp_path: Path):
    (tmp_path / "a.png").write_bytes(png())
    like = load("demo:digits", limit=2)
    batch = read_own(tmp_path / "a.png", "mine", like)
    assert batch.x.shape == (1, *like.x.shape[1:])
    assert batch.ids == ("mine",)
    assert batch.classes == like.classes


def test_beats_are_read_from_common_files(tmp_path: Path):
    like = load("demo:ecg", limit=1)
    columns = like.x[0].T.tolist()
    text = "\n".join(",".join(map(str, row)) for row in columns)
    (tmp_path / "a.csv").write_text(text)
    (tmp_path / "b.csv").write_text("I,II\n" + text)
    np.save(tmp_path / "c.npy", like.x[0].numpy())
    np.savez(tmp_path / "d.npz", x=like.x.numpy(), other=np.zeros(3))
    (tmp_path / "e.tsv").write_text("\n".join("\t".join(map(str, lead)) for lead in like.x[0].tolist()))
    for path in sorted(tmp_path.iterdir()):
        assert torch.allclose(read_own(path, "mine", like).x, like.x), path.name


def test_one_lead_is_a_row_or_a_column(tmp_path: Path):
    two = load("demo:ecg", limit=1)
    like = type(two)(two.x[:, :1], two.y, bounds=two.bounds)
    (tmp_path / "row.csv").write_text(",".join(map(str, like.x[0, 0].tolist())))
    (tmp_path / "column.csv").write_text("\n".join(map(str, like.x[0, 0].tolist())))
    for name in ("row.csv", "column.csv"):
        assert torch.allclose(read_own(tmp_path / name, "mine", like).x, like.x)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("short.csv", b"1\n2\n3"),
        ("words.csv", b"1,2\na,b\n1,2"),
        ("a.png", png()),
        ("lies.npz", npz(200)),
        ("a.npy", b"x"),
    ],
)
def test_a_file_that_does_not_fit_the_model_is_a_one_line_error(tmp_path: Path, name: str, content: bytes):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError):
        read_own(tmp_path / name, "mine", load("demo:ecg", limit=1))


UNFIT = {
    "a short signal": ("a.csv", b"1\n2\n3", "demo:ecg"),
    "words": ("a.csv", b"1,2\na,b\n1,2", "demo:ecg"),
    "no array": ("a.npy", b"x", "demo:ecg"),
    "half an array": ("a.npz", npz()[:200], "demo:ecg"),
    "half an image": ("a.png", png()[:60], "demo:digits"),
    "an image for a signal": ("a.png", png(), "demo:ecg"),
    "no clip": ("a.mp4", b"no clip", "demo:clips"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_errors_name_the_file_as_its_owner_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """The server keeps the file under another name, in a folder that nobody should see."""
    name, content, model = UNFIT[case]
    file = tmp_path / f"own-20260101{Path(name).suffix}"
    file.write_bytes(content)
    spec = {"config": {"model": model, "data": model}, "file": str(file), "name": name, "do": "attack", "out": "run"}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(spec)))
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert (ended.value.code, said.count("\n")) == (2, 1)
    assert str(tmp_path) not in said
    assert file.stem not in said
    assert " at 0x" not in said


def test_an_uploaded_image_is_attacked_and_explained(tmp_path: Path):
    (tmp_path / "a.png").write_bytes(png())
    spec = {"config": MODELS["demo:digits"], "file": str(tmp_path / "a.png"), "name": "<b>mine</b>.png"}
    examine({**spec, "do": "attack"}, tmp_path / "attacked")
    result = AttackResult.load(tmp_path / "attacked")
    assert result.ids == ("<b>mine</b>.png",)
    assert int(result.labels[0]) == int(result.before[0].argmax())
    assert str(tmp_path) not in (tmp_path / "attacked" / "config.yaml").read_text()
    examine({**spec, "do": "explain"}, tmp_path / "explained")
    assert page_of(tmp_path / "explained").sections


def write_clip(path: Path, frames: int = 20, height: int = 48, width: int = 64) -> Path:
    """A bright square that moves to the right."""
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for t in range(frames):
            picture = np.zeros((height, width, 3), np.uint8)
            picture[10:30, 2 * t : 2 * t + 16] = 220
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    return path


def test_an_uploaded_clip_is_attacked_and_explained(tmp_path: Path):
    like = load("demo:clips", limit=1)
    spec = {"config": CLIPS, "file": str(write_clip(tmp_path / "a.mp4")), "name": "mine.mp4"}
    examine({**spec, "do": "attack"}, tmp_path / "attacked")
    result = AttackResult.load(tmp_path / "attacked")
    assert result.original.shape == like.x.shape
    assert float(result.original.max()) > 0.7
    examine({**spec, "do": "explain", "config": {**CLIPS, "method": "mask"}}, tmp_path / "explained")
    assert page_of(tmp_path / "explained").sections


@pytest.mark.parametrize("name", ["no.mp4", "wide.mp4"])
def test_an_unreadable_clip_is_a_one_line_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.setattr("rlab.data.decode.MOST_PIXELS", 48 * 64 - 1)
    (tmp_path / "no.mp4").write_bytes(b"no clip")
    write_clip(tmp_path / "wide.mp4", frames=2)
    with pytest.raises(InputError):
        read_own(tmp_path / name, "mine", load("demo:clips", limit=1))


@pytest.mark.slow
def test_an_uploaded_beat_becomes_a_run(client: httpx.Client, runs: Path):
    text = "\n".join(",".join(map(str, row)) for row in load("demo:ecg", limit=1).x[0].T.tolist())
    answer = client.post(
        "/own", params={"file": "beat.csv", "model": "demo:ecg", "do": "attack"}, content=text.encode()
    )
    where = answer.json()["location"].removeprefix("/run/")
    with client.stream("GET", f"/events/{where}") as stream:
        assert "event: end" in list(stream.iter_lines())
    assert client.get(f"/sample/0/{where}").status_code == 200
    assert AttackResult.load(runs / where).ids == ("beat.csv",)
