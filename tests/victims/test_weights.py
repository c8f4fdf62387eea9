"""Weights from files; published models against stand-ins with the packages' own interface, and the packages where installed."""

from __future__ import annotations

import importlib.util
import io
import pickle
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save as to_bytes
from safetensors.torch import save_file
from torch import Tensor, nn

from rlab.errors import InputError, MissingExtra
from rlab.victims import TorchVictim
from rlab.victims.resolve import load_victim
from rlab.victims.weights import load_weights, read_state_dict


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_safetensors_and_torch_state_dicts_load(tmp_path: Path) -> None:
    trained = model()
    save_file(trained.state_dict(), tmp_path / "w.safetensors")
    torch.save(trained.state_dict(), tmp_path / "w.pt")
    for name in ("w.safetensors", "w.pt"):
        assert same(load_weights(model(), tmp_path / name), trained)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: {"state_dict": state, "epoch": 3},
        lambda state: {"model": state},
        lambda state: {f"module.{key}": value for key, value in state.items()},
        lambda state: {"state_dict": {f"module.{key}": value for key, value in state.items()}},
    ],
)
def test_what_training_scripts_wrap_around_a_state_dict_is_taken_off(tmp_path: Path, wrap: Any) -> None:
    trained = model()
    torch.save(wrap(trained.state_dict()), tmp_path / "w.pth")
    assert same(load_weights(model(), tmp_path / "w.pth"), trained)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda tensor: tensor * float("nan"),
        lambda tensor: tensor.half().fill_(float("nan")),
        lambda tensor: tensor.to(torch.complex64),
        lambda tensor: tensor.to("meta"),
        lambda tensor: tensor.to_sparse(),
    ],
)
def test_weights_that_are_no_plain_numbers_are_refused(tmp_path: Path, spoil: Any) -> None:
    state = model().state_dict()
    torch.save(state | {"0.weight": spoil(state["0.weight"])}, tmp_path / "w.pt")
    with pytest.raises(InputError, match=r"0\.weight"):
        load_weights(model(), tmp_path / "w.pt")


@given(place=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255), cut=st.booleans(), kind=st.integers(0, 2))
def test_damaged_weights_load_or_are_one_sentence(place: float, byte: int, cut: bool, kind: int) -> None:
    whole = stored_weights()[kind]
    at = int(place * len(whole))
    damaged = whole[:at] if cut else whole[:at] + bytes([byte]) + whole[at + 1 :]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "w.safetensors" if kind == 0 else "w.pt")
        path.write_bytes(damaged)
        with suppress(InputError):
            load_weights(model(), path)


@cache
def stored_weights() -> tuple[bytes, bytes, bytes]:
    """As safetensors, and as torch wrote them of late and long ago."""
    late, long_ago = io.BytesIO(), io.BytesIO()
    torch.save(model().state_dict(), late)
    torch.save(model().state_dict(), long_ago, _use_new_zipfile_serialization=False)
    return to_bytes(model().state_dict()), late.getvalue(), long_ago.getvalue()


@pytest.mark.parametrize("content", [{1: torch.zeros(2)}, {}, [torch.zeros(2)], torch.zeros(2), {"a": 1}])
def test_what_is_no_state_dict_is_refused(tmp_path: Path, content: Any) -> None:
    torch.save(content, tmp_path / "w.pt")
    with pytest.raises(InputError, match="expected a state dict"):
        load_weights(model(), tmp_path / "w.pt")


def test_weights_without_batch_counts_load_as_older_files_have_them(tmp_path: Path) -> None:
    trained = model()
    state = {key: value for key, value in trained.state_dict().items() if "num_batches" not in key}
    save_file(state, tmp_path / "w.safetensors")
    assert same(load_weights(model(), tmp_path / "w.safetensors"), trained)


