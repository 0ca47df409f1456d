"""Runs agent frameworks against Annex, as callers and as agents behind it, and checks what each of them hears.

    python check.py ANNEX [NAME ...]      # default: all of them; takes some minutes

ANNEX is the program. Each framework is installed into a folder of its own, which is deleted afterwards. A framework
that fails by its own fault has to fail in the way that is written down here; one that gets better fails the check too.
"""

import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent
URI = "https://github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1"
KEY = "github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1/state"
PATIENCE = 120  # seconds

HELLO = r"Hello from Annex\."
REMEMBERS = r"I said: Hello from Annex\."
ADA = r"You are Ada\."
RETURNED = ADA + " The state came back: Ada"


@dataclass
class Framework:
    """What the steps of its caller hear, and what is heard of its agent; each a regular expression for all of it."""

    caller: dict[str, str] = field(default_factory=dict)
    agent: dict[str, str] = field(default_factory=dict)
    card: str = "/.well-known/agent-card.json"


def caller(
    plain: str = HELLO, stream: str = HELLO, second: str = REMEMBERS, state: str = RETURNED, **more: str
) -> dict[str, str]:
    return {"plain": plain, "stream": stream, "second": second, "state": state, **more}


SENT = "I was sent: (?!.*I was sent).*apple.*"


def agent(returned: str, stream: str = SENT, second: str = "I was sent: .*apple.*pear.*") -> dict[str, str]:
    """`returned` is where the state comes back."""
    state = f"I was sent: (?!.*I was sent).*About the user: Ada.*apple.* in {returned}"
    return {"plain": SENT, "stream": stream, "second": second, "state": state}


# The agent is sent each message alone.
FORGETS = "I was sent: (?!.*apple).*pear.*"
# The client of fasta2a.
EMPTY = r"\{'jsonrpc': '2\.0', 'id': '[^']+', 'result': \{\}\}"
# A status on the way has the answer too.
TWICE = f"I was sent: .*apple.*{SENT}"


FRAMEWORKS = {
    "litellm": Framework(caller()),
    "crewai": Framework(
        caller(state=ADA, extension=HELLO, trusting=HELLO, crew="The model was shown the answer: False"),
        agent("artifact", second=FORGETS),
    ),
    "langgraph": Framework(
        agent=agent("artifact", stream=TWICE),
        # The assistant of a graph has an id that follows from the name of the graph.
        card="/.well-known/agent-card.json?assistant_id=cdcecb71-3546-545e-a708-1b80e73b4601",
    ),
    "mastra": Framework(caller(second=HELLO, newer=HELLO)),
    "pydantic-ai": Framework(
        # It keeps nothing of an answer, and wants media types of each skill.
        {"plain": EMPTY, "stream": rf"\[{EMPTY}(, {EMPTY})*\]", "card": r"ValidationError: .*skills\.0\.inputModes.*"},
        agent("artifact"),
    ),
    "strands": Framework(caller(stream=HELLO + r" \(True\)", second=HELLO, state=HELLO), agent("artifact")),
    "agno": Framework(
        caller(plain="completed: ''", state=ADA + " The state came back: no", rest=".*400 Bad Request.*"),
        agent("status message", stream=TWICE),
        card="/a2a/agents/specialist/.well-known/agent-card.json",
    ),
    "ag2": Framework(caller(), agent("status message", second=FORGETS)),
    "agent-framework": Framework(caller(), agent("task", second=FORGETS)),
    "beeai": Framework(caller(), agent("message")),
}


class Front:
    """Annex in front of an agent, as a client sees it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, method: str, text: str, context: str, state: dict | None = None) -> list[dict]:
        message = {"messageId": str(time.monotonic_ns()), "role": "ROLE_USER", "parts": [{"text": text}]}
        message["contextId"] = context
        headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
        if state is not None:
            message["metadata"] = {KEY: state}
            headers["A2A-Extensions"] = URI
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}}
        request = urllib.request.Request(f"{self.url}/a2a/jsonrpc", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            lines = [line.removeprefix("data: ") for line in response.read().decode().splitlines()]
        answers = [json.loads(line) for line in lines if line.startswith("{")]
        return [answer["result"] if "result" in answer else answer for answer in answers]

    def send(self, text: str, context: str, state: dict | None = None) -> str:
        """The agent's words, and where the state came back."""
        [answer] = self.ask("SendMessage", text, context, state)
        where = next((place for place, metadata in metadata_of(answer) if KEY in metadata), None)
        return words(answer) + (f" in {where}" if where else "")


def words(answer: dict) -> str:
    """The text of an answer, wherever an agent puts it."""
    if "message" in answer:
        return text_of(answer["message"])
    task = answer.get("task")
    if task is None:
        return json.dumps(answer)
    last = task.get("history", [])[-1:]
    said = [part for part in last if part["role"] == "ROLE_AGENT"]
    status = [task["status"]["message"]] if "message" in task["status"] else []
    texts = [text_of(part) for part in task.get("artifacts", []) or status or said]
    return "".join(texts) or json.dumps(task["status"])


def text_of(parts: dict) -> str:
    return "".join(part.get("text", "") for part in parts["parts"])


def metadata_of(answer: dict) -> Iterator[tuple[str, dict]]:
    task = answer.get("task", {})
    yield "message", answer.get("message", {}).get("metadata", {})
    for artifact in task.get("artifacts", []):
        yield "artifact", artifact.get("metadata", {})
    yield "status message", task.get("status", {}).get("message", {}).get("metadata", {})
    yield "task", task.get("metadata", {})


