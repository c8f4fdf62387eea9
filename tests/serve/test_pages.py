"""The server's pages over HTTP: the list, a run's page, its samples by filter, one sample, several runs."""

from __future__ import annotations

import io
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow.parquet as pq
import pytest
from PIL import Image

from rlab.folders.reports import page_of
from rlab.present.page import render
from rlab.results.result import AttackResult
from rlab.runs.attack import run_attack
from rlab.runs.options import RunOptions
from rlab.serve.glance import glance_at
from rlab.serve.runs import list_runs
from rlab.serve.samples import ROWS, SampleFilter, find_samples
from rlab.storage.config import check
from rlab.storage.names import SAMPLES
from rlab.storage.resume import open_run
from rlab.victims import demo_victim
from tests.serve.cases import copy_runs, grown, served


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = copy_runs(tmp_path_factory.mktemp("served") / "runs")
    grown(40).save(root / "inner" / "many")
    return root


@pytest.fixture(scope="module")
def client(root: Path) -> Iterator[httpx.Client]:
    with served(root) as client:
        yield client


def test_runs_are_listed_and_their_pages_hold_their_samples(client: httpx.Client):
    page = client.get("/")
    assert page.status_code == 200
    for name in ("inner/many", "run_digits", "run_ecg"):
        assert f'href="/run/{name}"' in page.text
        assert f'data-fetch="/samples/{name}"' in client.get(f"/run/{name}").text


def test_a_folder_of_runs_is_not_a_run(tmp_path: Path):
    with open_run(tmp_path / "several", {"command": "several"}) as resume:
        resume.create()
    grown(2).save(tmp_path / "several" / "digits")
    (run,) = list_runs(tmp_path)
    assert (run.name, run.command, run.state) == ("several/digits", "attack", "finished")


def test_the_list_shows_what_came_of_each_run(client: httpx.Client, root: Path):
    result, page = AttackResult.load(root / "run_digits"), client.get("/").text
    row = next(row for row in page.split("<tr>") if "/run/run_digits" in row)
    for told in (
        "digits CNN: 3 handwritten digits",
        f"{int(result.succeeded.sum())} of {int(result.attacked.sum())}",
        f"{result.summary()['median_l2']:.3g}",
        f"{result.total_queries:,}",
    ):
        assert told in row
    (source,) = re.findall(r'src="(/picture/[^"]+)"', row)
    assert _picture(client, source).size == (8, 8)
    assert client.get("/picture/perturbed/0/nothing").status_code == 404


def _picture(client: httpx.Client, source: str) -> Image.Image:
    answer = client.get(source)
    assert answer.headers["content-type"] == "image/png"
    return Image.open(io.BytesIO(answer.content))


def test_each_sample_is_pictured_before_and_after(client: httpx.Client, root: Path):
    result = AttackResult.load(root / "run_digits")
    for row in range(len(result)):
        before, after = (_picture(client, f"/picture/{each}/{row}/run_digits") for each in ("original", "perturbed"))
        assert (before.tobytes() != after.tobytes()) == bool((result.assignment[row] != 0).any())


def test_inputs_that_a_run_did_not_store_are_not_pictured(tmp_path: Path):
    options = check(RunOptions, {"model": "demo:digits", "data": {"path": "demo:digits", "limit": 2}, "budget": 20})
    batch = options.data.load()
    run_attack(
        options.build(batch), demo_victim("digits"), batch, tmp_path / "bare", options.plain(), keep="assignments"
    )
    with served(tmp_path) as client:
        assert "/picture/" not in client.get("/").text + client.get("/samples/bare").text
        assert client.get("/samples/bare").status_code == 200


@pytest.mark.parametrize(("passed", "word"), [((True, True), "passed"), ((True, False), "failed")])
def test_the_list_shows_the_verdict_of_an_audit(tmp_path: Path, passed: tuple[bool, ...], word: str):
    (tmp_path / "audit").mkdir()
    record = {"requirements": [{"passed": each} for each in passed], "rows": {"total": 8585}}
    (tmp_path / "audit" / "audit.json").write_text(json.dumps(record))
    (tmp_path / "audit" / "report.json").write_text(json.dumps({"verb": "audit"}))
    with served(tmp_path) as client:
        page = client.get("/").text
    assert word in page
    assert f"{sum(passed)} of {len(passed)} met" in page
    assert "8,585" in page  # the queries of all stages


@pytest.mark.parametrize(
    ("path", "back"),
    [
        ("/run/run_ecg", {"/"}),
        ("/compare?run=run_digits&run=inner/many", {"/"}),
        ("/samples/run_ecg", {"/", "/run/run_ecg"}),
        ("/sample/0/run_ecg", {"/", "/run/run_ecg"}),
        ("/run/nothing", {"/"}),
    ],
)
def test_every_page_leads_back(client: httpx.Client, path: str, back: set[str]):
    (nav,) = re.findall(r'<nav aria-label="Server".*?</nav>', client.get(path).text)
    assert back <= set(re.findall('href="([^"]+)"', nav))


def test_a_runs_page_equals_that_of_rlab_report_but_for_the_samples(client: httpx.Client, root: Path):
    shown, written = (
        re.findall(r'<section id="(.*?)">(.*?)</section>', page, re.DOTALL)
        for page in (client.get("/run/run_ecg").text, render(page_of(root / "run_ecg")))
    )
    assert [name for name, _ in shown] == [name for name, _ in written]
    assert [name for (name, one), (_, other) in zip(shown, written, strict=True) if one != other] == ["samples"]


