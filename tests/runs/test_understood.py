"""Nothing is guessed silently: one block says what was understood, and what is ambiguous is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import rlab
from rlab.core.channels import LEADS
from rlab.data.batch import UNBOUNDED
from rlab.data.take import Take
from rlab.errors import InputError
from rlab.runs.understood import Understood
from rlab.victims.torch_module import TorchVictim
from tests.command import rlab_command

MODELS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.classes = classes
    def forward(self, x):
        scores = torch.zeros(len(x), self.classes)
        scores[:, 3] = 1 + x.flatten(1).mean(1)
        return scores

ten, two = (lambda n=n: Net(n) for n in (10, 4))
"""
DIGITS = load_digits()
Y = DIGITS.target[:20]


class Ten(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :10]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Models, digits as arrays, and pictures of ten classes in folders and of two."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_models.py").write_text(MODELS)
    np.savez(tmp_path / "sixteen.npz", x=DIGITS.images[:20, None], y=Y)
    np.savez(tmp_path / "axes.npz", x=DIGITS.images[:20] / 16, y=Y)
    np.savez(tmp_path / "dark.npz", x=DIGITS.images[:20, None].astype(np.uint8), y=Y)
    draw = np.random.default_rng(0)
    for root, names in (("ten", [f"class{i}" for i in range(10)]), ("pets", ["cat", "dog"])):
        for name in names:
            (tmp_path / root / name).mkdir(parents=True)
            for number in range(6):
                picture = Image.fromarray(draw.integers(0, 256, (8, 8, 3), np.uint8))
                picture.save(tmp_path / root / name / f"{number}.png")
    return tmp_path


def block_of(text: str) -> dict[str, str]:
    """The lines of the block by name; a further line begins with spaces."""
    names, last = dict[str, str](), ""
    for line in text.splitlines():
        if line.startswith(" ") and last:
            names[last] += " " + line.strip()
        elif line.split(" ")[0] in ("data", "samples", "values", "classes", "model", "defaults"):
            last = line.split(" ")[0]
            names[last] = line.removeprefix(last).strip()
        else:
            last = ""
    return names


def test_the_command_prints_one_block(folder: Path) -> None:
    (folder / "names.txt").write_text("\n".join(f"class{i}" for i in range(10)))
    said = rlab_command(
        "attack", "my_models:ten", "ten", "--limit", "5", "-D", "classes=names.txt", "-M", "mean=0.5", "-M", "std=0.25",
        "--budget", "4", "--pictures", "0", "--out", "run",
    )  # fmt: skip
    assert said.code == 0, said.err
    block = block_of(said.out)
    assert block["data"] == "5 images of 8 x 8 pixels, 3 channels"
    assert "limit 5" in block["samples"]
    assert "spread over 5 classes" in block["samples"]
    assert "0 to 1 allowed" in block["values"]
    assert "8 bits" in block["values"]
    assert block["classes"].startswith("10: 0 class0, 1 class1, 2 class2")
    assert all(word in block["model"] for word in ("Net", "cpu", "mean 0.5", "std 0.25"))
    lines = said.out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("data"))
    shown = lines[at : at + 8]
    assert any(line.startswith("defaults") for line in shown)  # eight lines hold the block
    assert max(map(len, shown)) <= 80


def test_several_labels_are_no_class() -> None:
    data = rlab.Batch(torch.rand(6, 1, 50), torch.eye(6, 3, dtype=torch.int64), take=Take(6))
    assert "spread over 4 sets of labels" in " ".join(str(Understood(data)).split())


def test_python_prints_the_same_block_before_the_first_query(capsys: pytest.CaptureFixture[str]) -> None:
    victim, asked, texts = rlab.demo_victim("ecg"), list[int](), list[str]()

    def announce(understood: Understood) -> None:
        asked.append(victim.rows.total())
        texts.append(str(understood))

    rlab.attack(victim, "demo:ecg", limit=3, budget=4)
    said, before = capsys.readouterr(), victim.rows.total()
    rlab.attack(victim, "demo:ecg", limit=3, budget=4, announce=announce)
    assert texts[0] in said.err
    assert asked == [before]  # no query of the second attack
    block = block_of(said.err)
    assert "signals of 288 values, 2 channels, 360 Hz" in block["data"]
    assert "mV found, no bounds" in block["values"]
    assert "0 normal, 1 atrial premature" in block["classes"]


@pytest.mark.parametrize("verb", ["doctor", "explain"])
def test_other_verbs_print_it_too(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"method": "occlusion"} if verb == "explain" else {}
    getattr(rlab, verb)("demo:digits", "demo:digits", limit=3, **options)
    assert "3 images of 8 x 8 pixels, 1 channel" in capsys.readouterr().err