def test_weights_that_do_not_fit_name_the_first_few(tmp_path: Path) -> None:
    state = model().state_dict()
    save_file({"extra": torch.zeros(1), "2.bias": state["2.bias"]}, tmp_path / "w.safetensors")
    with pytest.raises(InputError, match=r"lacks 0.weight, 0.bias, 1.weight and \d more and has besides extra$"):
        load_weights(model(), tmp_path / "w.safetensors")
    save_file({**state, "2.bias": torch.zeros(7)}, tmp_path / "w.safetensors")
    with pytest.raises(InputError, match=r"does not fit the model: size mismatch for 2.bias"):
        load_weights(model(), tmp_path / "w.safetensors")


class Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("sprung"),)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_pickled_models_are_refused_and_run_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(model(), "whole.pt")
    torch.save(Trap(), "trap.pt")
    Path("plain.pt").write_bytes(pickle.dumps(Trap()))
    for name in ("whole.pt", "trap.pt", "plain.pt"):
        with pytest.raises(
            InputError, match=r"pickled model, .* save its state dict as safetensors and name a factory"
        ):
            read_state_dict(Path(name))
    assert not Path("sprung").exists()


@pytest.mark.parametrize("name", ["bad.safetensors", "bad.pt", "empty.pt"])
def test_broken_files_are_one_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"" if name == "empty.pt" else b"no weights in here, none at all")
    with pytest.raises(InputError) as caught:
        read_state_dict(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_other_files_are_refused(tmp_path: Path) -> None:
    torch.save(torch.zeros(3), tmp_path / "tensor.pt")
    with pytest.raises(InputError, match="expected a state dict of tensors"):
        read_state_dict(tmp_path / "tensor.pt")
    (tmp_path / "w.h5").touch()
    with pytest.raises(InputError, match=r"expected weights as .safetensors"):
        read_state_dict(tmp_path / "w.h5")
    with pytest.raises(InputError, match="no such file"):
        read_state_dict(tmp_path / "none.pt")


X = torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.1)


class Net(nn.Module):
    def __init__(self, classes: int = 6) -> None:
        super().__init__()
        self.head = nn.Linear(48, classes)
        self.pretrained_cfg = {"mean": MEAN, "std": STD}

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(x.flatten(1))
        return scores


def want(model: nn.Module) -> Tensor:
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    answer = model.eval()((X - mean) / std)
    return answer.log_softmax(1).detach()


class Asked(dict[str, Any]):
    """What the stand-in was asked for."""


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def published() -> Net:
    torch.manual_seed(1)
    return Net()


def timm(asked: Asked, published: Net) -> dict[str, ModuleType]:
    def create_model(name: str, pretrained: bool = False, num_classes: int | None = None) -> Net:
        asked.update(name=name, pretrained=pretrained)
        if name != "net":
            raise RuntimeError(f"Unknown model ({name})")
        return published if pretrained else Net(num_classes or 6)

    return {"timm": module("timm", create_model=create_model)}


def torchvision(asked: Asked, published: Net) -> dict[str, ModuleType]:
    weights = SimpleNamespace(transforms=lambda: SimpleNamespace(mean=list(MEAN), std=list(STD)))

    def known(name: str) -> Any:
        if name != "net":
            raise ValueError(f"Unknown model {name}")
        return SimpleNamespace(DEFAULT=weights)

    def get_model(name: str, weights: object = None, num_classes: int = 6) -> Net:
        asked.update(name=name, pretrained=weights is not None)
        return published if weights is not None else Net(num_classes)

    models = module("torchvision.models", get_model_weights=known, get_model=get_model)
    return {"torchvision": module("torchvision", models=models), "torchvision.models": models}


