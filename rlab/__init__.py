"""Black-box robustness for signals, images and video: the few patches whose natural distortion flips a classifier."""

# `python -m rlab` imports this file while the current folder is still first on sys.path, so it must import nothing: a typing.py
# among somebody's data would run. rlab/__main__.py removes the folder.
__version__ = "0.3.0"

# Every public name and its module, which is imported on first use, so that `import rlab` takes no time. Everything that a
# public function returns is here. `make stubs` writes the same names for type checkers.
PUBLIC = {
    "Above": "rlab.core.goals",
    "Appear": "rlab.core.goals",
    "Attack": "rlab.core.attack",
    "AttackOutcome": "rlab.comparison.outcome",
    "AttackResult": "rlab.results.result",
    "AttackedSample": "rlab.results.data",
    "AuditResult": "rlab.auditing.run",
    "Auto": "rlab.policies.auto",
    "Batch": "rlab.data.batch",
    "Belief": "rlab.policies.belief",
    "Below": "rlab.core.goals",
    "Benchmark": "rlab.benchmarking.folder",
    "BenchmarkReport": "rlab.benchmarking.report",
    "BoxOutputs": "rlab.victims.readers",
    "Boxes": "rlab.predictions.boxes",
    "CallableVictim": "rlab.victims.callables",
    "Comparison": "rlab.comparison.comparison",
    "CorruptionReport": "rlab.corruptions.report",
    "Deviate": "rlab.core.goals",
    "Diagnosis": "rlab.diagnosis.report",
    "Explanation": "rlab.explanation.explanation",
    "Filter": "rlab.filters.base",
    "Finding": "rlab.diagnosis.report",
    "Goal": "rlab.core.goals",
    "Greedy": "rlab.policies.greedy",
    "Grow": "rlab.core.goals",
    "GrpcVictim": "rlab.victims.grpc",
    "Hardened": "rlab.hardening.run",
    "HardeningComparison": "rlab.hardening.comparison",
    "HttpVictim": "rlab.victims.http",
    "InputError": "rlab.errors",
    "KerasVictim": "rlab.victims.runtimes",
    "Lose": "rlab.core.goals",
    "MapIoU": "rlab.core.goals",
    "MethodComparison": "rlab.explanation.method_comparison",
    "Misclassify": "rlab.core.goals",
    "Move": "rlab.core.goals",
    "MultiLabel": "rlab.core.goals",
    "OnnxVictim": "rlab.victims.runtimes",
    "OpenVinoVictim": "rlab.victims.runtimes",
    "Palette": "rlab.filters.palette",
    "PatchGrid": "rlab.core.grid",
    "Pixels": "rlab.core.goals",
    "Policy": "rlab.policies.base",
    "Precision": "rlab.core.goals",
    "Prior": "rlab.priors.base",
    "Random": "rlab.policies.random",
    "Result": "rlab.present.result",
    "Setting": "rlab.core.setting",
    "Simulator": "rlab.learning.simulator",
    "SklearnVictim": "rlab.victims.callables",
    "Source": "rlab.data.source",
    "Splits": "rlab.hardening.comparison",
    "Square": "rlab.policies.square",
    "Status": "rlab.core.status",
    "TargetBoxes": "rlab.predictions.boxes",
    "Targeted": "rlab.core.goals",
    "TfliteVictim": "rlab.victims.runtimes",
    "TorchVictim": "rlab.victims.torch_module",
    "Under": "rlab.core.goals",
    "Untargeted": "rlab.core.goals",
    "Vanish": "rlab.core.goals",
    "Verdict": "rlab.benchmarking.requirements",
    "Verification": "rlab.benchmarking.verification",
    "Victim": "rlab.victims.base",
    "VictimError": "rlab.errors",
    "attack": "rlab.verbs",
    "audit": "rlab.auditing",
    "benchmark": "rlab.verbs",
    "compare": "rlab.verbs",
    "compare_hardening": "rlab.hardening.comparison",
    "corrupt": "rlab.corruptions.run",
    "corruptions": "rlab",
    "demo_victim": "rlab.victims.zoo",
    "doctor": "rlab.diagnosis.examine",
    "explain": "rlab.verbs",
    "explain_batch": "rlab.explanation.run",
    "explain_flip": "rlab.explanation.run",
    "explain_result": "rlab.explanation.run",
    "filters": "rlab",
    "harden": "rlab.hardening.run",
    "learn": "rlab.runs.learn",
    "load": "rlab.data.load",
    "load_victim": "rlab.victims.resolve",
    "read_simulator": "rlab.learning.simulator",
    "make_benchmark": "rlab.benchmarking.make",
    "register": "rlab.filters.base",
    "run_benchmark": "rlab.benchmarking.run",
    "train": "rlab.verbs",
    "verify_benchmark": "rlab.benchmarking.verify",
}

__all__ = ["__version__", *PUBLIC]


def __getattr__(name: str) -> object:
    import importlib

    if name not in PUBLIC:
        raise AttributeError(f"module 'rlab' has no attribute {name!r}{_nearest(name)}")
    if PUBLIC[name] == __name__:  # a module of the package
        return importlib.import_module(f"{__name__}.{name}")
    return getattr(importlib.import_module(PUBLIC[name]), name)


def _nearest(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, PUBLIC, n=1)
    return f". Did you mean {near[0]!r}?" if near else ""


def __dir__() -> list[str]:
    return sorted(__all__)
