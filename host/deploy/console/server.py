"""examples/catalogue with a console, and a client of its agent."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

from wait import LIMIT, until

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "host/deploy/packages"))
from ports import free_port, is_ready  # noqa: E402

# A server compiles twenty components before it is ready.
START_LIMIT = 300  # seconds
TOKEN = "a-token-of-the-browser-test"
CONFIG = """
[admin]
listen = "127.0.0.1:{admin}"
token_file = "admin-token"

[runtime]
extensions_dir = "extensions"

[tenants]

[trust]
default = "allow"
"""
REGISTRY = """version: 0.1
storage:
  filesystem:
    rootdirectory: files
http:
  addr: {address}
"""


class Server:
    """A server with its files, and a client of its agent."""

    def __init__(self, annex: Path, folder: Path):
        self.annex, self.folder = annex, folder
        self.port, self.admin = free_port(), free_port()
        self.url, self.console = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.admin}"
        home = folder.parent / "home"
        home.mkdir()
        self.environment = {**os.environ, "HOME": str(home)}
        shutil.copytree(ROOT / "examples/catalogue", folder)
        (folder / "extensions").mkdir()
        token = folder / "admin-token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        config = (folder / "annex.toml").read_text().replace("127.0.0.1:9999", f"127.0.0.1:{self.port}")
        (folder / "annex.toml").write_text(config + CONFIG.format(admin=self.admin))

    @contextmanager
    def running(self) -> Iterator[None]:
        log = self.folder.parent / "annex.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [self.annex, "serve", "annex.toml"], cwd=self.folder, env=self.environment, stdout=out, stderr=out
            )
        try:
            until(lambda: process.poll() is not None or is_ready(self.port), "the server is ready", limit=START_LIMIT)
            assert process.poll() is None, log.read_text()
            yield
        except BaseException:
            print(log.read_text()[-4_000:], file=sys.stderr)
            raise
        finally:
            process.terminate()
            process.wait(LIMIT)

    def send(self, text: str, *extensions: str, context: str | None = None) -> dict:
        """Sends a message as a client does."""
        message = {"messageId": os.urandom(8).hex(), "role": "ROLE_USER", "parts": [{"text": text}]}
        if context:
            message["contextId"] = context
        call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        headers = {"Content-Type": "application/json", "A2A-Version": "1.0", "A2A-Extensions": ", ".join(extensions)}
        request = Request(f"{self.url}/a2a/jsonrpc", json.dumps(call).encode(), headers)
        return json.load(urlopen(request, timeout=LIMIT))

    def state_of(self, text: str, *extensions: str) -> str:
        """The state of the task that a message makes, or the error."""
        answer = self.send(text, *extensions)
        return answer["result"]["task"]["status"]["state"] if "result" in answer else answer["error"]["message"]

    def component(self, name: str, mark: str = "") -> Path:
        """The shipped component `timestamp` as a file. A mark is a custom section: the same code with another digest."""
        content = (self.annex.parent / "components/timestamp.wasm").read_bytes()
        if mark:
            section = b"\x04mark" + mark.encode()
            content += bytes([0, len(section)]) + section
        file = self.folder.parent / f"{name}.wasm"
        file.write_bytes(content)
        return file

    def lock(self) -> str:
        """Pushes a component to a registry, and writes annex.lock. Returns the reference. The registry is gone afterwards."""
        folder = self.folder.parent / "registry"
        folder.mkdir()
        address = f"127.0.0.1:{free_port()}"
        (folder / "registry.yml").write_text(REGISTRY.format(address=address))
        (folder / "annex.toml").write_text((ROOT / "examples/specialist/annex.toml").read_text() + '\n[trust]\ndefault = "allow"\n')
        reference = f"oci://{address}/acme/locked:1.0"
        with (folder / "log").open("wb") as out:
            registry = subprocess.Popen(["docker-registry", "serve", "registry.yml"], cwd=folder, stdout=out, stderr=out)
            try:
                until(lambda: answers(f"http://{address}/v2/"), "the registry answers")
                for command in (["push", "timestamp", reference], ["add", reference, "--accept", "clock"]):
                    done = subprocess.run(
                        [self.annex, *command], cwd=folder, env=self.environment, text=True, timeout=LIMIT,
                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                    )
                    assert done.returncode == 0, f"annex {command}: {done.stdout}"
            finally:
                registry.kill()
                registry.wait()
        shutil.copy(folder / "annex.lock", self.folder)
        return reference


def answers(url: str) -> bool:
    try:
        return urlopen(url, timeout=2).status == 200
    except OSError:
        return False