def test_several_runs_are_compared(client: httpx.Client):
    page = client.get("/compare", params={"run": ["run_digits", "inner/many"]})
    assert page.status_code == 200
    assert "What changed" in page.text
    assert client.get("/compare", params={"run": ["run_digits"]}).status_code == 422


def test_a_sample_is_shown_alone(client: httpx.Client, root: Path):
    page = client.get("/sample/2/run_digits")
    assert page.status_code == 200
    assert page.text.count('class="viewer"') == 1
    assert AttackResult.load(root / "run_digits").ids[2] in page.text
    assert client.get("/sample/3/run_digits").status_code == 422


WANTED = [
    {"status": "succeeded"},
    {"status": "spent"},
    {"label": "3"},
    {"entry": "2"},
    {"queries_from": "20", "queries_to": "33"},
    {"l2_from": "2", "l2_to": "3.5"},
    {"words": "DIGIT-0208"},
    {"label": "3", "entry": "1", "l2_to": "5", "queries_to": ""},
]


@pytest.mark.parametrize("asked", WANTED)
def test_filters_match_a_loop_over_all_samples(root: Path, asked: dict[str, str]):
    run = root / "inner" / "many"
    result = AttackResult.load(run)
    expected = [
        i
        for i in range(len(result))
        if asked.get("status", result.status[i].name.lower()) == result.status[i].name.lower()
        and int(asked.get("label", result.labels[i])) == int(result.labels[i])
        and ("entry" not in asked or bool((result.assignment[i] == int(asked["entry"])).any()))
        and int(asked.get("queries_from", 0)) <= int(result.effort[i]) <= int(asked.get("queries_to") or 10**9)
        and float(asked.get("l2_from", 0)) <= float(result.final["l2"][i]) <= float(asked.get("l2_to", 1e9))
        and asked.get("words", "").lower() in result.ids[i]
    ]
    found = find_samples(run, SampleFilter.model_validate(asked))
    assert found.matching == len(expected)
    assert [row.row for row in found.rows] == expected[:ROWS]
    assert found.total == len(result)


@pytest.mark.parametrize("key", ["queries", "l2", "label", "id"])
def test_samples_are_sorted_and_paged(root: Path, key: str):
    run = root / "inner" / "many"
    pages = [find_samples(run, SampleFilter(sort=key, page=page)) for page in (1, 2, 3)]
    rows = [row for page in pages for row in page.rows]
    values = [getattr(row, key) for row in rows]
    assert values == sorted(values)
    assert sorted(row.row for row in rows) == list(range(120))
    if key in ("queries", "l2"):
        assert getattr(find_samples(run, SampleFilter.model_validate({"sort": f"-{key}"})).rows[0], key) == values[-1]
    assert find_samples(run, SampleFilter(page=99)).page == 3


def test_the_address_filters_and_sorts_samples(client: httpx.Client):
    page = client.get("/samples/inner/many", params={"label": "3", "sort": "l2"})
    assert page.status_code == 200
    assert "12 of 120 samples" in page.text
    assert len(re.findall(r'<td><a href="/sample/\d+/inner/many"', page.text)) == 12
    nextone = client.get("/samples/inner/many", params={"sort": "l2"})
    assert "sort=l2&amp;page=2" in nextone.text


@pytest.mark.parametrize(
    "asked",
    [{"label": "x"}, {"sort": "seconds"}, {"down": "true"}, {"page": "0"}, {"queries_to": "nan"}, {"what": "1"}],
)
def test_a_bad_address_is_a_one_line_error(client: httpx.Client, asked: dict[str, str]):
    page = client.get("/samples/run_digits", params=asked)
    assert page.status_code == 422
    assert "Traceback" not in page.text


def test_damaged_samples_are_a_one_line_error(tmp_path: Path):
    root = copy_runs(tmp_path)
    (root / "run_ecg" / "samples.parquet").write_bytes(b"PAR1 no more")
    (root / "run_digits" / "arrays.safetensors").write_bytes(b"no more")
    with served(root) as client:
        assert client.get("/").status_code == 200
        assert client.get("/samples/run_digits").status_code == 200
        broken = (
            "samples/run_ecg",
            "sample/0/run_ecg",
            "run/run_ecg",
            "samples/run_digits?entry=1",
            "sample/0/run_digits",
        )
        for address in broken:
            assert client.get(f"/{address}").status_code == 422, address


def test_the_list_of_many_samples_is_fast(tmp_path: Path):
    grown(1000).save(tmp_path / "many")
    wanted = SampleFilter(status="succeeded", sort="-l2", page=7)
    find_samples(tmp_path / "many", wanted)
    start = time.perf_counter()
    assert len(find_samples(tmp_path / "many", wanted).rows) == ROWS
    assert time.perf_counter() - start < 1  # 3,000 samples; benchmarks/serve measures 100,000


def test_links_to_elsewhere_are_not_listed(tmp_path: Path):
    root = copy_runs(tmp_path / "runs")
    (root / "run_digits").rename(tmp_path / "outside")
    (root / "linked").symlink_to(tmp_path / "outside")
    assert [entry.name for entry in list_runs(root)] == ["run_ecg"]


@pytest.mark.slow
def test_a_long_list_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_runs(tmp_path / "first")
    runs = [tmp_path / f"run-{number}" for number in range(600)]
    for run in runs:
        run.mkdir()
        os.link(tmp_path / "first" / "run_ecg" / SAMPLES, run / SAMPLES)
    assert all(map(glance_at, runs))
    monkeypatch.setattr(pq, "ParquetFile", None)
    assert all(map(glance_at, runs))
