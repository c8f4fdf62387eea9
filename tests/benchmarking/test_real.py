"""A benchmark of real images: a published model is wrong on every stored 8-bit file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from benchmarks.victims.residual import cifar_resnet
from rlab.benchmarking import make_benchmark, verify_benchmark
from rlab.data.load import load
from rlab.victims import TorchVictim

pytestmark = pytest.mark.real


@pytest.mark.slow
def test_resnet20_errs_on_every_png_of_its_benchmark(real: Path, tmp_path: Path):
    net = cifar_resnet(20)
    net.load_state_dict(load_file(real / "cifar10" / "resnet20.safetensors"))
    victim = TorchVictim(net, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), outputs="logits")
    batch = load(real / "cifar10" / "test_0_4999.npz", limit=10)
    benchmark = make_benchmark(
        {"resnet20": victim}, batch, tmp_path / "b", palette=["illuminate@0.2,0.4"], patch=8, budget=150, steps=6,
        ladder="times:1.5",
    )  # fmt: skip
    flips = [row for row in benchmark.of("resnet20") if row["reached"]]
    assert len(flips) >= 7
    x = torch.stack(
        [torch.tensor(list(Image.open(benchmark.folder / row["file"]).tobytes())).view(32, 32, 3) for row in flips]
    )
    answers = net(
        (x.permute(0, 3, 1, 2) / 255 - torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1))
        / torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    ).argmax(1)
    assert (answers != torch.tensor([row["label"] for row in flips])).all()
    assert verify_benchmark(benchmark, {"resnet20": victim}).holds
    assert torch.equal(benchmark.read(benchmark.originals()), batch.x)  # CIFAR is 8 bits: nothing was lost
