"""What goes wrong: replicas that are killed and start again, and some that stand still for longer than their lease."""

import random
import signal
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "replicas"))
from cluster import Cluster, Failure, Postgres, Replica  # noqa: E402

LEASE = 5.0


class Sql:
    """One psql that answers one question after another: a process for each would cost more than the cluster has."""

    def __init__(self, postgres: Postgres) -> None:
        words = ["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--field-separator=\x1f"]
        self.command = [postgres.programs / "psql", *words, postgres.url]
        self.lock = threading.Lock()
        self.process = self.open()

    def open(self) -> subprocess.Popen:
        return subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def rows(self, sql: str) -> list[list[str]]:
        """The rows, as text. No line end may be in one."""
        with self.lock:
            for _ in range(100):
                try:
                    return self.asked(sql)
                except (EOFError, BrokenPipeError):
                    # The database is being restarted.
                    self.process.wait()
                    time.sleep(0.1)
                    self.process = self.open()
        raise Failure("psql finds no database")

    def asked(self, sql: str) -> list[list[str]]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{sql};\n\\echo =====\n")
        self.process.stdin.flush()
        rows = []
        for line in iter(self.process.stdout.readline, "=====\n"):
            if not line or line.startswith(("FATAL", "psql: ", "server closed")):
                raise EOFError
            if line.startswith("ERROR"):
                raise Failure(f"psql: {line}{sql}")
            rows.append(line.rstrip("\n").split("\x1f"))
        return rows

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclass
class Fault:
    """One replica that was killed or stopped, and the tasks that it worked on."""

    kind: str
    name: str
    at: float
    came_back: float = 0.0
    orphans: set[str] = field(default_factory=set)
    # Seconds from the fault until somebody else had ended the task or taken it over.
    settled: dict[str, float] = field(default_factory=dict)


class Faults(threading.Thread):
    """Every few seconds one replica fails, at random; one is left in any case."""

    def __init__(self, cluster: Cluster, sql: Sql, chosen: Namespace) -> None:
        super().__init__(daemon=True)
        self.replicas = cluster.replicas
        self.postgres = cluster.postgres
        self.sql = sql
        self.every: float = chosen.kill_every
        # What a replica that comes back runs.
        self.programs: list[Path] = [cluster.command, *([Path(chosen.before).resolve()] if chosen.before else [])]
        self.kinds = [self.stop, self.term, self.restart, self.kill]
        others = [chosen.stops, chosen.terms, chosen.restarts]
        self.shares = [*others, max(0.0, 1 - sum(others))]
        self.random = random.Random(chosen.seed)
        self.ended = threading.Event()
        self.out: set[str] = set()
        self.all: list[Fault] = []
        self.threads: list[threading.Thread] = []
        self.failure: Exception | None = None

    def run(self) -> None:
        while not self.ended.wait(self.every):
            there = [replica for replica in self.replicas if replica.name not in self.out]
            if len(there) < 2:
                continue
            replica = self.random.choice(there)
            self.out.add(replica.name)
            [fail] = self.random.choices(self.kinds, self.shares)
            self.threads.append(self.spawn(lambda fail=fail, replica=replica: fail(replica)))

    def spawn(self, work: Callable[[], None]) -> threading.Thread:
        """A thread whose failure ends the run."""

        def guarded() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001
                self.failure = error

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        return thread

    def end(self) -> None:
        """No more faults; whoever is out comes back first."""
        self.ended.set()
        self.join()
        for thread in self.threads:
            thread.join()
        if self.failure is not None:
            raise self.failure

    def begin(self, kind: str, replica: Replica) -> Fault:
        fault = Fault(kind, replica.name, time.time())
        self.all.append(fault)
        return fault

    def kill(self, replica: Replica) -> None:
        incarnation = self.incarnation(replica)
        fault = self.begin("kill", replica)
        replica.kill()
        # What it had sent to the database may still be on its way.
        time.sleep(0.3)
        fault.orphans = self.tasks_of(incarnation)
        watch = self.watch(fault, incarnation)
        # Half of them come back under their name at once, which ends the lease; the others after it is over.
        time.sleep(self.random.choice([0.2, LEASE + 2]))
        fault.came_back = time.time() - fault.at
        self.start_again(replica)
        watch.join()
        self.out.discard(replica.name)

    def stop(self, replica: Replica) -> None:
        incarnation = self.incarnation(replica)
        fault = self.begin("stop", replica)
        replica.signal(signal.SIGSTOP)
        time.sleep(0.3)
        fault.orphans = self.tasks_of(incarnation)
        watch = self.watch(fault, incarnation)
        time.sleep(self.random.uniform(1.2, 3) * LEASE)
        fault.came_back = time.time() - fault.at
        replica.signal(signal.SIGCONT)
        watch.join()
        replica.wait_until_ready()
        # Until it has had a lease for as long as that lasts, it settles nothing of others, and is not to be the only one.
        time.sleep(LEASE)
        self.out.discard(replica.name)

    def term(self, replica: Replica) -> None:
        incarnation = self.incarnation(replica)
        fault = self.begin("term", replica)
        replica.signal(signal.SIGTERM)
        time.sleep(0.3)
        fault.orphans = self.tasks_of(incarnation)
        watch = self.watch(fault, incarnation)
        replica.wait()
        fault.came_back = time.time() - fault.at
        self.start_again(replica)
        watch.join()
        self.out.discard(replica.name)

    def start_again(self, replica: Replica) -> None:
        replica.command[0] = self.random.choice(self.programs)
        replica.start()
        replica.wait_until_ready()

    def restart(self, replica: Replica) -> None:
        """The database, and no replica, is away for a moment. Turns that run may fail of it; nothing else may."""
        fault = self.begin("database", replica)
        self.postgres.restart()
        fault.came_back = time.time() - fault.at
        time.sleep(0.5)
        rows = self.sql.rows(f"SELECT id FROM task WHERE coalesce(finished_at, {2**62}) > {int(fault.at * 1000)}")
        fault.orphans = {row[0] for row in rows}
        fault.settled = {}
        self.out.discard(replica.name)

    def incarnation(self, replica: Replica) -> str:
        """The latest one of this name. One that has lost its name is found by its process no more, and has none."""
        sql = f"SELECT id FROM replica WHERE name = '{replica.name}' ORDER BY lease_until DESC LIMIT 1"
        rows = self.sql.rows(sql)
        return rows[0][0] if rows else ""

    def tasks_of(self, incarnation: str) -> set[str]:
        rows = self.sql.rows(f"SELECT id FROM task WHERE replica = '{incarnation}' AND finished_at IS NULL")
        return {row[0] for row in rows}

    def watch(self, fault: Fault, incarnation: str) -> threading.Thread:
        """Looks when the tasks are settled, at twenty times a second."""

        def look() -> None:
            deadline = fault.at + 30
            while len(fault.settled) < len(fault.orphans) and time.time() < deadline:
                ids = ", ".join(f"'{task}'" for task in fault.orphans - fault.settled.keys())
                sql = f"SELECT id FROM task WHERE id IN ({ids}) AND replica IS DISTINCT FROM '{incarnation}'"
                for [task] in self.sql.rows(sql):
                    fault.settled[task] = time.time() - fault.at
                time.sleep(0.05)

        return self.spawn(look)
