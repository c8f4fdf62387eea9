"""An HTTP model that answers each request after a fixed time; prints its port.

python -m benchmarks.scale.server SECONDS
"""

from __future__ import annotations

import asyncio
import json
import sys


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, latency: float) -> None:
    """Return each row's first values as its scores."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            inputs = json.loads(await reader.readexactly(length))["inputs"]
            await asyncio.sleep(latency)
            body = json.dumps({"outputs": [row[0][0][:3] for row in inputs]}).encode()
            kind = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
            writer.write(kind + str(len(body)).encode() + b"\r\n\r\n" + body)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main(latency: float) -> None:
    server = await asyncio.start_server(
        lambda reader, writer: answer(reader, writer, latency), "127.0.0.1", 0, backlog=256
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1])))
