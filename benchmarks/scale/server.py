"""An HTTP model that answers each request after a fixed time, by rlab's own protocol or KServe's; prints its port.

python -m benchmarks.scale.server SECONDS
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
from typing import Any


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, latency: float) -> None:
    """Return each row's first values as its scores."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            inputs = json.loads(await reader.readexactly(length))["inputs"]
            await asyncio.sleep(latency)
            body = json.dumps({"outputs": _outputs(inputs)}).encode()
            kind = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
            writer.write(kind + str(len(body)).encode() + b"\r\n\r\n" + body)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def _outputs(inputs: list[Any]) -> list[Any]:
    if not isinstance(inputs[0], dict):
        return [row[0][0][:3] for row in inputs]
    ((rows, *shape), data) = inputs[0]["shape"], inputs[0]["data"]
    size = math.prod(shape)
    scores = [value for row in range(rows) for value in data[row * size : row * size + 3]]
    return [{"name": "scores", "datatype": "FP32", "shape": [rows, 3], "data": scores}]


async def main(latency: float) -> None:
    server = await asyncio.start_server(
        lambda reader, writer: answer(reader, writer, latency), "127.0.0.1", 0, backlog=256
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1])))
