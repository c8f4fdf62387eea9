"""Chunks on a Ray cluster: the results are the same to the bit, even if machines are lost."""

from __future__ import annotations

import os
import pickle
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from torch import Tensor

import rlab
from rlab.data.source import Decoded
from rlab.errors import InputError, Notice, OptionError
from rlab.results.kept import Keep
from rlab.results.result import AttackResult
from rlab.runs.cluster import room
from rlab.runs.executor import Workers
from rlab.runs.sharing import WorkerOptions
from rlab.runs.worker import Remote, Start
from rlab.storage.config import check
from rlab.victims.options import ModelOptions
from tests.command import rlab_command
from tests.helpers import assert_same
from tests.runs.test_worker import FakeRay, worker
from tests.runs.test_workers import Net as NotingNet
from tests.runs.test_workers import attack, data, rows_queried

__all__ = ["data"]  # a fixture
HERE = "tests.runs.test_cluster"


def test_another_version_of_rlab_is_refused() -> None:
    with mock.patch.object(sys, "stdout"), warnings.catch_warnings():
        error = pickle.loads(Remote().do(pickle.dumps(Start("worker", worker, (0, ""), "0.0.0"))))
    assert isinstance(error, InputError)


def test_the_number_of_workers_that_fit() -> None:
    assert room({"CPU": 9.0, "GPU": 4.0}, 2, 0) == 4
    assert room({"CPU": 9.0, "GPU": 3.0}, 2, 1) == 3
    with pytest.raises(OptionError):
        room({"CPU": 9.0}, 1, 1)


def test_a_finished_run_does_not_connect() -> None:
    crew = Workers(check(WorkerOptions, {"cluster": "ray://127.0.0.1:9"}), ModelOptions(name="demo:digits"), (0, 1), "")
    with crew.map(worker, (), ()) as results:
        assert list(results) == []


@pytest.mark.parametrize("address", ["nonsense", "ray://", "ray://host", "ray://host:port", "http://host:1", ""])
def test_an_invalid_address_is_refused(address: str) -> None:
    with pytest.raises(OptionError):
        check(WorkerOptions, {"cluster": address})
    with pytest.raises(OptionError):
        check(WorkerOptions, {"cluster": "auto", "devices": "cuda:0,cuda:1"})


