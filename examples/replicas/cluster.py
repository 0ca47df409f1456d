"""PostgreSQL, several annex and a load balancer, as processes of this machine in a folder that goes with them."""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

HERE = Path(__file__).parent
NAMES = ["one", "two", "three"]
PATIENCE = 60  # seconds, until a program that was started answers


class Failure(Exception):
    """What a person has to know, and nothing of the program."""


def programs_of_postgres() -> Path:
    """The folder of the newest PostgreSQL that is installed, where Debian has it or on the path."""
    folders = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if folders:
        return max(folders, key=lambda folder: int(re.sub(r"\D", "", folder.parent.name) or 0))
    found = shutil.which("initdb")
    if found is None:
        raise Failure("PostgreSQL is missing: apt-get install postgresql")
    return Path(found).resolve().parent


def haproxy() -> str:
    # Debian has it where only root looks.
    found = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None:
        raise Failure("HAProxy is missing: apt-get install haproxy")
    return found


def annex(command: str | None) -> Path:
    """The program: the one that was named, or the newest that was built here."""
    if command is not None:
        path = Path(command).resolve()
        if not os.access(path, os.X_OK):
            raise Failure(f"{path} is no program")
        return path
    built = [path for path in (HERE.parent.parent / "target").glob("*/annex") if os.access(path, os.X_OK)]
    if not built:
        raise Failure("annex is not built yet: cargo build --release (or name the program: run.py PROGRAM)")
    return max(built, key=lambda path: path.stat().st_mtime)


