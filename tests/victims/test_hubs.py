"""Published models: one stand-in with the interfaces of timm, torchvision and transformers, and the real packages."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from rlab.errors import InputError, MissingExtra
from rlab.victims import TorchVictim
from rlab.victims.resolve import load_victim
from tests.helpers import real_package

X = torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.1)
PACKAGES = {"timm": "timm", "torchvision": "torchvision", "hf": "transformers"}


class Net(nn.Module):
    def __init__(self, classes: int = 6) -> None:
        super().__init__()
        self.head = nn.Linear(48, classes)
        self.pretrained_cfg = {"mean": MEAN, "std": STD}

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(x.flatten(1))
        return scores

    @classmethod
    def from_pretrained(cls, name: None, config: Any, state_dict: Any, output_loading_info: bool) -> Any:
        """As the models of transformers load weights."""
        assert output_loading_info
        model = cls(config.num_labels)
        missing, unexpected = model.load_state_dict(state_dict, strict=False)
        return model, {"missing_keys": set(missing), "unexpected_keys": set(unexpected)}


def want(model: nn.Module, mean: Any = MEAN, std: Any = STD, x: Tensor = X) -> Tensor:
    shift, scale = (torch.tensor(values).view(3, 1, 1) for values in (mean, std))
    return model.eval()((x - shift) / scale).log_softmax(1).detach()


@dataclass
class Hub:
    """Knows one model, called net, through the functions that rlab calls in the three packages."""

    published: Net = field(default_factory=Net)
    loaded: list[bool] = field(default_factory=list)  # for each model loaded, whether with its published weights
    steps: dict[str, Any] = field(default_factory=dict)  # of the image processor
    missing: set[str] = field(default_factory=set)  # names without published weights

    def net(self, name: str, pretrained: bool, classes: int | None) -> Net:
        if name != "net":
            raise ValueError(f"Unknown model {name}")
        self.loaded.append(pretrained)
        return self.published if pretrained else Net(classes or 6)

    def modules(self) -> dict[str, ModuleType]:
        """Package name -> module."""
        transforms = SimpleNamespace(mean=list(MEAN), std=list(STD))
        weights = SimpleNamespace(DEFAULT=SimpleNamespace(transforms=lambda: transforms))
        info = {"unexpected_keys": {"pooler.weight"}}
        scale = {"do_rescale": True, "rescale_factor": 1 / 255}
        steps = {"do_normalize": True, **scale, "image_mean": MEAN, "image_std": STD}
        parts: dict[str, dict[str, Any]] = {
            "timm": {
                "create_model": lambda name, pretrained=False, num_classes=None: self.net(name, pretrained, num_classes)
            },
            "torchvision": {},
            "torchvision.models": {
                "get_model_weights": lambda name: {"net": weights}[name],
                "get_model": lambda name, weights=None, num_classes=6: self.net(name, weights is not None, num_classes),
            },
            "transformers": {
                "AutoModelForImageClassification": SimpleNamespace(
                    from_pretrained=lambda name, use_safetensors, output_loading_info: (
                        self.net(name, True, None), {**info, "missing_keys": self.missing},
                    ),
                    from_config=lambda config: self.net("net", False, config.num_labels),
                ),
                "AutoConfig": SimpleNamespace(
                    from_pretrained=lambda name, num_labels=6: SimpleNamespace(num_labels=num_labels)
                ),
                "AutoImageProcessor": SimpleNamespace(
                    from_pretrained=lambda name: SimpleNamespace(to_dict=lambda: {**steps, **self.steps})
                ),
            },
        }  # fmt: skip
        made = {name: ModuleType(name) for name in parts}
        for name, content in parts.items():
            vars(made[name]).update(content)
        return made


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub = Hub()
    for name, module in hub.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    return hub


@pytest.mark.parametrize("name", PACKAGES)
def test_published_weights_come_with_their_normalisation(hub: Hub, name: str) -> None:
    victim = load_victim(f"{name}:net")
    assert hub.loaded == [True]
    assert torch.allclose(victim(X), want(hub.published), atol=1e-5)
    bytes_ = load_victim(f"{name}:net", bounds=(0, 255))
    assert torch.allclose(bytes_(X * 255), want(hub.published), atol=1e-4)
    own = load_victim(f"{name}:net", mean=0.0, std=1.0)
    assert torch.allclose(own(X), hub.published(X).log_softmax(1), atol=1e-5)


@pytest.mark.parametrize("name", PACKAGES)
def test_local_weights_replace_the_published_ones(hub: Hub, name: str, tmp_path: Path) -> None:
    mine = Net(4)
    save_file(mine.state_dict(), tmp_path / "mine.safetensors")
    victim = load_victim(f"{name}:net", weights=str(tmp_path / "mine.safetensors"), classes=4)
    assert hub.loaded == [False]
    assert torch.allclose(victim(X), want(mine), atol=1e-5)
    assert victim.classes == 4


INVALID: list[tuple[str, dict[str, Any], str]] = [
    ("nett", {}, ":nett: "),
    ("net", {"classes": 4}, "weights="),
    ("net", {"bounds": (-float("inf"), float("inf"))}, "mean and std"),
    ("net", {"weights": "other.safetensors"}, "lacks head.bias and has unknown tail"),
]


@pytest.mark.parametrize("name", PACKAGES)
@pytest.mark.parametrize(("model", "options", "words"), INVALID)
def test_what_cannot_be_loaded_is_refused(
    hub: Hub, name: str, model: str, options: dict[str, Any], words: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    save_file({"head.weight": Net().head.weight.detach(), "tail": torch.zeros(1)}, "other.safetensors")
    with pytest.raises(InputError, match=words):
        load_victim(f"{name}:{model}", **options)


@pytest.mark.parametrize(("name", "package"), PACKAGES.items())
def test_a_missing_package_names_its_extra(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)

    monkeypatch.setattr("rlab.victims.weights.importlib.import_module", absent)
    with pytest.raises(MissingExtra, match=rf"'{package}'.*\[models\]"):
        load_victim(f"{name}:net")


def test_a_build_for_another_torch_is_a_one_line_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision/__init__.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    (tmp_path / "timm.py").write_text("import torchvision")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("torchvision", "torchvision.models", "timm"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in ("torchvision", "timm"):
        with pytest.raises(InputError, match=rf"'{name}'.*operator torchvision::nms does not exist"):
            load_victim(f"{name}:net")


@pytest.mark.parametrize(
    ("steps", "mean", "std"),
    [
        (
            {"rescale_factor": 2 / 255, "image_mean": [2 * m for m in MEAN], "image_std": [2 * s for s in STD]},
            MEAN, STD,
        ),
        ({"do_normalize": False}, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
        (
            {"do_rescale": False, "image_mean": [255 * m for m in MEAN], "image_std": [255 * s for s in STD]},
            MEAN, STD,
        ),
    ],
)  # fmt: skip
def test_other_scalings_of_pixels_are_understood(hub: Hub, steps: dict[str, Any], mean: Any, std: Any) -> None:
    hub.steps = steps
    assert torch.allclose(load_victim("hf:net")(X), want(hub.published, mean, std), atol=1e-5)


@pytest.mark.parametrize("step", ["do_flip_channel_order", "rescale_offset"])
def test_pixels_that_are_reordered_or_shifted_are_refused(hub: Hub, step: str) -> None:
    hub.steps = {step: True}
    with pytest.raises(InputError, match="module:function"):
        load_victim("hf:net")


def test_a_published_model_without_a_trained_head_is_refused(hub: Hub) -> None:
    hub.missing = {"head.weight", "head.bias"}
    with pytest.raises(InputError, match=r"lacks head.bias, head.weight"):
        load_victim("hf:net")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["timm", "torchvision"])
def test_the_real_packages(name: str, tmp_path: Path) -> None:
    package = real_package(name)
    make = package.create_model if name == "timm" else package.models.get_model
    model = make("resnet18", num_classes=7)
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    victim = load_victim(f"{name}:resnet18", weights=str(tmp_path / "w.safetensors"), classes=7)
    assert isinstance(victim, TorchVictim)
    x = torch.rand(2, 3, 64, 64)
    assert torch.allclose(victim(x), want(model, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), x), atol=1e-4)


@pytest.mark.slow
def test_the_real_transformers_from_a_local_folder(tmp_path: Path) -> None:
    package = real_package("transformers", "ViTForImageClassification", "ViTImageProcessor")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = package.ViTConfig(**sizes, image_size=4, patch_size=2, num_labels=4)
    model = package.ViTForImageClassification(config)
    model.save_pretrained(tmp_path)
    package.ViTImageProcessor(image_mean=list(MEAN), image_std=list(STD)).save_pretrained(tmp_path)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    scores = model.eval()((X - mean) / std).logits.log_softmax(1)
    for weights in (None, str(tmp_path / "model.safetensors")):
        assert torch.allclose(load_victim(f"hf:{tmp_path}", weights=weights)(X), scores, atol=1e-4)
