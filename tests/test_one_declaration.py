"""The same file gives the same attack under every command: options are declared once."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import rlab
from rlab.auditing import AuditOptions
from rlab.benchmarking import BenchmarkOptions
from rlab.comparison import CompareOptions
from rlab.explanation.options import ExplainOptions
from rlab.hardening.options import HardenRunOptions
from rlab.runs.options import AttackOptions, SharedRunOptions, make_attack
from rlab.runs.sharing import WorkerOptions
from rlab.storage.config import check, read_config

COMMANDS: dict[str, type[AttackOptions]] = {
    "attack": SharedRunOptions,
    "compare": CompareOptions,
    "explain": ExplainOptions,
    "benchmark": BenchmarkOptions,
    "harden": HardenRunOptions,
    "audit": AuditOptions,
}
FILES = {
    "what is needed": {},
    "everything": {
        "palette": ["gaussian_noise@0.2", "dead_pixel"], "patch": 2, "goal": "targeted:3", "budget": 77,
        "policy": "square(share=0.2)", "accept": "always", "l2_penalty": 0.1, "cleanup": False, "chunk": 5, "seed": 9,
        "until": "flip", "distance": "map",
    },
}  # fmt: skip


@pytest.mark.parametrize("content", FILES.values(), ids=FILES.keys())
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_builds_the_same_attack(tmp_path: Path, command: str, content: dict[str, object]) -> None:
    more = {"requirements": [{"metric": "success", "below": 0.5}]} if command == "audit" else {}
    path = tmp_path / "run.yaml"
    inputs = {"model": "demo:digits", "data": {"path": "demo:digits", "limit": 4}}
    path.write_text(yaml.safe_dump({**inputs, **content, **more}))
    batch = rlab.load("demo:digits", limit=4)
    options = check(COMMANDS[command], read_config(path))
    assert isinstance(options, AttackOptions)
    assert options.build(batch) == make_attack(batch, **content)


def test_no_command_declares_an_option_of_the_attack_or_of_workers_again() -> None:
    fields = (*AttackOptions.model_fields, *WorkerOptions.model_fields)
    own = {name: [field for field in fields if field in kind.__annotations__] for name, kind in COMMANDS.items()}
    assert own == {name: [] for name in COMMANDS}


def test_who_does_the_work_is_no_part_of_a_run() -> None:
    values = {"model": "demo:digits", "data": "demo:digits", "requirements": [{"metric": "success", "below": 0.5}]}
    for name in ("attack", "compare", "benchmark", "audit"):
        own = {key: value for key, value in values.items() if key != "requirements" or name == "audit"}
        plain = check(COMMANDS[name], own).plain()
        for who in ({"workers": 3}, {"devices": "cuda:0,cuda:1"}, {"cluster": "auto"}):
            options = check(COMMANDS[name], own | who)
            assert isinstance(options, WorkerOptions)
            assert options.shared
            assert options.plain() == plain
