"""Read weights without running code from the file, and load published models: of timm, torchvision and Hugging Face, and
CLIP-like ones as classifiers, whose classes are sentences: an image belongs to the nearest one.
"""

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
from torch.nn.functional import normalize

from rlab.errors import MissingExtra, ModelError, OptionError
from rlab.victims.failures import first_line
from rlab.victims.reading import Normalise

TORCH_FILES = (".pt", ".pth", ".bin", ".ckpt")
PICKLES = (".pkl", ".pickle", ".joblib")
AROUND = "save its state dict as safetensors and pass a factory, or export it to ONNX"
PROMPT = "a photo of a {}"
_WRAPPERS = ("state_dict", "model_state_dict", "model_state", "model")  # keys of state dicts in training checkpoints
# A model, and a function that finds its normalisation of data in [0, 1]; only some calls need it.
Published = tuple[nn.Module, Callable[[], Normalise | None]]


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Tensors by name; refuse pickled objects and weights that are NaN or have no values."""
    if not path.is_file():
        raise ModelError(f"no such file: {path}")
    if path.suffix not in (".safetensors", *TORCH_FILES):
        raise ModelError(f"expected weights as .safetensors or a torch state dict {', '.join(TORCH_FILES)}, got {path}")
    try:
        weights = load_file(path) if path.suffix == ".safetensors" else _tensors(_read_torch(path), path)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"cannot read {path} as safetensors: {error}") from error
    for name, tensor in weights.items():
        real = tensor.is_floating_point() and tensor.dtype.itemsize > 1  # torch cannot compare 8-bit floats
        if tensor.is_meta or tensor.layout != torch.strided or (real and tensor.isnan().any()):
            raise ModelError(f"the weights {name!r} in {path} are NaN, sparse or without values: save the model again")
    return weights


def load_weights(model: nn.Module, path: Path) -> nn.Module:
    """`model` with the weights in `path`, which must fit exactly."""
    return fit_weights(model, read_state_dict(path), path)


def fit_weights(model: nn.Module, weights: Mapping[str, Tensor], path: Path | str) -> nn.Module:
    """`model` with `weights`, which must fit exactly; `path` is for errors."""
    own = model.state_dict()
    if bent := [name for name in weights if name in own and weights[name].is_complex() != own[name].is_complex()]:
        raise ModelError(f"{path} does not fit the model: only one of the two is complex in {_some(bent)}")
    try:
        missing, unexpected = model.load_state_dict(weights, strict=False)
    except RuntimeError as error:  # shapes differ: the first line is a heading
        raise ModelError(f"{path} does not fit the model: {str(error).strip().splitlines()[-1].strip()}") from error
    _check_names(path, missing, unexpected)
    return model


def _check_names(path: Path | str, missing: Sequence[str], unexpected: Sequence[str]) -> None:
    parts = [("lacks", missing), ("has unknown", unexpected)]
    if misfits := " and ".join(f"{verb} {_some(keys)}" for verb, keys in parts if keys):
        raise ModelError(f"{path} does not fit the model: it {misfits}")


def _read_torch(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ModelError(f"{path} is a pickled model, which can run any code when loaded: {AROUND}") from error
    except Exception as error:  # torch raises almost anything on damaged files
        reason = first_line(error) if str(error) else "it is empty or truncated"
        raise ModelError(f"cannot read {path} as a torch state dict: {reason}") from error


def _tensors(content: Any, path: Path) -> dict[str, Tensor]:
    for name in _WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(name), Mapping):
            content = content[name]
    items = content.items() if isinstance(content, Mapping) else ()
    if not items or not all(isinstance(key, str) and isinstance(value, Tensor) for key, value in items):
        raise ModelError(f"expected a state dict of tensors in {path}, got {type(content).__name__}: {AROUND}")
    parallel = all(key.startswith("module.") for key in content)  # the prefix of DataParallel
    return {key.removeprefix("module.") if parallel else key: value for key, value in items}


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
    kind = hf_part(spec, "AutoModelForVideoClassification" if video else "AutoModelForImageClassification")
    if weights is None:
        model, about = _get(spec, kind.from_pretrained, name, use_safetensors=True, output_loading_info=True)
        _check_names(spec, sorted(about["missing_keys"]), ())  # they would be random
    else:
        count = {} if classes is None else {"num_labels": classes}
        config = _get(spec, hf_part(spec, "AutoConfig").from_pretrained, name, **count)
        # transformers itself loads the weights, because it knows the names of its earlier versions
        options = {"config": config, "state_dict": read_state_dict(weights), "output_loading_info": True}
        empty = _get(spec, kind.from_config, config)
        model, about = _get(spec, type(empty).from_pretrained, None, **options)
        _check_names(weights, sorted(about["missing_keys"]), sorted(about["unexpected_keys"]))

    def own() -> Normalise | None:
        steps = _get(spec, hf_part(spec, "AutoImageProcessor").from_pretrained, name)
        return hf_normalise(spec, steps.to_dict())

    return model, own


HUBS = {"timm": from_timm, "torchvision": from_torchvision, "hf": from_hf}


def load_package(name: str) -> Any:
    """Import an optional package, or explain why that fails."""
    package = name.partition(".")[0]
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise ModelError(f"the package {package!r} needs {error.name!r}: install it too") from error
        raise MissingExtra(package, "models") from error
    except Exception as error:  # a build for another torch can raise anything
        reason = f"does not load here ({str(error).splitlines()[0]})"
        raise ModelError(f"the package {package!r} {reason}: install the build that matches this torch") from error


def _get(spec: str, build: Any, *args: Any, **options: Any) -> Any:
    try:
        return build(*args, **options)
    except Exception as error:  # each hub has its own errors for unknown names, missing files and lost connections
        raise ModelError(f"cannot load the model {spec}: {first_line(error)}") from error


def hf_part(spec: str, part: str) -> Any:
    """transformers imports its parts on first use, so missing packages show here."""
    return _get(spec, getattr, load_package("transformers"), part)


def hf_normalise(spec: str, steps: dict[str, Any]) -> Normalise | None:
    """An image processor's normalisation of pixels in 0..255, converted to data in [0, 1]."""
    if steps.get("do_flip_channel_order") or steps.get("rescale_offset"):
        raise ModelError(f"{spec} reorders or shifts its pixels: wrap it in a module:function of your own")
    span = 255 * steps.get("rescale_factor", 1 / 255) if steps.get("do_rescale", True) else 255.0
    mean, std = (steps["image_mean"], steps["image_std"]) if steps.get("do_normalize") else (0.0, 1.0)
    plain = Normalise.of(mean, std)
    assert plain is not None
    return Normalise(tuple(m / span for m in plain.mean), tuple(s / span for s in plain.std))


