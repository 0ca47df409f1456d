"""Runs the commands of host/docs/registries.md against Debian's docker-registry, then changes each part that they made.

    python3 host/deploy/registries/check.py target/release/annex

With --bench it compares `annex pull` with `skopeo copy` instead, and checks nothing:

    python3 host/deploy/registries/check.py target/release/annex --bench
"""

import base64
import json
import os
import re
import shutil
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

HERE = Path(__file__).resolve().parent
PAGE = (HERE.parents[1] / "docs/registries.md").read_text()
LIMIT = 60  # seconds
# The size in bytes of the component whose pull is measured, and how often.
LARGE, PAIRS = 18_000_000, 9
REGISTRY, SERVER = "127.0.0.1:5000", "127.0.0.1:9999"
REPOSITORY = "acme/timestamp"
# The comparison with skopeo: the size of the component in bytes, and the number of pairs.
SIZE, PAIRS = 18_000_000, 10


class Place:
    """A machine of one person: a folder, and a home folder with the cache of components and the credentials."""

    def __init__(self, folder: Path, annex: Path, registry: str, listen: str):
        folder.mkdir(exist_ok=True)
        self.folder, self.registry, self.listen = folder, registry, listen
        home = folder / "home"
        home.mkdir()
        path = folder / "bin"
        path.mkdir()
        (path / "annex").symlink_to(annex)
        # Nothing of this user's settings.
        self.environment = {"HOME": str(home), "PATH": f"{path}:{os.environ['PATH']}"}

    def here(self, text: str) -> str:
        """A text of the page with the addresses that are free here."""
        return text.replace(REGISTRY, self.registry).replace(SERVER, self.listen)

    def run(self, command: str, stdin: str = "") -> subprocess.CompletedProcess:
        return subprocess.run(
            ["sh", "-euc", self.here(command)], cwd=self.folder, env=self.environment, input=stdin, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT,
        )

    def does(self, command: str, *texts: str, stdin: str = "") -> str:
        """Runs a command, which has to succeed and to print these texts."""
        return self.ends(command, 0, *texts, stdin=stdin)

    def ends(self, command: str, code: int, *texts: str, stdin: str = "") -> str:
        done = self.run(command, stdin)
        missing = [text for text in texts if self.here(text) not in done.stdout]
        assert done.returncode == code and not missing, (
            f"{command}\nended with {done.returncode}, expected {code}; missing: {missing}; its output:\n{done.stdout}"
        )
        return done.stdout

    def refuses_to_serve(self, *texts: str) -> None:
        """The server does not start, and says why. Nor does the check of the config pass."""
        for command in ("annex serve annex.toml", "annex check annex.toml --load"):
            done = self.run(f"timeout 20 {command}")
            missing = [text for text in texts if self.here(text) not in done.stdout]
            assert done.returncode not in (0, 124) and not missing, f"{command}: {done.returncode}, {missing}:\n{done.stdout}"

    @contextmanager
    def serving(self) -> Iterator[None]:
        log = (self.folder / "log").open("w+")
        server = subprocess.Popen(
            ["annex", "serve", "annex.toml"], cwd=self.folder, env=self.environment, stdout=log, stderr=log,
            executable=self.folder / "bin/annex",
        )
        try:
            until(lambda: is_answering(f"http://{self.listen}/readyz"), server, self.folder / "log")
            yield
        finally:
            server.terminate()
            assert server.wait(LIMIT) == 0, (self.folder / "log").read_text()


def blocks(kind: str) -> dict[str, list[str]]:
    """The blocks of each section of the page."""
    sections = re.findall(r"^## (.+)\n((?:(?!^## ).*\n)*)", PAGE, re.MULTILINE)
    return {title: re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL) for title, text in sections}


COMMANDS = blocks("sh")
CONFIG = "\n".join(blocks("toml")["The operator"])
REGISTRY_CONFIG = blocks("yaml")["A registry"][0]


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def is_answering(url: str) -> bool:
    try:
        return urlopen(url, timeout=2).status == 200
    except OSError as error:
        # A registry with a password answers, and asks for it.
        return getattr(error, "code", None) == 401