def transformers(asked: Asked, published: Net) -> dict[str, ModuleType]:
    class Model(Net):
        @classmethod
        def from_pretrained(cls, name: None, config: Any, state_dict: Any, output_loading_info: bool) -> Any:
            assert output_loading_info
            model = cls(config.num_labels)
            missing, unexpected = model.load_state_dict(state_dict, strict=False)
            return model, {"missing_keys": set(missing), "unexpected_keys": set(unexpected)}

    class Auto:
        lost: set[str] = set()  # noqa: RUF012

        @staticmethod
        def from_pretrained(name: str, use_safetensors: bool, output_loading_info: bool) -> Any:
            asked.update(name=name, pretrained=True)
            if name != "net":
                raise OSError(f"{name} is not a local folder and is not a valid model identifier")
            return published, {"missing_keys": asked.get("lost", set()), "unexpected_keys": {"pooler.weight"}}

        @staticmethod
        def from_config(config: Any) -> Model:
            asked.update(pretrained=False)
            return Model(config.num_labels)

    steps = {"do_normalize": True, "do_rescale": True, "rescale_factor": 1 / 255, "image_mean": MEAN, "image_std": STD}
    processor = SimpleNamespace(to_dict=lambda: {**steps, **asked.get("steps", {})})
    return {
        "transformers": module(
            "transformers",
            AutoModelForImageClassification=Auto,
            AutoConfig=SimpleNamespace(
                from_pretrained=lambda name, num_labels=6: SimpleNamespace(num_labels=num_labels)
            ),
            AutoImageProcessor=SimpleNamespace(from_pretrained=lambda name: processor),
        )
    }


def module(name: str, **parts: Any) -> ModuleType:
    made = ModuleType(name)
    made.__dict__.update(parts)
    return made


STAND_INS = {"timm": timm, "torchvision": torchvision, "hf": transformers}


@pytest.fixture(params=STAND_INS)
def hub(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, asked: Asked, published: Net) -> str:
    for name, stand_in in STAND_INS[request.param](asked, published).items():
        monkeypatch.setitem(sys.modules, name, stand_in)
    return str(request.param)


def test_published_weights_come_with_their_own_normalisation(hub: str, asked: Asked, published: Net) -> None:
    victim = load_victim(f"{hub}:net")
    assert asked == {"name": "net", "pretrained": True}
    assert torch.allclose(victim(X), want(published), atol=1e-5)


def test_their_normalisation_follows_the_bounds(hub: str, published: Net) -> None:
    victim = load_victim(f"{hub}:net", bounds=(0, 255))
    assert torch.allclose(victim(X * 255), want(published), atol=1e-4)
    with pytest.raises(InputError, match="pass mean and std"):
        load_victim(f"{hub}:net", bounds=(-float("inf"), float("inf")))


def test_mean_and_std_given_win(hub: str, published: Net) -> None:
    victim = load_victim(f"{hub}:net", mean=0.0, std=1.0)
    assert torch.allclose(victim(X), published(X).log_softmax(1).detach(), atol=1e-5)


def test_a_local_checkpoint_replaces_the_published_weights(hub: str, asked: Asked, tmp_path: Path) -> None:
    mine = Net(4)
    save_file(mine.state_dict(), tmp_path / "mine.safetensors")
    victim = load_victim(f"{hub}:net", weights=str(tmp_path / "mine.safetensors"), classes=4)
    assert not asked["pretrained"]
    assert torch.allclose(victim(X), want(mine), atol=1e-5)
    assert victim.classes == 4


def test_a_checkpoint_that_does_not_fit_is_refused(hub: str, tmp_path: Path) -> None:
    save_file({"head.weight": Net().head.weight.detach(), "tail": torch.zeros(1)}, tmp_path / "w.safetensors")
    with pytest.raises(InputError, match=r"it lacks head.bias and has besides tail"):
        load_victim(f"{hub}:net", weights=str(tmp_path / "w.safetensors"))


def test_an_unknown_name_is_one_sentence(hub: str) -> None:
    with pytest.raises(InputError, match=f"cannot get the model {hub}:nett: "):
        load_victim(f"{hub}:nett")


def test_published_weights_keep_their_classes(hub: str) -> None:
    with pytest.raises(InputError, match="can only be set with weights="):
        load_victim(f"{hub}:net", classes=4)


@pytest.mark.parametrize(
    ("hub_name", "package"), [("timm", "timm"), ("torchvision", "torchvision"), ("hf", "transformers")]
)
def test_a_missing_package_names_its_extra(hub_name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)

    monkeypatch.setattr("rlab.victims.weights.importlib.import_module", absent)
    with pytest.raises(
        MissingExtra, match=rf"'{package}', which is not installed: pip install 'rlab-robustness\[models\]'"
    ):
        load_victim(f"{hub_name}:net")


