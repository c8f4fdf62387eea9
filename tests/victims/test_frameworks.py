"""Keras models, JAX functions and CLIP-like classifiers: planted ones whose scores are known."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rlab
from rlab.errors import InputError
from rlab.runs.fingerprint import model_fingerprint
from rlab.victims import CallableVictim, KerasVictim, TorchVictim
from rlab.victims.batches import SIZES as BATCHES
from rlab.victims.options import ModelOptions
from rlab.victims.resolve import load_victim, wrap
from tests.helpers import real_package
from tests.victims.makers import CHANNELS, CLASSES, SIZES, inputs, linear
from tests.victims.tiny_transformers import tiny_clip

pytestmark = pytest.mark.slow  # the packages take seconds to import


@pytest.mark.parametrize("named", [False, True])
def test_keras_wants_channels_last(named: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    keras, model = real_package("keras"), linear()
    net = keras.Sequential([keras.Input((*SIZES[2], CHANNELS)), keras.layers.Flatten(), keras.layers.Dense(CLASSES)])
    weight = np.moveaxis(model.weight.reshape(CHANNELS, *SIZES[2], CLASSES), 0, -2).reshape(-1, CLASSES)
    net.set_weights([weight, model.bias])
    victim = wrap(net, ModelOptions(name="net", layout="channels_last" if named else "channels_first"))
    assert isinstance(victim, KerasVictim)
    assert torch.allclose(victim(inputs(2, 9)), model.scores(inputs(2, 9)), atol=1e-4)
    assert victim.rows == {"search": 9}
    before = model_fingerprint(victim)
    net.set_weights([weight, model.bias + 1])
    assert model_fingerprint(victim) != before


def test_keras_with_several_inputs_is_refused() -> None:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    keras = real_package("keras")
    one, two = keras.Input((4,)), keras.Input((4,))
    with pytest.raises(InputError, match="one input"):
        rlab.KerasVictim(keras.Model([one, two], keras.layers.Add()([one, two])))


def test_jax_compiles_for_few_numbers_of_rows() -> None:
    jax, model, traced = real_package("jax"), linear(), list[int]()

    def predict(x: Any) -> Any:
        traced.append(len(x))  # once for each shape that is compiled
        return x.reshape(len(x), -1) @ model.weight + model.bias

    victim = wrap(jax.jit(predict), ModelOptions(name="jit"))
    assert isinstance(victim, CallableVictim)
    for rows in range(1, 40):
        assert torch.allclose(victim(inputs(2, rows)), model.scores(inputs(2, rows)), atol=1e-4)
    assert len(traced) <= len(BATCHES)
    assert victim.rows == {"search": sum(range(1, 40))}


def test_clip_with_class_names_as_prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same scores as those that the network itself returns for images and sentences."""
    monkeypatch.chdir(tmp_path)
    model, x = tiny_clip(tmp_path), torch.rand(3, 3, 8, 8)
    spec, names = "clip:openai/clip-vit-base-patch32", ("digit 1", "digit 7", "photo")
    words = torch.tensor([[1, 4, 5, 6, 4, 7, 9, 2], [1, 4, 5, 6, 4, 7, 15, 2], [1, 4, 5, 6, 4, 5, 2, 0]])
    with torch.no_grad():
        answer = model(input_ids=words, attention_mask=(words > 0).long(), pixel_values=(x - 0.5) / 0.25)
    victim = load_victim(spec, names=names)
    assert isinstance(victim, TorchVictim)
    assert torch.allclose(victim(x), answer.logits_per_image.log_softmax(1), atol=1e-4)
    assert victim.own_classes == names
    (tmp_path / "names.txt").write_text("digit 1\ndigit 7\nphoto\n")
    assert torch.allclose(load_victim(spec, names="names.txt")(x), victim(x))
    assert not torch.allclose(load_victim(spec, names=names, prompt="of a {}")(x), victim(x), atol=1e-3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "names="), ({"names": ("one",)}, "two"), ({"names": "missing.txt"}, "no such file"),
        ({"names": ("a", "b"), "prompt": "a photo"}, "{}"), ({"names": ("a", "b")}, "cannot load"),
    ],
)  # fmt: skip
def test_what_clip_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], words: str) -> None:
    real_package("transformers")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=words):
        load_victim("clip:./empty", **options)
