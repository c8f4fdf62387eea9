"""What a kill costs: rows that are sent again, the time that the journal takes, and frames between the call and the model."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

import rlab
from benchmarks.raw import Numbers
from benchmarks.victims.residual import cifar_resnet
from rlab.storage.journal import Journal
from tests.helpers import labelled_by
from tests.victims.faults import Reply, fault_server

MOMENTS = (2, 9, 21)  # requests at which the owner of a run is killed
PAIRS = 15
_ARRIVES = 0.3  # seconds in which an answer that was sent arrives
SAMPLES, BUDGET = 16, 30  # of the run that is timed
RUNS = {
    "process": "attack killed:model x.npz --until budget",
    "learning": "attack killed:model x.npz --learn stages:8",
    "noisy": "attack killed:model x.npz --until budget --noisy",
    "workers": "attack killed:model x.npz --until budget --workers 2",
    "address": "attack ADDRESS x.npz --until budget --batch-size 1",
}
OPTIONS = [
    "--budget",
    "24",
    "--palette",
    "dead_pixel",
    "--patch",
    "2",
    "--chunk",
    "4",
    "--threads",
    "1",
    "--no-page",
    "--out",
]
MODEL = '''
import os, signal
import torch
from torch import nn

class Killed(nn.Module):
    """Notes rows when they come and when they are answered; at a moment it kills the owner of the run."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

    def note(self, sign, x):
        with open(os.environ["SENT"], "a") as file:
            file.write(f"{sign}{len(x)}\\n")

    def forward(self, x):
        self.note("+", x)
        came = sum(line.startswith("+") for line in open(os.environ["SENT"]))
        if came == int(os.environ["KILL_AT"]):
            self.note("!", x)
            os.kill(int(open(os.environ["OWNER"]).read()), signal.SIGKILL)
        scores = self.net(x)
        self.note("-", x)
        return scores

def model():
    return Killed()
'''


def measure_repeated(folder: Path) -> Numbers:
    """Over all kills, the most rows sent again over rows sent and unanswered at the kill."""
    (folder / "killed.py").write_text(MODEL)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    x = torch.rand(8, 1, 8, 8)
    np.savez(folder / "x.npz", x=x.numpy(), y=net(x).argmax(1).numpy())
    ratios = list[float]()
    for name, words in RUNS.items():
        with _answering(folder) as server:
            whole = sum(_run(folder, name, words, -1, server)[0])
            for moment in MOMENTS:
                paid, unanswered = _run(folder, f"{name}-{moment}", words, moment, server)
                again, _ = _run(folder, f"{name}-{moment}", words, -1, server)
                repeated = sum(paid) + sum(again) - whole
                print(
                    f"{name} killed at request {moment}: {unanswered} rows unanswered, {repeated} sent again",
                    flush=True,
                )
                ratios.append(repeated / max(1, unanswered))
    return {"queries_repeated_max": max(ratios), "queries_repeated_kills": len(ratios)}


@dataclass
class Killer:
    """A server with the same model, which notes rows when they come and kills its client at a request."""

    address: str
    sent: Path = Path()
    owner: Path = Path()
    moment: int = -1
    requests: int = 0


def _run(folder: Path, name: str, words: str, moment: int, server: Killer) -> tuple[list[int], int]:
    """The rows of all requests of a command whose owner is killed at a moment (-1: never), and those without an answer then.

    The one question of a resumed run is left out.
    """
    sent, owner = folder / f"{name}{moment}.txt", folder / "owner"
    server.sent, server.owner, server.moment, server.requests = sent, owner, moment, 0
    environment = {**os.environ, "SENT": str(sent), "OWNER": str(owner), "KILL_AT": str(moment), "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), str(Path(__file__).resolve().parents[2])])
    call = [sys.executable, "-m", "rlab", *words.replace("ADDRESS", server.address).split(), *OPTIONS, name]
    with subprocess.Popen(call, cwd=folder, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as run:
        owner.write_text(str(run.pid))
        assert run.stderr is not None
        said = run.stderr.read().decode()
    time.sleep(0.5)  # its workers end
    if run.returncode != (0 if moment == -1 else -signal.SIGKILL):
        raise RuntimeError(f"{' '.join(call)} ended with {run.returncode}: {said}")
    lines = sent.read_text().split()
    came = _rows(lines, "+")
    if "1 query has checked" in said:
        came.remove(1)
    before = lines[: next((at for at, line in enumerate(lines) if line[0] == "!"), len(lines))]  # the kill
    return came, sum(_rows(before, "+")) - sum(_rows(before, "-"))


def _rows(lines: Sequence[str], sign: str) -> list[int]:
    return [int(line[1:]) for line in lines if line[0] == sign]


@contextmanager
def _answering(folder: Path) -> Iterator[Killer]:
    sys.path.insert(0, str(folder))
    import killed

    net, one = killed.model().net, Lock()  # several requests come at the same time
    sys.path.remove(str(folder))
    with fault_server() as server:
        killer = Killer(server.url)

        def model(inputs: object) -> object:
            rows = torch.tensor(inputs, dtype=torch.float32)
            with one, killer.sent.open("a") as file:
                file.write(f"+{len(rows)}\n")
                killer.requests += 1
                kills = killer.requests == killer.moment
            scores = net(rows).detach().numpy()
            if kills:
                time.sleep(_ARRIVES)  # answers to other requests are on their way
                with one, killer.sent.open("a") as file:
                    file.write("!1\n")
                os.kill(int(killer.owner.read_text()), signal.SIGKILL)
                return scores
            with one, killer.sent.open("a") as file:
                file.write(f"-{len(scores)}\n")
            return scores

        server.model = model  # type: ignore[assignment]
        server.plan = lambda number, busy: Reply()
        yield killer


def _no_answer(journal: Journal, *answers: object) -> None:
    pass


def _nothing_known(journal: Journal) -> bool:
    return False


def measure_journal(folder: Path) -> Numbers:
    """CPU seconds of an attack on a ResNet-20 with the journal over those without, and the frames above its forward pass."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net, frames = cifar_resnet(20).eval(), list[int]()
    victim = rlab.TorchVictim(net)
    batch = labelled_by(victim, rlab.Batch(torch.rand(SAMPLES, 3, 32, 32), torch.zeros(SAMPLES, dtype=torch.int64)))

    def seconds(name: str) -> float:
        began = time.process_time()
        rlab.attack(victim, batch, budget=BUDGET, until="budget", seed=1, out=folder / name, progress=False)
        return time.process_time() - began

    def without(name: str) -> float:
        with mock.patch.object(Journal, "add", _no_answer), mock.patch.object(Journal, "knows", _nothing_known):
            return seconds(name)

    def ratio(number: int) -> float:
        """The order changes from pair to pair."""
        pair = {
            measure: measure(f"{number}-{measure.__name__}") for measure in (seconds, without)[:: 1 - 2 * (number % 2)]
        }
        return pair[seconds] / pair[without]

    seconds("first")
    ratios = [ratio(number) for number in range(PAIRS)]

    def count(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        frame, own = sys._getframe(), 0
        while (frame := frame.f_back) is not None:  # type: ignore[assignment]
            own += Path(frame.f_code.co_filename).is_relative_to(Path(rlab.__file__).parent)
        frames.append(own)

    with net.register_forward_pre_hook(count):
        rlab.attack(victim, batch, budget=4, progress=False)
    return {"journal_overhead": statistics.median(ratios), "frames": max(frames)}
