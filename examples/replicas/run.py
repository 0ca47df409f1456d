"""Starts PostgreSQL, three annex and HAProxy in front of them on http://127.0.0.1:9999, without containers.

    python3 run.py [PROGRAM]        # default: the newest annex in target/

Ctrl-C stops all of them. Nothing is left behind.
"""

import signal
import sys
import time

from cluster import Cluster, Failure, Replica, annex, in_use

PORTS = [9999, 9991, 9992, 9993]
AWAY = 15  # seconds until a replica that was killed is started again: longer than its lease

TRY = """
Three replicas of one agent, on one PostgreSQL, behind {url}:

{replicas}

Try, in another terminal:

  {annex} send {url} "Count to twenty"
  curl -si {url}/readyz | grep x-replica        # another one each time
  {annex} send {url} "Who am I?" --state '{{"user_info":{{"name":"Ada"}}}}'
  kill -9 {pid}        # while one counts: what replica one worked on is settled by another one within 6 s
  kill -TERM {pid}     # drains: what runs goes on for 15 seconds, new requests go to the others
  python3 check.py     # the official Python client, on a cluster of its own that it kills: see README.md
  psql '{database}'

A replica that ends is started again after {away} s. Logs are in {folder}. Ctrl-C stops everything.
"""


def say(text: str) -> None:
    print(text, flush=True)


def watch(replicas: list[Replica]) -> None:
    """Starts again what ends, for ever."""
    gone: dict[str, float] = {}
    while True:
        time.sleep(0.2)
        for replica in replicas:
            if replica.runs():
                continue
            if replica.name not in gone:
                assert replica.process is not None
                say(f"replica {replica.name} ended with status {replica.process.returncode}")
                gone[replica.name] = time.monotonic()
            elif time.monotonic() - gone[replica.name] > AWAY:
                del gone[replica.name]
                replica.start()
                say(f"replica {replica.name} is started again, pid {replica.pid}")


def main(words: list[str]) -> int:
    program = annex(words[0] if words else None)
    for port in PORTS:
        if in_use(port):
            raise Failure(f"port {port} is in use: stop what listens on it")
    # What a process manager sends ends it as Ctrl-C does, which is ignored where a shell starts it in the background.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    say(f"Starting PostgreSQL, three {program} and HAProxy …")
    with Cluster(program, PORTS) as cluster:
        lines = [f"  {replica.name:6} {replica.url}  pid {replica.pid}" for replica in cluster.replicas]
        first = cluster.replicas[0].pid
        say(
            TRY.format(
                url=cluster.balancer.url,
                replicas="\n".join(lines),
                annex=program,
                pid=first,
                database=cluster.postgres.url,
                away=AWAY,
                folder=cluster.folder,
            )
        )
        watch(cluster.replicas)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        say("Stopped.")
    except Failure as failure:
        sys.exit(str(failure))
