"""Sends messages to the agent in server.py with `annex send`, and checks that the Timestamp extension works.

    python send.py [COMMAND ...]        # default: cargo run --quiet --release --

Short programs, to be read in this order. Each checks what the agent answered, over JSON-RPC and over HTTP+JSON.
"""

import json
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import timestamp

BINDINGS = ["jsonrpc", "http+json"]
FOLDER = Path(__file__).parent
TEXT = "Hello"


@dataclass
class Sender:
    """`annex send` to one agent over one binding."""

    command: list[str]
    url: str
    binding: str

    def __call__(self, *options: str) -> list[dict]:
        """The events of one call; without --stream it is the finished task alone."""
        words = [*self.command, "send", self.url, TEXT, "--binding", self.binding, "--json", *options]
        ended = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
        return [json.loads(line) for line in ended.stdout.splitlines()]

    def task(self, *options: str) -> dict:
        [event] = self(*options)
        task = event["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED", task
        assert task["artifacts"][0]["parts"] == [{"text": f"You said: {TEXT}"}], task
        return task


def made(task: dict) -> list[dict]:
    """What the agent made for a task: its artifacts and messages."""
    return task["artifacts"] + [message for message in task["history"] if message["role"] == "ROLE_AGENT"]


def check_stamp(stampable: dict) -> str:
    """The time on a message or artifact: RFC 3339 in UTC."""
    stamp = stampable["metadata"][timestamp.FIELD]
    # Python before 3.11 does not know the Z.
    assert datetime.fromisoformat(stamp.replace("Z", "+00:00")).utcoffset() == timedelta(0), stamp
    return stamp


def not_asked(send: Sender) -> str:
    """Without the extension nothing has a time on it."""
    things = made(send.task())
    assert all("metadata" not in thing and "extensions" not in thing for thing in things), things
    return f"{len(things)} things without a stamp"


def asked(send: Sender) -> str:
    """With it, all that the agent made has one, and says where it is from."""
    things = made(send.task("--extension", timestamp.URI))
    assert all(thing["extensions"] == [timestamp.URI] for thing in things), things
    return ", ".join(check_stamp(thing) for thing in things)


def streamed(send: Sender) -> str:
    """The same as a stream: on the message of a status, and on the artifact."""
    events = send("--stream", "--extension", timestamp.URI)
    assert [next(iter(event)) for event in events] == ["task", "statusUpdate", "artifactUpdate", "statusUpdate"], events
    _, working, answered, completed = events
    message = working["statusUpdate"]["status"]["message"]
    assert "message" not in completed["statusUpdate"]["status"], completed
    return ", ".join(check_stamp(thing) for thing in (message, answered["artifactUpdate"]["artifact"]))


def component(send: Sender) -> str:
    """The component takes the client's side: it activates the extension and stamps the client's message."""
    task = send.task("--with", "timestamp", "--with-settings", str(FOLDER / "timestamp.toml"))
    [sent] = [message for message in task["history"] if message["role"] == "ROLE_USER"]
    things = [sent, *made(task)]
    return ", ".join(check_stamp(thing) for thing in things)


STEPS = [not_asked, asked, streamed, component]


def report(name: str, step: Callable[[Sender], str], send: Sender) -> bool:
    """Runs one step and says what it saw. False when it failed."""
    try:
        print(f"ok    {name}: {step(send)}", flush=True)
    except Exception:
        print(f"FAIL  {name}", flush=True)
        traceback.print_exc()
        return False
    return True


@contextmanager
def serving() -> Iterable[str]:
    """Runs server.py on a free port; its URL."""
    words = [sys.executable, str(FOLDER / "server.py")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        try:
            url = server.stdout.readline().strip()
            if not url:
                sys.exit("server.py ended before it was ready")
            yield url
        finally:
            server.terminate()


def main(command: list[str]) -> int:
    outcomes = []
    with serving() as url:
        for binding in BINDINGS:
            send = Sender(command, url, binding)
            outcomes += [report(f"{step.__name__} over {binding}", step, send) for step in STEPS]
    print(f"{outcomes.count(True)} passed, {outcomes.count(False)} failed")
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["cargo", "run", "--quiet", "--release", "--"]))
