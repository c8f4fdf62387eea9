"""Weights without ever running what a file says, and published models by name: timm, torchvision, Hugging Face."""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from rlab.errors import InputError, MissingExtra
from rlab.victims.base import first_line
from rlab.victims.torch_module import Normalise

TORCH_FILES = (".pt", ".pth", ".bin", ".ckpt")
PICKLES = (".pkl", ".pickle", ".joblib")
AROUND = "save its state dict as safetensors and name a factory, or export it to ONNX"
# Where training scripts put a state dict among other things.
_WRAPPERS = ("state_dict", "model_state_dict", "model_state", "model")
Published = tuple[
    nn.Module, Callable[[], Normalise | None]
]  # how it wants data in [0, 1] normalised, looked up when asked


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Tensors by name; pickled objects are refused, and weights that hold NaN or no values at all."""
    if not path.is_file():
        raise InputError(f"no such file: {path}")
    if path.suffix not in (".safetensors", *TORCH_FILES):
        raise InputError(f"expected weights as .safetensors or a torch state dict {', '.join(TORCH_FILES)}, got {path}")
    weights = _read_safetensors(path) if path.suffix == ".safetensors" else _tensors(_read_torch(path), path)
    for name, tensor in weights.items():
        real = tensor.is_floating_point() and tensor.dtype.itemsize > 1  # torch cannot compare the smallest ones
        if tensor.is_meta or tensor.layout != torch.strided or (real and tensor.isnan().any()):
            raise InputError(f"{path} holds weights that are no plain numbers, {name!r} first: save the model again")
    return weights


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise InputError(f"cannot read {path} as safetensors: {error}") from error


def load_weights(model: nn.Module, path: Path) -> nn.Module:
    """`model` with the weights of `path`, which must fit exactly."""
    return fit_weights(model, read_state_dict(path), path)


def fit_weights(model: nn.Module, weights: Mapping[str, Tensor], path: Path | str) -> nn.Module:
    """`model` with `weights`, read from `path`, which must fit exactly."""
    own = model.state_dict()
    if bent := [name for name in weights if name in own and weights[name].is_complex() != own[name].is_complex()]:
        raise InputError(f"{path} does not fit the model: complex numbers on one side alone, {_some(bent)}")
    try:
        missing, unexpected = model.load_state_dict(weights, strict=False)
    except RuntimeError as error:  # shapes that differ: the first line is a heading
        raise InputError(f"{path} does not fit the model: {str(error).strip().splitlines()[-1].strip()}") from error
    refuse_misfit(path, missing, unexpected)
    return model


def refuse_misfit(path: Path | str, missing: Sequence[str], unexpected: Sequence[str]) -> None:
    """Raises where the file lacks names of the model or has others."""
    parts = [("lacks", missing), ("has besides", unexpected)]
    if misfits := " and ".join(f"{verb} {_some(keys)}" for verb, keys in parts if keys):
        raise InputError(f"{path} does not fit the model: it {misfits}")


def _read_torch(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InputError(f"{path} holds a pickled model, which could run anything when loaded: {AROUND}") from error
    except Exception as error:  # bytes of any kind may be there, and torch raises nearly anything
        reason = first_line(error) if str(error) else "it is empty or cut short"
        raise InputError(f"cannot read {path} as a torch state dict: {reason}") from error


def _tensors(content: Any, path: Path) -> dict[str, Tensor]:
    for name in _WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(name), Mapping):
            content = content[name]
    named = isinstance(content, Mapping) and all(
        isinstance(k, str) and isinstance(v, Tensor) for k, v in content.items()
    )
    if not named or not content:
        raise InputError(f"expected a state dict of tensors in {path}, got {type(content).__name__}: {AROUND}")
    parallel = all(key.startswith("module.") for key in content)  # as DataParallel names them
    return {key.removeprefix("module.") if parallel else key: value for key, value in content.items()}


def _some(keys: Sequence[str]) -> str:
    return ", ".join(keys[:3]) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")


def from_timm(name: str, weights: Path | None, classes: int | None, video: bool) -> Published:
    """https://huggingface.co/docs/timm/reference/models"""
    create, count = load_package("timm").create_model, {} if classes is None else {"num_classes": classes}
    model = _get(f"timm:{name}", create, name, pretrained=weights is None, **count)
    config = model.pretrained_cfg
    fitted = model if weights is None else load_weights(model, weights)
    return fitted, lambda: Normalise.of(config["mean"], config["std"])


