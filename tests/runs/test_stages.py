"""A run that learns from its own answers: the same counts, the same bits however it is run, and nothing asked twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

import rlab
from rlab.data.source import Decoded, Source
from rlab.errors import FolderError, Notice, OptionError
from rlab.folders.reports import page_of
from rlab.learning.simulator import read_simulator
from rlab.present.table import Table
from rlab.results.result import AttackResult
from rlab.results.stages import read_stages, stage_file
from rlab.runs.answers import paid_answers
from rlab.runs.executor import InProcess, MakeWork, Tasks
from rlab.runs.learning_options import BOUNDARIES
from rlab.runs.options import AttackOptions
from rlab.runs.stages import TIMES, cut
from rlab.storage.config import check
from rlab.victims.base import Victim
from tests.command import rlab_command
from tests.helpers import assert_same, exact_victim
from tests.runs.staged import SAMPLES, STAGES, one_student, options, staged_case, staged_run


class Watched(Victim):
    """The victim of the case, with every row that reaches it and its answer."""

    def __init__(self) -> None:
        super().__init__(outputs="logits")
        self.inner, self.seen = exact_victim(2), list[tuple[Tensor, Tensor]]()

    def _predict(self, x: Tensor) -> Tensor:
        scores = self.inner(x)
        self.seen += list(zip(x.clone(), scores, strict=True))
        return scores


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stages") / "run"
    staged_run(path)
    return path


def test_counts_are_those_of_a_run_without_stages(folder: Path) -> None:
    victim = Watched()
    staged, plain = AttackResult.load(folder), staged_run(victim=victim, learn=None)
    assert torch.equal(staged.queries[:, 0], plain.queries[:, 0])
    assert torch.equal(staged.before, plain.before)
    watched = Watched()
    assert int(staged_run(victim=watched).queries.sum()) == len(watched.seen) == watched.rows.total()
    assert torch.equal(torch.stack([x for x, _ in watched.seen[:SAMPLES]]), staged_case()[1].x)  # all of them first
    for x in staged_case()[1].x:
        assert sum(torch.equal(x, one) for one, _ in watched.seen) == 1


def test_in_memory_and_in_a_folder(folder: Path) -> None:
    assert_same(staged_run(), AttackResult.load(folder))


@dataclass(frozen=True)
class Shuffled(InProcess):
    """Runs tasks in another order and each with its own copy of the model, as several workers would."""

    @contextmanager
    def map(self, make: MakeWork, arguments: tuple[Any, ...], tasks: Tasks) -> Iterator[Iterator[Any]]:
        yield (make(exact_victim(2), *arguments)(task) for task in reversed(list(tasks)))


def test_the_order_of_chunks_does_not_matter(folder: Path, tmp_path: Path) -> None:
    with mock.patch("rlab.runs.attack.InProcess", Shuffled):
        staged_run(tmp_path / "run")
    assert_same(AttackResult.load(tmp_path / "run"), AttackResult.load(folder))
    for number in range(len(STAGES) + 1):
        assert stage_file(tmp_path / "run", number).read_bytes() == stage_file(folder, number).read_bytes()


def test_students_learn_from_all_answers_paid_before(folder: Path) -> None:
    facts, result = read_stages(folder), AttackResult.load(folder)
    paid = (result.queries[:, 0] - 1).cumsum(0)
    assert [stage.first for stage in facts] == [0, *STAGES]
    assert [stage.clean for stage in facts] == [SAMPLES] * 3
    assert [stage.distorted for stage in facts] == [0, *(min(int(paid[edge - 1]), TIMES * SAMPLES) for edge in STAGES)]
    card = read_simulator(stage_file(folder, 2)).card
    assert (card.answers, card.queries) == (facts[2].answers, 0)


def test_a_stage_does_without_students_that_agree_too_little() -> None:
    with mock.patch("tests.runs.staged.ENOUGH", 1.1):  # nobody agrees on more than everything
        without = staged_run()
    assert without.improvements == staged_run(learn=None).improvements


def test_no_chunk_crosses_a_boundary(folder: Path) -> None:
    starts = sorted(int(path.stem[6:14]) for path in (folder / "parts").glob("chunk-*.safetensors"))
    assert starts == [0, 4, 8, 12, 13, 17]  # a chunk has up to 4 samples
    assert cut(9, (4, 50)) == [slice(0, 4), slice(4, 9)]


def test_paid_answers_are_the_rows_that_the_model_saw(tmp_path: Path) -> None:
    for name, learn in {"staged": "stages:8,13", "plain": None}.items():
        victim = Watched()
        staged_run(tmp_path / name, victim, learn=learn)
        answers = paid_answers(tmp_path / name)
        seen = {x.numpy().tobytes(): scores.log_softmax(0) for x, scores in victim.seen}
        wanted = torch.stack([seen[x.numpy().tobytes()] for x in answers.x])
        torch.testing.assert_close(answers.scores, wanted, atol=2e-3, rtol=2e-3)
        if learn:  # everything but the verification, which repeats an input
            assert {x.numpy().tobytes() for x in answers.x} == seen.keys()
        assert answers.queries == 0
        assert int((~answers.changed).sum()) == SAMPLES


def test_a_sample_that_cannot_be_read_is_left_out(folder: Path, tmp_path: Path) -> None:
    batch, broken = staged_case()[1], 4

    def read(rows: Sequence[int]) -> Decoded:
        kept = [at for at, row in enumerate(rows) if row != broken]
        lost = [(batch.ids[row], "broken") for row in rows if row == broken]
        return Decoded(batch.x[[rows[at] for at in kept]] if kept else None, kept, lost)

    source = Source(read, batch.shape, batch.y, batch.ids, ())
    with pytest.warns(Notice, match="1 left out"):
        result = staged_run(tmp_path / "run", samples=source)
    assert result.ids == tuple(name for name in batch.ids if name != str(broken))
    whole = AttackResult.load(folder)
    assert torch.equal(result.queries[:, 0], whole.queries[[int(name) for name in result.ids], 0])
    assert [stage.clean for stage in read_stages(tmp_path / "run")] == [SAMPLES - 1] * 3


def test_other_stages_are_refused(folder: Path) -> None:
    with pytest.raises(FolderError, match="learn differs"):
        staged_run(folder, learn="stages:5")


@pytest.mark.parametrize("changed", [{"policy": "random"}, {"palette": "pixels"}])
def test_what_cannot_learn_is_refused_before_the_first_query(changed: dict[str, Any], tmp_path: Path) -> None:
    victim = Watched()
    with pytest.raises(OptionError):
        staged_run(tmp_path / "run", victim, **changed)
    assert not victim.seen
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "learn", ["stages:4,4", "stages:0,4", "stages:many", "stages:-1", "off", 31, "from:", "soon", True]
)
def test_invalid_ways_to_learn(learn: object) -> None:
    with pytest.raises(OptionError):
        options(learn=learn)


def test_stages_by_default_and_in_the_former_spelling() -> None:
    assert options(learn="stages").learning.stages == BOUNDARIES
    with pytest.raises(OptionError, match=r"stages.*removed: .*learn='stages:256,1024'"):
        check(AttackOptions, {"stages": "256"})
    with pytest.raises(TypeError, match="learn='stages:256,1024'"):
        rlab.attack("demo:digits", "demo:digits", **{"stages": 256})  # type: ignore[arg-type]


def test_deleted_students_are_distilled_again(folder: Path, tmp_path: Path) -> None:
    with (
        mock.patch("rlab.runs.chunk_work.join_chunks", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        staged_run(tmp_path / "run")
    damaged = stage_file(tmp_path / "run", 1)
    chunk = tmp_path / "run" / "parts" / "chunk-00000008.safetensors"
    chunk.unlink()
    damaged.write_bytes(damaged.read_bytes() + b"?")
    with pytest.raises(FolderError, match=r"stage-1\.safetensors is damaged.*delete it"):
        staged_run(tmp_path / "run")
    damaged.unlink()
    staged_run(tmp_path / "run")
    assert damaged.read_bytes() == stage_file(folder, 1).read_bytes()
    assert_same(AttackResult.load(tmp_path / "run"), AttackResult.load(folder))


def test_show_and_page_say_what_was_learned(folder: Path) -> None:
    shown = rlab_command("show", folder)
    assert shown.code == 0, shown.err
    facts = read_stages(folder)[-1]
    assert f"{facts.answers} answers" in shown.out
    section = next(section for section in page_of(folder, 0).sections if section.title == "Learning")
    table = next(block for block in section.blocks if isinstance(block, Table))
    assert len(table.rows) == len(STAGES) + 1


def test_the_command_learns_in_stages(tmp_path: Path) -> None:
    words = [
        "attack",
        "demo:digits",
        "demo:digits",
        "--limit",
        12,
        "--budget",
        4,
        "--policy",
        "belief",
        "--pictures",
        0,
    ]
    with one_student():
        shown = rlab_command(*words, "--learn", "stages:9", "-o", tmp_path / "run")
    assert shown.code == 0, shown.err
    assert [stage.first for stage in read_stages(tmp_path / "run")] == [0, 9]
    refused = rlab_command(*words, "--stages", "5", "-o", tmp_path / "other")
    assert refused.code == 2
    assert "use --learn stages:256,1024" in refused.err
