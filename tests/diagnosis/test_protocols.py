"""The doctor and models behind an address: which protocol a server speaks, and that JPEG changes inputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import rlab
from rlab.auditing.config import AuditOptions
from rlab.auditing.load import load_audit
from rlab.data.batch import Batch
from rlab.diagnosis import Severity, examine
from rlab.diagnosis.protocols import find_protocol
from rlab.errors import VictimError
from rlab.storage.config import check
from rlab.victims import HttpVictim
from rlab.victims.options import ModelOptions
from rlab.victims.template import Template
from tests.command import rlab_command
from tests.victims.makers import serving
from tests.victims.standins import CLASSES, SHAPE, Requests, create_app, expected


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    with serving(create_app(Requests())) as address:
        yield address


def make_data(rows: int = 12) -> Batch:
    x = torch.from_numpy(np.random.default_rng(7).integers(0, 256, (rows, *SHAPE)).astype(np.float32) / 255)
    return rlab.load((x, expected(x).argmax(1)), classes=CLASSES)


# path of an http address: the address and the template that the doctor writes
FOUND = {
    "/pets": ("kserve://", None),
    "/named": ("kserve://", None),
    "/v2/models/named/infer": ("http://", "kserve"),
    "/v1/models/pets:predict": ("http://", "tfserving"),
    "/classify": ("http://", None),
    "/names": ("http://", f"rlab(classes={list(CLASSES)})"),
    "/serve": ("http://", "rayserve"),
    "/gpt": ("openai://", f"openai(classes={list(CLASSES)})"),
    "/org/pets": ("huggingface://", f"huggingface(classes={list(CLASSES)})"),
    "/predictions/pets": ("http://", f"torchserve(classes={list(CLASSES)})"),
}


@pytest.mark.parametrize("path", FOUND)
def test_the_protocol_of_a_server_is_found(host: str, path: str) -> None:
    batch = make_data()
    scheme, template = FOUND[path]
    found = find_protocol(ModelOptions(name=host + path), batch)
    assert found.model is not None
    assert isinstance(found.victim, HttpVictim)
    assert (found.model.name.partition("://")[0] + "://", found.model.template) == (scheme, template)
    scores = found.victim(batch.x)
    assert torch.equal(scores.argmax(1), batch.y)
    if path != "/names":
        torch.testing.assert_close(scores, expected(batch.x), atol=1e-5, rtol=1e-5)
    elsewhere = found.victim.name != host + path  # which is said, with what the given address answered
    assert [finding.name for finding in found.findings] == ["address"] * elsewhere
    assert all(finding.what.startswith(f"{host}{path} gives no scores") for finding in found.findings)
    assert 2 <= found.queries <= 2 * 2 * 13


@pytest.mark.parametrize(("path", "quoted"), [("/nothing/here", "rlab"), ("/v1/models/pets:predict", "tfserving")])
def test_the_error_quotes_the_protocol_that_came_nearest(host: str, path: str, quoted: str) -> None:
    """The second server understands the request, but the data have more classes than it knows."""
    batch = make_data()
    with pytest.raises(VictimError, match=rf"none of \d+ protocols.*as {quoted}: .*docs/endpoints.md"):
        find_protocol(ModelOptions(name=host + path), replace(batch, y=batch.y + len(CLASSES), classes=()))


def test_the_configuration_that_the_doctor_writes_runs(host: str, tmp_path: Path) -> None:
    batch = make_data()
    np.savez(tmp_path / "data.npz", x=batch.x.numpy(), y=batch.y.numpy())
    file = tmp_path / "model.yaml"
    said = rlab_command("doctor", f"{host}/v1/models/pets:predict", tmp_path / "data.npz", "--write", file)
    assert said.code == 0, said.out + said.err
    assert "template=tfserving" in said.out
    words = ["--limit", 2, "--budget", 5, "--patch", 2, "-p", "gaussian_noise@0.3", "--no-page"]
    ran = rlab_command("attack", "--config", file, *words, "-o", tmp_path / "run")
    assert ran.code == 0, ran.err


def test_names_of_data_and_address_are_matched_by_doctor_and_audit(host: str, tmp_path: Path) -> None:
    """The folders' order is that of the alphabet; the model's names come in another."""
    batch = make_data()
    for row, (image, label) in enumerate(zip(batch.x, batch.y.tolist(), strict=True)):
        (tmp_path / "photos" / CLASSES[label]).mkdir(parents=True, exist_ok=True)
        pixels = (255 * image).round().byte().permute(1, 2, 0).numpy()
        Image.fromarray(pixels).save(tmp_path / "photos" / CLASSES[label] / f"{row}.png")
    address, names = f"huggingface://{host.removeprefix('http://')}/org/pets", list(reversed(CLASSES))
    said = rlab_command("doctor", address, tmp_path / "photos", "-M", f"names=[{','.join(names)}]")
    assert "100.0%" in said.out, said.out + said.err
    model, data = {"name": address, "names": names}, {"path": str(tmp_path / "photos")}
    requirements = [{"metric": "clean_accuracy", "at_least": "50%"}]
    options = check(
        AuditOptions, {"model": model, "data": data, "requirements": requirements, "palette": ["dead_pixel"]}
    )
    audit = load_audit(options, tmp_path)
    assert audit.batch.classes == audit.victim.own_classes == tuple(names)


def classify(jpeg: bool) -> Any:
    """A body that both encodings fit, for the stand-in of Hugging Face."""
    body = "{jpeg}" if jpeg else "{png}"
    return Template(body=body, scores="$[*].score", labels="$[*].label", classes=CLASSES)


@pytest.mark.parametrize("jpeg", [True, False])
def test_the_doctor_warns_of_jpeg(host: str, jpeg: bool) -> None:
    with HttpVictim(f"{host}/models/org/pets", template=classify(jpeg)) as victim:
        sent = [finding for finding in examine(victim, make_data(), samples=8).findings if finding.name == "encoding"]
    assert len(sent) == jpeg
    assert all(finding.level is Severity.WARNING and "png" in finding.change for finding in sent)
