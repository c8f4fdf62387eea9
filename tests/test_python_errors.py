"""Mistakes that Python users make: each gets one sentence with what to do, and no traceback of another library."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

import rlab
from rlab.auditing.config import AuditOptions
from rlab.errors import DataError, KeywordError, ModelError, OptionError, VictimError
from rlab.storage.config import check, named_keywords
from rlab.victims.options import ModelOptions
from tests.auditing.cases import declared
from tests.command import rlab_command

DEMO = ("demo:digits", "demo:digits")
rng = np.random.default_rng(0)
Y = np.arange(30) % 3
X = (0.3 * rng.random((30, 1, 4, 4)) + 0.3 * Y[:, None, None, None]).astype(np.float32)  # brighter from class to class


def attack(**keywords: Any) -> object:
    return rlab.attack(*DEMO, **keywords)


KEYWORDS: dict[str, tuple[Callable[[], object], str]] = {
    "attack": (lambda: attack(bugdet=3), "rlab.attack() has no keyword 'bugdet'. Did you mean 'budget'?"),
    "attack, own": (lambda: attack(limt=3), "rlab.attack() has no keyword 'limt'. Did you mean 'limit'?"),
    "attack, far": (
        lambda: attack(zzzz=3),
        "rlab.attack() has no keyword 'zzzz'. help(rlab.attack) lists its keywords",
    ),
    "compare": (lambda: rlab.compare(*DEMO, polices="auto"), "Did you mean 'policies'?"),  # type: ignore[call-arg]
    "explain": (lambda: rlab.explain(*DEMO, metod="rise"), "Did you mean 'method'?"),  # type: ignore[call-overload]
    "benchmark": (lambda: rlab.benchmark(*DEMO, "out", lader="x"), "Did you mean 'ladder'?"),  # type: ignore[call-arg]
    "harden": (lambda: rlab.harden(*DEMO, epoch=3), "Did you mean 'epochs'?"),  # type: ignore[call-arg]
    "load": (lambda: rlab.load(DEMO[0], sise=3), "rlab.load() has no keyword 'sise'. Did you mean 'size'?"),
    "load_victim": (lambda: rlab.load_victim(DEMO[0], devise="cpu"), "Did you mean 'device'?"),
    "TorchVictim": (
        lambda: rlab.TorchVictim(nn.Identity(), means=0.5),  # type: ignore[call-arg]
        "TorchVictim() has no keyword 'means'. Did you mean 'mean'?",
    ),
    "CallableVictim": (lambda: rlab.CallableVictim(len, clases=3), "CallableVictim() .* 'classes'"),  # type: ignore[call-arg]
    "SklearnVictim": (lambda: rlab.SklearnVictim(None, bound=3), "SklearnVictim() .* 'bounds'"),  # type: ignore[call-arg]
    "HttpVictim": (lambda: rlab.HttpVictim("http://x", rates=3), "HttpVictim() .* 'rate'"),  # type: ignore[call-arg]
    "Square": (lambda: rlab.Square(shar=1), "Square() has no keyword 'shar'. Did you mean 'share'?"),  # type: ignore[call-arg]
    "Belief": (lambda: rlab.Belief(temprature=1), "Did you mean 'temperature'?"),  # type: ignore[call-arg]
    "Distortion": (lambda: rlab.filters.Distortion("jpeg", sevrity=1), "'severity'"),  # type: ignore[call-arg]
}


def words_in(text: str, said: str) -> bool:
    return all(part in text for part in said.split(" .* "))


@pytest.mark.parametrize("name", KEYWORDS)
def test_an_unknown_keyword_is_a_type_error_with_the_nearest_name(name: str) -> None:
    use, said = KEYWORDS[name]
    with pytest.raises(TypeError) as caught:
        use()
    assert isinstance(caught.value, KeywordError)
    assert words_in(str(caught.value), said)
    assert "pydantic" not in "".join(traceback.format_exception(caught.value))


def test_a_wrong_value_is_an_option_error_without_another_traceback() -> None:
    with pytest.raises(OptionError, match=r"the keyword .budget. of rlab\.attack") as caught:
        attack(budget="many")
    assert not isinstance(caught.value, TypeError)
    assert "pydantic" not in "".join(traceback.format_exception(caught.value))


def test_a_class_keeps_its_signature_and_its_own_errors() -> None:
    @named_keywords
    class Two:
        def __init__(self, left: int, right: int = 0) -> None:
            self.sum = left + right

    assert Two(1, right=2).sum == 3
    with pytest.raises(TypeError, match="missing"):
        Two()  # type: ignore[call-arg]
    with pytest.raises(KeywordError, match=r"Two\(\) has no keyword 'rigth'. Did you mean 'right'"):
        Two(1, rigth=2)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("name", "near"), [("attak", "attack"), ("Squar", "Square"), ("load_victm", "load_victim"), ("zzz", None)]
)
def test_an_unknown_name_of_the_package_suggests_the_nearest(name: str, near: str | None) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(rlab, name)
    assert (f"Did you mean {near!r}?" in str(caught.value)) == (near is not None)


def fitted(labels: Any) -> LogisticRegression:
    return LogisticRegression(C=100, max_iter=500).fit(X.reshape(len(X), -1), labels)


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (np.array(["eel", "cat", "dog"])[Y], ("cat", "dog", "eel")),
        (2 * Y + 1, ("1", "3", "5")),
        (Y - 1, ("-1", "0", "1")),
        ((2 * Y).astype(float), ("0", "2", "4")),
        (Y, ()),
    ],
    ids=["names", "gaps", "negative", "floats", "from 0"],
)
@pytest.mark.filterwarnings("ignore::rlab.errors.Notice")
def test_labels_of_a_classifier_are_found_in_its_classes(labels: Any, classes: tuple[str, ...]) -> None:
    """The planted classifier is right on its training data, so a wrong mapping leaves samples that are not attacked.

    The data hold two of the three classes, the last ones by number, so that positions in the data alone would be wrong.
    """
    clf = fitted(labels)
    rows = Y > 0
    result = rlab.attack(clf, (X[rows], labels[rows]), policy="random", budget=4)
    assert result.setting.classes == classes
    assert result.attacked.all()
    assert [str(each) for each in clf.classes_[result.labels]] == [str(each) for each in labels[rows]]


@pytest.mark.filterwarnings("ignore::rlab.errors.Notice")
def test_a_batch_with_class_names_follows_the_classifier() -> None:
    names = np.array(["eel", "cat", "dog"])
    batch = rlab.Batch(torch.from_numpy(X), torch.from_numpy(Y), classes=tuple(names.tolist()))
    result = rlab.attack(fitted(names[Y]), batch, policy="random", budget=4)
    assert result.attacked.all()
    assert result.setting.classes == ("cat", "dog", "eel")


class Booster:
    """Stands for the class of xgboost."""


Booster.__module__ = "xgboost.core"
MODELS: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "bound method": (
        lambda: rlab.attack(fitted(Y).predict_proba, (X, Y)),
        ModelError,
        "LogisticRegression.predict_proba: pass the LogisticRegression",
    ),
    "bound method, wrapped": (
        lambda: rlab.CallableVictim(fitted(Y).predict),
        ModelError,
        "pass the LogisticRegression",
    ),
    "Booster": (lambda: rlab.attack(Booster(), (X, Y)), ModelError, "xgboost.XGBClassifier"),  # type: ignore[arg-type]
    "foreign label": (lambda: rlab.attack(fitted(2 * Y), (X, 2 * Y + 1)), DataError, "the label '1' .* 0, 2, 4"),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_that_cannot_be_used_get_a_way_out(name: str) -> None:
    use, kind, said = MODELS[name]
    with pytest.raises(kind) as caught:
        use()
    assert words_in(str(caught.value), said)


def third(requirement: dict[str, Any]) -> dict[str, Any]:
    return declared(requirements=[*declared()["requirements"][:2], requirement])


DECLARED: dict[str, tuple[Callable[[], object], str, tuple[str, ...]]] = {  # what it says, and what it must not say
    "a key of a mapping": (
        lambda: check(AuditOptions, third({"metric": "success", "at": {"l3": 1}, "below": 1}), "the audit"),
        "requirements[2].at.l3",
        ("[key]", "hidden"),
    ),
    "a branch of a union": (lambda: check(ModelOptions, {"name": "x", "mean": "dark"}), "'mean'", ("mean.float",)),
    "a secret": (
        lambda: check(ModelOptions, {"name": "http://x", "headers": "token-123"}),
        "'headers'",
        ("(hidden)", "token-123"),
    ),
    "said already": (lambda: check(AuditOptions, declared(attack=5), "the audit"), "'attack' is gone", ("got",)),
}


@pytest.mark.parametrize("name", DECLARED)
def test_errors_of_files_use_the_words_of_the_file(name: str) -> None:
    use, said, unsaid = DECLARED[name]
    with pytest.raises(OptionError) as caught:
        use()
    text = str(caught.value)
    assert said in text
    assert not [part for part in unsaid if part in text]
    assert text.count(" got ") <= 1


def test_a_command_without_data_asks_for_data() -> None:
    printed = rlab_command("attack", "demo:digits")
    assert printed.code == 2
    assert "expected data" in printed.err
    assert "a data" not in printed.err


def stops(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    raise StopIteration("no more")


FEW, NUMBERS = torch.from_numpy(X[:4]), torch.arange(4) % 3
STRANGE: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "a model that stops": (lambda: rlab.attack(stops, (X, Y), budget=3), VictimError, "StopIteration"),
    "no labels": (lambda: rlab.attack(stops, (X, None)), DataError, "labels"),
    "sparse inputs": (lambda: rlab.attack(stops, (FEW.to_sparse(), Y[:4])), DataError, "array"),
    "sparse labels": (lambda: rlab.attack(stops, (X[:4], NUMBERS.to_sparse())), DataError, "array"),
    "one number": (lambda: rlab.attack(stops, (torch.tensor(1.0), torch.tensor(1))), DataError, "labels"),
    "a batch of lists": (lambda: rlab.Batch([[1.0]], [0]), DataError, "rlab.load"),  # type: ignore[arg-type]
    "a batch of arrays": (lambda: rlab.Batch(X, Y), DataError, "rlab.load"),  # type: ignore[arg-type]
    "a batch with a list of labels": (lambda: rlab.Batch(FEW, [0, 1, 2, 0]), DataError, "list"),  # type: ignore[arg-type]
    "a sparse batch": (lambda: rlab.Batch(FEW.to_sparse(), NUMBERS), DataError, "sparse"),
    "a batch of one number": (lambda: rlab.Batch(torch.tensor(1.0), torch.tensor(0)), DataError, "dimension"),
    "too many beats": (lambda: rlab.load("demo:ecg", limit=10**8), OptionError, "100,000"),
    "too many clips": (lambda: rlab.load("demo:clips", limit=10**8), OptionError, "10,000"),
    "too many workers": (lambda: attack(workers=10**9), OptionError, "1024"),
}


@pytest.mark.parametrize("name", STRANGE)
def test_strange_inputs_get_one_sentence(name: str) -> None:
    use, kind, word = STRANGE[name]
    with pytest.raises(kind) as caught:
        use()
    assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_debug_does_not_print_the_value_of_an_option() -> None:
    said = rlab_command("attack", *DEMO, "-M", "api_key=0123456789abcdef", "--debug")
    assert said.code == 2
    assert "Traceback" in said.err
    assert "0123456789abcdef" not in said.err
