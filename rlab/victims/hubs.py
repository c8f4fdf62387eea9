"""Published models by name, with the mean and std they were trained with: timm, torchvision, Hugging Face."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from rlab.errors import InputError, MissingExtra
from rlab.victims.normalise import Normalise
from rlab.victims.weights import load_weights, read_state_dict, refuse_misfit

Found = tuple[nn.Module, Callable[[], Normalise | None]]  # how it wants data in [0, 1] normalised, found when asked


def from_timm(name: str, weights: Path | None, classes: int | None, video: bool) -> Found:
    """https://huggingface.co/docs/timm/reference/models"""
    timm = load_package("timm")
    model = _made("timm", name, timm.create_model, name, pretrained=weights is None, **_count("num_classes", classes))
    config = model.pretrained_cfg
    return _fitted(model, weights), lambda: Normalise.of(config["mean"], config["std"])


def from_torchvision(name: str, weights: Path | None, classes: int | None, video: bool) -> Found:
    """https://docs.pytorch.org/vision/stable/models.html"""
    models = load_package("torchvision.models")
    published = _made("torchvision", name, models.get_model_weights, name).DEFAULT
    chosen = published if weights is None else None
    model = _made("torchvision", name, models.get_model, name, weights=chosen, **_count("num_classes", classes))
    steps = published.transforms()
    return _fitted(model, weights), lambda: Normalise.of(getattr(steps, "mean", None), getattr(steps, "std", None))


def from_hf(name: str, weights: Path | None, classes: int | None, video: bool) -> Found:
    """https://huggingface.co/docs/transformers/model_doc/auto; `name` may also be a local folder."""
    load_package("transformers")
    kind = _hf_part(name, "AutoModelForVideoClassification" if video else "AutoModelForImageClassification")
    if weights is None:
        options = {"use_safetensors": True, "output_loading_info": True}
        model, about = _made("hf", name, kind.from_pretrained, name, **options)
        refuse_misfit(f"hf:{name}", sorted(about["missing_keys"]), ())  # else a part of it would be random
    else:
        config = _made("hf", name, _hf_part(name, "AutoConfig").from_pretrained, name, **_count("num_labels", classes))
        model = _hf_fitted(name, kind, config, weights)

    def own() -> Normalise | None:
        steps = _made("hf", name, _hf_part(name, "AutoImageProcessor").from_pretrained, name)
        return _hf_normalise(name, steps.to_dict())

    return model, own


HUBS = {"timm": from_timm, "torchvision": from_torchvision, "hf": from_hf}


def load_package(name: str) -> Any:
    """An optional package, or one sentence on why it cannot be had."""
    package = name.partition(".")[0]
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise InputError(
                f"the package {package!r} is installed but lacks {error.name!r}: install it too"
            ) from error
        raise MissingExtra(package, "models") from error
    except Exception as error:  # a build for another torch fails in its own ways, not as ImportError alone
        said = str(error).splitlines()[0]
        raise InputError(
            f"the package {package!r} does not load here ({said}): install the build that matches this torch"
        ) from error


def _made(hub: str, name: str, build: Any, *args: Any, **options: Any) -> Any:
    try:
        return build(*args, **options)
    except Exception as error:  # unknown names, missing files and lost connections differ from hub to hub
        said = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        raise InputError(f"cannot get the model {hub}:{name}: {said}") from error


def _fitted(model: nn.Module, weights: Path | None) -> nn.Module:
    return model if weights is None else load_weights(model, weights)


def _count(key: str, classes: int | None) -> dict[str, int]:
    return {} if classes is None else {key: classes}


def _hf_part(name: str, part: str) -> Any:
    """transformers loads its parts when they are first asked for, so that is when a missing package shows."""
    return _made("hf", name, getattr, load_package("transformers"), part)


def _hf_fitted(name: str, kind: Any, config: Any, weights: Path) -> nn.Module:
    """Through transformers' own loading, which knows the names weights had in its earlier versions."""
    options = {"config": config, "state_dict": read_state_dict(weights), "output_loading_info": True}
    empty = _made("hf", name, kind.from_config, config)
    model, about = _made("hf", name, type(empty).from_pretrained, None, **options)
    refuse_misfit(weights, sorted(about["missing_keys"]), sorted(about["unexpected_keys"]))
    fitted: nn.Module = model
    return fitted


def _hf_normalise(name: str, steps: dict[str, Any]) -> Normalise | None:
    """What an image processor does to 0..255 pixels, stated for data in [0, 1]."""
    if steps.get("do_flip_channel_order") or steps.get("rescale_offset"):
        raise InputError(f"hf:{name} reorders or shifts its pixels: write a module:function that wraps it")
    span = 255 * steps.get("rescale_factor", 1 / 255) if steps.get("do_rescale", True) else 255.0
    mean, std = (steps["image_mean"], steps["image_std"]) if steps.get("do_normalize") else (0.0, 1.0)
    plain = Normalise.of(mean, std)
    assert plain is not None
    return Normalise(tuple(m / span for m in plain.mean), tuple(s / span for s in plain.std))
