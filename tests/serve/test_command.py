"""`rlab serve` as a process."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import httpx

from tests.serve.cases import copy_runs


def test_the_server_starts_without_slow_imports():
    code = "import sys, rlab.cli.serve, rlab.serve.app; print(sorted({'torch', 'matplotlib', 'pyarrow'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_other_machines_need_a_generated_token(tmp_path: Path):
    words = ["serve", str(copy_runs(tmp_path)), "--host", "0.0.0.0", "--port", "0", "--json"]
    call = [sys.executable, "-m", "rlab", *words]
    # A shell's background job, and so its children, would not hear of Ctrl-C.
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heard) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            told = json.loads(process.stdout.readline())
            token = re.search(r"\?token=(\S{16,})", process.stderr.readline())
            assert token
            address = told["address"].replace("0.0.0.0", "127.0.0.1")
            assert token[1] not in json.dumps(told)
            assert httpx.get(address, timeout=60).status_code == 401
            page = httpx.get(address, headers={"Authorization": f"Bearer {token[1]}"}, timeout=60)
            assert page.status_code == 200
            assert token[1] not in page.text
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)
        assert process.returncode == 130
