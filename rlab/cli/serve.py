"""`rlab serve`."""

from __future__ import annotations

import secrets
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from rlab.cli.build import declared
from rlab.cli.speak import out, summary
from rlab.errors import FolderError, MissingExtra, OptionError
from rlab.redact import remember
from rlab.storage.outside import expand


@declared()
def command(
    runs: Annotated[Path, typer.Argument(help="Folder that contains run folders")] = Path("runs"),
    host: Annotated[str, typer.Option(help="Address to listen on; any but localhost needs a token")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one")] = 8321,
    token: Annotated[
        str | None, typer.Option(help="Access token, best as '${NAME}' from the environment (generated if omitted)")
    ] = None,
) -> None:
    """Browse runs: list them, open their pages, filter their samples, compare them.

    Start runs with the other commands, such as `rlab attack`: their progress is shown too. The server reads only files below
    RUNS and listens only on this machine, unless you pass --host; then every request needs the token in the printed address.
    """
    try:
        import uvicorn

        from rlab.serve.access import LOOPBACK
        from rlab.serve.app import make_app, server_config
    except ModuleNotFoundError as error:
        raise MissingExtra(error.name or "fastapi", "serve") from error
    if not runs.is_dir():
        raise FolderError(f"there is no folder {runs}: name the folder that contains your runs")
    given = expand(token) if token else None if host in LOOPBACK else secrets.token_urlsafe(24)
    if given is not None and len(given) < 16:
        raise OptionError("expected a token of at least 16 characters: omit --token to generate one")
    app = make_app(runs, given)
    listening = _listen(host, port)
    port = listening.getsockname()[1]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    sys.stderr.write(f"Runs in {runs} at {address}{f'?token={given}' if given else ''}  (stop with Ctrl-C)\n")
    if given is not None:
        remember(given)  # keeps it out of pages, errors and logs
    summary(command="serve", address=address, runs=runs)
    uvicorn.Server(server_config(app)).run(sockets=[listening])
    out.print("stopped")


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(where)
        listening.listen()
    except OSError as error:
        raise OptionError(
            f"cannot listen at {host}, port {port}: {error.strerror}: name another with --port"
        ) from error
    return listening
