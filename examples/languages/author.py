"""The day of an author in each language: begin, build, test, try, change, try again, measure.

    python3 author.py ANNEX [LANGUAGE...]

ANNEX is the annex program. Each project is made in an empty folder, with nothing but that program and the toolchain of the
language.
"""

import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from pathlib import Path

# Each with the file in which the author begins.
SOURCES = {
    "rust": "src/lib.rs",
    "c": "src/extension.c",
    "js": "src/extension.js",
    "ts": "src/extension.ts",
    "python": "src/extension.py",
    "go": "extension.go",
}
NAME = "greeter"
URI = f"https://example.com/extensions/{NAME}/v1"
LIMIT = 300  # seconds, for each step


def main():
    annex, *languages = sys.argv[1:]
    print(f"{'language':10}{'first answer s':>15}{'change s':>13}{'turn µs':>9}{'instructions':>14}")
    for language in languages or SOURCES:
        with tempfile.TemporaryDirectory() as folder:
            day(str(Path(annex).resolve()), language, Path(folder))
    print(f"{len(languages or SOURCES)} passed")


def day(annex, language, folder):
    project = folder / NAME
    started = time.monotonic()
    run(language, folder, annex, "new", NAME, "--lang", language)
    run(language, project, annex, "build")
    run(language, project, annex, "test")
    with open(folder / "log", "w+") as log:
        listen = f"127.0.0.1:{free_port()}"
        server = subprocess.Popen([annex, "dev", "--listen", listen], cwd=project, stdout=log, stderr=log)
        try:
            wait_for(language, "hello", server, listen, folder / "log")
            first = time.monotonic() - started
            change(project / SOURCES[language])
            changed = time.monotonic()
            wait_for(language, "goodbye", server, listen, folder / "log")
            live = time.monotonic() - changed
        finally:
            server.terminate()
            server.wait()
    # To count the instructions of an interpreter it is compiled once more, which takes a minute for Python's.
    options = ["--no-instructions"] if language == "python" else []
    cost = json.loads(run(language, project, annex, "bench", "--json", "--turns", "100", *options))["components"][0]
    turn = cost["turn"]["p50_us"]
    instructions = cost["instructions"] or 0
    print(f"{language:10}{first:15.1f}{live:13.1f}{turn:9.0f}{instructions:14,}", flush=True)


def run(language, folder, *command):
    """Runs a command. Returns what it printed."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode != 0:
        fail(language, f"annex {' '.join(command[1:])}", done.stdout + done.stderr)
    return done.stdout


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def change(source):
    """Changes the word of the greeting."""
    text = source.read_text()
    assert text.count('"hello') == 1, f"{source} greets in another way"
    source.write_text(text.replace('"hello', '"goodbye'))


def wait_for(language, greeting, server, listen, log):
    """Waits until the extension greets with this word."""
    deadline = time.monotonic() + LIMIT
    answer = None
    while answer != greeting:
        # After a build that failed annex dev waits for the next change.
        if server.poll() is not None or "\nerror: " in log.read_text() or time.monotonic() > deadline:
            fail(language, f"annex dev answers {answer!r} in place of {greeting!r}", log.read_text())
        time.sleep(0.05)
        answer = say(f"http://{listen}")


def say(url):
    """Sends a message. Returns the greeting on the answer, or the reason why there is none."""
    params = {"message": {"messageId": uuid.uuid4().hex, "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    headers = {"content-type": "application/json", "a2a-version": "1.0", "a2a-extensions": URI}
    request = urllib.request.Request(f"{url}/a2a/jsonrpc", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            answer = json.load(answer)
        return answer["result"]["task"]["artifacts"][0]["metadata"][NAME]
    except (OSError, KeyError) as error:
        return error


def fail(language, step, log):
    sys.exit(f"{language}: {step} failed:\n{log}")


if __name__ == "__main__":
    main()
