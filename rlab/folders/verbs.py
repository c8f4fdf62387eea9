"""The commands whose runs leave a folder, in one table. It imports nothing, so that `rlab --help` and `rlab serve` start fast."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Verb:
    """A command, what it does, and the class of its report as module:name."""

    name: str
    about: str
    report: str
    marks: tuple[str, ...] = ("report.json",)  # a finished folder holds these files


VERBS = (
    Verb(
        "demo", "Attack a signal, an image and a clip classifier on embedded data.", "rlab.folders.demo:Demo",
        tuple(f"{name}/samples.parquet" for name in ("ecg", "digits", "clips")),
    ),
    Verb("doctor", "Check model, data and palette before you spend queries.", "rlab.diagnosis.report:Diagnosis"),
    Verb(
        "attack", "Find patches of every sample whose distortion makes the model fail.",
        "rlab.results.result:AttackResult", ("samples.parquet", "arrays.safetensors"),
    ),
    Verb(
        "learn", "Train a simulator on a model's answers, so that attacks need fewer queries.",
        "rlab.learning.report:Learned", ("simulator.safetensors",),
    ),
    Verb(
        "compare", "Run several attacks on the same model, samples and budget.", "rlab.comparison.comparison:Comparison"
    ),
    Verb(
        "explain", "Show where the model looks: a heat map and a mask for every sample.",
        "rlab.explanation.explanation:MethodComparison",
    ),
    Verb(
        "benchmark make", "Store the smallest verified flip of every sample, and levels beyond it.",
        "rlab.benchmarking.folder:Benchmark", ("manifest.json", "metadata.parquet"),
    ),
    Verb("benchmark verify", "Check every file of a benchmark.", "rlab.benchmarking.verify:Verification"),
    Verb("benchmark run", "Grade models on a benchmark.", "rlab.benchmarking.report:BenchmarkReport"),
    Verb(
        "corrupt", "Measure accuracy and calibration under the common corruptions.",
        "rlab.corruptions.report:CorruptionReport",
    ),
    Verb(
        "harden", "Train a torch model on its own failures and measure it before and after.",
        "rlab.hardening.report:Hardened",
    ),
    Verb(
        "audit", "Run the whole pipeline from one file and check its requirements.",
        "rlab.auditing.report:AuditResult",
    ),
    Verb(
        "train", "Train a prior, or the agent of a paper, on your own models.", "rlab.training.page:Training",
        ("log.jsonl",),
    ),
)  # fmt: skip