def streamed(front: Front) -> str:
    """All text of a stream's events of the agent, in their order."""
    events = front.ask("SendStreamingMessage", "apple", "streamed")
    texts = []
    for event in events:
        status = event.get("statusUpdate", {}).get("status", {})
        artifact = event.get("artifactUpdate", {}).get("artifact")
        texts += [text_of(part) for part in (artifact, status.get("message"), event.get("message")) if part]
        if "error" in event:
            texts.append(json.dumps(event["error"]))
    return "".join(texts)


def heard_of_agent(front: Front) -> Iterator[tuple[str, str]]:
    yield "plain", front.send("apple", "plain")
    yield "stream", streamed(front)
    front.send("apple", "second")
    yield "second", front.send("pear", "second")
    yield "state", front.send("apple", "state", {"name": "Ada"})


def heard_by_caller(command: list[str], folder: Path, url: str) -> Iterator[tuple[str, str]]:
    """What the steps of a caller heard, which it says in a line of JSON each."""
    ended = subprocess.run([*command, url], cwd=folder, capture_output=True, text=True, timeout=300)
    for line in ended.stdout.splitlines():
        if line.startswith('{"step"'):
            # A framework may print into the same line.
            said, _ = json.JSONDecoder().raw_decode(line)
            yield said["step"], said["heard"]
    if ended.returncode:
        print(ended.stderr[-2000:])


def installed(folder: Path) -> list[str]:
    """Installs what a framework needs into its folder; the command that runs its programs."""
    if (folder / "package.json").exists():
        npm = ["npm", "ci", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"]
        subprocess.run(npm, cwd=folder, check=True)
        return ["node"]
    # One pip serves all: it takes seconds to install.
    tools = folder.parent / "pip"
    if not tools.exists():
        subprocess.run([sys.executable, "-m", "venv", tools], check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / ".venv"], check=True)
    python = str(folder / ".venv/bin/python")
    pip = [tools / "bin/pip", "--python", python, "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--no-compile", "-r", folder / "requirements.txt"], check=True)
    return [python]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextmanager
def running(words: list[str], log: Path, ready: str, folder: Path | None = None) -> Iterator[None]:
    """A program for as long as it is wanted, once it answers at `ready`."""
    with log.open("w") as output, subprocess.Popen(words, cwd=folder, stdout=output, stderr=output) as program:
        try:
            deadline = time.monotonic() + PATIENCE
            while not is_there(ready):
                if program.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{' '.join(words)} did not become ready:\n{log.read_text()[-3000:]}")
                time.sleep(0.2)
            yield
        finally:
            program.terminate()


def is_there(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


@contextmanager
def annex(program: str, config: str, scratch: Path, upstream: str = "") -> Iterator[str]:
    """Annex with a config of this folder, on a free port; its URL."""
    address = f"127.0.0.1:{free_port()}"
    text = (HERE / config).read_text().replace("127.0.0.1:9999", address).replace("http://127.0.0.1:9996", upstream)
    path = scratch / f"{address.split(':')[1]}.toml"
    path.write_text(text)
    with running([program, "serve", str(path)], scratch / "annex.log", f"http://{address}/readyz"):
        yield f"http://{address}"


def report(what: str, expected: dict[str, str], heard: dict[str, str]) -> list[bool]:
    outcomes = []
    for step in {**expected, **heard}:
        text = heard.get(step, "nothing")
        is_as_expected = re.fullmatch(expected.get(step, "(?!)"), text, re.DOTALL) is not None
        print(f"{'ok   ' if is_as_expected else 'FAIL '} {what} {step}: {text[:300]}", flush=True)
        if not is_as_expected:
            print(f"      expected: {expected.get(step)}")
        outcomes.append(is_as_expected)
    return outcomes


def check(name: str, program: str, scratch: Path) -> list[bool]:
    start = time.monotonic()
    folder = scratch / name
    shutil.copytree(HERE / name, folder)
    shutil.copy(HERE / "steps.py", folder)
    framework = FRAMEWORKS[name]
    command = installed(folder)
    print(f"=== {name}, installed in {time.monotonic() - start:.0f} s", flush=True)
    outcomes = []
    if framework.caller:
        file = "caller.mjs" if command == ["node"] else "caller.py"
        with annex(program, "annex.toml", scratch) as url:
            heard = dict(heard_by_caller([*command, file], folder, url))
        outcomes += report(f"{name} calls Annex,", framework.caller, heard)
    if framework.agent:
        port = free_port()
        card = f"http://127.0.0.1:{port}{framework.card}"
        words = [*command, "agent.py", str(port)]
        try:
            with running(words, scratch / "agent.log", card, folder):
                with annex(program, "annex.upstream.toml", scratch, card) as url:
                    heard = dict(heard_of_agent(Front(url)))
        except RuntimeError as error:
            heard = {"start": str(error)}
        outcomes += report(f"Annex calls {name},", framework.agent, heard)
    shutil.rmtree(folder)
    print(f"--- {name}: {time.monotonic() - start:.0f} s", flush=True)
    return outcomes


def main(program: str, names: list[str]) -> int:
    with TemporaryDirectory() as scratch:
        outcomes = [outcome for name in names for outcome in check(name, str(Path(program).resolve()), Path(scratch))]
    print(f"{outcomes.count(True)} passed, {outcomes.count(False)} failed")
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:] or list(FRAMEWORKS)))
