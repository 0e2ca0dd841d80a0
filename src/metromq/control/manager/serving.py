"""Serves the manager's API until a signal comes, and says where in the data directory."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import Callable

import uvicorn

from metromq.control.asking_manager import PLACE_FILE, TOKEN_FILE, manager_directory
from metromq.control.manager.api import make_app
from metromq.control.manager.manager import Manager
from metromq.control.manager.tokens import own_token
from metromq.errors import ConfigError
from metromq.files import replace_file


async def serve_manager(manager: Manager, listen: tuple[str, int], tell: Callable[[str], None]) -> None:
    directory = manager_directory(manager.options.data)
    token = own_token(directory)
    listener = socket.socket(socket.AF_INET6 if ":" in listen[0] else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(listen)
    except OSError as error:
        raise ConfigError(f"listen {listen[0]}:{listen[1]}", f"cannot listen: {error.strerror}") from error
    host, port = listener.getsockname()[:2]
    config = uvicorn.Config(
        make_app(manager, token), log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=2
    )
    server = uvicorn.Server(config)
    await manager.open()
    try:
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        place = {"url": url, "pid": os.getpid()}
        replace_file(directory / PLACE_FILE, json.dumps(place) + "\n", durable=False, mode=0o644)
        tell(f"listening on {url}; the token is in {directory / TOKEN_FILE}; the document is at {url}/schema")
        await _until_signal(server, listener, manager)
    finally:
        (directory / PLACE_FILE).unlink(missing_ok=True)
        await manager.close()


async def _until_signal(server: uvicorn.Server, listener: socket.socket, manager: Manager) -> None:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        server.should_exit = True
        manager.spawn(manager.desk.close())

    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    for number in (signal.SIGINT, signal.SIGTERM):  # after uvicorn has set its own
        loop.add_signal_handler(number, stop)
    await serving