def test_an_audit_prints_it_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    off = {"explain": False, "benchmark": False}
    data, wanted = {"path": "demo:digits", "limit": 3}, [{"metric": "errors", "at_most": 0}]
    rlab.audit({"model": "demo:digits", "data": data, "budget": 5, "requirements": wanted, **off}, tmp_path / "audit")
    assert "3 images of 8 x 8 pixels, 1 channel" in capsys.readouterr().err


def test_long_lists_of_classes_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    names = tuple(f"a rather long name of class {i}" for i in range(1000))
    data = rlab.Batch(torch.rand(4, 1, 8, 8), torch.arange(4), classes=names)
    text = str(Understood(data, (TorchVictim(Ten()),)))
    assert "1000: 0 a rather long n…, 1 " in text
    assert max(map(len, text.splitlines())) <= 80
    assert len(text.splitlines()) <= 8
    assert Understood(data[:1]).lines()["data"] == "1 image of 8 x 8 pixels, 1 channel"


def test_twelve_leads_without_names_are_named_as_such() -> None:
    x, y = torch.zeros(2, 12, 50), torch.tensor([0, 1])
    for known, said in (({}, True), ({"unit": "mV", "rate": 100.0}, False)):
        lines = Understood(rlab.Batch(x, y, bounds=UNBOUNDED, **known)).lines()  # type: ignore[arg-type]
        assert "-D leads=I,II,III,aVR" in lines["leads"]
        assert ("-D unit=mV" in lines["leads"]) == said
    assert "leads" not in Understood(rlab.Batch(x, y, bounds=UNBOUNDED, leads=LEADS)).lines()


def test_grey_pictures_in_colour_are_named_as_such() -> None:
    grey = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0)).expand(2, 3, 8, 8)
    y = torch.zeros(2, dtype=torch.int64)
    assert "the same in all 3 channels" in str(Understood(rlab.Batch(grey, y)))
    assert "the same in all" not in str(Understood(rlab.Batch(grey * torch.tensor([1, 0.5, 0.5])[:, None, None], y)))


def test_normalised_images_come_with_advice() -> None:
    data = rlab.load((torch.rand(4, 3, 8, 8) * 4 - 2, torch.arange(4)))
    assert "if they are normalised" in " ".join(str(Understood(data, (TorchVictim(Ten()),))).split())


AMBIGUOUS: dict[str, tuple[Callable[[], Any], dict[str, Any], str]] = {
    "digits in 0..16": (lambda: (DIGITS.images[:20, None], Y), {"bounds": (0, 16)}, r"0 to 16.*bounds=\(0, 16\)"),
    "three axes": (lambda: (DIGITS.images[:20] / 16, Y), {"kind": "image"}, "kind='image'"),
    "three axes as signals": (lambda: (DIGITS.images[:20] / 16, Y), {"kind": "signal"}, "kind='signal'"),
    "dark bytes": (lambda: (DIGITS.images[:20, None].astype(np.uint8), Y), {"bounds": (0, 1)}, r"0 to 16.*bounds=\(0, 1\)"),
    "a data set in 0..16": (
        lambda: TensorDataset(torch.from_numpy(DIGITS.images[:20, None]), torch.from_numpy(Y)), {"bounds": (0, 16)},
        r"bounds=\(0, 16\)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_what_is_ambiguous_is_refused_with_the_argument_that_settles_it(name: str) -> None:
    make, argument, words = AMBIGUOUS[name]
    net = Ten()
    with pytest.raises(InputError, match=words):
        rlab.attack(net, make(), budget=4)
    settled = rlab.load(make(), **argument)
    assert settled.bounds == argument.get("bounds", settled.bounds)
    assert settled.kind == argument.get("kind", "image")


def test_digits_never_leave_their_range() -> None:
    x = torch.from_numpy(DIGITS.images[:20, None]).float()
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    data = rlab.load((x, net(x).argmax(1)), bounds=(0, 16))
    result = rlab.attack(net, data, budget=12, policy="square", palette=["gaussian_noise@0.4", "illuminate@0.5"])
    assert result.succeeded.any()
    assert 0 <= float(result.perturbed.min()) <= float(result.perturbed.max()) <= 16


@pytest.mark.parametrize(
    ("data", "flag"), [("sixteen.npz", "-D bounds=[0,16]"), ("axes.npz", "-D kind=image"), ("dark.npz", "-D bounds=[0,1]")]
)  # fmt: skip
def test_the_command_names_the_flag(folder: Path, data: str, flag: str) -> None:
    words = ["attack", "my_models:ten", data, "--budget", "4", "--pictures", "0", "--limit", "4"]
    said = rlab_command(*words)
    assert said.code == 2
    assert flag in said.err.replace("\n", " ")
    assert rlab_command(*words, *flag.split(), "--out", "run").code == 0


@pytest.mark.parametrize("command", ["attack", "doctor"])
def test_folders_that_name_fewer_classes_than_the_model_has(folder: Path, command: str) -> None:
    words = [command, "my_models:ten", "pets", *(["--pictures", "0", "--budget", "4"] if command == "attack" else [])]
    said = rlab_command(*words)
    text = " ".join((said.out + said.err).split())
    assert said.code != 0
    assert "-D classes=" in text
    assert "BGR" not in text
    (folder / "names.txt").write_text("\n".join(["bird", "frog", "ship", "cat", "deer", "dog", *"abcd"]))
    settled = rlab_command(*words, "-D", "classes=names.txt", *(["--out", "run"] if command == "attack" else []))
    assert "10: 0 bird, 1 frog, 2 ship, 3 cat" in settled.out
    assert settled.code == 0 or command == "doctor"


@pytest.mark.parametrize(
    ("verb", "options"),
    [
        ("explain", {"method": "occlusion"}), ("compare", {"policies": "random", "budget": 4}),
        ("harden", {"epochs": 1}), ("benchmark", {"out": "made", "budget": 4}),
    ],
)  # fmt: skip
def test_every_verb_refuses_them(folder: Path, verb: str, options: dict[str, Any]) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 10))
    with pytest.raises(InputError, match="classes="):
        getattr(rlab, verb)(net, "pets", **options)


