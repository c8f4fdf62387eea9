"""CLIP-like models as classifiers: the classes are sentences, and an image belongs to the nearest one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from rlab.errors import ModelError, OptionError
from rlab.victims.base import first_line
from rlab.victims.torch_module import Normalise
from rlab.victims.weights import hf_normalise, hf_part, load_package

PROMPT = "a photo of a {}"


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
    """Names of the classes, or those in a file with one name a line."""
    if isinstance(names, str):
        if not Path(names).is_file():
            raise ModelError(f"no such file: {names}")
        names = Path(names).read_text(encoding="utf-8").split("\n")
    named = tuple(name.strip() for name in names or () if name.strip())
    if len(named) < 2 or len(set(named)) < len(named):
        some = f"expected names of at least two different classes, got {len(named)}"
        raise OptionError(f"{some}: pass names=[cat,dog], or names=classes.txt with one name a line")
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