def test_a_build_for_another_torch_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision/__init__.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    (tmp_path / "timm.py").write_text("import torchvision")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("torchvision", "torchvision.models", "timm"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in ("torchvision", "timm"):
        with pytest.raises(
            InputError, match=rf"'{name}' does not load here \(operator torchvision::nms does not exist\)"
        ):
            load_victim(f"{name}:net")


def use_transformers(asked: Asked, published: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", transformers(asked, published)["transformers"])


def test_other_scalings_of_pixels_are_understood(asked: Asked, published: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    use_transformers(asked, published, monkeypatch)
    asked["steps"] = {"rescale_factor": 2 / 255, "image_mean": [2 * m for m in MEAN], "image_std": [2 * s for s in STD]}
    assert torch.allclose(load_victim("hf:net")(X), want(published), atol=1e-5)
    asked["steps"] = {"do_normalize": False}
    assert torch.allclose(load_victim("hf:net")(X), published(X).log_softmax(1).detach(), atol=1e-5)
    asked["steps"] = {"do_rescale": False, "image_mean": [255 * m for m in MEAN], "image_std": [255 * s for s in STD]}
    assert torch.allclose(load_victim("hf:net")(X), want(published), atol=1e-5)


@pytest.mark.parametrize("step", ["do_flip_channel_order", "rescale_offset"])
def test_pixels_that_are_reordered_or_shifted_are_refused(
    step: str, asked: Asked, published: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_transformers(asked, published, monkeypatch)
    asked["steps"] = {step: True}
    with pytest.raises(InputError, match="write a module:function that wraps it"):
        load_victim("hf:net")


def test_a_published_model_without_a_trained_head_is_refused(
    asked: Asked, published: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_transformers(asked, published, monkeypatch)
    asked["lost"] = {"head.weight", "head.bias"}
    with pytest.raises(InputError, match=r"hf:net does not fit the model: it lacks head.bias, head.weight"):
        load_victim("hf:net")


def loads(package: str) -> bool:
    if importlib.util.find_spec(package) is None:
        return False
    try:
        importlib.import_module(package)
    except Exception:
        return False
    return True


@pytest.mark.skipif(not loads("timm"), reason="timm is not installed, or does not load beside this torch")
def test_the_real_timm(tmp_path: Path) -> None:
    import timm

    made = timm.create_model("resnet18", num_classes=7)
    check_real("timm:resnet18", made, tmp_path)


@pytest.mark.skipif(not loads("torchvision"), reason="torchvision is not installed, or does not load beside this torch")
def test_the_real_torchvision(tmp_path: Path) -> None:
    import torchvision

    check_real("torchvision:resnet18", torchvision.models.resnet18(num_classes=7), tmp_path)


def check_real(spec: str, model: nn.Module, folder: Path) -> None:
    save_file(model.state_dict(), folder / "w.safetensors")
    victim = load_victim(spec, weights=str(folder / "w.safetensors"), classes=7)
    assert isinstance(victim, TorchVictim)
    x = torch.rand(2, 3, 64, 64)
    mean, std = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1), torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    assert torch.allclose(victim(x), model.eval()((x - mean) / std).log_softmax(1), atol=1e-4)


@pytest.mark.skipif(not loads("transformers"), reason="transformers is not installed")
def test_the_real_transformers_from_a_local_folder(tmp_path: Path) -> None:
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = ViTForImageClassification(ViTConfig(**sizes, image_size=4, patch_size=2, num_labels=4))
    model.save_pretrained(tmp_path)
    ViTImageProcessor(image_mean=list(MEAN), image_std=list(STD)).save_pretrained(tmp_path)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    scores = model.eval()((X - mean) / std).logits.log_softmax(1)
    for weights in (None, str(tmp_path / "model.safetensors")):
        assert torch.allclose(load_victim(f"hf:{tmp_path}", weights=weights)(X), scores, atol=1e-4)
