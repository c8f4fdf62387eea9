"""Black-box robustness for signals, images and video: patches whose natural distortion flips a classifier."""

# `python -m rlab` imports this file while the current folder is still first on sys.path, so it must import nothing: a typing.py
# among somebody's data would run. rlab/__main__.py removes the folder.
__version__ = "0.3.0"

# The public names of each module, which is imported on first use, so that `import rlab` takes no time. Everything that a public
# function returns is here. `make stubs` writes the same names for type checkers.
_NAMES = {
    "rlab": "corruptions filters",
    "rlab.auditing": "audit",
    "rlab.auditing.report": "AuditResult",
    "rlab.benchmarking.folder": "Benchmark",
    "rlab.benchmarking.make": "make_benchmark",
    "rlab.benchmarking.report": "BenchmarkReport",
    "rlab.benchmarking.requirements": "Verdict",
    "rlab.benchmarking.run": "run_benchmark",
    "rlab.benchmarking.verify": "Verification verify_benchmark",
    "rlab.comparison.comparison": "Comparison",
    "rlab.comparison.outcome": "AttackOutcome",
    "rlab.core.attack": "Attack",
    "rlab.core.goals": (
        "Above Appear Below Deviate Goal Grow Lose MapIoU Misclassify Move MultiLabel Pixels Precision "
        "Targeted Under Untargeted Vanish"
    ),
    "rlab.core.grid": "PatchGrid",
    "rlab.core.setting": "Setting",
    "rlab.core.status": "Status",
    "rlab.corruptions.report": "CorruptionReport",
    "rlab.corruptions.run": "corrupt",
    "rlab.data.batch": "Batch",
    "rlab.data.load": "load",
    "rlab.data.source": "Source",
    "rlab.diagnosis.examine": "doctor",
    "rlab.diagnosis.report": "Diagnosis Finding",
    "rlab.errors": "InputError VictimError",
    "rlab.explanation.explanation": "Explanation MethodComparison",
    "rlab.explanation.run": "explain_batch explain_flip explain_result",
    "rlab.filters.base": "Filter register",
    "rlab.filters.palette": "Palette",
    "rlab.hardening.report": "Hardened",
    "rlab.hardening.run": "harden Splits",
    "rlab.learning.simulator": "read_simulator Simulator",
    "rlab.policies.auto": "Auto",
    "rlab.policies.base": "Policy",
    "rlab.policies.belief": "Belief",
    "rlab.policies.greedy": "Greedy",
    "rlab.policies.random": "Random",
    "rlab.policies.square": "Square",
    "rlab.predictions.boxes": "Boxes TargetBoxes",
    "rlab.present.report": "Report",
    "rlab.priors.base": "Prior",
    "rlab.results.result": "AttackResult AttackedSample",
    "rlab.runs.learn": "learn",
    "rlab.verbs": "attack benchmark compare explain train",
    "rlab.victims.base": "Victim",
    "rlab.victims.callables": "CallableVictim SklearnVictim",
    "rlab.victims.grpc": "GrpcVictim",
    "rlab.victims.http": "HttpVictim",
    "rlab.victims.limit": "query_limit",
    "rlab.victims.resolve": "load_victim",
    "rlab.victims.runtimes": "KerasVictim OnnxVictim OpenVinoVictim TfliteVictim",
    "rlab.victims.torch_module": "TorchVictim",
    "rlab.victims.zoo": "demo_victim",
}
PUBLIC = {name: module for module, names in _NAMES.items() for name in names.split()}

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
