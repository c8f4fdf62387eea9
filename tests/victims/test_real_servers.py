"""Real servers, started and stopped here: MLServer, MLflow and Ray Serve, each around a planted scikit-learn model.

They want packages that contradict each other, so they may live in other environments: RLAB_MLSERVER=/path/to/its/python, or
.servers/mlserver, which `make test-all` fills.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import torch

from rlab.errors import VictimError
from rlab.victims import HttpVictim

pytestmark = pytest.mark.slow
PATIENCE = 120  # seconds until a server listens
X = torch.rand(5, 1, 4, 4, generator=torch.Generator().manual_seed(0))
WEIGHT = torch.randn(16, 3, generator=torch.Generator().manual_seed(1)).double()
SCORES = (X.flatten(1).double() @ WEIGHT).log_softmax(1).float()
MODEL = f"""
import numpy as np
from sklearn.linear_model import LogisticRegression
model = LogisticRegression()
model.classes_, model.n_features_in_ = np.arange(3), 16
model.coef_, model.intercept_ = np.array({WEIGHT.T.tolist()}), np.zeros(3)
"""
MLSERVER = """
import joblib, json
joblib.dump(model, "model.joblib")
json.dump({"http_port": PORT, "grpc_port": PORT + 1, "metrics_port": PORT + 2, "parallel_workers": 0}, open("settings.json", "w"))
json.dump({"name": "flowers", "implementation": "mlserver_sklearn.SKLearnModel", "parameters": {"uri": "./model.joblib"}},
          open("model-settings.json", "w"))
from mlserver.cli import main
import sys
sys.argv = ["mlserver", "start", "."]
main()
"""
OWN_RUNTIME = """
import json
json.dump({"http_port": PORT, "grpc_port": PORT + 1, "metrics_port": PORT + 2, "parallel_workers": 0}, open("settings.json", "w"))
json.dump({"name": "flowers", "implementation": "own.Own"}, open("model-settings.json", "w"))
open("own.py", "w").write(MODEL + '''
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse
class Own(MLModel):
    async def load(self):
        return True
    async def predict(self, payload):
        x = NumpyCodec.decode_input(payload.inputs[0])
        scores = model.predict_proba(x.reshape(len(x), -1))
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("probs", scores)])
''')
from mlserver.cli import main
import sys
sys.path.insert(0, ".")
sys.argv = ["mlserver", "start", "."]
main()
"""
MLFLOW = """
import mlflow.sklearn, sys
mlflow.sklearn.save_model(model, "saved", pyfunc_predict_fn="predict_proba", serialization_format="cloudpickle")
from mlflow.cli import cli
cli(["models", "serve", "-m", "saved", "--env-manager", "local", "--port", str(PORT), "--workers", "1"])
"""
RAY = """
import time
import ray
from ray import serve
from starlette.requests import Request
@serve.deployment
class Flowers:
    async def __call__(self, request: Request):
        x = np.array(await request.json())
        return model.predict_proba(x.reshape(len(x), -1)).tolist()
ray.init(num_cpus=2, include_dashboard=False, logging_level="error")
serve.start(http_options={"port": PORT})
serve.run(Flowers.bind(), route_prefix="/flowers")
while True:
    time.sleep(1)
"""


@dataclass(frozen=True)
class Real:
    package: str
    code: str
    ready: str  # path that answers once the model is loaded
    address: str
    template: str | None = None
    wrong: str | None = None  # a template that the server refuses


_PROBA = (
    "kserve(layout='flat', body={'inputs': [{'name': 'x', 'shape': '{shape}', 'datatype': 'FP32', 'data': '{flat}'}], "
    "'outputs': [{'name': 'predict_proba'}]})"
)
SERVERS = {
    "MLServer, scikit-learn": Real("mlserver", MLSERVER, "/v2/models/flowers/ready", "kserve://HOST/flowers", _PROBA, "rlab"),
    "MLServer, own runtime": Real("mlserver", OWN_RUNTIME, "/v2/models/flowers/ready", "kserve://HOST/flowers", None, "tfserving"),
    "MLflow": Real("mlflow", MLFLOW, "/ping", "mlflow://HOST", "mlflow(layout='flat')", "kserve(path='')"),
    "Ray Serve": Real("ray.serve", RAY, "/-/healthz", "rayserve://HOST/flowers", None, "mlflow(path='/flowers')"),
}  # fmt: skip


def python_with(package: str) -> str:
    """A Python that can import the package."""
    top = package.partition(".")[0]
    own = Path(__file__).parents[2] / ".servers" / top / "bin" / "python"
    pythons = [os.environ.get(f"RLAB_{top.upper()}"), str(own) if own.exists() else None, sys.executable]
    for python in filter(None, pythons):
        if subprocess.run([python, "-c", f"import {package}"], capture_output=True).returncode == 0:
            return python
    pytest.skip(f"{top} is not installed; RLAB_{top.upper()} may name a Python that has it")


def free_ports() -> int:
    """The first of three free ports in a row, most likely."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def running(real: Real, folder: Path) -> Iterator[str]:
    port = free_ports()
    code = f"PORT = {port}\nMODEL = {MODEL!r}\n{MODEL}\n{real.code}"
    python = python_with(real.package)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["PATH"] = f"{Path(python).parent}{os.pathsep}{environment['PATH']}"
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [python, "-c", code],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            began = time.monotonic()
            while not listening(f"http://127.0.0.1:{port}{real.ready}"):
                assert process.poll() is None, (folder / "log").read_text()[-2000:]
                assert time.monotonic() - began < PATIENCE, (folder / "log").read_text()[-2000:]
                time.sleep(0.5)
            yield f"127.0.0.1:{port}"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)


def listening(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2).status_code < 400
    except httpx.HTTPError:
        return False


@pytest.mark.parametrize("name", SERVERS)
def test_a_real_server_gives_the_models_scores(name: str, tmp_path: Path) -> None:
    real = SERVERS[name]
    with running(real, tmp_path) as host:
        address = real.address.replace("HOST", host)
        with HttpVictim(address, template=real.template, timeout=30) as victim:
            torch.testing.assert_close(victim(X), SCORES, atol=1e-4, rtol=1e-4)
            assert victim.rows["search"] == 5
        with (
            HttpVictim(address, template=real.wrong, timeout=30, retries=0) as victim,
            pytest.raises(VictimError) as caught,
        ):
            victim(X)
    assert "sent: 5 inputs of shape (1, 4, 4)" in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 3
