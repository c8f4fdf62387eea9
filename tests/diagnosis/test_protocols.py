"""The doctor and models behind an address: protocols, names of classes, and inputs as JPEG."""

from __future__ import annotations

from collections.abc import Iterator
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
from rlab.storage.config import check
from rlab.victims import HttpVictim
from rlab.victims.template import Template, load_template
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


@pytest.mark.parametrize(
    ("path", "protocol"),
    [("/v2/models/named/infer", "kserve"), ("/v1/models/pets:predict", "tfserving"), ("/classify", "rlab")],
)
def test_an_address_names_its_protocol_by_its_path(host: str, path: str, protocol: str) -> None:
    batch, victim = make_data(), rlab.load_victim(host + path)
    assert isinstance(victim, HttpVictim)
    assert victim.template == load_template(protocol)
    assert torch.equal(victim(batch.x).argmax(1), batch.y)


def test_a_server_that_speaks_another_protocol_is_an_error_with_the_way_out(host: str) -> None:
    report = examine(rlab.load_victim(f"{host}/org/pets"), make_data())
    assert not report.healthy
    assert "docs/endpoints.md" in report.findings[0].change


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
