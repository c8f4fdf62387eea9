"""Ratios of more at once over one at a time, in one run: requests to a model behind an address.

python -m benchmarks.scale --quick      prints JSON
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import torch

from rlab.victims import HttpVictim

LATENCY = 0.05  # seconds, of the model behind an address
CONCURRENCY = 32


def serve(tell: Connection) -> None:
    """A model that answers after a while, whoever else is asking: scores are made of a row's first values."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
                inputs = json.loads(await reader.readexactly(length))["inputs"]
                await asyncio.sleep(LATENCY)
                body = json.dumps({"outputs": [row[0][0][:3] for row in inputs]}).encode()
                kind = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
                writer.write(kind + str(len(body)).encode() + b"\r\n\r\n" + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=256)
        tell.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


@contextmanager
def served() -> Iterator[str]:
    """-> the address of the model, which is in a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=serve, args=(there,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{here.recv()}/"
    finally:
        process.terminate()
        process.join()


def http_rows(few: int = 24, many: int = 1920) -> dict[str, Any]:
    """Rows a second of one-row requests, one at a time and up to 32 at once, and whether they are answered alike."""
    x = torch.rand(many, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    with served() as address:
        with HttpVictim(address, chunk=1, concurrency=1) as one:
            alone, slow = timed(one, x[:few])
        with HttpVictim(address, chunk=1, concurrency=CONCURRENCY) as victim:
            victim(x[:256])  # how many at once is found out in the first answers
            together, quick = timed(victim, x)
    rates = {"http_rows_per_second": many / quick, "http_rows_per_second_alone": few / slow}
    return {
        "http_speedup": rates["http_rows_per_second"] / rates["http_rows_per_second_alone"],
        "bit_equal": torch.equal(alone, together[:few]),
        **rates,
    }


def timed(victim: HttpVictim, x: torch.Tensor) -> tuple[torch.Tensor, float]:
    began = time.perf_counter()
    return victim(x), time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes")
    parser.parse_args()
    print(json.dumps(http_rows()))


if __name__ == "__main__":
    main()
