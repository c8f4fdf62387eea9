"""Models and data in every form that users have them become a victim and a batch, with the assumptions reported."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from mypy import api
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import rlab
from rlab.data.load import DataOptions
from rlab.data.take import Take
from rlab.errors import DataError, InputError, Notice, OptionError
from rlab.runs.inputs import as_batch, taken
from rlab.runs.options import AttackOptions, SharedAttackOptions
from rlab.runs.sharing import WorkerOptions
from rlab.victims.options import ModelOptions

X = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([0, 1, 0, 1, 0, 1])


class Net(nn.Module):
    """Records whether it is in training mode at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(192, 2))
        self.modes: list[bool] = []

    def forward(self, x: Tensor) -> Any:
        self.modes.append(self.training)
        return self.layers(x)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(zip(X, Y, strict=True))


class Pictures(Dataset[Any]):
    """As torchvision's data sets without a transform: channels last, uint8, labels as plain numbers, classes by name."""

    classes = ("cat", "dog")

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, i: int) -> Any:
        return (X[i] * 255).round().byte().permute(1, 2, 0).numpy(), int(Y[i])


FORMS: dict[str, Callable[[], Any]] = {
    "a batch": lambda: rlab.Batch(X, Y),
    "tensors": lambda: (X, Y),
    "a list of two tensors": lambda: [X, Y],
    "numpy, float64": lambda: (X.double().numpy(), Y.numpy()),
    "half precision": lambda: (X.bfloat16(), Y.int()),
    "labels of one hot": lambda: (X, nn.functional.one_hot(Y)),
    "a data set": lambda: TensorDataset(X, Y),
    "a list of pairs": lambda: list(zip(X, Y.tolist(), strict=True)),
    "a data set without a length": Stream,
    "a loader": lambda: DataLoader(TensorDataset(X, Y), batch_size=4),
    "a loader that does not batch": lambda: DataLoader(TensorDataset(X, Y), batch_size=None),
    "a loader of a stream": lambda: DataLoader(Stream(), batch_size=4),
    "pictures": Pictures,
}


UNKNOWN = ("a data set without a length", "a loader that does not batch", "a loader of a stream")  # labels in advance


@pytest.mark.parametrize("limit", [None, 4, 99])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_samples(form: str, limit: int | None) -> None:
    batch = as_batch(FORMS[form](), limit)
    rows = list(range(len(X)))
    if limit == 4:
        rows = rows[:4] if form in UNKNOWN else Take(4).rows(Y)
    if form == "pictures" and limit == 4:  # the labels of such a data set are not known before it is read
        rows = sorted(Take(4, shuffle=True).any_rows(len(X)))
    assert batch.bounds == (0.0, 1.0)
    assert batch.x.dtype == torch.float32
    torch.testing.assert_close(batch.x, X[rows], atol=5e-3, rtol=0)
    assert batch.y.tolist() == Y[rows].tolist()


class Read(Pictures):
    """Knows its labels, and counts the samples that are read."""

    targets = Y.tolist()

    def __init__(self) -> None:
        self.read: list[int] = []

    def __getitem__(self, i: int) -> Any:
        self.read.append(i)
        return super().__getitem__(i)


@pytest.mark.parametrize(
    "wrap", [lambda data: data, lambda data: DataLoader(data, batch_size=2)], ids=["set", "loader"]
)
def test_a_limit_reads_no_other_samples_if_the_labels_are_known(wrap: Callable[[Any], Any]) -> None:
    data = Read()
    batch = as_batch(wrap(data), 2)
    assert sorted(batch.y.tolist()) == [0, 1]
    assert sorted(set(data.read)) == Take(2).rows(Y)


@pytest.mark.parametrize("data", [Pictures(), DataLoader(Pictures(), batch_size=2)], ids=["data set", "loader"])
def test_class_names_are_kept(data: Any) -> None:
    assert as_batch(data).classes == ("cat", "dog")


@pytest.mark.parametrize(
    ("x", "bounds"),
    [
        ((X * 255).byte(), (0.0, 1.0)),
        (X * 4 - 2, None),
        (X * 255, (0.0, 255.0)),
        (X.flatten(2), (-np.inf, np.inf)),
        (X.flatten(2) * 4 - 2, (-np.inf, np.inf)),
    ],
    ids=["uint8", "normalised", "float 0..255", "signals", "normalised signals"],
)
def test_ordinary_data_needs_no_argument(x: Tensor, bounds: tuple[float, float] | None) -> None:
    batch = as_batch((x, Y))
    assert batch.bounds == (bounds or (float(x.min()), float(x.max())))
    assert batch.eight_bit == (x.dtype == torch.uint8)