def free_ports(count: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def in_use(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def until(what: str, is_true: Callable[[], bool], patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not is_true():
        if time.monotonic() > deadline:
            raise Failure(f"{what}: not within {patience:.0f} s")
        time.sleep(0.05)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=3):
            return True
    except OSError:
        return False


def spawn(command: Sequence[str | Path], log: BinaryIO, environment: dict[str, str]) -> subprocess.Popen:
    """A program in a session of its own, so that Ctrl-C reaches us alone and all are stopped in order."""
    environment = {**os.environ, **environment}
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
    )


class Postgres:
    """A database server that is reached by a socket in its folder, and by nobody else."""

    def __init__(self, folder: Path, settings: Sequence[str] = ()) -> None:
        self.programs = programs_of_postgres()
        self.folder = folder
        self.data = folder / "data"
        self.settings = ["listen_addresses=", f"unix_socket_directories={folder}", *settings]
        folder.mkdir()
        # PostgreSQL refuses to run as root.
        self.user = "postgres" if os.geteuid() == 0 else None
        if self.user is not None:
            try:
                shutil.chown(folder, self.user)
            except LookupError:
                raise Failure("there is no user postgres, as whom PostgreSQL is run where root starts it") from None

    def program(self, name: str, *words: str | Path) -> None:
        """Runs one of PostgreSQL's programs to its end."""
        # A file and no pipe: the server inherits it, and would hold a pipe open.
        with open(self.folder.parent / "postgres.out", "ab") as out:
            done = subprocess.run(
                [self.programs / name, *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self.folder,
                user=self.user,
                group=self.user,
                extra_groups=None if self.user is None else [],
                env={**os.environ, "LC_ALL": "C"},
                check=False,
            )
        if done.returncode != 0:
            raise Failure(f"{name} failed:\n{(self.folder.parent / 'postgres.out').read_text()[-2000:]}")

    def initialise(self) -> None:
        words = ["--no-sync", "--auth=trust", "--username=annex", "--encoding=UTF8"]
        self.program("initdb", *words, "--pgdata", self.data)

    def start(self) -> None:
        options = " ".join(f"-c {setting}" for setting in self.settings)
        log = self.folder / "log"
        self.program("pg_ctl", "start", "--wait", "--options", options, "--log", log, "--pgdata", self.data)

    def stop(self, mode: str = "immediate") -> None:
        self.program("pg_ctl", "stop", "--wait", "--mode", mode, "--pgdata", self.data)

    def restart(self, mode: str = "fast") -> None:
        self.stop(mode)
        self.start()

    @property
    def url(self) -> str:
        return f"postgres://annex@localhost/postgres?host={self.folder}"

    def query(self, sql: str) -> list[list[str]]:
        """The rows, as text."""
        words = ["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--field-separator=\x1f", "--command", sql]
        done = subprocess.run(
            [self.programs / "psql", *words, self.url], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise Failure(f"psql: {done.stderr}")
        return [line.split("\x1f") for line in done.stdout.splitlines()]


class Replica:
    """One annex process, which can be started again."""

    def __init__(self, name: str, port: int, command: list[str | Path], environment: dict[str, str], log: Path) -> None:
        self.name = name
        self.port = port
        self.command = command
        self.environment = environment
        self.log = log
        self.process: subprocess.Popen | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        with open(self.log, "ab") as log:
            self.process = spawn(self.command, log, self.environment)

    def wait_until_ready(self) -> None:
        def is_ready() -> bool:
            if not self.runs():
                raise Failure(f"replica {self.name} ended:\n{self.log.read_text()[-2000:]}")
            return answers(f"{self.url}/readyz")

        until(f"replica {self.name} is ready", is_ready)

    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        if self.runs():
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()

    def wait(self, patience: float = 30) -> int | None:
        """The status that it ends with."""
        return None if self.process is None else self.process.wait(patience)


class Balancer:
    """HAProxy with the config of this folder."""

    def __init__(self, folder: Path, port: int, replicas: Sequence[Replica]) -> None:
        self.socket = folder / "haproxy.sock"
        self.log = folder / "haproxy.log"
        self.port = port
        text = (HERE / "haproxy.cfg").read_text().replace("127.0.0.1:9999", f"127.0.0.1:{port}")
        for number, replica in enumerate(replicas, 1):
            text = text.replace(f"127.0.0.1:999{number}", f"127.0.0.1:{replica.port}")
        self.config = folder / "haproxy.cfg"
        self.config.write_text(text)
        self.process: subprocess.Popen | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        with open(self.log, "ab") as log:
            self.process = spawn([haproxy(), "-db", "-f", self.config], log, {"HAPROXY_SOCKET": str(self.socket)})

    def wait_until_ready(self) -> None:
        def is_ready() -> bool:
            assert self.process is not None
            if self.process.poll() is not None:
                raise Failure(f"haproxy ended:\n{self.log.read_text()[-2000:]}")
            return answers(f"{self.url}/readyz")

        until("the load balancer answers", is_ready)

    def tell(self, command: str) -> str:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(self.socket))
            client.sendall(f"{command}\n".encode())
            return b"".join(iter(lambda: client.recv(4096), b"")).decode()

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait()


class Cluster:
    """All of them, for as long as it is wanted."""

    def __init__(
        self,
        command: Path,
        ports: Sequence[int],
        config: str | None = None,
        settings: Sequence[str] = (),
        balanced: bool = True,
    ) -> None:
        """`ports` has that of the load balancer and one for each replica; `config` is the text of a config."""
        self.command = command
        self.ports = ports
        self.template = config or (HERE / "annex.toml").read_text()
        self.settings = settings
        self.balanced = balanced

    def __enter__(self) -> "Cluster":
        if self.balanced:
            # Before anything is started, so that all that is missing is told at once.
            haproxy()
        with ExitStack() as stack:
            # Not in the temporary folder of the environment: the path of a socket has at most 107 bytes.
            self.folder = Path(stack.enter_context(TemporaryDirectory(prefix="annex-replicas-", dir="/tmp")))
            # PostgreSQL's user goes through it to its own.
            self.folder.chmod(0o711)
            self.postgres = Postgres(self.folder / "postgres", self.settings)
            self.postgres.initialise()
            stack.callback(self.postgres.stop)
            self.postgres.start()
            self.replicas = [self.replica(name, port) for name, port in zip(NAMES, self.ports[1:])]
            for replica in self.replicas:
                stack.callback(replica.kill)
                replica.start()
            for replica in self.replicas:
                replica.wait_until_ready()
            self.balancer = Balancer(self.folder, self.ports[0], self.replicas)
            if self.balanced:
                stack.callback(self.balancer.stop)
                self.balancer.start()
                self.balancer.wait_until_ready()
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def replica(self, name: str, port: int) -> Replica:
        text = self.template.replace("127.0.0.1:9999", f"127.0.0.1:{self.ports[0]}")
        text = text.replace("127.0.0.1:9991", f"127.0.0.1:{port}").replace('name = "one"', f'name = "{name}"')
        config = self.folder / f"{name}.toml"
        config.write_text(text)
        environment = {"ANNEX_POSTGRES": self.postgres.url}
        return Replica(name, port, [self.command, "serve", config], environment, self.folder / f"{name}.log")
