"""Three annex on one PostgreSQL that are killed and stopped while clients send, and what came of it.

    python3 kill.py --help
    python3 kill.py                              # a minute with target/*/annex
    python3 kill.py --seconds 600 --turns 10000 --stops 0.2
    python3 kill.py --kill-every 0 --seconds 30  # nothing goes wrong
    python3 kill.py --before another/annex       # replicas come back in this version or in another one

Clients send to any replica and repeat under the same messageId until they know how the task ended. A third of the turns is
streamed; readers leave streams and subscribe at another replica. The checker reads what clients were told, and the tables:
nothing lost, nothing twice, no gap, each turn ended once, and the work of a replica that failed is settled within its lease
(5 s) and a second. The exit code is 1 where that does not hold.
"""

import argparse
import sys
import threading
import time

from checker import Checker
from faults import Fault, Faults, LEASE, Sql
from turns import LENGTHS, Client, Report, piece

from cluster import Cluster, Failure, annex, free_ports  # found by faults.py

KINDS = ["lost", "twice", "gap", "zombie", "ended", "not ended", "order", "failed", "failover", "other"]
FAULTS = ["kill", "stop", "term", "database"]
SHOWN = 40  # violations that are told in full

CONFIG = """
[server]
listen = "127.0.0.1:9991"
drain_seconds = 3
[replica]
name = "one"
[tasks]
postgres_env = "ANNEX_POSTGRES"
[card]
name = "Kill run"
description = "Says pieces of text"
[agent]
kind = "script"
name = "pieces"
{more}
"""


def config(agent: str) -> str:
    """An agent whose turns take as long as their message says."""
    text = CONFIG.format(more=agent)
    for length, (count, wait) in LENGTHS.items():
        steps = ['{ status = { state = "working" } }']
        for number in range(1, count + 1):
            append = "true" if number > 1 else "false"
            said = f'{{ id = "a", name = "pieces", parts = [{{ text = "{piece(number)}" }}], append = {append} }}'
            steps += [f"{{ wait_ms = {wait} }}", f"{{ artifact = {said} }}"]
        steps.append('{ status = { state = "completed" } }')
        text += f'[[agent.rule]]\ntext = "{length}"\nsteps = [\n  ' + ",\n  ".join(steps) + "\n]\n"
    return text


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", help="annex (the newest in target/)")
    parser.add_argument("--seconds", type=float, default=60, help="how long clients send (60)")
    parser.add_argument("--turns", type=int, default=1_000_000, help="stop earlier, after so many turns")
    parser.add_argument("--clients", type=int, default=32, help="clients at once (32)")
    parser.add_argument("--kill-every", type=float, default=5, metavar="SECONDS", help="a fault this often; 0: none (5)")
    parser.add_argument("--stops", type=float, default=0, metavar="SHARE", help="faults that are a SIGSTOP of 1.2 to 3 leases (0)")
    parser.add_argument("--terms", type=float, default=0, metavar="SHARE", help="faults that are a SIGTERM and a start (0)")
    parser.add_argument("--restarts", type=float, default=0, metavar="SHARE", help="faults that restart the database (0)")
    parser.add_argument("--shared", type=float, default=0.3, metavar="SHARE", help="turns in conversations of several clients (0.3)")
    parser.add_argument("--conversations", type=int, metavar="COUNT", help="conversations of several clients (one for four)")
    parser.add_argument("--before", metavar="PROGRAM", help="another version, as which replicas come back at random")
    parser.add_argument("--agent", default="", metavar="TOML", help="more keys of [agent]")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of everything that is left to chance")
    return parser.parse_args()


