"""How long `annex proxy` takes from its start to the first answer through it, with an agent behind it.

    python3 first_answer.py target/release/annex
    python3 first_answer.py target/release/annex --with state-injection --rounds 9

Each round starts the command twice: with an empty compile cache, as on a new machine, and with what that run has left. The
agent is `annex serve` with a script, on a free port. The exit code is 1 where the median is a second or more.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid

AGENT = """
[server]
listen = "127.0.0.1:0"
[card]
name = "Agent"
description = "Answers at once"
[agent]
kind = "script"
name = "agent"
[[agent.rule]]
steps = [{ status = { state = "completed", text = "done" } }]
"""
CARD = "Agent card"
PATH = "/.well-known/agent-card.json"


def started(command, cache):
    """Starts a server and waits until it says where it is."""
    environment = {**os.environ, "XDG_CACHE_HOME": cache}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    for line in process.stdout:
        if line.startswith(CARD):
            return process, line.removeprefix(CARD).strip().removesuffix(PATH)
    sys.exit(f"{' '.join(command)} did not start")


def ask(url):
    message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
    request = urllib.request.Request(f"{url}/a2a/jsonrpc", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        state = json.load(answer)["result"]["task"]["status"]["state"]
    assert state == "TASK_STATE_COMPLETED", state


def first_answer(annex, agent, components, cache):
    command = [annex, "proxy", agent, "--listen", "127.0.0.1:0"]
    for component in components:
        command += ["--with", component]
    begin = time.monotonic()
    process, url = started(command, cache)
    try:
        ask(url)
        return time.monotonic() - begin
    finally:
        process.kill()
        process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("annex", help="the program")
    parser.add_argument("--with", dest="components", action="append", help="a component (timestamp and state-injection)")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    components = options.components or ["timestamp", "state-injection"]
    times = {"empty": [], "filled": []}
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "agent.toml")
        with open(config, "w") as file:
            file.write(AGENT)
        agent, url = started([options.annex, "serve", config], folder)
        try:
            for _ in range(options.rounds):
                with tempfile.TemporaryDirectory() as cache:
                    for name in times:
                        times[name].append(first_answer(options.annex, url, components, cache))
        finally:
            agent.kill()
            agent.wait()
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    for name, median in medians.items():
        print(f"compile cache {name}: {median * 1e3:.0f} ms to the first answer (median of {options.rounds})")
    sys.exit(any(median >= 1 for median in medians.values()))


main()
