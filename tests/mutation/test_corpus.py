"""Damaged files: each is refused in one sentence with exit code 2 and leaves nothing behind."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import save_file
from torch import full, zeros

from rlab.data import fields
from rlab.data.load import load
from rlab.errors import Notice
from rlab.present.table import plain
from rlab.priors.file import read_header
from tests.mutation.damaged import DATA, DEEP, IMAGES, TEXTS, WORDS, X, claims, images, npy_bytes, npz, picture
from tests.mutation.inputs import MODEL
from tests.mutation.test_mutations import contents, within


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "my_model.py").write_text(MODEL)
    return tmp_path


def refused(place: Path, *words: str) -> str:
    """Return the one line that the command prints."""
    names = sorted(os.listdir(place))
    shown = within(place, *words)
    assert shown.code == 2, shown
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1
    assert sorted(os.listdir(place)) == names
    return shown.err


@pytest.mark.parametrize("name", DATA)
def test_data(place: Path, name: str, recwarn: pytest.WarningsRecorder) -> None:
    file, make = DATA[name]
    make(place / file)
    labels = ["--labels", "y.csv"] if file.endswith("npy") else []
    refused(place, "attack", "my_model:bright", file, *labels, "--out", "out")
    assert not [seen for seen in recwarn if issubclass(seen.category, Notice)]


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
    "method",
    ["rise(masks='x')", "rise(masks=-1)", "rise(masks=1000000000)", "rise(chance=7)", "rise(chance=0)", "occlusion(along=0)"],
)  # fmt: skip
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
        (json.dumps({"version": 2, "kind": "two_agents", "network": {"width": 10**6}}), zeros(1)),
        (DEEP, zeros(1)),
    ],
)  # fmt: skip
def test_agent_files(place: Path, header: str, weights: Any) -> None:
    save_file({"w": weights}, place / "a.safetensors", metadata={"rlab": header})
    npz(npy_bytes(X))(place / "d.npz")
    refused(place, "attack", "my_model:bright", "d.npz", "--policy", "a.safetensors")


def test_an_agent_without_a_card_is_read(place: Path) -> None:
    save_file({"w": zeros(1)}, place / "a.safetensors", metadata={"rlab": '{"version": 2, "kind": "prior"}'})
    assert read_header(place / "a.safetensors").about == {}


@pytest.mark.parametrize(
    ("data", "labels", "why"),
    [
        ("d", "file,label\na.png,1\na.png,0\n", "two labels"),
        ("d.npy", "1\n0\n1\n0\n1\n", "5 labels for 4 samples"),  # no header
    ],
)
def test_labels(place: Path, data: str, labels: str, why: str) -> None:
    images(picture(np.zeros((8, 8), np.uint8), "PNG"))(place / "d")
    np.save(place / "d.npy", X)
    (place / "y.csv").write_text(labels)
    assert why in refused(place, "attack", "my_model:bright", data, "--labels", "y.csv")


def test_unused_arrays_are_not_read(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unused array may claim any size."""
    monkeypatch.setattr(fields, "free_bytes", lambda: 10**6)
    npz(npy_bytes(X), other=claims("<f4", (10**9,)))(place / "d.npz")
    assert len(load(place / "d.npz")) == 4


@pytest.mark.parametrize("name", ["[bold]x[/red]", "[/]", "\x1b[31mred"])
def test_names_are_shown_literally(place: Path, name: str) -> None:
    """Markup and control characters in a name do not reach the terminal."""
    npz(npy_bytes(X))(place / "d.npz")
    options = ("--budget", 5, "--pictures", 0, "--palette", "dead_pixel", "--out", "run")
    assert within(place, "attack", "my_model:bright", "d.npz", *options).code == 0
    shutil.move(place / "run", place / name.replace("/", "|"))
    shown = within(place, "show", name.replace("/", "|"))
    assert shown.code == 0, shown
    assert "\x1b" not in shown.out
    assert name.replace("/", "|").replace("\x1b", "�") in shown.out.replace("\n", "")


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
    """They fail on one of the last samples, so that no early check notices."""
    (place / "my_filters.py").write_text(FILTERS)
    x = np.full((9, 1, 8, 8), 0.4, np.float32)
    x[7] = 0.9
    x[:, :, ::2] += 0.01
    np.savez(place / "d.npz", x=x, y=np.array([1, 1, 1, 1, 1, 1, 1, 0, 1]))
    before = contents(place)
    palette = [f"my_filters:{name}", "dead_pixel"]
    shown = within(
        place, "attack", "my_model:bright", "d.npz", "--palette", " ".join(palette), "--out", "out", "--budget", 5
    )
    assert shown.code == 2, shown
    assert f"the filter {name!r}" in shown.err
    assert contents(place) == before
