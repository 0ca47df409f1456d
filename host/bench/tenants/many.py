"""One annex with 10,000 tenants that were added: its start, its memory, and the first request of each that is cold.

    python3 many.py --help
    python3 many.py target/dist/annex target/dist/components/timestamp.wasm
    python3 many.py target/dist/annex target/dist/components/timestamp.wasm --postgres

Tenants are rows of the SQLite file, or of a PostgreSQL that is started for it, written here as the admin API would. Each has
the component as an extension. Only Python's standard library is used.
"""

import argparse
import hashlib
import http.client
import json
import os
import pathlib
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "examples" / "replicas"))
from cluster import Postgres  # noqa: E402

CONFIG = """
[server]
listen = "127.0.0.1:{port}"
[tasks]
{tasks}
[runtime]
watch = false
cache_dir = "cache"
[tenants]
components = ["{component}"]
max_loaded = {load}
[card]
name = "main"
description = "d"
[agent]
kind = "script"
name = "a"
rule = []
"""

TENANT = """
[card]
name = "{name}"
description = "d"
[agent]
kind = "script"
name = "a"
[[agent.rule]]
steps = [{{ status = {{ state = "completed", text = "done" }} }}]
[[extension]]
component = "{digest}"
[extension.grants]
clock = true
"""


class Server:
    def __init__(self, annex, folder, port):
        begun = time.monotonic()
        self.port = port
        self.log = open(folder / "log", "ab")
        self.process = subprocess.Popen([annex, "serve", folder / "annex.toml"], stdout=self.log, stderr=self.log)
        while not self.ready():
            if self.process.poll() is not None:
                sys.exit(f"annex ended: {(folder / 'log').read_text()}")
            time.sleep(0.005)
        self.start = time.monotonic() - begun

    def ready(self):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except OSError:
            return False

    def rss(self):
        """KiB in memory."""
        lines = pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def send(connection, tenant, number):
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {
        "tenant": tenant, "message": {"messageId": f"m-{number}", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}}
    begun = time.perf_counter()
    connection.request("POST", "/a2a/jsonrpc", json.dumps(body), {"A2A-Version": "1.0", "Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    taken = time.perf_counter() - begun
    if "result" not in answer:
        raise RuntimeError(f"{tenant}: {answer}")
    return taken * 1000


def shown(times):
    times = sorted(times)
    return f"median {statistics.median(times):.1f} ms, p99 {times[int(len(times) * 0.99)]:.1f} ms, longest {times[-1]:.1f} ms"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("annex")
    parser.add_argument("component")
    parser.add_argument("--tenants", type=int, default=10_000)
    parser.add_argument("--load", type=int, default=1_000, help="tenants that are sent a message")
    parser.add_argument("--port", type=int, default=9_981)
    parser.add_argument("--postgres", action="store_true", help="in PostgreSQL, as replicas have them")
    options = parser.parse_args()
    annex = os.path.abspath(options.annex)
    component = pathlib.Path(options.component).resolve()
    digest = "sha256:" + hashlib.sha256(component.read_bytes()).hexdigest()
    with ExitStack() as stack:
        # PostgreSQL's user goes through it to its own.
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="annex-tenants-", dir="/tmp")))
        folder.chmod(0o711)
        tasks = 'data_dir = "data"'
        if options.postgres:
            postgres = Postgres(folder / "postgres")
            postgres.initialise()
            stack.callback(postgres.stop)
            postgres.start()
            os.environ["ANNEX_POSTGRES"] = postgres.url
            tasks = 'postgres_env = "ANNEX_POSTGRES"'
        config = CONFIG.format(port=options.port, component=component, load=options.load, tasks=tasks)
        (folder / "annex.toml").write_text(config)
        with Server(annex, folder, options.port) as server:
            empty = (server.start, server.rss())
        text = TENANT.format(name="NAME", digest=digest)
        changes = (
            f"WITH RECURSIVE number (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM number WHERE n + 1 < {options.tenants}),"
            " named (n, name) AS (SELECT n, 't-' || substr('0000' || n, length('0000' || n) - 4) FROM number)"
            " INSERT INTO tenant (name, rev, state, config, changed_at)"
            f" SELECT name, n + 1, 'active', replace('{text}', 'NAME', name), 0 FROM named",
            f"UPDATE tenant_change SET rev = {options.tenants}",
        )
        if options.postgres:
            for change in changes:
                postgres.query(change)
        else:
            with sqlite3.connect(folder / "data" / "tenants.sqlite") as database:
                for change in changes:
                    database.execute(change)
            database.close()
        with Server(annex, folder, options.port) as server:
            print(f"without tenants      start {empty[0]:.2f} s, {empty[1] / 1024:.0f} MiB")
            print(f"{options.tenants:,} added         start {server.start:.2f} s, {server.rss() / 1024:.0f} MiB")
            try:
                measure(server, options)
            except RuntimeError as error:
                sys.exit(f"{error}\n{(folder / 'log').read_text()}")


def measure(server, options):
    connection = http.client.HTTPConnection("127.0.0.1", options.port, timeout=60)
    # Spread over all of them. The first compiles the component, which all share.
    names = [f"t-{n * options.tenants // options.load:05}" for n in range(options.load)]
    first = send(connection, names[0], 0)
    rest = names[101:]
    cold = [send(connection, name, n) for n, name in enumerate(names[1:101])]
    before = server.rss()
    cold += [send(connection, name, n) for n, name in enumerate(rest)]
    after = server.rss()
    warm = [send(connection, name, n + 100_000) for n, name in enumerate(names)]
    print(f"the very first       {first:.0f} ms, the component is compiled")
    print(f"a cold tenant        {shown(cold)}")
    print(f"a loaded one         {shown(warm)}")
    print(f"each loaded one      {(after - before) / max(len(rest), 1):.0f} KiB; {after / 1024:.0f} MiB with {len(names):,}")


if __name__ == "__main__":
    main()
