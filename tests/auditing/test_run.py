"""The audit: exit codes, files, query counts, and resuming."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock
from xml.etree import ElementTree

import pytest
import torch

from rlab.auditing import AuditResult, run_audit
from rlab.auditing.record import StageRecord
from rlab.auditing.stages import STAGES
from rlab.benchmarking import Benchmark
from rlab.data.load import load
from rlab.diagnosis.report import Diagnosis, error
from rlab.errors import DataError, FolderError
from rlab.hardening.options import EvaluationOptions
from rlab.results.result import AttackResult, Status
from rlab.storage.run_file import RUN
from rlab.victims.torch_module import TorchVictim
from rlab.victims.zoo import demo_victim
from tests.auditing.cases import audit_options, declared, few_pictures, quick, undrawn, watched, write
from tests.command import rlab_command
from tests.present.browser import Links

HARDEN = {
    "data": {"path": "demo:digits", "split": "train", "limit": 20},
    "epochs": 1,
    "attacked": 2,
    "validation_attacked": 8,
}
ALL: list[dict[str, Any]] = [
    {"metric": "errors", "at_most": 0},
    {"metric": "clean_accuracy", "at_least": "50%"},
    {"metric": "success", "below": "10%"},
    {"metric": "accuracy", "level": "x1.5", "at_most": 1},
    {"metric": "accuracy", "level": "flip", "at_least": 0},
    {"metric": "area", "at_least": 0},
    {"metric": "mismatches", "at_most": 0},
    {"metric": "insertion", "method": "occlusion", "at_least": 0},
    {"metric": "clean_accuracy", "when": "after hardening", "at_least": 0},
    {"metric": "queries", "at_most": 1_000_000},
]


class QuickEvaluation(EvaluationOptions):
    """Square's attack with few queries."""

    square_budget: int = 20


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, int]:
    """Every stage; -> the folder, rows the victims counted themselves, rows of copies in training."""
    values = declared(
        harden=HARDEN, requirements=ALL,
        benchmark={"ladder": "times:1.5", "steps": 5},
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("audit") / "whole"
    with mock.patch("rlab.auditing.stages.EvaluationOptions", QuickEvaluation):
        audit, watch = watched(values, folder, page=True)
    assert not audit.passed
    return folder, watch.rows, audit.rows.copies


def test_query_counts_equal_those_of_the_victims(whole: tuple[Path, int, int]) -> None:
    folder, counted, copies = whole
    record = json.loads((folder / "audit.json").read_text())
    assert record["rows"]["model"] == counted
    assert record["rows"]["copies"] == copies > 0
    assert (
        record["rows"]["total"]
        == counted + copies
        == sum(sum(stage["rows"].values()) for stage in record["stages"].values())
    )
    result = AttackResult.load(folder / "attack")
    assert record["stages"]["attack"]["rows"] == {"model": int(result.queries.sum()), "copies": 0}


def test_every_figure_is_in_the_record(whole: tuple[Path, int, int]) -> None:
    record = json.loads((whole[0] / "audit.json").read_text())
    assert record["figures"].keys() == {"doctor", "attack", "explain", "benchmark", "harden"}
    assert [row["passed"] for row in record["requirements"]] == [True, True, False] + [True] * 7
    assert [row["metric"] for row in record["requirements"]] == [fields["metric"] for fields in ALL]
    success = AttackResult.load(whole[0] / "attack").summary()["success"]
    assert record["figures"]["attack"]["flipped, verified"] == record["requirements"][2]["value"] == success > 0.1
    assert {"rlab", "torch", "python"} <= record["versions"].keys()


def test_the_verdict_is_markdown(whole: tuple[Path, int, int]) -> None:
    record = json.loads((whole[0] / "audit.json").read_text())
    text = (whole[0] / "verdict.md").read_text()
    assert text.startswith(f"### {record['title'] or 'Audit of ' + record['model']['name']}: failed\n")
    for row in record["requirements"]:
        assert f"| {row['requirement']} " in text
    assert "| flipped, verified | " in text


def test_junit_has_a_case_for_each_requirement_and_stage(whole: tuple[Path, int, int]) -> None:
    root = ElementTree.parse(whole[0] / "junit.xml").getroot()
    ran, required = root.findall("testsuite")
    assert [case.get("name") for case in ran] == ["doctor", "attack", "explain", "benchmark", "harden"]
    assert [case.get("name") for case in required if case.find("failure") is not None] == ["success below 10%"]
    assert (required.get("tests"), required.get("failures")) == (str(len(ALL)), "1")


def test_the_page_shows_verdict_measures_and_every_section(whole: tuple[Path, int, int]) -> None:
    page = Links.of(whole[0] / "report.html")
    assert page.external == []
    sections = "requirements what-was-tested doctor attack explanations benchmark hardening"
    assert page.ids >= {*sections.split(), "cost", "how-to-repeat-it"}
    assert "1 of 10 requirements not met" in page.text
    assert page.pictures > 10


def test_the_page_is_rebuilt_from_stored_results(whole: tuple[Path, int, int], tmp_path: Path) -> None:
    loading = mock.patch("rlab.auditing.load.load_model", side_effect=AssertionError("no model is loaded"))
    with loading, few_pictures():
        run = rlab_command("report", whole[0], "--out", tmp_path / "again.html")
    assert run.code == 0, run.err
    first, second = Links.of(whole[0] / "report.html"), Links.of(tmp_path / "again.html")
    assert first.ids == second.ids
    assert first.pictures == second.pictures
    assert "success below 10%" in second.text


def test_exit_codes_are_0_1_and_2(tmp_path: Path) -> None:
    file = write(quick(), tmp_path / "a.yaml")
    with undrawn():
        run = rlab_command("audit", file, "--out", tmp_path / "out")
    assert run.code == 0, run.err
    assert "passed" in run.out
    strict = write(quick(requirements=[{"metric": "success", "below": 0.01}]), tmp_path / "b.yaml")
    with undrawn():
        run = rlab_command("audit", strict, "--out", tmp_path / "out")  # other requirements on the same stages
    assert run.code == 1, run.err
    assert "finished earlier" in run.out
    unclear = write(quick(requirements=[{"metric": "clean_accuracy", "at_least": "70%"}]), tmp_path / "d.yaml")
    with undrawn():
        run = rlab_command("audit", unclear, "--out", tmp_path / "out")  # all four right: 51% to 100%
    assert run.code == 1, run.err
    record = json.loads((tmp_path / "out" / "audit.json").read_text())["requirements"][0]
    assert (record["verdict"], record["passed"], record["value"]) == ("too few samples to say", False, 1.0)
    assert record["low"] < 0.7 < record["high"]
    failure = ElementTree.parse(tmp_path / "out" / "junit.xml").find(".//failure")
    assert failure is not None
    assert failure.get("type") == "undecided"
    wrong = write(quick(requirements=[{"metric": "success", "distortion": "rain", "below": 0.2}]), tmp_path / "c.yaml")
    run = rlab_command("audit", wrong, "--out", tmp_path / "other")
    assert run.code == 2
    assert run.err.count("\n") == 1
    assert not (tmp_path / "other").exists()


class NanWhereDistorted(torch.nn.Module):
    """The demo's model on what it knows, NaN on anything else."""

    def __init__(self, known: torch.Tensor) -> None:
        super().__init__()
        self.model, self.known = demo_victim("digits").model, known

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        strange = (x[:, None] != self.known[None]).flatten(2).any(2).all(1)
        scores: torch.Tensor = self.model(x)
        return scores.masked_fill(strange[:, None], torch.nan)


def test_a_model_that_returns_nan_does_not_pass(tmp_path: Path) -> None:
    needs = [{"metric": "success", "below": "50%"}, {"metric": "median_l2", "above": 0}]
    data = {"path": "demo:digits", "limit": 4, "order": "first"}
    values = quick(doctor=False, requirements=needs, data=data)
    victim = TorchVictim(NanWhereDistorted(load("demo:digits", limit=4, order="first").x))
    with mock.patch("rlab.auditing.load.load_model", return_value=victim), undrawn():
        audit = run_audit(audit_options(values), tmp_path / "out")
    assert audit.attack is not None
    assert set(audit.attack.status) - {Status.SKIPPED} == {Status.FAILED}
    assert [verdict.passed for verdict in audit.verdicts] == [False, False]
    assert all("NaN" in verdict.note for verdict in audit.verdicts)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> AuditResult:
    return watched(declared(), tmp_path_factory.mktemp("audit") / "unbroken")[0]


def test_a_stopped_audit_resumes_without_repeating_finished_stages(unbroken: AuditResult, tmp_path: Path) -> None:
    values = declared()
    killed = mock.Mock(side_effect=KeyboardInterrupt)
    with mock.patch.dict(STAGES, explain=killed), pytest.raises(KeyboardInterrupt):
        watched(values, tmp_path / "stopped")
    heard: list[tuple[str, bool]] = []
    resumed, watch = watched(
        values, tmp_path / "stopped", tell=lambda stage, done, before: heard.append((stage, before))
    )
    assert heard == [("doctor", True), ("attack", True), ("explain", False), ("benchmark", False)]
    assert resumed.rows == unbroken.rows
    assert watch.rows == sum(resumed.stages[name].rows.model for name in ("explain", "benchmark"))
    assert list(map(str, resumed.verdicts)) == list(map(str, unbroken.verdicts))
    assert resumed.record == unbroken.record


@pytest.mark.slow
def test_a_kill_inside_the_benchmark_counts_the_same_rows(unbroken: AuditResult, tmp_path: Path) -> None:
    values = declared()
    with (
        mock.patch("rlab.benchmarking.report.BenchmarkReport.save", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        watched(values, tmp_path / "stopped")
    resumed, watch = watched(values, tmp_path / "stopped")
    assert resumed.stages["benchmark"].rows == unbroken.stages["benchmark"].rows
    assert watch.rows < unbroken.stages["benchmark"].rows.model


def test_doctor_errors_skip_the_other_stages_and_fail_their_requirements(tmp_path: Path) -> None:
    values = declared()
    with mock.patch("rlab.auditing.stages.examine") as examine:
        examine.return_value = Diagnosis((error("outputs", "seen", "change it"),), 7, 0.5)
        audit, watch = watched(values, tmp_path / "out", page=True)
    assert watch.rows == 0
    assert set(audit.left_out) == {"attack", "explain", "benchmark"}
    assert [verdict.passed for verdict in audit.verdicts] == [False, False, False]
    root = ElementTree.parse(tmp_path / "out" / "junit.xml").getroot()
    assert len(root.findall(".//skipped")) == 3
    assert "the doctor found errors" in Links.of(audit.page).text


@pytest.mark.slow
def test_an_audit_with_the_belief_search_runs_every_stage(tmp_path: Path) -> None:
    values = declared(
        policy="belief", data={"path": "demo:digits", "limit": 4},
        requirements=[{"metric": "success", "at_least": "50%"}, {"metric": "accuracy", "level": "x1.5", "at_most": "50%"}],
    )  # fmt: skip
    audit, watch = watched(values, tmp_path / "out")
    assert audit.passed, list(map(str, audit.verdicts))
    made = audit.find(Benchmark)
    assert made is not None
    assert made.stored("demo-digits", "x1.5")
    assert audit.rows.model == watch.rows


def test_a_model_that_holds_passes_its_benchmark(tmp_path: Path) -> None:
    values = declared(
        palette=["gaussian_noise@0.001"],
        budget=5,
        explain=False,
        requirements=[{"metric": "accuracy", "level": "x1.5", "at_least": "100%"}],
    )
    audit, watch = watched(values, tmp_path / "out")
    assert audit.passed
    assert audit.stages["benchmark"].note
    assert audit.rows.model == watch.rows


def test_the_folder_of_another_audit_is_refused(tmp_path: Path) -> None:
    watched(quick(), tmp_path / "out")
    for more, what in (
        ({"budget": 41}, "attack"),
        ({"doctor": {"samples": 5}}, "doctor"),
        ({"data": {"path": "demo:digits", "limit": 7}}, "data"),
        ({"model": "tests.auditing.cases:brighter"}, "model"),
    ):
        with pytest.raises(FolderError) as refused:
            watched(quick(**more), tmp_path / "out")
        assert f"({what}" in str(refused.value)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("words")
    with pytest.raises(FolderError):
        watched(quick(), tmp_path / "mine")
    (tmp_path / "out" / RUN).write_text("{}" * 100)
    with pytest.raises(FolderError):
        watched(quick(), tmp_path / "out")


def test_without_requirements_an_audit_only_reports(tmp_path: Path) -> None:
    values = quick(doctor=False)
    del values["requirements"]
    audit, _ = watched(values, tmp_path / "out", page=True)
    assert audit.passed
    assert audit.records() == []
    stored = AuditResult.load(tmp_path / "out")
    assert stored.attack is not None
    assert stored.record == audit.record
    assert "requirements" not in Links.of(audit.page).ids
    assert "no requirements" in (tmp_path / "out" / "verdict.md").read_text()


def test_a_failing_stage_is_named(tmp_path: Path) -> None:
    def broken(audit: object) -> StageRecord:
        raise DataError("something is off")

    with mock.patch.dict(STAGES, attack=broken), pytest.raises(DataError, match="stopped at attack: something is off"):
        run_audit(audit_options(quick()), tmp_path / "out")