def until(is_true: Callable[[], bool], process: subprocess.Popen, log: Path) -> None:
    end = time.monotonic() + LIMIT
    while not is_true():
        assert process.poll() is None and time.monotonic() < end, log.read_text()
        time.sleep(0.05)


@contextmanager
def registry(folder: Path, address: str, more: str = "", scheme: str = "http", trusted: Path | None = None) -> Iterator[Path]:
    """Debian's registry at an address. `more` are lines for its config. Gives the folder of its files."""
    folder.mkdir()
    (folder / "registry.yml").write_text(REGISTRY_CONFIG.replace(REGISTRY, address) + more)
    log = (folder / "log").open("w")
    [command] = COMMANDS["A registry"]
    process = subprocess.Popen(command.split(), cwd=folder, stdout=log, stderr=log)
    context = ssl.create_default_context(cafile=trusted) if trusted else None

    def is_there() -> bool:
        try:
            return urlopen(f"{scheme}://{address}/v2/", timeout=2, context=context).status == 200
        except OSError as error:
            return getattr(error, "code", None) == 401

    try:
        until(is_there, process, folder / "log")
        yield folder / "registry"
    finally:
        process.kill()
        process.wait()


def blob(files: Path, digest: str) -> Path:
    hexadecimal = digest.removeprefix("sha256:")
    return files / f"docker/registry/v2/blobs/sha256/{hexadecimal[:2]}/{hexadecimal}/data"


def locked(place: Place, key: str) -> str:
    return re.search(rf'^{key} = "?([^"\n]*)"?$', (place.folder / "annex.lock").read_text(), re.MULTILINE)[1]


def cached(place: Place, digest: str) -> Path:
    return place.folder / "home/.cache/annex/registry/blobs/sha256" / digest.removeprefix("sha256:")


@contextmanager
def changed(path: Path, change: Callable[[bytes], bytes]) -> Iterator[None]:
    before, mode = path.read_bytes(), path.stat().st_mode
    path.chmod(0o600)
    path.write_bytes(change(before))
    path.chmod(mode)
    try:
        yield
    finally:
        path.chmod(0o600)
        path.write_bytes(before)
        path.chmod(mode)


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def story(annex: Path, folder: Path) -> str:
    """The page, from the author's key to the machine without a network, and each change of its last table."""
    address = free_address()
    author, operator = (Place(folder / name, annex, address, free_address()) for name in ("author", "operator"))
    with registry(folder / "files", address) as files:
        for command in COMMANDS["The author"][0].splitlines():
            author.does(command)
        shutil.copy(author.folder / "acme.pub", operator.folder)
        (operator.folder / "annex.toml").write_text(operator.here(CONFIG))
        inspect, add, check, serve = COMMANDS["The operator"][0].splitlines()
        assert serve == "annex serve annex.toml"
        operator.does(inspect, "acme.pub", "clock")
        operator.ends(add.replace(" --accept clock", ""), 2, "--accept clock")
        operator.ends(add.replace("clock", "none"), 3, "--accept clock")
        operator.does(add, "clock")
        operator.does(check)
        [card] = COMMANDS["The operator"][1].splitlines()
        with operator.serving():
            operator.does(card, "timestamp")
        changes_of_the_registry(author, operator, files, add)
        for command in COMMANDS["Updates"][0].splitlines():
            operator.does(command, REPOSITORY)
        [save] = COMMANDS["A machine without a network"][0].splitlines()
        operator.does(save)
    # The registry is gone from here on.
    with operator.serving():
        operator.does(card, "timestamp")
    changes_of_the_operator(operator)
    load, serve = COMMANDS["A machine without a network"][1].splitlines()
    remote = Place(folder / "remote", annex, address, operator.listen)
    for name in ("components.tar", "annex.toml", "annex.lock", "acme.pub"):
        shutil.copy(operator.folder / name, remote.folder)
    remote.refuses_to_serve("is not in the cache")
    with changed(remote.folder / "components.tar", lambda data: data.replace(b"\0asm", b"\0asn", 1)):
        remote.ends(load, 3, "digest")
    remote.does(load, REPOSITORY)
    with remote.serving():
        remote.does(card, "timestamp")
    return "the commands of the page, and each change is refused"


