"""A marker in every place for a secret; no byte that is printed or written may contain it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

import rlab
from rlab.data.load import DataOptions
from rlab.errors import InputError, Notice, VictimError
from rlab.present.page import Facts, Page, Section, Text, render
from rlab.redact import HIDDEN, address, redact, remember, spare
from rlab.runs.fingerprint import model_fingerprint
from rlab.runs.understood import say_nothing
from rlab.victims.http import HttpVictim
from tests.command import Said, rlab_command
from tests.victims.faults import Reply, Server

MARKER = "Zq7-m4rk3r+x"
SPELLED = [MARKER, MARKER.replace("+", "%2B"), base64.b64encode(MARKER.encode()).decode(), "m4rk3r"]
BASIC = base64.b64encode(f"someone:{MARKER}".encode()).decode()
Place = Callable[[str], dict[str, Any]]
PLACES: dict[str, Place] = {  # from an address without scheme to the model's fields
    "password": lambda at: {"name": f"http://someone:{MARKER}@{at}"},
    "user": lambda at: {"name": f"http://{MARKER}@{at}"},
    "query": lambda at: {"name": f"http://{at}?v=3&api_key={MARKER}"},
    "header": lambda at: {"name": f"http://{at}", "headers": {"Authorization": f"Bearer {MARKER}"}},
    "other header": lambda at: {"name": f"http://{at}", "headers": {"X-Custom": MARKER}},
    "password by reference": lambda at: {"name": f"http://someone:${{MY_KEY}}@{at}"},
    "query by reference": lambda at: {"name": f"http://{at}?key=${{MY_KEY}}"},
    "header by reference": lambda at: {"name": f"http://{at}", "headers": {"Authorization": "Bearer ${MY_KEY}"}},
}  # fmt: skip
ATTACK = {"policy": "random", "budget": 6, "patch": 4, "palette": "dead_pixel illuminate@0.9"}
DATA = {"path": "demo:digits", "limit": 2}
AUDIT = {
    "explain": {"methods": ["middle"], "samples": 1, "steps": 2},
    "doctor": {"samples": 2, "stop": False},
    "benchmark": {"ladder": "flip", "budget": 20},
    "requirements": [{"metric": "success", "at_most": "100%"}],
}


def commands(model: dict[str, Any], folder: Path) -> dict[str, list[object]]:
    """Return every command that takes a model's address, with its options in a file."""

    def written(name: str, values: dict[str, Any]) -> Path:
        (folder.parent / name).write_text(yaml.safe_dump(values))
        return folder.parent / name

    config = written("config.yaml", {"model": model, "data": DATA, **ATTACK})
    audit = written("audit.yaml", {"model": model, "data": DATA, **ATTACK, **AUDIT})
    alone = written("model.yaml", model)
    return {
        "attack": ["attack", "--config", config, "--pictures", 0],
        "compare": ["compare", "--config", config, "--policies", "random"],
        "explain": ["explain", "--config", config, "--method", "middle", "--pictures", 1],
        "explain --compare": ["explain", "--config", config, "--method", "middle", "--compare"],
        "doctor": ["doctor", "--config", config, "--samples", 2],
        "benchmark make": ["benchmark", "make", "--config", config, "--ladder", "flip"],
        "benchmark run": ["benchmark", "run", folder / "benchmark make", "--model", alone],
        "audit": ["audit", audit],
    }


def leaks(shown: Said, folder: Path) -> list[str]:
    """Find any spelling of the marker in the terminal, in file names, and in files."""
    texts = {"out": shown.out.encode(), "err": shown.err.encode()}
    for path in (path for path in folder.rglob("*") if path.is_file()):
        texts[str(path)] = str(path).encode() + path.read_bytes()
    return [name for name, text in texts.items() for word in (*SPELLED, BASIC) if word.encode() in text]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::rlab.errors.Notice")
