"""The ports of servers that scripts start."""

import socket
from urllib.request import urlopen


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def is_ready(port: int) -> bool:
    try:
        return urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2).status == 200
    except OSError:
        return False
