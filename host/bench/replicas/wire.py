"""JSON-RPC to one replica, with what a client makes of it: an answer, an error of A2A, or a replica that is gone."""

import http.client
import itertools
import json
from collections.abc import Generator
from io import BufferedReader

OVERLOADED = -32000  # to be repeated under the same messageId
INTERNAL = -32603  # the database was away
NOT_POSSIBLE = -32004  # among others: a task that is over is subscribed to

_number = itertools.count(1)


class Gone(Exception):
    """The replica refuses the connection, broke it, or is silent for too long."""


class Refused(Exception):
    def __init__(self, error: dict) -> None:
        super().__init__(error.get("message", ""))
        self.code: int = error.get("code", 0)


def _sent(
    port: int, method: str, params: dict, patience: float
) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience)
    body = json.dumps({"jsonrpc": "2.0", "id": next(_number), "method": method, "params": params})
    headers = {"Content-Type": "application/json", "A2A-Version": "1.0", "Connection": "close"}
    try:
        connection.request("POST", "/a2a/jsonrpc", body, headers)
        return connection, connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        raise Gone(str(error)) from error


def _result(text: bytes) -> dict:
    answer = json.loads(text)
    if "error" in answer:
        raise Refused(answer["error"])
    return answer["result"]


def call(port: int, method: str, params: dict, patience: float) -> dict:
    connection, response = _sent(port, method, params, patience)
    try:
        return _result(response.read())
    except (OSError, http.client.HTTPException) as error:
        raise Gone(str(error)) from error
    finally:
        connection.close()


def _lines(source: BufferedReader) -> Generator[bytes]:
    """The lines of an answer in chunks. `http.client` reads one that was cut off as if it had ended."""
    rest = b""
    while (size := source.readline()).endswith(b"\n"):
        length = int(size, 16)
        chunk = source.read(length)
        if len(chunk) < length or not source.readline():
            break
        if length == 0:
            return
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    raise Gone("the stream was cut off")


def stream(port: int, method: str, params: dict, patience: float) -> Generator[dict]:
    """The events, to the end of the stream; `Gone` when it breaks off."""
    connection, response = _sent(port, method, params, patience)
    try:
        if response.headers.get_content_type() != "text/event-stream":
            yield _result(response.read())
            return
        for line in _lines(response.fp):
            if line.startswith(b"data:"):
                yield _result(line[5:])
    except (OSError, http.client.HTTPException) as error:
        raise Gone(str(error)) from error
    finally:
        connection.close()
