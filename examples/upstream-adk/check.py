"""Runs an agent and Annex in front of it, and checks that session state reaches an agent that has no extension.

    python check.py [FOLDER [COMMAND ...]]        # default: this folder, cargo run --quiet --release --

FOLDER has server.py, the agent, and annex.toml. Both are run on free ports. Short programs, to be read in this order.
"""

import json
import socket
import subprocess
import sys
import time
import traceback
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

URI = "https://github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1"
FIELD = "github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1/state"
QUESTION = "Who am I and what is my email?"
ADA = {"name": "Ada", "role": "Engineer", "email": "ada@example.com"}
EXPECTED = "You are Ada and your email is ada@example.com."
PATIENCE = 600  # seconds; a release build may be part of it


class Front:
    """Annex, as a client sees it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def post(self, method: str, params: dict, activate: bool) -> tuple[str, list[dict]]:
        """What was active, and the answers."""
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
        if activate:
            headers["A2A-Extensions"] = URI
        request = urllib.request.Request(f"{self.url}/a2a/jsonrpc", body, headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            text = response.read().decode()
            active = response.headers.get("A2A-Extensions", "")
        # Events of a stream, of which each has a number, or one answer.
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith("id: ")]
        return active, [json.loads(line.removeprefix("data: ")) for line in lines]

    def ask(self, method: str = "SendMessage", user: dict | None = ADA, **fields: str) -> tuple[str, list[dict]]:
        message = {"messageId": str(time.monotonic_ns()), "role": "ROLE_USER", "parts": [{"text": QUESTION}], **fields}
        if user is not None:
            message["metadata"] = {FIELD: {"user_info": user}}
        return self.post(method, {"message": message}, user is not None)


def answer_of(task: dict) -> str:
    assert task["status"]["state"] == "TASK_STATE_COMPLETED", task
    return task["artifacts"][0]["parts"][0]["text"]


def card(front: Front) -> str:
    """The card is the agent's, with the extension on it and the addresses of Annex."""
    with urllib.request.urlopen(f"{front.url}/.well-known/agent-card.json", timeout=10) as response:
        shown = json.load(response)
    assert URI in [extension["uri"] for extension in shown["capabilities"]["extensions"]], shown
    assert all(front.url.split("://")[1] in interface["url"] for interface in shown["supportedInterfaces"]), shown
    return f"{shown['name']}: {shown['description']}"


def refused(front: Front) -> str:
    """Without the extension the agent is not even asked."""
    _, [reply] = front.ask(user=None)
    assert reply["error"]["code"] == -32008, reply
    return reply["error"]["message"]


def invalid(front: Front) -> str:
    """State that is not as the schema wants it is refused."""
    _, [reply] = front.ask(user={"name": "Ada"})
    assert reply["error"]["code"] == -32602, reply
    return reply["error"]["message"][:60]


def answered(front: Front) -> str:
    """With state the agent answers from it, and the state comes back."""
    active, [reply] = front.ask()
    task = reply["result"]["task"]
    assert active == URI, active
    assert answer_of(task) == EXPECTED, task
    assert task["artifacts"][0]["metadata"][FIELD] == {"user_info": ADA}, task
    return answer_of(task)


def streamed(front: Front) -> str:
    """The same as a stream, in which nothing is announced twice."""
    active, events = front.ask("SendStreamingMessage")
    results = [event["result"] for event in events]
    assert active == URI and "task" in results[0], results
    states = [result["statusUpdate"]["status"]["state"] for result in results if "statusUpdate" in result]
    assert states[-1] == "TASK_STATE_COMPLETED" and "TASK_STATE_SUBMITTED" not in states, states
    texts = [result["artifactUpdate"]["artifact"]["parts"][0]["text"] for result in results if "artifactUpdate" in result]
    assert texts and texts[-1] == EXPECTED, results
    return f"{len(results)} events"


def remembered(front: Front) -> str:
    """A later message of the conversation may send what has changed; two conversations know nothing of each other."""
    _, [first] = front.ask()
    context = first["result"]["task"]["contextId"]
    _, [second] = front.ask(user={**ADA, "name": "Grace"}, contextId=context)
    assert second["result"]["task"]["contextId"] == context, second
    answer = answer_of(second["result"]["task"])
    assert answer == EXPECTED.replace("Ada", "Grace"), answer
    return answer


STEPS: list[Callable[[Front], str]] = [card, refused, invalid, answered, streamed, remembered]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextmanager
def running(words: list[str], ready: str) -> Iterator[None]:
    """A program for as long as it is wanted, once it answers at `ready`."""
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as program:
        try:
            deadline = time.monotonic() + PATIENCE
            while not is_there(ready):
                if program.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"{words[0]} did not become ready")
                time.sleep(0.2)
            yield
        finally:
            program.terminate()


def is_there(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except OSError:
        return False


def report(step: Callable[[Front], str], front: Front) -> bool:
    """Runs one step and says what it saw. False when it failed."""
    try:
        print(f"ok    {step.__name__}: {step(front)}", flush=True)
    except Exception:
        print(f"FAIL  {step.__name__}", flush=True)
        traceback.print_exc()
        return False
    return True


def main(folder: Path, command: list[str]) -> int:
    agent, front = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    text = (folder / "annex.toml").read_text().replace("127.0.0.1:9996", agent).replace("127.0.0.1:9999", front)
    server = [sys.executable, str(folder / "server.py"), agent.split(":")[1]]
    with TemporaryDirectory() as scratch, running(server, f"http://{agent}/.well-known/agent-card.json"):
        config = Path(scratch) / "annex.toml"
        config.write_text(text)
        with running([*command, "serve", str(config)], f"http://{front}/readyz"):
            outcomes = [report(step, Front(f"http://{front}")) for step in STEPS]
    print(f"{outcomes.count(True)} passed, {outcomes.count(False)} failed")
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    sys.exit(main(folder, sys.argv[2:] or ["cargo", "run", "--quiet", "--release", "--"]))
