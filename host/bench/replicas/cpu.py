"""The CPU time of a turn, annex and PostgreSQL together: three replicas against one.

    python3 cpu.py --help
    python3 cpu.py                        # with target/*/annex
    python3 cpu.py target/release/annex --rounds 12 --turns 2000
    python3 cpu.py target/release/annex --before another/annex

Two databases, one with one replica and one with three, and with `--before` a third one with another version, which get the
same messages by turns: each client has a conversation of its own and sends to the replicas one after the other. What the
processes do without a client is measured apart. The exit code is 1 where three take more than `--limit` times what one takes.
"""

import argparse
import http.client
import json
import os
import statistics
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "replicas"))
from cluster import Cluster, Failure, annex, free_ports  # noqa: E402

CONFIG = """
[server]
listen = "127.0.0.1:9991"
[replica]
name = "one"
[tasks]
postgres_env = "ANNEX_POSTGRES"
[card]
name = "CPU"
description = "Says one thing"
[agent]
kind = "script"
name = "one"
[[agent.rule]]
steps = [{ artifact = { id = "a", parts = [{ text = "one" }] } }, { status = { state = "completed" } }]
"""

TICKS = os.sysconf("SC_CLK_TCK")


def stat(pid: int) -> list[str]:
    """The fields of a process behind its name, which may have any characters."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def seconds(pid: int) -> float:
    """Those of the process and of its children that have ended."""
    fields = stat(pid)
    return sum(int(field) for field in fields[11:15]) / TICKS if fields else 0.0


class Measured:
    """A cluster whose processes' time is counted."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.ports = [replica.port for replica in cluster.replicas]
        self.postmaster = int((cluster.postgres.data / "postmaster.pid").read_text().split()[0])
        self.sent = 0

    def backends(self) -> list[int]:
        pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
        return [pid for pid in pids if (fields := stat(pid)) and int(fields[1]) == self.postmaster]

    def time(self) -> tuple[float, float]:
        """Of annex, and of PostgreSQL."""
        of_annex = sum(seconds(replica.pid) for replica in self.cluster.replicas)
        return of_annex, seconds(self.postmaster) + sum(seconds(pid) for pid in self.backends())

    def over(self, work) -> tuple[float, float]:
        before = self.time()
        work()
        after = self.time()
        return after[0] - before[0], after[1] - before[1]

    def turns(self, clients: int, turns: int) -> None:
        failures: list[str] = []

        def client(number: int) -> None:
            try:
                Client(self.ports, f"c-{number}").send(turns // clients, self.sent)
            except Exception as error:  # noqa: BLE001
                failures.append(repr(error))

        threads = [threading.Thread(target=client, args=[number]) for number in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.sent += turns
        if failures:
            raise Failure(f"a client failed: {failures[0]}")


class Client:
    """One conversation, over a connection to each replica."""

    def __init__(self, ports: list[int], context: str) -> None:
        self.connections = [http.client.HTTPConnection("127.0.0.1", port, timeout=30) for port in ports]
        self.context = context

    def send(self, count: int, first: int) -> None:
        headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
        for number in range(first, first + count):
            message = {"messageId": f"m-{number}", "contextId": self.context, "role": "ROLE_USER", "parts": [{"text": "a"}]}
            body = {"jsonrpc": "2.0", "id": number, "method": "SendMessage", "params": {"message": message}}
            connection = self.connections[number % len(self.connections)]
            connection.request("POST", "/a2a/jsonrpc", json.dumps(body), headers)
            answer = json.loads(connection.getresponse().read())
            if answer.get("result", {}).get("task", {}).get("status", {}).get("state") != "TASK_STATE_COMPLETED":
                raise Failure(f"not completed: {answer}")
        for connection in self.connections:
            connection.close()


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", help="annex (the newest in target/)")
    parser.add_argument("--rounds", type=int, default=8, help="rounds, each with both clusters (8)")
    parser.add_argument("--turns", type=int, default=800, help="turns of a round (800)")
    parser.add_argument("--clients", type=int, default=8, help="clients at once (8)")
    parser.add_argument("--before", metavar="PROGRAM", help="another version, which may know nothing of replicas")
    parser.add_argument("--limit", type=float, default=1.15, help="the most that three may take against one (1.15)")
    return parser.parse_args()


def main() -> int:
    chosen = options()
    with ExitStack() as stack:
        program = annex(chosen.program)
        sizes = {"one replica": 2, "three replicas": 4}
        measured = {
            name: Measured(stack.enter_context(Cluster(program, free_ports(ports), CONFIG, balanced=False)))
            for name, ports in sizes.items()
        }
        if chosen.before:
            alone = CONFIG.replace('[replica]\nname = "one"\n', "")
            before = Cluster(annex(chosen.before), free_ports(2), alone, balanced=False)
            measured["before"] = Measured(stack.enter_context(before))
        per_turn: dict[str, list[tuple[float, float]]] = {name: [] for name in measured}
        for number in range(chosen.rounds + 1):
            for name, cluster in measured.items():
                used = cluster.over(lambda cluster=cluster: cluster.turns(chosen.clients, chosen.turns))
                # The first round fills caches and pools.
                if number > 0:
                    per_turn[name].append((used[0] / chosen.turns * 1e6, used[1] / chosen.turns * 1e6))
        idle = {name: cluster.over(lambda: time.sleep(5)) for name, cluster in measured.items()}
    print("µs of CPU per turn, median of the rounds (least to most); ms per second without a client")
    medians = {}
    for name, rounds in per_turn.items():
        sums = sorted(sum(used) for used in rounds)
        medians[name] = statistics.median(sums)
        parts = [statistics.median(used[part] for used in rounds) for part in (0, 1)]
        told = f"{medians[name]:.0f} ({sums[0]:.0f} to {sums[-1]:.0f}): annex {parts[0]:.0f}, PostgreSQL {parts[1]:.0f}"
        print(f"  {name}: {told}; idle {sum(idle[name]) / 5 * 1e3:.1f}")
    ratio = medians["three replicas"] / medians["one replica"]
    print(f"three against one: {ratio:.2f}")
    if chosen.before:
        print(f"one against before: {medians['one replica'] / medians['before']:.2f}")
    return 1 if ratio > chosen.limit else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit(str(failure))
