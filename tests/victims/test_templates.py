"""Servers of others: each protocol against the exact answers of its server, and templates of one's own."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from rlab.errors import InputError, VictimError
from rlab.runs.inputs import taken
from rlab.victims import HttpVictim
from rlab.victims.paths import find, parse_path
from rlab.victims.resolve import load_victim
from rlab.victims.template import Template, load_template, shipped
from rlab.victims.wire import decode
from tests.victims.makers import serving
from tests.victims.standins import CLASSES, SHAPE, Requests, X, create_app, expected, probabilities

SEEN = Requests()
NAMED = f"classes={list(CLASSES)}"


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    with serving(create_app(SEEN)) as address:
        yield address.removeprefix("http://")


def asked(url: str, template: str | Template | None = None, **options: Any) -> HttpVictim:
    return HttpVictim(url, template=template, **{"retries": 0, **options})


# protocol: (the rest of its address, template, rows of a request)
FULL = {
    "kserve": ("pets", "kserve(output='probs')", 5),
    "tfserving": ("pets", None, 5),
    "mlflow": ("", None, 5),
    "sagemaker-json": ("", None, 5),
    "bentoml": ("classify", None, 5),
    "rayserve": ("serve", None, 5),
    "openai": ("gpt", f"openai({NAMED})", 1),
}
TOP = {  # which return two of three classes
    "huggingface": ("org/pets", f"huggingface({NAMED})"),
    "torchserve": ("pets", f"torchserve({NAMED})"),
}


@pytest.mark.parametrize("protocol", FULL)
def test_each_protocol_gets_the_inputs_and_gives_the_scores(host: str, protocol: str) -> None:
    rest, template, rows = FULL[protocol]
    SEEN.paths.clear()
    with asked(f"{protocol}://{host}/{rest}", template) as victim:
        torch.testing.assert_close(victim(X), expected(X), atol=1e-5, rtol=1e-5)
    assert len(SEEN.paths) == len(X) / rows
    assert victim.rows["search"] == 5


@pytest.mark.parametrize("protocol", TOP)
def test_missing_classes_share_the_rest(host: str, protocol: str) -> None:
    rest, template = TOP[protocol]
    with asked(f"{protocol}://{host}/{rest}", template) as victim:
        torch.testing.assert_close(victim(X), expected(X), atol=1e-5, rtol=1e-5)
        assert victim.own_classes == CLASSES


def test_every_shipped_protocol_is_tested_and_explained() -> None:
    others = {"rlab", "npy", "huggingface-audio", "openai-labels"}
    assert set(shipped()) == {*FULL, *TOP, *others}
    text = (Path(__file__).parents[2] / "docs" / "endpoints.md").read_text(encoding="utf-8")
    assert [name for name in shipped() if f"`{name}" not in text] == []
    fields = Template.model_fields
    assert [name for name in fields if f"`{name}`" not in text] == []


@pytest.mark.parametrize(("model", "rows"), [("named", 5), ("last", 1)])
def test_a_v2_server_says_how_it_wants_its_input(host: str, model: str, rows: int) -> None:
    """Its name, number format, order of axes and rows; that costs no query."""
    SEEN.paths.clear()
    with asked(f"kserve://{host}/{model}") as victim:
        torch.testing.assert_close(victim(X), expected(X), atol=1e-5, rtol=1e-5)
        assert victim.rows.total() == 5
    assert SEEN.paths == [f"/v2/models/{model}/infer"] * (5 // rows)


@pytest.mark.parametrize(
    ("address", "template", "words"),
    [
        ("small", None, r"shape \(rows, 3, 2, 2\), but the data are \(rows, 3, 4, 4\)"),
        ("text", None, "takes FP16, .*got BYTES"),
        ("pair", None, "one input, got 2.*left, right"),
        ("named", "kserve(input='x')", "the input 'pixels', not 'x'"),
    ],
)
def test_an_input_that_does_not_fit_a_v2_server_is_not_sent(
    host: str, address: str, template: str | None, words: str
) -> None:
    SEEN.paths.clear()
    with pytest.raises(InputError, match=words), asked(f"kserve://{host}/{address}", template) as victim:
        victim(X)
    assert SEEN.paths == []


def test_audio_arrives_as_a_wav_file(host: str) -> None:
    x = torch.linspace(-1, 1, 40).view(2, 1, 20)
    with asked(f"huggingface-audio://{host}/org/sounds", f"huggingface-audio({NAMED})", bounds=(-1, 1)) as victim:
        torch.testing.assert_close(victim(x), expected(x), atol=1e-3, rtol=1e-3)


def test_a_chat_model_without_log_probabilities_gives_labels(host: str) -> None:
    x = torch.cat([X, torch.zeros(1, *SHAPE)])
    with asked(f"openai-labels://{host}/gpt", f"openai-labels({NAMED})") as victim:
        scores = victim(x)
        assert victim.reading.tells_labels
    assert torch.equal(scores[:5].argmax(1), expected(X).argmax(1))
    assert scores[5].isnan().all()  # it named no class


def test_labels_of_the_data_become_the_servers_classes(host: str) -> None:
    with taken(asked(f"huggingface://{host}/org/pets", f"huggingface({NAMED})"), (X, ["owl"] * 5)) as (_, batch):
        assert batch.y.tolist() == [2] * 5


@pytest.mark.parametrize(("scheme", "options"), [("huggingface", {}), ("http", {"template": "huggingface"})])
def test_class_names_may_be_an_option(host: str, scheme: str, options: dict[str, str]) -> None:
    address = f"{scheme}://{host}/{'org/pets' if scheme == 'huggingface' else 'models/org/pets'}"
    victim = load_victim(address, names=list(CLASSES), **options)
    torch.testing.assert_close(victim(X), expected(X), atol=1e-5, rtol=1e-5)
    assert victim.own_classes == CLASSES


TEMPLATES: dict[str, tuple[str, dict[str, Any]]] = {
    "the last item but one": ("/v2/models/pets/infer", {
        "body": {"inputs": [{"name": "input", "shape": "{shape}", "datatype": "FP32", "data": "{flat}"}]}, "batch": True,
        "answers": "$.outputs[-2].data", "shape": "$.outputs[-2].shape"}),
    "rows": ("/v1/models/pets:predict", {
        "body": {"instances": "{rows}"}, "row": "{list}", "layout": "channels_last", "answers": "$.predictions"}),
    "text around a placeholder": ("/v1/chat/completions", {
        "body": {"model": "gpt", "logprobs": True, "messages": [{"content": [
            {"text": "Choose\n{options}"}, {"image_url": {"url": "data:image/png;base64,{png_base64}"}}]}]},
        "scores": "$.choices[0].logprobs.content[0].top_logprobs[*].logprob",
        "labels": "$.choices[0].logprobs.content[0].top_logprobs[*].token", "logarithms": True, "classes": CLASSES}),
    "a form": ("/upload", {
        "body": {"file": "{png}", "top": 2}, "form": True, "scores": "$.predictions[*].confidence",
        "labels": "$.predictions[*].name", "classes": CLASSES}),
    "by file": ("/models/org/pets", {
        "body": "{png}", "scores": "$[*].score", "labels": "$[*].label", "classes": CLASSES}),
}  # fmt: skip


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_of_ones_own(host: str, tmp_path: Path, name: str) -> None:
    path, fields = TEMPLATES[name]
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump({**fields, "classes": list(fields.get("classes", ()))}))
    with asked(f"http://{host}{path}", str(file)) as victim:
        torch.testing.assert_close(victim(X), expected(X), atol=1e-5, rtol=1e-5)


def test_values_of_another_range_and_type(host: str) -> None:
    """A server that takes bytes gets bytes, whatever the range of the data."""
    body = Template(body={"x": "{list}"}, batch=True, values=(0, 255), dtype="uint8", layout="channels_last")
    with asked(f"http://{host}/", body, bounds=(-1, 1)) as victim:
        sent = victim.writer.write(X * 2 - 1)
    assert yaml.safe_load(sent.content)["x"] == (X.numpy() * 255).round().transpose(0, 2, 3, 1).astype(int).tolist()


# name: (address, template, words of the error)
REFUSED = {
    "another input name": ("kserve", "pets", "kserve(input='x')", ["status 400", "'x'", "(3, 4, 4)", "flat JSON", '"name":"x"']),
    "no such model": ("kserve", "cows", None, ["status 404", "Not Found"]),
    "another protocol": ("mlflow", "", "mlflow(path='/v1/models/pets:predict')", ["Missing 'inputs' or 'instances'"]),
    "another output": ("kserve", "pets", "kserve(output='logits')", ["did not return scores", "$.outputs[logits]"]),
    "unknown classes": ("huggingface", "org/pets", None, ["names classes such as", "names=[...]"]),
    "another class": ("huggingface", "org/pets", "huggingface(classes=['cow', 'owl'])", ["'dog'", "not among the 2"]),
    "not an image": ("torchserve", "pets", "torchserve(body='{wav}')", ["a signal"]),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_succeed_is_not_repeated_and_shows_what_was_sent(host: str, name: str) -> None:
    protocol, rest, template, words = REFUSED[name]
    SEEN.paths.clear()
    with (
        asked(f"{protocol}://{host}/{rest}", template, retries=3) as victim,
        pytest.raises((VictimError, InputError)) as caught,
    ):
        victim(X[1:2])
    said = str(caught.value)
    assert [word for word in words if word not in said] == []
    assert len(said.splitlines()) <= 3
    assert max(map(len, said.splitlines())) < 400
    assert str(float(X[1].flatten()[0])) not in said
    assert victim.rows["search"] == len(SEEN.paths) <= 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "no 'body'"),
        ({"body": "{picture}"}, "{picture}"),
        ({"body": "{png}", "batch": True}, "one input"),
        ({"body": "{list}", "scores": "predictions"}, "a path such as"),
        ({"body": "{list}", "scores": None}, "scores, labels or both"),
        ({"body": "{list}", "response": "$"}, "'response'"),
        ({"body": "{png}", "form": True}, "fields by name"),
        ({"body": "{list}", "layout": "last"}, "channels_last"),
    ],
)
def test_a_template_that_cannot_work_is_refused(tmp_path: Path, fields: dict[str, Any], words: str) -> None:
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(fields))
    with pytest.raises(InputError) as caught:
        load_template(str(tmp_path / "mine.yaml"))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "spec", ["kserve(inptu='x')", "kserve(headers={'Authorization': 'x'})", "kserv", "kserve(", "a b"]
)
def test_a_name_that_cannot_work_is_refused(spec: str) -> None:
    with pytest.raises(InputError):
        load_template(spec)


ANSWER = {"a": [{"b": 1, "name": "x"}, {"b": 2, "name": "y"}], "c": {"0": 5}}


@pytest.mark.parametrize(
    ("path", "found"),
    [("$", ANSWER), ("$.a[0].b", 1), ("$.a[-1].b", 2), ("$.a[*].b", [1, 2]), ("$.a[y].b", 2), ("$['c'].0", 5)],
)
def test_paths(path: str, found: object) -> None:
    assert find(ANSWER, path) == found


@pytest.mark.parametrize("path", ["$.b", "$.a[2]", "$.a.b", "$.a[z]", "$.c[*]", "$.a[0].b.c"])
def test_paths_that_lead_nowhere(path: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        find(ANSWER, path)


@pytest.mark.parametrize("text", ["", "a", "$a", "$.", "$[", "$..a", "$[0"])
def test_texts_that_are_no_paths(text: str) -> None:
    with pytest.raises(ValueError, match="a path such as"):
        parse_path(text)


# name: (changes to the template, answer, scores)
HF = load_template("huggingface")
READ: dict[str, tuple[dict[str, Any], Any, list[float]]] = {
    "numbers for classes": ({}, [("LABEL_1", 0.7), ("LABEL_0", 0.3)], [0.3, 0.7]),
    "logits": ({"classes": ("a", "b")}, [("b", 7.0), ("a", -3.0)], [-3, 7]),
    "top 1 of 4": ({"classes": ("a", "b", "c", "d")}, [("c", 0.7)], [0.1, 0.1, 0.7, 0.1]),
    "other capitals": ({"classes": ("Cat", "Dog")}, [("cat", 0.6), (" dog ", 0.4)], [0.6, 0.4]),
    "tokens": ({"classes": ("a", "b"), "logarithms": True}, [("a", math.log(0.3)), (" A", math.log(0.3)), ("x", -1)], [0.6, 0.4]),
    "no class among the tokens": ({"classes": ("a", "b"), "logarithms": True}, [("x", -1)], [math.nan, math.nan]),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_scores_by_class(name: str) -> None:
    changes, pairs, wanted = READ[name]
    content = json.dumps([{"label": label, "score": score} for label, score in pairs]).encode()
    found = decode(content, HF.changed(**changes), 1, labels=False)
    np.testing.assert_allclose(found.numpy(), [wanted], rtol=1e-5)


@pytest.mark.parametrize(
    ("changes", "pairs", "words"),
    [
        ({"classes": ("a", "b", "c")}, [("a", 3.0), ("b", 1.0)], "a sum of 4"),
        ({}, [("3", 0.7), ("0", 0.3)], "only 2 classes"),
        ({"classes": ("a", "b")}, [("a", "0.7"), ("b", 0.3)], "numbers"),
    ],
)
def test_scores_by_class_that_mean_nothing(changes: dict[str, Any], pairs: list[Any], words: str) -> None:
    content = json.dumps([{"label": label, "score": score} for label, score in pairs]).encode()
    with pytest.raises(ValueError, match=words):
        decode(content, HF.changed(**changes), 1, labels=False)


# form of the answer to two inputs by a server that has no protocol: (answer, classes (2,) or scores of the classes a, b, c (2, 3))
ONE, TWO = {"label": "b", "score": 0.8}, {"label": "c", "score": 0.6}
REST = {"label": "a", "score": 0.15}
NAMED_ANSWERS: dict[str, tuple[object, list[Any]]] = {
    "objects": ([ONE, TWO], [[0.1, 0.8, 0.1], [0.2, 0.2, 0.6]]),
    "objects at the usual place": ({"outputs": [ONE, TWO]}, [[0.1, 0.8, 0.1], [0.2, 0.2, 0.6]]),
    "lists": ([[ONE, REST], [TWO]], [[0.15, 0.8, 0.05], [0.2, 0.2, 0.6]]),
    "other words": ([{"class": "b", "confidence": 1.0}, {"prediction": "c", "probability": 1}], [[0, 1, 0], [0, 0, 1]]),
    "names": ({"outputs": ["b", "c"]}, [1, 2]),
    "names alone in objects": ([{"label": "b"}, {"label": "c"}], [1, 2]),
    "numbers": ({"outputs": [1, 2]}, [1, 2]),
    "numbers in texts": ({"outputs": ["LABEL_1", "2"]}, [1, 2]),
}


@pytest.mark.parametrize("name", NAMED_ANSWERS)
def test_answers_that_name_classes(name: str) -> None:
    answer, wanted = NAMED_ANSWERS[name]
    template = load_template("rlab(classes=['a', 'b', 'c'])")
    found = decode(json.dumps(answer).encode(), template, 2, labels=False)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("answer", [ONE, [ONE], [[ONE]], [ONE, REST], ["b"]])
def test_an_answer_to_a_single_input_may_lack_the_list(answer: object) -> None:
    for template in ("rlab(classes=['a', 'b', 'c'])", "huggingface(classes=['a', 'b', 'c'])"):
        found = decode(json.dumps(answer).encode(), load_template(template), 1, labels=False)
        assert int(found.argmax(1) if found.dim() > 1 else found[0]) == 1


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (ONE, "pass chunk=1"),
        ([ONE, {"label": "d", "score": 0.6}], "'d', which is not among the 3"),
        ([ONE, {"label": "c", "score": 0.2}], "list all classes of the model"),
        ({"outputs": [0.5, 0.7]}, "pass outputs='labels' and their number"),
    ],
)
def test_named_answers_that_mean_nothing(answer: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        decode(json.dumps(answer).encode(), load_template("rlab(classes=['a', 'b', 'c'])"), 2, labels=False)


def test_a_server_that_names_classes_alone_gives_labels(host: str, tmp_path: Path) -> None:
    """Without any option but their names; only a cache, which may answer first, must know it in advance."""
    with asked(f"http://{host}/names", f"rlab({NAMED})") as victim:
        assert torch.equal(victim(X).argmax(1), expected(X).argmax(1))
        assert victim.reading.tells_labels
    assert Template(body="{list}", labels="$.label").scores is None
    cache = tmp_path / "answers.db"
    with (
        asked(f"http://{host}/names", f"rlab({NAMED})", cache=cache) as victim,
        pytest.raises(VictimError, match="pass outputs='labels'"),
    ):
        victim(X)


def test_several_labels_at_once_leave_missing_ones_at_nought() -> None:
    content = b'[{"label": "a", "score": 0.9}, {"label": "b", "score": 0.8}]'
    found = decode(content, HF.changed(classes=("a", "b", "c")), 1, labels=False, multilabel=True)
    np.testing.assert_allclose(found.numpy(), [[0.9, 0.8, 0]], rtol=1e-6)


def test_the_stand_in_is_a_model() -> None:
    """Otherwise the tests above would show nothing."""
    scores = probabilities(X.numpy())
    assert len(set(scores.argmax(1).tolist())) > 1