def send(cluster: Cluster, report: Report, faults: Faults, chosen: argparse.Namespace) -> None:
    """Lets clients send and replicas fail, and both come to an end."""
    stop = threading.Event()
    ports = [replica.port for replica in cluster.replicas]
    # The turns of a conversation wait for each other, so that too few cannot carry what many clients say.
    shared = (chosen.shared, chosen.conversations or max(8, chosen.clients // 4))
    clients = [Client(ports, report, stop, chosen.seed + number, shared) for number in range(chosen.clients)]
    for client in clients:
        client.start()
    if chosen.kill_every:
        faults.start()
    begun = told = time.monotonic()
    while time.monotonic() - begun < chosen.seconds and len(report.turns) < chosen.turns and faults.failure is None:
        time.sleep(0.2)
        if time.monotonic() - told > 30:
            told = time.monotonic()
            print(f"  {told - begun:4.0f} s: {len(report.turns)} turns, {len(faults.all)} faults", flush=True)
    stop.set()
    if chosen.kill_every:
        faults.end()
    for client in clients:
        client.join()
    # What the last fault left is settled.
    time.sleep(LEASE + 2)


def spread(values: list[float]) -> str:
    values = sorted(values)
    at = [values[min(len(values) - 1, int(len(values) * share))] for share in (0, 0.5, 0.95, 1)]
    return f"{len(values)} tasks, least {at[0]:.2f}, median {at[1]:.2f}, 95 % {at[2]:.2f}, most {at[3]:.2f} s"


def tell_faults(faults: list[Fault]) -> None:
    print(f"faults: {', '.join(f'{sum(f.kind == kind for f in faults)} {kind}' for kind in FAULTS)}")
    groups = {
        "killed, back after its lease": [f for f in faults if f.kind == "kill" and f.came_back > LEASE],
        "killed, back at once": [f for f in faults if f.kind == "kill" and f.came_back <= LEASE],
        "stopped": [f for f in faults if f.kind == "stop"],
        "told to stop": [f for f in faults if f.kind == "term"],
    }
    for title, group in groups.items():
        if seconds := [seconds for fault in group for seconds in fault.settled.values()]:
            print(f"  settled, {title}: {spread(seconds)}")


def tell(report: Report, checker: Checker, faults: list[Fault]) -> None:
    turns = report.turns
    ways = {way: sum(turn.way == way for turn in turns) for way in ("plain", "streamed", "background", "all")}
    print(f"turns: {len(turns)} ({', '.join(f'{count} {way}' for way, count in ways.items())})")
    print(f"  repeated {sum(turn.repeats for turn in turns)} times, readers moved {sum(turn.moves for turn in turns)} times")
    print(f"  tasks: {', '.join(f'{count} {state}' for state, count in checker.states.most_common())}")
    tell_faults(faults)
    if checker.taken_too_late:
        print(f"  failed because a stopped replica had taken them when it went on: {checker.taken_too_late} tasks")
    if checker.said_again:
        print(f"  said again, because their process was gone before there was a task: {checker.said_again} messages")
    if report.errors:
        print("errors that clients were told, and repeated:")
        for text, count in report.errors.most_common(12):
            print(f"  {count:5} × {text}")
    for violation in report.violations[:SHOWN]:
        print(f"VIOLATION {violation}")
    counts = {kind: sum(text.startswith(f"{kind}:") for text in report.violations) for kind in KINDS}
    print(f"violations: {', '.join(f'{count} {kind}' for kind, count in counts.items())}")


def main() -> int:
    chosen = options()
    report = Report()
    print(f"seed {chosen.seed}", flush=True)
    with Cluster(annex(chosen.program), free_ports(4), config(chosen.agent), balanced=False) as cluster:
        sql = Sql(cluster.postgres)
        faults = Faults(cluster, sql, chosen)
        send(cluster, report, faults, chosen)
        checker = Checker(sql, report, faults.all)
        checker.check()
        sql.close()
    tell(report, checker, faults.all)
    if not report.turns:
        raise Failure("no turn was made")
    print("0 passed, 1 failed" if report.violations else "1 passed, 0 failed")
    return 1 if report.violations else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit(str(failure))