def test_an_address_that_does_not_answer_raises_one_sentence(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    init = mock.Mock(side_effect=ConnectionError("ray client connection timeout\nand more"))
    ray = SimpleNamespace(is_initialized=lambda: False, init=init, shutdown=lambda: None)
    monkeypatch.setitem(sys.modules, "ray", ray)
    shown = attack(data, tmp_path / "run", "--cluster", "ray://127.0.0.1:9")
    assert shown.code == 2
    assert shown.err.count("cannot join the cluster ray://127.0.0.1:9: ray client connection timeout (if it") == 1
    assert not (tmp_path / "run").exists()


def test_without_the_package_the_extra_is_named(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    shown = attack(data, tmp_path / "run", "--cluster", "auto")
    assert shown.code == 2
    assert "[ray]" in shown.err
    assert not (tmp_path / "run").exists()


@pytest.fixture
def near(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two actors in this process instead of a cluster."""

    ray = FakeRay()
    ray.cluster_resources = lambda: {"CPU": 2.0}  # type: ignore[attr-defined]
    monkeypatch.setattr("rlab.runs.executor.joined", lambda address: nullcontext(ray))


@pytest.mark.parametrize("keep", ["everything", pytest.param("flips", marks=pytest.mark.slow), "assignments"])
@pytest.mark.usefixtures("near")
def test_a_cluster_sends_what_one_process_writes(keep: Keep, data: Path, tmp_path: Path) -> None:
    """From a source whose second chunk is unreadable, and its third in part."""
    source, broken = rlab.load(data, stream=True), (3, 4, 5, 7)

    def read(rows: Any) -> Decoded:
        values, kept = source.read(rows), [i for i, row in enumerate(rows) if row not in broken]
        assert values.x is not None
        return Decoded(
            values.x[kept] if kept else None, kept, [(source.ids[row], "broken") for row in rows if row in broken]
        )

    def run(name: str, **who: Any) -> AttackResult:
        palette = ["gaussian_noise@0.3", "dead_pixel@0.5"]
        options: dict[str, Any] = {"budget": 30, "patch": 2, "palette": palette, "chunk": 3}
        model, some = "tests.runs.test_workers:model", replace(source, read=read)
        with pytest.warns(Notice, match="4 left out"):
            rlab.attack(model, some, out=tmp_path / name, keep=keep, **options, **who)
        result = AttackResult.load(tmp_path / name, source)
        if keep == "everything":
            assert_same(rlab.attack(model, some, **options, **who), result)
        return result

    one, many = run("one"), run("many", cluster="auto")
    assert_same(many, one)
    assert many.succeeded.any()
    assert len(many) == 6
    parts = [sorted((tmp_path / name / "parts").glob("*.safetensors")) for name in ("one", "many")]
    assert [path.read_bytes() for path in parts[0]] == [path.read_bytes() for path in parts[1]]
    assert bool(parts[0]) == (keep != "assignments")


class Net(NotingNet):
    """Depending on the environment, the first copy ends its process at its eighth call, or waits to be lost."""

    def forward(self, x: Tensor) -> Tensor:
        pause = Path(os.environ.get("PAUSE", os.devnull))
        if self.calls == 7 and not pause.exists():
            import ray

            pause.write_text(ray.get_runtime_context().get_node_id())
            time.sleep(120)
        answer: Tensor = super().forward(x)
        return answer


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Any]:
    """Simulate a head without CPUs and two machines with one CPU each."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(2):
            nodes.add_node(num_cpus=1)
        yield nodes
    finally:
        nodes.shutdown()


def remove_node(nodes: Any, pause: Path) -> None:
    """Remove the node on which a model waits to be lost."""
    while not pause.exists() or not pause.read_text():
        time.sleep(0.1)
    lost = next(node for node in nodes.worker_nodes if node.node_id == pause.read_text())
    nodes.remove_node(lost, allow_graceful=False)


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "lost"), [(1, ""), (2, ""), (2, "DEATH"), (2, "PAUSE")])
def test_a_cluster_gives_the_same_bits_and_goes_on_whatever_is_lost(
    workers: int, lost: str, two_nodes: Any, data: Path, tmp_path: Path
) -> None:
    import ray

    assert attack(data, tmp_path / "one", name=f"{HERE}:Net").code == 0
    rows = rows_queried(data)
    names = {name: os.environ[name] for name in ("ASKED", "OMP_NUM_THREADS")} | {
        lost or "NOBODY": str(tmp_path / "lost")
    }
    ray.init(two_nodes.address, log_to_driver=False, runtime_env={"env_vars": names})
    try:
        if lost == "PAUSE":
            Thread(target=remove_node, args=(two_nodes, tmp_path / "lost"), daemon=True).start()
        shown = attack(data, tmp_path / "many", "--cluster", "auto", "--workers", workers, name=f"{HERE}:Net")
        if lost:
            assert "was lost at chunk-" in shown.err
            shown = attack(data, tmp_path / "many", "--cluster", "auto", "--workers", workers, name=f"{HERE}:Net")
        assert shown.code == 0, shown.err
        assert ray.is_initialized()  # an existing connection stays open
    finally:
        ray.shutdown()
    assert_same(AttackResult.load(tmp_path / "many"), AttackResult.load(tmp_path / "one"))
    assert (tmp_path / "lost").exists() == bool(lost)
    assert (rows_queried(data) > 2 * rows) == bool(lost)
    parts = [sorted((tmp_path / name / "parts").glob("*.safetensors")) for name in ("one", "many")]
    assert [path.read_bytes() for path in parts[0]] == [path.read_bytes() for path in parts[1]]


@pytest.mark.slow
def test_a_cluster_is_joined_and_left(two_nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.setenv("RAY_ADDRESS", two_nodes.address)
    words = ["demo:digits", "demo:digits", "--limit", 4, "--chunk", 2, "--budget", 20, "--pictures", 0]
    assert rlab_command("attack", *words, "-o", tmp_path / "one").code == 0
    shown = rlab_command("attack", *words, "-o", tmp_path / "many", "--cluster", "auto")
    assert shown.code == 0, shown.err
    assert not ray.is_initialized()
    assert_same(AttackResult.load(tmp_path / "many"), AttackResult.load(tmp_path / "one"))