def changes_of_the_registry(author: Place, operator: Place, files: Path, add: str) -> None:
    """What `annex add` refuses for another operator. The first one's server stays as it is."""
    another = Place(author.folder.parent / "another", operator.folder / "bin/annex", operator.registry, operator.listen)
    shutil.copy(operator.folder / "acme.pub", another.folder)
    (another.folder / "annex.toml").write_text(operator.here(CONFIG))
    pull = f"annex pull oci://{REGISTRY}/{REPOSITORY}:1.0 -o pulled.wasm"
    component, manifest = locked(operator, "component"), locked(operator, "manifest")
    for change in (flipped, lambda data: data[:-1], lambda data: data + b"\0"):
        with changed(blob(files, component), change):
            another.ends(add, 3, "has sent", component)
            another.ends(pull, 3, "has sent", component)
    # This is a manifest too, and its digest is another one.
    with changed(blob(files, manifest), lambda data: data + b" "):
        another.ends(add, 3, "it has no signature")
        another.ends(pull.replace(":1.0", f":1.0@{manifest}"), 3, f"has sent other content than {manifest}")
    # A registry without referrers has the signatures under this tag.
    tag = f"sha256-{locked(operator, 'manifest').removeprefix('sha256:')}"
    tags = files / f"docker/registry/v2/repositories/{REPOSITORY}/_manifests/tags"
    (tags / tag).rename(tags / "away")
    another.ends(add, 3, "signature")
    (tags / "away").rename(tags / tag)
    author.does(f"annex push secure-passport oci://{REGISTRY}/{REPOSITORY}:1.0")
    another.ends(add, 3, "signature")
    with operator.serving():
        operator.does(f"annex card http://{SERVER}", "timestamp")
    operator.ends("annex lock annex.toml --update", 3, "signature")
    operator.does("annex lock annex.toml", "stays")
    author.does(f"annex push timestamp oci://{REGISTRY}/{REPOSITORY}:1.0")
    assert not (another.folder / "annex.lock").exists()


def changes_of_the_operator(operator: Place) -> None:
    """What a server refuses without a registry."""
    lock, config = operator.folder / "annex.lock", operator.folder / "annex.toml"

    def other(digit: str) -> str:
        return "0" if digit != "0" else "1"

    with changed(lock, lambda data: data.replace(b'grants = ["clock"]', b"grants = []")):
        operator.refuses_to_serve("does not list as accepted: clock", "annex lock")
    for key, text in (("manifest", "is not in the cache"), ("component", "component"), ("size", "size")):
        value = locked(operator, key)
        with changed(lock, lambda data: data.replace(value.encode(), f"{value[:-1]}{other(value[-1])}".encode())):
            operator.refuses_to_serve(text)
    for digest in (locked(operator, "component"), locked(operator, "manifest")):
        with changed(cached(operator, digest), flipped):
            operator.refuses_to_serve("digest")
    signatures = operator.folder / "home/.cache/annex/registry/signatures" / locked(operator, "manifest").removeprefix("sha256:")
    signatures.rename(operator.folder / "away")
    operator.refuses_to_serve("signature")
    (operator.folder / "away").rename(signatures)
    operator.does("annex sign --generate other")
    with changed(config, lambda data: data.replace(b'key = "acme.pub"', b'key = "other.pub"')):
        operator.refuses_to_serve("other.pub")
    with changed(config, lambda data: re.sub(rb"\[trust\]\n.*\n", b"", data)):
        operator.refuses_to_serve("trust")
    with changed(config, lambda data: data.replace(b"timestamp:1.0", b"timestamp:1.1")):
        operator.refuses_to_serve("is not in annex.lock", "annex lock")
    with changed(lock, lambda _: b"version = 2\n"):
        operator.refuses_to_serve("annex.lock:1", "version 2")
    digest = locked(operator, "component")
    (operator.folder / "denied").write_text(f"{digest}\n")
    with changed(config, lambda data: data.replace(b"[trust]\n", b'[trust]\ndeny_file = "denied"\n')):
        operator.refuses_to_serve(digest)