def from_torchvision(name: str, weights: Path | None, classes: int | None, video: bool) -> Published:
    """https://docs.pytorch.org/vision/stable/models.html"""
    models, count = load_package("torchvision.models"), {} if classes is None else {"num_classes": classes}
    published = _get(f"torchvision:{name}", models.get_model_weights, name).DEFAULT
    chosen = published if weights is None else None
    model = _get(f"torchvision:{name}", models.get_model, name, weights=chosen, **count)
    fitted, steps = model if weights is None else load_weights(model, weights), published.transforms()
    return fitted, lambda: Normalise.of(getattr(steps, "mean", None), getattr(steps, "std", None))


def from_hf(name: str, weights: Path | None, classes: int | None, video: bool) -> Published:
    """https://huggingface.co/docs/transformers/model_doc/auto; `name` may also be a local folder."""
    spec = f"hf:{name}"
    kind = _hf_part(spec, "AutoModelForVideoClassification" if video else "AutoModelForImageClassification")
    if weights is None:
        model, about = _get(spec, kind.from_pretrained, name, use_safetensors=True, output_loading_info=True)
        refuse_misfit(spec, sorted(about["missing_keys"]), ())  # else a part of it would be random
    else:
        count = {} if classes is None else {"num_labels": classes}
        config = _get(spec, _hf_part(spec, "AutoConfig").from_pretrained, name, **count)
        # Through transformers' own loading, which knows the names weights had in its earlier versions.
        options = {"config": config, "state_dict": read_state_dict(weights), "output_loading_info": True}
        empty = _get(spec, kind.from_config, config)
        model, about = _get(spec, type(empty).from_pretrained, None, **options)
        refuse_misfit(weights, sorted(about["missing_keys"]), sorted(about["unexpected_keys"]))

    def own() -> Normalise | None:
        steps = _get(spec, _hf_part(spec, "AutoImageProcessor").from_pretrained, name)
        return _hf_normalise(spec, steps.to_dict())

    return model, own


HUBS = {"timm": from_timm, "torchvision": from_torchvision, "hf": from_hf}


def load_package(name: str) -> Any:
    """An optional package, or one sentence on why it cannot be had."""
    package = name.partition(".")[0]
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise InputError(f"the package {package!r} is there but lacks {error.name!r}: install it too") from error
        raise MissingExtra(package, "models") from error
    except Exception as error:  # a build for another torch fails in its own ways, not as ImportError alone
        reason = f"does not load here ({str(error).splitlines()[0]})"
        raise InputError(f"the package {package!r} {reason}: install the build that matches this torch") from error


def _get(spec: str, build: Any, *args: Any, **options: Any) -> Any:
    try:
        return build(*args, **options)
    except Exception as error:  # unknown names, missing files and lost connections differ from hub to hub
        raise InputError(f"cannot get the model {spec}: {first_line(error)}") from error


def _hf_part(spec: str, part: str) -> Any:
    """transformers loads its parts when they are first asked for, so that is when a missing package shows."""
    return _get(spec, getattr, load_package("transformers"), part)


def _hf_normalise(spec: str, steps: dict[str, Any]) -> Normalise | None:
    """What an image processor does to 0..255 pixels, stated for data in [0, 1]."""
    if steps.get("do_flip_channel_order") or steps.get("rescale_offset"):
        raise InputError(f"{spec} reorders or shifts its pixels: write a module:function that wraps it")
    span = 255 * steps.get("rescale_factor", 1 / 255) if steps.get("do_rescale", True) else 255.0
    mean, std = (steps["image_mean"], steps["image_std"]) if steps.get("do_normalize") else (0.0, 1.0)
    plain = Normalise.of(mean, std)
    assert plain is not None
    return Normalise(tuple(m / span for m in plain.mean), tuple(s / span for s in plain.std))