def test_names_of_a_data_set_are_found_among_those_of_the_model() -> None:
    data: Any = TensorDataset(torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 0, 1]))
    data.classes = ["cat", "dog"]
    with pytest.raises(InputError, match="numbered by name"):
        rlab.attack(Ten(), data, budget=4)
    names = ["bird", "cat", "deer", "dog", *"abcdef"]
    assert rlab.load(data, classes=names).y.tolist() == [1, 3, 1, 3]


def test_the_doctor_does_not_blame_the_channels_for_wrong_labels() -> None:
    """Wrong labels whose probabilities rise with reversed channels, as any other input would raise them."""

    class Sure(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            red = x[:, 0].flatten(1).mean(1)
            return torch.stack([-5 - red, -5 - red, red + 5, *(-9 + 0 * red for _ in range(7))], 1)

    x = torch.rand(24, 3, 8, 8) * torch.tensor([1.0, 0.5, 0.2]).view(1, 3, 1, 1)
    report = rlab.doctor(Sure(), rlab.Batch(x, torch.arange(24) % 2))
    assert "channel-order" not in {finding.name for finding in report.findings}


def test_a_limit_takes_samples_of_all_classes(folder: Path) -> None:
    spread, first = rlab.load("ten", limit=5), rlab.load("ten", limit=5, order="first")
    assert len(set(spread.y.tolist())) == 5
    assert set(first.y.tolist()) == {0}
    assert len(set(rlab.load("ten", limit=5, seed=1).ids) | set(spread.ids)) > 5
    source = rlab.load("ten", limit=5, stream=True)
    assert source.ids == spread.ids
    assert len(source.files) == 5


def test_a_limit_beyond_the_data_says_that_all_were_taken(folder: Path) -> None:
    whole = rlab.load("ten")
    assert Understood(rlab.load("ten", limit=len(whole) + 1)).lines()["samples"].endswith("all of them")
    assert "spread" in Understood(rlab.load("ten", limit=len(whole) - 1)).lines()["samples"]


def test_several_labels_come_with_the_option_of_records_only_where_it_applies() -> None:
    several = rlab.Batch(torch.rand(2, 1, 64), torch.tensor([[0, 1, 1], [1, 0, 1]]), bounds=(-1.0, 1.0))
    assert Understood(several).lines()["labels"] == "several per sample"
    named = replace(several, leads=("I",), unit="mV", rate=100.0)
    assert "multilabel=false" in Understood(named).lines()["labels"]


def test_a_stream_reads_nothing_to_select(folder: Path) -> None:
    whole = rlab.load("ten", stream=True)
    for (file,) in whole.files:
        file.write_bytes(b"broken")
    assert len(set(whole.select(rlab.load("demo:digits", limit=5).take).y.tolist())) == 5