def skopeo(annex: Path, folder: Path) -> str:
    """Another client copies what Annex has pushed, in both directions, with the same bytes."""
    address = free_address()
    place = Place(folder / "place", annex, address, free_address())
    with registry(folder / "files", address):
        place.does(f"annex push timestamp oci://{REGISTRY}/a/one:1")
        copy = "skopeo --insecure-policy copy --src-tls-verify=false --dest-tls-verify=false"
        place.does(f"{copy} docker://{REGISTRY}/a/one:1 oci:layout:one")
        place.does(f"{copy} oci:layout:one docker://{REGISTRY}/b/two:2")
        first, second = (
            place.does(f"annex pull oci://{REGISTRY}/{name} -o {file} 2>/dev/null").strip().rsplit("@", 1)[1]
            for name, file in (("a/one:1", "one.wasm"), ("b/two:2", "two.wasm"))
        )
        shipped = (annex.parent / "components/timestamp.wasm").read_bytes()
        assert first == second and (place.folder / "two.wasm").read_bytes() == shipped
        manifest = json.loads(place.does(f"skopeo inspect --tls-verify=false --raw docker://{REGISTRY}/a/one:1"))
        assert manifest["layers"][0]["mediaType"] == "application/wasm", manifest
        sbom = place.folder / "sbom.json"
        sbom.write_text('{"bomFormat": "CycloneDX", "specVersion": "1.5"}')
        push = f"annex push timestamp oci://{REGISTRY}/a/one:1 --sbom sbom.json 2>/dev/null"
        pushed = place.does(push).strip()
        place.does(f"annex pull {pushed} -o three.wasm --sbom pulled.json")
        assert (place.folder / "pulled.json").read_bytes() == sbom.read_bytes()
        # Debian's registry has no lists of referrers, so the list is under a tag.
        tag = pushed.rsplit("@", 1)[1].replace(":", "-")
        index = json.loads(place.does(f"skopeo inspect --tls-verify=false --raw docker://{REGISTRY}/a/one:{tag}"))
        assert index["manifests"][0]["artifactType"] == "application/vnd.cyclonedx+json", index
    return "the same manifest and bytes after two copies, and an SBOM that others find"


def password_and_tls(annex: Path, folder: Path) -> str:
    """A registry with a password, over TLS with an authority of its own, beside one without: both in one lock."""
    place = Place(folder / "place", annex, free_address(), free_address())
    key = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    for name in ("ca", "unknown"):
        place.does(f"{key} -subj /CN={name} -keyout {name}.key -out {name}.pem")
    leaf = "-subj /CN=registry -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE"
    place.does(f"{key} -CA ca.pem -CAkey ca.key {leaf} -keyout registry.key -out registry.pem")
    place.does("htpasswd -Bbn ada secret > users")
    more = f"""  tls:
    certificate: {place.folder}/registry.pem
    key: {place.folder}/registry.key
auth:
  htpasswd:
    realm: registry
    path: {place.folder}/users
"""
    host = free_address()
    secure = registry(folder / "secure", host, more, "https", place.folder / "ca.pem")
    with registry(folder / "open", place.registry), secure:
        reference = f"oci://{host}/acme/origin:1.0"
        push, ca = f"annex push secure-passport {reference}", "--ca-file ca.pem"
        place.ends(f"{push} --ca-file unknown.pem", 4, "certificate")
        place.ends(f"{push} {ca}", 3, f"annex login {host}")
        place.ends(f"annex login {host} --user ada {ca}", 3, stdin="wrong\n")
        place.does(f"annex login {host} --user ada {ca}", stdin="secret\n")
        stored = json.loads((place.folder / "home/.docker/config.json").read_text())
        assert base64.b64decode(stored["auths"][host]["auth"]) == b"ada:secret", stored
        place.does(f"{push} {ca}")
        place.does("annex sign --generate acme")
        place.does(f"annex sign {reference} --key acme.key {ca}")
        place.does(f"annex verify {reference} --key acme.pub {ca}", "signed by acme.pub")
        place.does("annex sign --generate other")
        place.ends(f"annex verify {reference} --key other.pub {ca}", 3, "other.pub")
        place.does(f"annex push timestamp oci://{REGISTRY}/{REPOSITORY}:1.0")
        config = f'{CONFIG}\n[[trust.rule]]\nprefix = "{REGISTRY}"\ndefault = "allow"\n\n[registries."{host}"]\nca_file = "ca.pem"\n'
        # The registry has an address of this machine, as one of a private network.
        (place.folder / "annex.toml").write_text(place.here(config + "allow_private = true\n"))
        place.does(f"annex add {reference} --accept none")
        place.does(f"annex add oci://{REGISTRY}/{REPOSITORY}:1.0 --accept clock")
        lock = (place.folder / "annex.lock").read_text()
        assert lock.count("[[component]]") == 2, lock
        shutil.rmtree(place.folder / "home/.cache/annex/registry")
        place.refuses_to_serve("annex lock")
        place.does("annex lock annex.toml", "stays")
        assert (place.folder / "annex.lock").read_text() == lock
        with place.serving():
            place.does(f"annex card http://{SERVER}", "timestamp", "secure-passport")
    return "two registries in one lock"