def test_the_data_takes_the_bounds_of_the_victim() -> None:
    victim = rlab.TorchVictim(Net(), bounds=(-1.0, 1.0))
    with taken(victim, ((X * 255).byte(), Y)) as (same, batch):
        assert same is victim
        assert batch.bounds == (-1.0, 1.0)
        assert float(batch.x.min()) < -0.9
    with pytest.raises(InputError), taken(rlab.TorchVictim(Net()), (X * 4 - 2, Y)):
        pass


@pytest.mark.parametrize(
    "data",
    [
        (X, Y[:4]), (X, Y.float() + 0.5), (X, Y - 1), (X[0, 0], Y), [], {"x": X, "y": Y}, 3, [X[0], X[1], X[2]],
        [(X[0], 0), (X[1, :, :4], 1)], (X.numpy().astype(str), Y), (X * np.nan, Y),
    ],
    ids=["fewer labels", "half labels", "a label below 0", "one axis", "nothing", "a dictionary", "a number", "no pairs",
         "two shapes", "texts", "NaN"],
)  # fmt: skip
def test_invalid_data_is_refused(data: Any) -> None:
    with pytest.raises(InputError):
        as_batch(data)
    with pytest.raises(InputError):
        as_batch((X, Y), limit=0)


@pytest.mark.parametrize("stream", [False, True])
def test_data_are_rescaled_to_the_range_that_a_named_model_expects(
    stream: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("net = lambda: lambda x: x.reshape(len(x), -1)[:, :2]\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for x, eight_bit in ((X, False), ((X * 255).byte(), True)):
        np.savez(tmp_path / "x.npz", x=x.numpy(), y=Y.numpy())
        data = DataOptions(path=str(tmp_path / "x.npz"), stream=stream or None)
        with taken(ModelOptions(name="mine:net", bounds=(-1, 255)), data, stream=stream) as (victim, samples):
            assert samples.bounds == victim.bounds == (-1.0, 255.0)
            expected = (X * 255).byte() / 255 if eight_bit else X
            torch.testing.assert_close(samples[:].x, expected * 256 - 1, atol=1e-3, rtol=0)


def test_a_limit_applies_to_declared_data() -> None:
    for declared, count in ((DataOptions(path="demo:digits"), 3), (DataOptions(path="demo:digits", limit=2), 2)):
        for stream in (False, True):
            with taken("demo:digits", declared, 3, stream) as (_, batch):
                assert len(batch) == count


@pytest.mark.parametrize("data", [rlab.Batch(X, Y), (X, Y), "demo:digits", DataOptions(path="demo:digits")], ids=type)
def test_listed_target_classes_belong_to_the_first_samples(data: Any) -> None:
    model = "demo:digits" if isinstance(data, str | DataOptions) else Net()
    with taken(model, data) as (_, batch):
        first = batch.ids[:3]
    for listed in ([1, 0, 1], [1, 0, 1, 1, 1, 1]):
        with taken(model, data, 3, goal=rlab.Targeted(listed)) as (_, batch):
            assert (batch.ids, batch.aims.tolist()) == (first, [1, 0, 1])


def test_labels_and_target_classes_of_data_follow_the_models_order() -> None:
    victim = rlab.TorchVictim(Net())
    victim.own_classes = ("dog", "cat")
    batch = rlab.Batch(X, Y, classes=("cat", "dog"), aims=1 - Y)
    with taken(victim, batch) as (_, seen):
        assert (seen.y.tolist(), seen.classes, seen.aims.tolist()) == ((1 - Y).tolist(), ("dog", "cat"), Y.tolist())
    with taken(victim, batch, goal=rlab.Targeted([1] * 6)) as (_, seen):
        assert seen.aims.tolist() == [1] * 6


def test_a_notice_points_at_the_line_of_the_caller() -> None:
    net = Net().eval()
    wrong = 1 - net(X).argmax(1)
    calls: dict[str, Callable[[], object]] = {
        "the doctor may show why": lambda: rlab.attack(net, (X, wrong), budget=6),
        "may contain a secret": lambda: rlab.HttpVictim("http://host/p", headers={"Authorization": "Bearer abcdefgh"}),
    }
    for words, call in calls.items():
        with pytest.warns(Notice, match=words) as caught:
            call()
        assert [notice.filename for notice in caught if issubclass(notice.category, Notice)] == [__file__]


def test_a_module_is_queried_in_evaluation_mode_and_restored() -> None:
    net = Net()
    net.layers[0].eval()
    before = [part.training for part in net.modules()]
    result = rlab.attack(net, (X, Y), budget=6)
    assert len(result) == len(X)
    assert not any(net.modes)
    assert [part.training for part in net.modules()] == before
    with pytest.raises(rlab.VictimError):
        rlab.attack(net, (X[:, :2], Y), budget=6)
    assert [part.training for part in net.modules()] == before


def test_a_module_a_function_and_a_victim_give_the_same_result() -> None:
    net = Net().eval()
    victim = rlab.TorchVictim(net)
    labels = victim(X).argmax(1)
    known = rlab.attack(victim, rlab.Batch(X, labels), budget=12)
    function = rlab.attack(lambda x: net(torch.from_numpy(x)), (X, labels), budget=12)
    module = rlab.attack(net, TensorDataset(X, labels), budget=12)
    for other in (function, module):
        assert other.status == known.status
        torch.testing.assert_close(other.perturbed, known.perturbed)


def test_names_work_as_on_the_command_line(recwarn: pytest.WarningsRecorder) -> None:
    result = rlab.attack("demo:digits", "demo:digits", limit=3, budget=10)
    assert len(result) == 3
    assert not [warning for warning in recwarn if issubclass(warning.category, Notice)]


def test_the_signature_lists_every_option() -> None:
    shown = inspect.signature(rlab.attack).parameters
    own = ["model", "data", "limit", "out", "keep", "progress", "announce"]
    assert [*shown] == [*own, *AttackOptions.model_fields, *WorkerOptions.model_fields]
    for name, field in SharedAttackOptions.model_fields.items():
        assert shown[name].default == field.default
        assert f"{name}: {field.description}" in (rlab.attack.__doc__ or "")


def test_an_invalid_model_and_a_misspelt_option_are_refused() -> None:
    with pytest.raises(InputError):
        rlab.attack(3, (X, Y))  # type: ignore[arg-type]
    with pytest.raises(OptionError):
        rlab.attack(Net(), (X, Y), budgte=100)  # type: ignore[call-arg]


@pytest.mark.slow  # mypy reads torch
def test_mypy_knows_every_option(tmp_path: Path) -> None:
    snippet = tmp_path / "snippet.py"
    call = "rlab.attack(net, (torch.rand(4, 3, 8, 8), torch.zeros(4)), {})"
    lines = ["import rlab", "import torch", "net = torch.nn.Linear(2, 2)"]
    lines += [call.format(option) for option in ("budget=100, patch=(2, 2)", "budgte=100", "until='never'")]
    snippet.write_text("\n".join(lines) + "\n")
    root = Path(rlab.__file__).parents[1]
    config = ["--config-file", str(root / "pyproject.toml"), "--cache-dir", str(root / ".mypy_cache")]
    output, _, code = api.run([*config, "--strict", "--no-pretty", str(snippet)])
    assert code == 1
    assert [line.split(":")[1] for line in output.splitlines() if ": error:" in line] == ["5", "6"]
    assert "budgte" in output


@pytest.mark.parametrize(
    ("data", "advice"),
    [
        (pd.DataFrame(np.zeros((4, 8))), r"x\.to_numpy\(\)"),
        ((pd.DataFrame(np.zeros((4, 8))), np.zeros(4, int)), r"x\.to_numpy\(\)"),
        ((np.zeros((3, 8)), np.array([0, None, 1], object)), "got None for 1 of 3 samples, first for sample 1"),
        ((np.zeros((3, 8)), np.array(["a", "b", None], object)), "got None for 1 of 3 samples, first for sample 2"),
        ((np.zeros((2, 8)), np.array(["a", {}], object)), "expected integers or names as labels, got values like"),
    ],
)
def test_frames_and_labels_that_are_missing_are_refused(data: Any, advice: str) -> None:
    with pytest.raises(DataError, match=advice):
        as_batch(data, 2)


def test_labels_that_are_objects_are_read() -> None:
    assert as_batch((np.zeros((2, 1, 8)), np.array(["b", "a"], object))).classes == ("a", "b")
    assert as_batch((np.zeros((2, 1, 8)), np.array([1, 0], object))).y.tolist() == [1, 0]
