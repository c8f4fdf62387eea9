"""Black-box robustness for signals, images and video: the few patches whose natural distortion flips a classifier."""

# `python -m rlab` imports this file while the current folder is still first on sys.path, so it must import nothing: a typing.py
# among somebody's data would run. rlab/__main__.py removes the folder.
TYPE_CHECKING = False

__version__ = "0.3.0.dev0"

# Every public name and its module, which is imported on first use, so that `import rlab` takes no time.
PUBLIC = {
    "Attack": "rlab.core.attack",
    "AttackResult": "rlab.results.result",
    "Batch": "rlab.data.batch",
    "Benchmark": "rlab.benchmarking.folder",
    "CallableVictim": "rlab.victims.callables",
    "Explanation": "rlab.explanation.base",
    "Filter": "rlab.filters.base",
    "HttpVictim": "rlab.victims.http",
    "InputError": "rlab.errors",
    "OnnxVictim": "rlab.victims.callables",
    "Palette": "rlab.filters.palette",
    "PatchGrid": "rlab.core.grid",
    "SklearnVictim": "rlab.victims.callables",
    "Source": "rlab.data.source",
    "Status": "rlab.results.result",
    "TorchVictim": "rlab.victims.torch_module",
    "Victim": "rlab.victims.base",
    "VictimError": "rlab.errors",
    "attack": "rlab.verbs",
    "audit": "rlab.auditing",
    "benchmark": "rlab.verbs",
    "compare": "rlab.verbs",
    "compare_hardening": "rlab.hardening.comparison",
    "demo_victim": "rlab.victims.zoo",
    "doctor": "rlab.diagnosis.examine",
    "harden": "rlab.hardening.run",
    "explain": "rlab.verbs",
    "explain_batch": "rlab.explanation.run",
    "explain_flip": "rlab.explanation.run",
    "explain_result": "rlab.explanation.run",
    "load": "rlab.data.load",
    "load_victim": "rlab.victims.resolve",
    "make_benchmark": "rlab.benchmarking.make",
    "register": "rlab.filters.base",
    "run_benchmark": "rlab.benchmarking.run",
    "train": "rlab.verbs",
    "verify_benchmark": "rlab.benchmarking.verify",
}

__all__ = ["__version__", *PUBLIC]

if TYPE_CHECKING:  # the same names for type checkers and editors; a test keeps the two lists equal
    from rlab.auditing import audit as audit
    from rlab.benchmarking.folder import Benchmark as Benchmark
    from rlab.benchmarking.make import make_benchmark as make_benchmark
    from rlab.benchmarking.run import run_benchmark as run_benchmark
    from rlab.benchmarking.verify import verify_benchmark as verify_benchmark
    from rlab.core.attack import Attack as Attack
    from rlab.core.grid import PatchGrid as PatchGrid
    from rlab.data.batch import Batch as Batch
    from rlab.data.load import load as load
    from rlab.data.source import Source as Source
    from rlab.diagnosis.examine import doctor as doctor
    from rlab.errors import InputError as InputError
    from rlab.errors import VictimError as VictimError
    from rlab.explanation.base import Explanation as Explanation
    from rlab.explanation.run import explain_batch as explain_batch
    from rlab.explanation.run import explain_flip as explain_flip
    from rlab.explanation.run import explain_result as explain_result
    from rlab.filters.base import Filter as Filter
    from rlab.filters.base import register as register
    from rlab.filters.palette import Palette as Palette
    from rlab.hardening.comparison import compare_hardening as compare_hardening
    from rlab.hardening.run import harden as harden
    from rlab.results.result import AttackResult as AttackResult
    from rlab.results.result import Status as Status
    from rlab.verbs import attack as attack
    from rlab.verbs import benchmark as benchmark
    from rlab.verbs import compare as compare
    from rlab.verbs import explain as explain
    from rlab.verbs import train as train
    from rlab.victims.base import Victim as Victim
    from rlab.victims.callables import CallableVictim as CallableVictim
    from rlab.victims.callables import OnnxVictim as OnnxVictim
    from rlab.victims.callables import SklearnVictim as SklearnVictim
    from rlab.victims.http import HttpVictim as HttpVictim
    from rlab.victims.resolve import load_victim as load_victim
    from rlab.victims.torch_module import TorchVictim as TorchVictim
    from rlab.victims.zoo import demo_victim as demo_victim


def __getattr__(name: str) -> object:
    if name not in PUBLIC:
        raise AttributeError(f"module 'rlab' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *PUBLIC})
