"""The pipeline: exit codes, files, the ledger of rows, and going on after a stop."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

import pytest
from rlab.auditing.manifest import MANIFEST, Done

from rlab.auditing import make_audit_config, run_audit, stages
from rlab.core.result import AttackResult
from rlab.errors import InputError
from tests.auditing.cases import declared, quick, watched, write
from tests.command import rlab_command
from tests.present.browser import Links

HARDEN = {
    "data": {"path": "demo:digits", "split": "train", "limit": 40},
    "rounds": 1,
    "epochs": 1,
    "attacked": 4,
    "judged": 8,
}
ALL = [
    "doctor: no errors", "clean accuracy at least 50%", "success below 10%", "accuracy at x1.5 at most 100%",
    "accuracy of twin at flip at least 0%", "area at least 0", "benchmark: no mismatches", "insertion of occlusion at least 0",
    "clean accuracy after hardening at least 0%", "queries at most 1000000",
]  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, int]:
    """Every stage with two models; -> the folder, rows the victims counted themselves, rows of copies in training."""
    values = declared(
        harden=HARDEN, requirements=ALL,
        benchmark={"ladder": "times:1.5", "steps": 5, "models": {"twin": "tests.auditing.cases:brighter"}},
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("audit") / "whole"
    audit, watch = watched(values, folder, page=True)
    assert not audit.passed
    return folder, watch.rows, audit.found.rows.copies


def test_the_ledger_adds_up_to_what_the_victims_counted(whole: tuple[Path, int, int]) -> None:
    folder, counted, copies = whole
    said = json.loads((folder / "audit.json").read_text())
    assert said["rows"]["model"] + said["rows"]["others"] == counted
    assert said["rows"]["copies"] == copies > 0
    assert (
        said["rows"]["total"] == counted + copies == sum(sum(one["rows"].values()) for one in said["stages"].values())
    )
    result = AttackResult.load(folder / "attack")
    assert said["stages"]["attack"]["rows"] == {"model": int(result.queries.sum()), "others": 0, "copies": 0}


def test_every_figure_is_in_the_record(whole: tuple[Path, int, int]) -> None:
    said = json.loads((whole[0] / "audit.json").read_text())
    assert said["figures"].keys() == {"doctor", "attack", "explain", "benchmark", "harden"}
    assert [one["passed"] for one in said["requirements"]] == [True, True, False] + [True] * 7
    success = AttackResult.load(whole[0] / "attack").summary()["success"]
    assert said["figures"]["attack"]["success"] == said["requirements"][2]["value"] == success > 0.1
    assert {"rlab", "torch", "python"} <= said["versions"].keys()


def test_junit_has_a_case_for_each_requirement_and_stage(whole: tuple[Path, int, int]) -> None:
    root = ElementTree.parse(whole[0] / "junit.xml").getroot()
    found, required = root.findall("testsuite")
    assert [case.get("name") for case in found] == ["doctor", "attack", "explain", "benchmark", "harden"]
    assert [case.get("name") for case in required] == ALL
    assert [case.get("name") for case in required if case.find("failure") is not None] == ["success below 10%"]
    assert (required.get("tests"), required.get("failures")) == (str(len(ALL)), "1")


def test_the_page_shows_verdict_measures_and_every_section(whole: tuple[Path, int, int]) -> None:
    page = Links.of(whole[0] / "report.html")
    assert page.external == []
    sections = "requirements what-was-tested doctor attack easiest-flips by-class explanations benchmark hardening"
    assert page.ids >= {*sections.split(), "what-it-cost", "how-to-do-it-again"}
    assert "1 of 10 requirements not met" in page.text
    assert page.pictures > 10


def test_the_page_is_made_again_from_what_is_stored(whole: tuple[Path, int, int], tmp_path: Path) -> None:
    with mock.patch("rlab.runs.config.ModelOptions.load", side_effect=AssertionError("no model is loaded")):
        said = rlab_command("report", whole[0], "--out", tmp_path / "again.html")
    assert said.code == 0, said.err
    first, second = Links.of(whole[0] / "report.html"), Links.of(tmp_path / "again.html")
    assert first.ids == second.ids
    assert first.pictures == second.pictures


@mock.patch("rlab.auditing.run.write_audit_page", lambda folder, *rest: folder / "report.html")
def test_exit_codes_are_0_1_and_2(tmp_path: Path) -> None:
    file = write(quick(), tmp_path / "a.yaml")
    said = rlab_command("audit", file, "--out", tmp_path / "out")
    assert said.code == 0, said.err
    assert "passed" in said.out
    strict = write(quick(requirements=["success below 0.01"]), tmp_path / "b.yaml")
    said = rlab_command("audit", strict, "--out", tmp_path / "out")  # other requirements on the same stages
    assert said.code == 1, said.err
    assert "finished before" in said.out
    wrong = write(quick(requirements=["success below 20% under rain"]), tmp_path / "c.yaml")
    said = rlab_command("audit", wrong, "--out", tmp_path / "other")
    assert said.code == 2
    assert said.err.count("\n") == 1
    assert not (tmp_path / "other").exists()


def test_a_stopped_audit_goes_on_and_finished_stages_are_not_repeated(tmp_path: Path) -> None:
    values = declared()
    unbroken, _ = watched(values, tmp_path / "unbroken")
    with (
        mock.patch.dict(stages.RUN, explain=mock.Mock(side_effect=KeyboardInterrupt)),
        pytest.raises(KeyboardInterrupt),
    ):
        watched(values, tmp_path / "stopped")
    heard: list[tuple[str, bool]] = []
    resumed, watch = watched(
        values, tmp_path / "stopped", tell=lambda stage, done, before: heard.append((stage, before))
    )
    assert heard == [("doctor", True), ("attack", True), ("explain", False), ("benchmark", False)]
    assert resumed.found.rows == unbroken.found.rows
    assert watch.rows == sum(resumed.found.done[name].rows.model for name in ("explain", "benchmark"))
    assert [str(one) for one in resumed.outcomes] == [str(one) for one in unbroken.outcomes]
    assert resumed.found.done["explain"].begun == 2


def test_a_kill_inside_the_benchmark_counts_the_same_rows(tmp_path: Path) -> None:
    values = declared(explain=False)
    unbroken, _ = watched(values, tmp_path / "unbroken")
    with (
        mock.patch("rlab.auditing.stages.save_report", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        watched(values, tmp_path / "stopped")
    resumed, watch = watched(values, tmp_path / "stopped")
    assert resumed.found.done["benchmark"].rows == unbroken.found.done["benchmark"].rows
    assert watch.rows < unbroken.found.done["benchmark"].rows.model


def test_doctor_errors_stop_the_spending_and_fail_what_was_not_measured(tmp_path: Path) -> None:
    values = declared()
    with mock.patch.object(stages, "examine") as examine:
        from rlab.diagnosis.report import Report, error

        examine.return_value = Report((error("outputs", "seen", "change it"),), 7, 0.5)
        audit, watch = watched(values, tmp_path / "out", page=True)
    assert watch.rows == 0
    assert set(audit.found.left_out) == {"attack", "explain", "benchmark"}
    assert [one.passed for one in audit.outcomes] == [False, False, False]
    root = ElementTree.parse(tmp_path / "out" / "junit.xml").getroot()
    assert len(root.findall(".//skipped")) == 3
    assert "nothing further was spent" in Links.of(audit.page).text


def test_a_model_that_holds_passes_its_benchmark(tmp_path: Path) -> None:
    values = declared(
        palette=["gaussian_noise@0.001"],
        attack={"budget": 5},
        explain=False,
        requirements=["accuracy at x1.5 at least 100%"],
    )
    audit, watch = watched(values, tmp_path / "out")
    assert audit.passed
    assert audit.found.done["benchmark"].note
    assert audit.found.rows.model == watch.rows


def test_the_folder_of_another_audit_is_refused(tmp_path: Path) -> None:
    watched(quick(), tmp_path / "out")
    for more, what in (
        ({"attack": {"budget": 61, "chunk": 4}}, "attack"),
        ({"data": {"path": "demo:digits", "limit": 7}}, "data"),
    ):
        with pytest.raises(InputError, match=rf"holds another audit \(.*{what}.* differs\): name another folder"):
            run_audit(make_audit_config(quick(**more)), tmp_path / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("words")
    with pytest.raises(InputError, match="is not an audit's folder"):
        run_audit(make_audit_config(quick()), tmp_path / "mine")
    (tmp_path / "out" / MANIFEST).write_text("{}")
    with pytest.raises(InputError, match="damaged or of another version"):
        watched(quick(), tmp_path / "out")


def test_a_failing_stage_is_named(tmp_path: Path) -> None:
    def broken(job: object) -> Done:
        raise InputError("something is off")

    with (
        mock.patch.dict(stages.RUN, attack=broken),
        pytest.raises(InputError, match="stopped at attack: something is off"),
    ):
        run_audit(make_audit_config(quick()), tmp_path / "out")


def test_a_ladder_of_distances_has_a_page_and_a_verdict(tmp_path: Path) -> None:
    values = declared(
        explain=False,
        benchmark={"ladder": "l2:0.5,4", "steps": 5, "corruptions": False},
        requirements=["accuracy at l2-0.5 at least 10%", "accuracy at l2-4 at most 90%"],
    )
    audit, _ = watched(values, tmp_path / "out", page=True)
    assert audit.passed, [str(one) for one in audit.outcomes]
    assert "at l2-4" in Links.of(audit.page).text
