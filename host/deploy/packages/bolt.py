"""Orders the code of a program by what a server runs, with BOLT. Annex waits for its own instructions more than for anything else.

The program has to be linked with `--emit-relocs`. A copy of it that counts what it runs serves requests of each kind, and the
counts become the profile. The same program and profile give the same bytes.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from ports import free_port, is_ready

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
# Debian's packages of BOLT.
VERSION = "19"
BOLT, MERGE = f"llvm-bolt-{VERSION}", f"merge-fdata-{VERSION}"
RUNTIME = Path(f"/usr/lib/llvm-{VERSION}/lib/libbolt_rt_instr.a")
ORDER = ("-reorder-blocks=ext-tsp", "-reorder-functions=cdsort", "-split-functions", "-split-all-cold", "-split-eh")
# `strip` would break what BOLT writes: its result ends with a segmentation fault.
STRIPPED = "--remove-symtab"
# Requests of each kind, over so many connections at once.
REQUESTS = 6_000
CONNECTIONS = 8
START_LIMIT = 120  # seconds
URI = "https://github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1"
STATE_KEY = f"{URI.removeprefix('https://')}/state"
TIMESTAMP = "https://github.com/a2aproject/a2a-samples/extensions/timestamp/v1"
# In front of an agent that reads the state as text.
FRONT = """
[server]
listen = "127.0.0.1:9999"

[agent]
kind = "upstream"
name = "specialist"
card = "http://127.0.0.1:{port}/.well-known/agent-card.json"

[agent.state]
send = "text-part"
template = "About the user: {{user_info}}"

"""
# With an instance for each turn, and with kept instances.
EXAMPLE = (ROOT / "examples/specialist/annex.toml").read_text().replace('"HTTP+JSON"]', '"HTTP+JSON", "GRPC"]')
KEPT = EXAMPLE.replace("required = true", 'required = true\ninstances = "kept"')
QUESTION = "Who am I and what is my email?"
STATE = {"user_info": {"name": "Ada", "role": "Engineer", "email": "ada@example.com"}}


def check() -> None:
    """Ends the program if BOLT is not there."""
    if not all(shutil.which(tool) for tool in (BOLT, MERGE)) or not RUNTIME.exists():
        sys.exit(f"{BOLT} is needed: apt-get install bolt-{VERSION} libbolt-{VERSION}-dev; or pass --plain")


def reorder(program: Path, profile: Path, into: Path) -> None:
    """Writes the program with its code in the order of the profile, and without symbols."""
    quietly(BOLT, str(program), "-o", str(into), f"-data={profile}", *ORDER, STRIPPED)


def train(program: Path, into: Path) -> None:
    """Writes the profile of a program that serves requests of each kind."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        counting = folder / "annex"
        quietly(
            BOLT, str(program), "-o", str(counting), "-instrument",
            # A name below /usr/lib.
            f"--runtime-instrumentation-lib={RUNTIME.relative_to('/usr/lib')}",
            # The counts are written every second, because BOLT does not see the end of a process.
            f"--instrumentation-file={folder}/counts", "--instrumentation-sleep-time=1", "--instrumentation-no-counters-clear",
        )
        (folder / "components").symlink_to(program.absolute().parent / "components")
        counts = []
        for number, _ in enumerate(trainings(program, counting, folder)):
            counts.append((folder / "counts").rename(folder / f"counts-{number}"))
        quietly(MERGE, "-o", str(into), *(str(path) for path in counts))


def trainings(program: Path, counting: Path, folder: Path) -> Iterator[None]:
    """Serves requests by one process that counts: with an instance for each turn, with kept instances, with SQLite, and in front
    of another agent. Goes on when the counts of one have been taken."""
    extensions = EXAMPLE[EXAMPLE.index("[[extension]]") :]
    for config in (EXAMPLE, KEPT, f'{EXAMPLE}\n[tasks]\ndata_dir = "{folder}/data"\n'):
        with served(counting, config, folder) as server:
            call(server.port, REQUESTS)
            send(program, server.port)
        yield
    plain = EXAMPLE.removesuffix(extensions).replace("{user_info}", "{user_info?}")
    with served(program, plain, folder) as agent:
        with served(counting, FRONT.format(port=agent.port) + extensions, folder) as front:
            call(front.port, REQUESTS // 4)
        yield


def send(program: Path, port: int) -> None:
    """Sends messages over the other bindings."""
    for binding in ("grpc", "http+json") * 20:
        command = [program, "send", f"http://127.0.0.1:{port}", QUESTION, "--binding", binding, "--state", json.dumps(STATE)]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


class Server(NamedTuple):
    port: int
    # The number of its process.
    process: int


@contextmanager
def served(program: Path, config: str, folder: Path) -> Iterator[Server]:
    port = free_port()
    path = folder / f"{port}.toml"
    path.write_text(config.replace("127.0.0.1:9999", f"127.0.0.1:{port}"))
    environment = {**os.environ, "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [program, "serve", path], env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        until = time.monotonic() + START_LIMIT
        while not is_ready(port):
            if server.poll() is not None or time.monotonic() > until:
                sys.exit(f"the training server did not start:\n{(folder / 'log').read_text()}")
            time.sleep(0.2)
        yield Server(port, server.pid)
        # The last counts are written within a second.
        time.sleep(2)
    finally:
        server.terminate()
        server.wait()
        # The process that writes the counts does not always notice the end of the server.
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)


def call(port: int, requests: int) -> None:
    """Sends requests: three of four wait for an answer, the others get a stream."""
    failures: list[str] = []

    def one() -> None:
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        for number in range(requests // CONNECTIONS):
            connection.request("POST", "/a2a/jsonrpc", *message("SendStreamingMessage" if number % 4 == 3 else "SendMessage"))
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != 200 or b"artifact" not in body:
                failures.append(f"{answer.status} {body[:500]!r}")
                return

    threads = [threading.Thread(target=one) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        sys.exit(f"a request of the training failed: {failures[0]}")


def message(method: str) -> tuple[bytes, dict[str, str]]:
    text = {"messageId": os.urandom(8).hex(), "role": "ROLE_USER", "parts": [{"text": QUESTION}], "metadata": {STATE_KEY: STATE}}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": text}}
    headers = {"Content-Type": "application/json", "A2A-Version": "1.0", "A2A-Extensions": f"{URI}, {TIMESTAMP}"}
    return json.dumps(body).encode(), headers


def quietly(*command: str) -> None:
    """Runs a command, whose output is shown if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed:\n{done.stdout[-4000:]}")
