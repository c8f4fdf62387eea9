"""Every command, flag, key of a file and Python name that README and docs of 0.2.0 show still works, or its error names what
replaces it and the changelog has a line about it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest

import rlab
from rlab.auditing.config import AuditOptions, BenchmarkStage, DoctorStage, ExplainStage, HardenStage
from rlab.benchmarking.config import BenchmarkOptions, parse_ladder
from rlab.benchmarking.requirements import METRICS, Requirement
from rlab.comparison import CompareOptions
from rlab.data.load import DataOptions
from rlab.explanation import parse_methods
from rlab.explanation.options import ExplainOptions
from rlab.hardening.options import EvaluationOptions, HardenOptions, HardenRunOptions
from rlab.policies import NAMED, parse_policy
from rlab.runs.options import SharedRunOptions
from rlab.storage.config import Options, check
from rlab.training.directions import PriorOptions
from rlab.training.registered import make_environment
from rlab.victims.options import ModelOptions
from scripts.commands_page import commands
from tests.command import rlab_command

ATTACK_FLAGS = (
    "--accept --batch-size --budget --chunk --cleanup --config --data-option --device --distance "
    "--dry-run --goal --json --l2-penalty --labels --limit --model-option --no-cleanup --no-noisy --noisy "
    "--out --palette --patch --patience --quiet --seed --size --surrogate --timeout --until --wait -D -M "
    "-c -o -p -q "
)
FLAGS = {
    "demo": "--out --policy --samples --seed --wait",
    "init": "--data-option --json --labels --limit --model --out --quiet --size -D -o -q",
    "doctor": (
        "--batch-size --config --data-option --device --distance --json --labels --limit --model-option "
        "--no-noisy --noisy --palette --quiet --samples --seed --size --surrogate --timeout --until -D -M -c "
        "-p -q "
    ),
    "attack": ATTACK_FLAGS + " --cluster --devices --keep --pictures --policy --track --workers",
    "show": "--data --json --pictures --quiet --samples -q",
    "compare": ATTACK_FLAGS + " --attacks --cluster --devices --no-reduce --policies --reduce --track --workers",
    "explain": ATTACK_FLAGS
    + (" --checks --class --compare --mask-values --masks --method --no-checks --pictures --policy --rule --steps "),
    "benchmark make": (
        "--accept --batch-size --budget --chunk --cleanup --cluster --config --data-option --device --devices "
        "--distance --dry-run --format --goal --json --l2-penalty --labels --ladder --lead --limit --model "
        "--model-option --no-cleanup --no-noisy --noisy --out --palette --patch --patience --per-class "
        "--policy --quiet --reach --reference --seed --sets --size --steps --surrogate --tolerance --until "
        "--wait --workers -D -M -c -m -o -p -q "
    ),
    "benchmark verify": "--batch-size --device --json --model --model-option --quiet --trust -M -m -q",
    "benchmark run": (
        "--batch-size --corruption --corruptions --device --dry-run --fresh --json --model --model-option "
        "--no-corruptions --no-fresh --out --palette --quiet --require --seed --trust --wait -M -m -o -p -q "
    ),
    "harden": ATTACK_FLAGS
    + (
        " --adversarial-share --adversary --adversary-budget --compare --epochs "
        "--learning-rate --max-clean-drop --methods --onnx --policy "
        "--seeds --test --test-option --track -T "
    ),
    "audit": (
        "--batch-size --cluster --device --devices --dry-run --json --out --quiet --seed --track --until "
        "--wait --workers -o -q "
    ),
    "report": "--data --figures --json --out --pdf --quiet --samples --track -o -q",
    "serve": "--host --json --port --quiet --token -q",
    "repair": "",
    "train": "--device --json --minutes --out --quiet --track --wait -o -q",
    "examples": "--out -o",
    "agents": "",
    "filters": "--rank",
}
ATTACK_KEYS = (
    "accept budget chunk cleanup distance goal l2_penalty noisy palette patch patience policy seed surrogate until"
)
KEYS: dict[type[Options], str] = {
    SharedRunOptions: ATTACK_KEYS + " cluster data devices keep model workers",
    ModelOptions: (
        "autocast bounds chunk classes compile concurrency device factory http layout mean multilabel name "
        "output outputs score std timeout weights "
    ),
    DataOptions: (
        "beats bounds channels classes fold frames groups kind label_column labels leads limit multilabel "
        "path rate records sampling scaling seed shuffle size split splits stream window "
    ),
    CompareOptions: ATTACK_KEYS + " attacks cluster data devices keep model policies reduce workers",
    ExplainOptions: ATTACK_KEYS + " checks data keep label mask_values masks method model rule steps",
    BenchmarkOptions: ATTACK_KEYS
    + (" cluster data devices format ladder lead models per_class reach reference sets steps tolerance workers "),
    HardenRunOptions: ATTACK_KEYS + " data evaluation harden keep model test",
    HardenOptions: (
        "adversarial_share adversary adversary_budget aimed_share amp augment balance batch_norm "
        "consistency consistency_weight distillation_weight distorted_weight ema_decay entries epochs "
        "gradient_steps learning_rate max_clean_drop overshoot palettes patches patience radius_range "
        "seed step validation_attacked validation_split views weight_decay "
    ),
    EvaluationOptions: "attack attacked pgd_norm pgd_radius pgd_steps square_budget square_radius",
    AuditOptions: ATTACK_KEYS
    + " benchmark cluster data devices doctor explain harden keep model requirements title workers",
    DoctorStage: "samples stop",
    ExplainStage: "checks methods rule samples steps",
    BenchmarkStage: "against corruptions folder",
    HardenStage: "attacked data",
    PriorOptions: (
        "budget data device entries group heads kind minutes models palettes patches prior prior_levels prior_width "
        "seed shrink start tensorboard validation validation_interval validation_palette validation_samples "
    ),
    Requirement: "above at at_least at_most below class distortion level method metric model when",
}
PUBLIC = (
    "Attack AttackResult Batch Benchmark CallableVictim Explanation Filter HttpVictim InputError "
    "OnnxVictim Palette PatchGrid SklearnVictim Source Status TorchVictim Victim VictimError attack audit "
    "benchmark compare compare_hardening demo_victim doctor explain explain_batch explain_flip "
    "explain_result harden load load_victim make_benchmark register run_benchmark train verify_benchmark "
)
IMPORTED = (
    "rlab.auditing.run_audit rlab.benchmarking.check_requirements rlab.benchmarking.save_report rlab.core.env.Proposal "
    "rlab.core.env.State rlab.core.env.Task rlab.core.goals.Untargeted rlab.core.rng.uniform rlab.data.clips.ClipSource "
    "rlab.data.ecg_masks.qrs_masks rlab.errors.MissingExtra rlab.explanation.run.explain_flip "
    "rlab.explanation.words.frame_shares rlab.explanation.words.statements rlab.hardening.adversaries.GradientAdversary "
    "rlab.hardening.adversaries.PerturbationSpace rlab.policies.auto.card rlab.policies.auto.shipped rlab.policies.base.Policy "
    "rlab.policies.base.act rlab.policies.belief.BeliefPolicy rlab.priors.base.Prior rlab.priors.file.read_header "
    "rlab.training.environments.GymnasiumEnv rlab.training.episodes.EpisodeSampler rlab.training.episodes.teachable "
    "rlab.victims.Victim"
)
BELIEF = "prior='none', temperature=0.1, warming=0.01, bold=1.0, shrink=0.65, remember=40, central=0.25, relevance=0.8"
METHODS = (
    "belief credit mask rise sobol kernel_shap lime hsic occlusion captum_occlusion middle gradcam gradcam++ ablationcam "
    "scorecam integrated_gradients"
)
MEASURED = (
    "errors warnings clean_accuracy success median_l2 median_snr median_queries median_patches dice iou pointing energy deletion "
    "insertion stability sanity accuracy area flip_distance mismatches queries"
)


def train_kind(folder: Path, kind: str) -> None:
    (folder / "training.yaml").write_text(f"kind: {kind}\n")
    rlab.train(folder / "training.yaml", folder / "out")


# Each name that is gone: what the changelog calls it, how it is used, and what the error must say.
GONE: dict[str, tuple[Callable[[Path], object], str]] = {
    "instant": (lambda _: parse_methods(["instant"]), "use 'belief'"),
    "agent": (lambda _: check(ExplainOptions, {"model": "a", "data": "b", "agent": "c"}), "use the method 'belief'"),
    "kind: controller": (lambda folder: train_kind(folder, "controller"), "controller was removed"),
    "belief(controller=...)": (lambda _: parse_policy("belief(controller='c')"), "controller was removed"),
    "tolerance": (lambda _: parse_policy("auto(tolerance=1)"), "controller was removed"),
    "changes": (lambda _: parse_policy("belief(changes='single')"), "default behaviour"),
    "coarse": (lambda _: parse_policy("belief(coarse=True)"), "default behaviour"),
    "--policy agents": (lambda _: parse_policy("agents(adapt=8)"), "two_agents(agent="),
    "kind: clips": (lambda folder: train_kind(folder, "clips"), "two_agents"),
    "horizon": (lambda _: check(PriorOptions, {"horizon": 60}), "leave it out"),
    "prior_minutes": (lambda _: check(PriorOptions, {"prior_minutes": 2.0}), "'minutes'"),
    "probability:0.5,0.1": (lambda _: parse_ladder("probability:0.5,0.1"), "confidence:0.9,0.7,0.5,flip"),
    "ways": (lambda _: parse_policy("belief(ways=3)"), "'rivals'"),
    "rlab/Attack-v0": (
        lambda _: make_environment("demo:digits", "demo:digits", keep="better"),  # type: ignore[call-arg]
        "'accept'",
    ),
    "rlab.core.breakdown": (lambda _: importlib.import_module("rlab.core.breakdown"), "rlab.results.breakdown"),
    "rlab.victims.zoo.clips": (lambda _: importlib.import_module("rlab.victims.zoo.clips"), "benchmarks.victims"),
    "rlab.victims.zoo.clip_nets": (
        lambda _: importlib.import_module("rlab.victims.zoo.clip_nets"),
        "benchmarks.victims",
    ),
}


def test_commands_and_flags() -> None:
    now = {
        name: {flag for each in made.params for flag in (*each.opts, *each.secondary_opts)} for name, made in commands()
    }
    assert {name: set(flags.split()) - now[name] for name, flags in FLAGS.items()} == {name: set() for name in FLAGS}


@pytest.mark.parametrize("kind", KEYS, ids=lambda kind: kind.__name__)
def test_keys_of_files(kind: type[Options]) -> None:
    assert set(KEYS[kind].split()) <= {field.alias or name for name, field in kind.model_fields.items()}


def test_python_names() -> None:
    assert set(PUBLIC.split()) <= rlab.PUBLIC.keys()
    for path in IMPORTED.split():
        module, _, name = path.rpartition(".")
        assert hasattr(importlib.import_module(module), name), path


def test_policies_methods_and_figures() -> None:
    assert {"auto", "random", "greedy", "square", "belief"} <= set(NAMED)
    parse_policy(f"belief({BELIEF})")
    assert [method.name for method in parse_methods(METHODS.split())] == METHODS.split()
    assert set(MEASURED.split()) <= METRICS.keys()


@pytest.mark.parametrize("name", GONE)
def test_what_is_gone_says_what_replaces_it(root: Path, tmp_path: Path, name: str) -> None:
    use, said = GONE[name]
    with pytest.raises((rlab.InputError, ImportError)) as error:
        use(tmp_path)
    assert said in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    assert f"`{name}`" in (root / "CHANGELOG.md").read_text(encoding="utf-8").partition("\n## 0.2.0")[0]


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (("explain", "demo:digits", "demo:digits", "--agent", "agent.safetensors"), "--method belief"),
        (("serve", "runs", "--model=demo:digits"), "rlab attack MODEL DATA"),
        (("harden", "demo:digits", "demo:digits", "--rate", "0.01"), "--learning-rate"),
    ],
)
def test_a_flag_that_is_gone_says_what_replaces_it(words: tuple[str, ...], instead: str) -> None:
    printed = rlab_command(*words)
    assert printed.code == 2
    assert instead in printed.err