class ZeroShot(nn.Module):
    """x: (b, c, h, w) -> similarities (b, k) to the sentences, as the model scales them."""

    def __init__(self, model: Any, texts: Tensor) -> None:
        super().__init__()
        self.model = model
        self.texts: Tensor
        self.register_buffer("texts", normalize(texts, dim=1))

    def forward(self, x: Tensor) -> Tensor:
        images = normalize(_features(self.model.get_image_features(pixel_values=x)), dim=1)
        scores: Tensor = self.model.logit_scale.exp() * images @ self.texts.T
        return scores


def _features(answer: Any) -> Tensor:
    """Features (b, d): a tensor, or since transformers 5 an object that holds them."""
    features: Tensor = answer if isinstance(answer, Tensor) else answer.pooler_output
    return features


def class_names(names: Sequence[str] | str | None) -> tuple[str, ...]:
    """Names of the classes, or those in a file with one name per line."""
    if isinstance(names, str):
        if not Path(names).is_file():
            raise ModelError(f"no such file: {names}")
        names = Path(names).read_text(encoding="utf-8").split("\n")
    named = tuple(name.strip() for name in names or () if name.strip())
    if len(named) < 2 or len(set(named)) < len(named):
        some = f"expected names of at least two different classes, got {len(named)}"
        raise OptionError(f"{some}: pass names=[cat,dog], or names=classes.txt with one name per line")
    return named


def load_clip(name: str, classes: Sequence[str], prompt: str) -> tuple[nn.Module, Normalise | None]:
    """A published model or a local folder, with its normalisation of data in [0, 1]."""
    spec = f"clip:{name}"
    if "{}" not in prompt:
        raise OptionError(f"expected a prompt with {{}} in place of the class, such as {PROMPT!r}, got {prompt!r}")
    load_package("transformers")
    try:
        model = hf_part(spec, "AutoModel").from_pretrained(name, use_safetensors=True).eval()
        tokens = hf_part(spec, "AutoTokenizer").from_pretrained(name)
        steps = hf_part(spec, "AutoImageProcessor").from_pretrained(name).to_dict()
        sentences = [prompt.format(each) for each in classes]
        with torch.inference_mode(False), torch.no_grad():
            words = tokens(sentences, padding=True, truncation=True, return_tensors="pt")
            texts = _features(model.get_text_features(words["input_ids"], attention_mask=words["attention_mask"]))
    except ModelError:
        raise
    except Exception as error:  # lost connections, missing files and models of another kind
        raise ModelError(f"cannot load {spec} as a CLIP-like model: {first_line(error)}") from error
    return ZeroShot(model, texts), hf_normalise(spec, steps)
