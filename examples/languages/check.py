"""Builds the same extension in several languages, runs turns through a server, and prints what each one costs.

    python3 check.py ANNEX [LANGUAGE...]

ANNEX is the annex program, which builds each folder by its annex-extension.toml. The limits are the default ones, and all
that is granted is what the component asks for. Needs the toolchain of each language.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
LANGUAGES = ["python", "javascript", "c", "go"]
URI = "https://github.com/a2aproject/a2a-samples/extensions/timestamp/v1"
KEY = URI.removeprefix("https://") + "/timestamp"
TURNS = 300
TOKEN = "0123456789abcdef0123456789abcdef"

CONFIG = """
[server]
listen = "127.0.0.1:0"
[admin]
listen = "127.0.0.1:0"
token_file = "token"
[card]
name = "Tester"
description = "Answers with one word"
[agent]
kind = "script"
name = "tester"
[[agent.rule]]
steps = [{ status = { state = "completed", text = "done" } }]

"""


def main():
    annex, *languages = sys.argv[1:]
    print(f"{'language':12}{'lines':>6}{'bytes':>12}{'load s':>8}{'turn µs':>9}{'KiB':>8}  grants")
    for language in languages or LANGUAGES:
        check(str(Path(annex).resolve()), language)
    print(f"{len(languages or LANGUAGES)} passed")


def check(annex, language):
    project = HERE / language
    # The contract of an older program may be there.
    shutil.rmtree(project / "wit/deps", ignore_errors=True)
    built = subprocess.run([annex, "build", "--json", "--project", project], capture_output=True, text=True)
    if built.returncode != 0:
        sys.exit(f"{language}: annex build failed:\n{built.stdout}{built.stderr}")
    report = json.loads(built.stdout)
    assert report["problem"] is None, f"{language}: {report['problem']}"
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "annex.toml").write_text(CONFIG + report["config"])
        (folder / "token").write_text(TOKEN)
        (folder / "token").chmod(0o600)
        started = time.monotonic()
        with open(folder / "log", "w+") as log:
            server = subprocess.Popen([annex, "serve", folder / "annex.toml"], stdout=log, stderr=log)
            try:
                url, admin = addresses(server, folder / "log")
                load = time.monotonic() - started
                for turn in range(TURNS):
                    stamp = say(url, f"m-{turn}")
                    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", stamp), f"{language}: {stamp}"
                show(language, report, load, metrics(admin))
            finally:
                server.terminate()
                server.wait()


def addresses(server, log):
    """Waits until the server has said where it listens."""
    while server.poll() is None:
        text = log.read_text()
        card = re.search(r"(http://\S+)/\.well-known/agent-card\.json", text)
        admin = re.search(r"Admin API\s+(http://\S+)", text)
        if card and admin:
            return card[1], admin[1]
        time.sleep(0.05)
    sys.exit(f"the server ended:\n{log.read_text()}")


def say(url, message):
    """Sends a message. Returns the stamp on the answer."""
    params = {"message": {"messageId": message, "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    headers = {"content-type": "application/json", "a2a-version": "1.0", "a2a-extensions": URI}
    request = urllib.request.Request(f"{url}/a2a/jsonrpc", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        answer = json.load(answer)
    return answer["result"]["task"]["status"]["message"]["metadata"][KEY]


def metrics(admin):
    request = urllib.request.Request(f"{admin}/metrics", headers={"authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request) as answer:
        lines = answer.read().decode().splitlines()
    found = {}
    for line in lines:
        name, _, value = line.rpartition(" ")
        name = name.partition("{")[0]
        if name and not line.startswith("#"):
            found[name] = found.get(name, 0) + float(value)
    return found


def show(language, report, load, numbers):
    lines = len((HERE / language / source(language)).read_text().splitlines())
    turn = numbers["annex_hook_duration_seconds_sum"] / TURNS * 1e6
    memory = numbers["annex_extension_memory_peak_bytes"] / 1024
    grants = ", ".join(sorted({line["grant"].split(" ")[0] for line in report["imports"] if "grant" in line})) or "none"
    print(f"{language:12}{lines:6}{report['size']:12,}{load:8.1f}{turn:9.0f}{memory:8,.0f}  {grants}", flush=True)


def source(language):
    return "extension." + {"python": "py", "javascript": "js"}.get(language, language)


if __name__ == "__main__":
    main()