@pytest.mark.parametrize("place", PLACES)
def test_no_command_prints_or_writes_a_secret(
    place: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(place, None, server, tmp_path, monkeypatch)


@pytest.mark.filterwarnings("ignore::rlab.errors.Notice")
@pytest.mark.parametrize(
    ("place", "wanted"),
    [("password", "attack"), ("query", "compare"), ("header", "explain"), ("user", "compare"), ("query by reference", "attack"),
     ("other header", "benchmark make"), ("password by reference", "explain --compare")],
)  # fmt: skip
def test_a_command_prints_or_writes_no_secret(
    place: str, wanted: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(place, wanted, server, tmp_path, monkeypatch)


def check(place: str, wanted: str | None, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run one command or all, once with a model that answers and once with one that echoes the request."""
    monkeypatch.setenv("MY_KEY", MARKER)
    for status in (200, 401):
        runs = tmp_path / f"runs-{status}"
        runs.mkdir()
        if status == 401:
            server.plan = lambda number, busy: Reply(401, seen(server)[-1].encode())
        for name, words in commands(PLACES[place](host(server)), runs).items():
            if wanted not in (None, name) or (status == 401 and name == "benchmark run"):
                continue
            folder = runs / name
            shown = rlab_command(*words, *([] if name == "doctor" else ["--out", folder]))
            assert shown.code in ((0, 1) if status == 200 else (1, 2)), (name, shown.err)
            assert leaks(shown, runs) == [], shown.out
    assert any(word in one for one in seen(server) for word in (*SPELLED, BASIC))  # the secret did reach the server


def seen(server: Server) -> list[str]:
    return [f"{one.path} {one.headers}" for one in server.received]


def host(server: Server) -> str:
    return server.url.removeprefix("http://")


def test_a_reference_is_stored_and_works_again(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", MARKER)
    words = commands(PLACES["header by reference"](host(server)), tmp_path / "runs")["attack"]
    assert rlab_command(*words, "--out", tmp_path / "run").code == 0
    stored = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert stored["model"]["headers"] == {"Authorization": "Bearer ${MY_KEY}"}
    before = len(server.received)
    again = rlab_command("attack", "--config", tmp_path / "run" / "config.yaml", "--out", tmp_path / "run")
    assert (again.code, len(server.received)) == (0, before)
    monkeypatch.delenv("MY_KEY")
    shown = rlab_command("attack", "--config", tmp_path / "run" / "config.yaml", "--out", tmp_path / "other")
    assert (shown.code, len(server.received)) == (2, before)
    assert not (tmp_path / "other").exists()


def test_a_literal_secret_gives_a_notice_and_must_be_given_again(server: Server, tmp_path: Path) -> None:
    words = commands(PLACES["header"](host(server)), tmp_path / "runs")["attack"]
    with pytest.warns(Notice):
        assert rlab_command(*words, "--out", tmp_path / "run").code == 0
    stored = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert stored["model"]["headers"] == {"Authorization": HIDDEN}
    assert rlab_command("attack", "--config", tmp_path / "run" / "config.yaml", "--out", tmp_path / "two").code == 2
    with pytest.warns(Notice):
        assert rlab_command(*words, "--out", tmp_path / "run").code == 0


WRONG: dict[str, list[str]] = {
    "an option that is not one": ["-M", f"token={MARKER}"],
    "a password": ["-M", f"password={MARKER}"],
    "headers that are no mapping": ["-M", f"headers={MARKER}"],
    "http that is no mapping": ["-M", f"http={MARKER}"],
    "an unknown option of http": ["-M", f"http={{api_key: {MARKER}}}"],
    "a broken mapping": ["-M", f"headers={{Authorization: Bearer {MARKER}"],
    "no name": ["-M", f"token:{MARKER}"],
    "a field of another kind": ["-M", f"mean={{token: {MARKER}}}"],
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_error_does_not_repeat_a_secret(wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = rlab_command("attack", "http://127.0.0.1:9/predict", "demo:digits", "--limit", "1", *WRONG[wrong])
    assert shown.code == 2
    assert leaks(shown, tmp_path) == []


@pytest.mark.filterwarnings("ignore::rlab.errors.Notice")
@pytest.mark.parametrize(
    "url",
    [
        f"http://someone:{MARKER}@127.0.0.1:9/predict",
        f"http://someone:{MARKER}@[bad/predict",
        f"http://someone:{MARKER}/x@ho st/",
        f"http://a:b@{MARKER}@127.0.0.1:9/p",
        f"http://127.0.0.1:9/predict?key={MARKER}#{MARKER}",
        f"http://127.0.0.1:9/predict?{MARKER}",
    ],
)
def test_an_invalid_address_is_shown_without_its_secrets(url: str, tmp_path: Path) -> None:
    for words in (["attack", url, "demo:digits"], ["attack", url, "demo:digits", "-M", "mean=[x]"]):
        model = ["-M", "retries=0", "-M", "timeout=1", "--limit", 1]
        shown = rlab_command(*words, *model, "--out", tmp_path / "run")
        assert shown.code in (0, 2)  # all samples of a run may fail
        assert leaks(shown, tmp_path) == []


def test_models_with_different_queries_have_different_fingerprints() -> None:
    def fingerprint(query: str) -> str:
        url = f"http://host.example/predict?{query}"
        with pytest.warns(Notice):
            return model_fingerprint(HttpVictim(url))

    assert fingerprint("model=a") != fingerprint("model=b")
    assert fingerprint("model=a&token=first-one") == fingerprint("model=a&token=second-one")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://host/p", "http://host/p"),
        ("http://u:p@host/p", f"http://{HIDDEN}:{HIDDEN}@host/p"),
        ("https://t@host:80", f"https://{HIDDEN}@host:80"),
        ("http://u:a@b@host/p@q", f"http://{HIDDEN}:{HIDDEN}@host/p@q"),
        ("http://u:a/b?c@host/p", f"http://{HIDDEN}:{HIDDEN}@host/p"),
        ("http://host:80/@me?a=1&b", f"http://host:80/@me?a={HIDDEN}&{HIDDEN}"),
        ("http://host/p#frag", "http://host/p"),
        ("http://[::1]:80/p?a=${B}", "http://[::1]:80/p?a=${B}"),
        ("http://${A}:${B}@${HOST}/p", "http://${A}:${B}@${HOST}/p"),
    ],
)
def test_addresses_without_secrets(url: str, shown: str) -> None:
    assert address(url) == shown
    assert address(shown) == shown
    assert redact(f"at {url!r}, and") == f"at {shown!r}, and"


def test_known_secrets_are_removed_from_pages_and_errors() -> None:
    remember(f'Bearer <{MARKER}&"')
    secret = f'<{MARKER}&"'
    page = Page(secret, [Section(secret, [Text(secret), Facts({secret: secret})])], lead=secret)
    assert "m4rk3r" not in render(page)
    assert "m4rk3r" not in str(InputError(secret)) + str(VictimError(secret))
    assert redact({"a": [secret, 1], secret: (secret, None)}) == {"a": [HIDDEN, 1], HIDDEN: (HIDDEN, None)}
    assert json.dumps(redact({"plain": "text"})) == '{"plain": "text"}'


def test_short_secrets_and_parts_of_words_are_not_removed_from_text() -> None:
    remember("test")
    assert redact("the test set") == "the test set"
    remember("animal", "${MODEL}")
    assert redact("animals/1.png of reanimals") == "animals/1.png of reanimals"
    for around in (
        "at /v1/{}/predict",
        "key={}&a",
        "next=%3Fkey%3D{}%26",
        r"b'x\n{}\r'",
        "key_{}",
        "'{}'",
        "{}",
        "\u00e4: {}.",
    ):
        assert redact(around.format("animal")) == around.format("${MODEL}")
    spare(["x/animals.png"])
    assert redact("animal") == "${MODEL}"
    spare(["x/1.png", "x/animal.png"])
    remember("animal", "${MODEL}")
    assert redact("animal") == "animal"


@pytest.mark.parametrize("name", ["animal", "animals"])
def test_ids_classes_and_paths_stay_as_they_are(
    name: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL", "animal")
    for folder in (name, "plants"):
        (tmp_path / "animal" / folder).mkdir(parents=True)
        Image.new("L", (8, 8), 40).save(tmp_path / "animal" / folder / "001.png")
    classes = (name, "plants", "stones")
    data = DataOptions(path=str(tmp_path / "animal"), classes=classes, channels=1)
    model = f"http://{host(server)}/${{MODEL}}"
    options = {"budget": 4, "policy": "random", "progress": False, "palette": "dead_pixel", "announce": say_nothing}
    result = rlab.attack(model, data, out=tmp_path / "run", **options)  # type: ignore[arg-type]
    stored = rlab.AttackResult.load(tmp_path / "run")
    assert result.ids == stored.ids == (f"{name}/001.png", "plants/001.png")
    assert stored.setting.classes == classes
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert (config["data"]["path"], config["model"]["name"]) == (data.path, model)
    assert name in rlab_command("show", tmp_path / "run").out