def proxy(annex: Path, folder: Path) -> str:
    """A proxy that ends connections, cuts answers short, adds to them, and gives answers to other questions."""
    address, fault = free_address(), {"kind": ""}
    place = Place(folder / "place", annex, address, free_address())

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            upstream = HTTPConnection(address, timeout=LIMIT)
            upstream.request("GET", self.path, headers={key: value for key, value in self.headers.items() if key != "Host"})
            answer = upstream.getresponse()
            body = answer.read()
            kind = fault["kind"]
            is_blob, is_manifest = "/blobs/" in self.path, "/manifests/sha256:" in self.path
            declared = len(body)
            if kind == "ends" and is_blob:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            if kind == "short" and is_blob:
                body = body[: len(body) // 2]
                self.close_connection = True
            if kind == "long" and is_blob:
                body += b"\0" * 70_000
                declared = len(body)
            if kind == "shorter" and is_blob:
                body = body[:-1]
                declared = len(body)
            if kind == "changed" and is_blob:
                body = flipped(body)
            if kind == "another manifest" and is_manifest:
                body = another
                declared = len(body)
            if kind == "no manifest" and is_manifest:
                body = b"<html></html>"
                declared = len(body)
            # Debian's registry has no lists of referrers, so that it answers both with 404.
            is_list = "/referrers/" in self.path or "/manifests/sha256-" in self.path
            self.send_response(500 if kind == "no list" and is_list else answer.status)
            for key, value in answer.getheaders():
                if key.lower() not in ("content-length", "connection", "transfer-encoding"):
                    self.send_header(key, value)
            self.send_header("Content-Length", str(declared))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """A client that ends its connection is no error here."""

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    through = f"127.0.0.1:{server.server_address[1]}"
    kinds = {
        "ends": (4, "does not answer"),
        "short": (4, "the component cannot be read"),
        "shorter": (3, "has sent"),
        "long": (3, "has sent"),
        "changed": (3, "has sent other content than sha256:"),
        "another manifest": (3, "has sent other content than sha256:"),
        "no manifest": (3, "has sent other content than sha256:"),
    }
    with registry(folder / "files", address):
        pushed = place.does(f"annex push timestamp oci://{REGISTRY}/{REPOSITORY}:1 2>/dev/null").strip()
        place.does(f"annex push secure-passport oci://{REGISTRY}/{REPOSITORY}:2")
        another = place.does(f"skopeo inspect --tls-verify=false --raw docker://{REGISTRY}/{REPOSITORY}:2").encode()
        place.does(f"annex sign --generate acme; annex sign {pushed} --key acme.key")
        reference = f"oci://{through}/{REPOSITORY}:1@{pushed.rsplit('@', 1)[1]}"
        for kind, (code, text) in kinds.items():
            fault["kind"] = kind
            place.ends(f"annex pull {reference} -o pulled.wasm", code, text)
            assert not (place.folder / "pulled.wasm").exists(), kind
        fault["kind"] = "no list"
        place.ends(f"annex verify {reference} --key acme.pub", 3, "cannot read the signatures", "500")
        fault["kind"] = ""
        place.does(f"annex verify {reference} --key acme.pub")
        place.does(f"annex pull {reference} -o pulled.wasm")
    server.shutdown()
    return f"{len(kinds) + 1} faults, no file"


def padded(component: bytes, size: int) -> bytes:
    """The component with a custom section of random bytes."""
    content = b"\x03pad" + os.urandom(size)
    length, rest = b"", len(content)
    while rest > 0x7F:
        length += bytes([rest & 0x7F | 0x80])
        rest >>= 7
    return component + b"\0" + length + bytes([rest]) + content


def throughput(annex: Path, folder: Path) -> str:
    """`annex pull` beside `skopeo copy`, in pairs, of which each second one begins with the other program."""
    address = free_address()
    place = Place(folder / "place", annex, address, free_address())
    (place.folder / "large.wasm").write_bytes(padded((annex.parent / "components/timestamp.wasm").read_bytes(), LARGE))
    copy = f"skopeo --insecure-policy copy --quiet --src-tls-verify=false docker://{REGISTRY}/a/large:1 oci:copied"
    pull = f"annex pull oci://{REGISTRY}/a/large:1 -o pulled.wasm"
    ratios = []
    with registry(folder / "files", address):
        place.does(f"annex push ./large.wasm oci://{REGISTRY}/a/large:1")
        for pair in range(PAIRS):
            seconds = {}
            for command in (pull, copy) if pair % 2 else (copy, pull):
                place.does("rm -rf pulled.wasm copied")
                begin = time.perf_counter()
                place.does(command)
                seconds[command] = time.perf_counter() - begin
            ratios.append(seconds[copy] / seconds[pull])
    return f"{LARGE // 1_000_000} MB with {statistics.median(ratios):.1f} times the throughput of skopeo copy"


def bench(annex: Path, folder: Path) -> None:
    """Pulls a component of 18 MB with each client in turn, and prints the throughput of each pair."""
    address = free_address()
    place = Place(folder / "place", annex, address, free_address())
    component = bytearray((annex.parent / "components/timestamp.wasm").read_bytes())
    filling = b"\x00" + os.urandom(SIZE - len(component) - 6)
    # A custom section without a name: its length in LEB128 with four digits of seven bits, then the bytes.
    length = len(filling)
    component += bytes([0, *(length >> shift & 0x7F | 0x80 for shift in (0, 7, 14)), length >> 21]) + filling
    (place.folder / "large.wasm").write_bytes(component)
    clients = {
        "annex": "annex pull oci://{0}/a/large:1 -o pulled.wasm",
        "skopeo": "skopeo --insecure-policy copy --src-tls-verify=false docker://{0}/a/large:1 dir:copied",
    }
    ratios = []
    with registry(folder / "files", address):
        place.does(f"annex push ./large.wasm oci://{REGISTRY}/a/large:1")
        for number in range(PAIRS):
            speeds = {}
            # The order alternates, so that neither client always finds the files warm.
            for name in sorted(clients, reverse=bool(number % 2)):
                (place.folder / "pulled.wasm").unlink(missing_ok=True)
                shutil.rmtree(place.folder / "copied", ignore_errors=True)
                started = time.monotonic()
                subprocess.run(
                    clients[name].format(address).split(), cwd=place.folder, env=place.environment, check=True,
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=LIMIT,
                )
                speeds[name] = len(component) / (time.monotonic() - started) / 1e6
            ratios.append(speeds["annex"] / speeds["skopeo"])
            print(f"annex {speeds['annex']:6.1f} MB/s   skopeo {speeds['skopeo']:6.1f} MB/s   ratio {ratios[-1]:.2f}", flush=True)
    print(f"median ratio of {PAIRS} pairs: {statistics.median(ratios):.2f}")


def main() -> None:
    annex = Path(sys.argv[1]).absolute()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if "--bench" in sys.argv[2:]:
        with TemporaryDirectory() as folder:
            bench(annex, Path(folder))
        return
    failed = passed = 0
    for check in (story, skopeo, password_and_tls, proxy, throughput):
        with TemporaryDirectory() as folder:
            try:
                print(f"ok    {check.__name__.replace('_', ' ')}: {check(annex, Path(folder))}", flush=True)
                passed += 1
            except Exception:
                print(f"FAILED {check.__name__}\n{traceback.format_exc()}", flush=True)
                failed += 1
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
