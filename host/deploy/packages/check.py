"""Installs packages into empty places, by the commands of host/docs/packages.md, and runs the first example of the README with
each: a call without session state is refused, and a call with it is answered.

    python3 host/deploy/packages/check.py target/packages

The package of Debian is installed into a copy of this machine's root that takes every change in memory or a folder. That needs
root and overlayfs. Without them its files alone are tried.
"""

import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import traceback
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import sbom
from contents import PROCESSORS
from ports import free_port, is_ready

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "packages.md"
QUESTION = "Who am I and what is my email?"
STATE = '{"user_info":{"name":"Ada","role":"Engineer","email":"ada@example.com"}}'
# Seconds from the first command to the answer. A package that has to build something takes longer.
MOST = 30
# The user of the image.
NOBODY = 10001
# Where packages of Debian have files, and what the package manager remembers there.
SYSTEM = ("/etc", "/opt", "/usr", "/var")
REMEMBERED = ("/var/cache/apt", "/var/cache/man", "/var/lib/apt", "/var/lib/dpkg", "/var/log")
# What `SHA256SUMS` cannot name.
UNLISTED = ("SHA256SUMS", "SHA256SUMS.sigstore.json")
# What the list of dependencies has, among others: something that the program uses, and something that components use.
DEPENDENCIES = ("rustls", "wasmtime", "wit-bindgen")


class Skipped(Exception):
    """Something cannot be tried on this machine."""


def page_for(packages: Path) -> str:
    """The page with the names that the packages have here: it is written for one version, glibc and processor."""
    wheel = next(packages.glob("*.whl")).name
    version, glibc, processor = re.fullmatch(r"annex_a2a-(.+)-py3-none-(manylinux_\d+_\d+)_(\w+)\.whl", wheel).groups()
    debian, node = PROCESSORS[processor]
    here = {"0.1.0": version, "manylinux_2_34": glibc, "x86_64": processor, "_amd64": f"_{debian}", "linux-x64": f"linux-{node}"}
    text = PAGE.read_text()
    for name, name_here in here.items():
        assert name in text, name
        text = text.replace(name, name_here)
    return text


def commands(section: str, packages: Path) -> list[str]:
    """The commands of a section's first block."""
    found = re.search(rf"^## {section}\n\n```sh\n(.*?)```", page_for(packages), re.MULTILINE | re.DOTALL)
    assert found, section
    return found[1].splitlines()


def shell(script: str, folder: Path) -> subprocess.Popen:
    """Starts commands in a folder with nothing of this user's settings."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "DEBIAN_FRONTEND": "noninteractive"}
    # Packages come from the folder alone.
    environment |= {"npm_config_offline": "true", "npm_config_update_notifier": "false", "PIP_NO_INDEX": "1"}
    log = (folder / "log").open("a")
    return subprocess.Popen(["sh", "-euc", script], cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)


def end(leader: subprocess.Popen) -> None:
    """Ends what is left of a group of processes."""
    try:
        os.killpg(leader.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    leader.wait()


def story(section: str, packages: Path, folder: Path, prefix: str = "") -> str:
    """Runs the commands of a section, whose last one serves, and calls what is served. `prefix` is run before the last one."""
    *install, serve = commands(section, packages)
    program, config = re.fullmatch(r"(.*?) serve (\S+)", serve).groups()
    port = free_port()
    # The config is in the package, and its port may be in use.
    copied = f"sed 's/127.0.0.1:9999/127.0.0.1:{port}/' {config} > specialist.toml"
    script = "\n".join([*install, copied, f"exec {prefix}{program} serve specialist.toml"])
    begin = time.monotonic()
    server = shell(script, folder)
    try:
        while not is_ready(port):
            assert server.poll() is None, f"it ended before it was ready: {(folder / 'log').read_text()}"
            assert time.monotonic() - begin < MOST, f"it is not ready: {(folder / 'log').read_text()}"
            time.sleep(0.05)
        paths = "\n".join(line for line in install if line.startswith("export "))
        say = f"{prefix}{program} send http://127.0.0.1:{port} '{QUESTION}'"
        healthy = shell(f"{paths}\n{prefix}{program} health http://127.0.0.1:{port}", folder)
        answered = shell(f"{paths}\n{say} --state '{STATE}'", folder)
        assert answered.wait(MOST) == 0 and healthy.wait(MOST) == 0, (folder / "log").read_text()
        seconds = time.monotonic() - begin
        assert shell(f"{paths}\n{say}", folder).wait(MOST) == 3, "a call without state is not refused"
        # As a supervisor ends it: the process that was started alone gets the signal.
        server.send_signal(signal.SIGTERM)
        assert server.wait(MOST) == 0, f"it does not end well: {(folder / 'log').read_text()}"
    finally:
        end(server)
    log = (folder / "log").read_text()
    assert "Ada" in log and "ada@example.com" in log, log
    return f"{seconds:.1f} s from the first command to the answer"


def place(packages: Path, pattern: str, folder: Path) -> Path:
    for path in packages.glob(pattern):
        shutil.copy(path, folder)
    return folder


def can_mount() -> bool:
    return subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True).returncode == 0


def sums(packages: Path, _: Path) -> str:
    """SHA256SUMS has each file, and the page names each file."""
    lines = dict(reversed(line.split("  ")) for line in (packages / "SHA256SUMS").read_text().splitlines())
    listed = [path for path in packages.iterdir() if path.name not in UNLISTED]
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in listed}
    assert lines == files, (lines, files)
    unnamed = [name for name in files if f"`{name}`" not in page_for(packages)]
    assert not unnamed, f"the page does not name {unnamed}"
    return f"{len(files)} files"


def signature(packages: Path, folder: Path) -> str:
    """The program signs the digests and verifies the packages, and refuses a package that was changed. Commands are those of the
    page."""
    for path in packages.iterdir():
        if path.name != "SHA256SUMS.sigstore.json":
            shutil.copy(path, folder)
    unpack = commands("Tar", packages)[:2]
    make_key, sign, verify = commands("Signatures", packages)
    log = folder / "log"
    assert shell("\n".join([*unpack, make_key, sign, verify]), folder).wait(MOST) == 0, log.read_text()
    names = [path.name for path in packages.iterdir() if path.name not in UNLISTED]
    unverified = [name for name in names if f"{name}: verified\n" not in log.read_text()]
    assert not unverified, (unverified, log.read_text())
    changed = next(folder.glob("*.whl"))
    changed.write_bytes(changed.read_bytes() + b"\0")
    assert shell("\n".join([unpack[1], verify]), folder).wait(MOST) == 3, "a changed package is not refused"
    assert changed.name in log.read_text().splitlines()[-1], log.read_text()
    return f"{len(names)} files verified, and a changed one refused"


def sboms(packages: Path, folder: Path) -> str:
    """Each package has the same list of dependencies: those of NOTICES, each with its digest and licence."""
    with zipfile.ZipFile(next(packages.glob("*.whl"))) as wheel:
        about = wheel.namelist()[0].split(".data/")[0] + ".dist-info"
        found = {"wheel": wheel.read(f"{about}/sboms/{sbom.NAME}")}
        notices = wheel.read(f"{about}/licenses/NOTICES").decode()
    for pattern in ("*-linux.tar.gz", "*-image.tar.gz", "*-linux-*.tgz"):
        with tarfile.open(next(packages.glob(pattern))) as archive:
            found[pattern] = read_member(archive, sbom.NAME)
    files = subprocess.run(["dpkg-deb", "--fsys-tarfile", next(packages.glob("*.deb"))], check=True, stdout=subprocess.PIPE)
    with tarfile.open(fileobj=io.BytesIO(files.stdout)) as archive:
        found["deb"] = read_member(archive, f"usr/share/doc/annex/{sbom.NAME}")
    assert len(set(found.values())) == 1, {name: hashlib.sha256(data).hexdigest() for name, data in found.items()}
    document = json.loads(found["wheel"])
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    # Two builds would have other ones.
    assert "serialNumber" not in document and "timestamp" not in document["metadata"]
    assert str(HERE.parents[2]).encode() not in found["wheel"], "it has a path of this machine"
    components = document["components"]
    named = [f"{entry['name']} {entry['version']}" for entry in components]
    noticed = re.findall(r"^(\S+ \S+): ", notices.split("\n\n", 2)[1], re.MULTILINE)
    assert named == noticed and named == sorted(set(named), key=lambda name: name.split()), set(named) ^ set(noticed)
    assert set(DEPENDENCIES) <= {entry["name"] for entry in components}
    for entry in components:
        assert entry["licenses"] and re.fullmatch("[0-9a-f]{64}", entry["hashes"][0]["content"]), entry
        assert entry["purl"] == entry["bom-ref"] and entry["purl"].startswith(f"pkg:cargo/{entry['name']}@"), entry
    refs = {sbom.ANNEX, *(entry["purl"] for entry in components)}
    edges = {edge["ref"]: edge["dependsOn"] for edge in document["dependencies"]}
    reached, waiting = set(), [sbom.ANNEX]
    while waiting:
        ref = waiting.pop()
        if ref not in reached:
            reached.add(ref)
            waiting += edges[ref]
    assert reached == refs == edges.keys(), reached ^ refs
    return f"{len(components)} dependencies in {len(found)} packages"


def read_member(archive: tarfile.TarFile, end: str) -> bytes:
    """The only file of an archive whose path ends so."""
    [member] = [member for member in archive.getmembers() if member.name.endswith(f"/{end}")]
    return archive.extractfile(member).read()


def tar(packages: Path, folder: Path) -> str:
    return story("Tar", packages, place(packages, "*-linux.tar.gz", folder))


def pip(packages: Path, folder: Path) -> str:
    return story("pip", packages, place(packages, "*.whl", folder))


def npm(packages: Path, folder: Path) -> str:
    return story("npm", packages, place(packages, "*.tgz", folder))


def words(containerfile: str, start: str) -> str:
    """The command of an instruction of a Containerfile, none of whose words needs quotes."""
    return " ".join(json.loads(re.search(rf"^{start}(\[.*\])$", containerfile, re.MULTILINE)[1]))


def container(packages: Path, folder: Path) -> str:
    """The root file system of the image serves as it would in a container: read-only, as nobody, with nothing else in it."""
    place(packages, "*-image.tar.gz", folder)
    unpack, build = commands("Containers", packages)
    assert shell(unpack, folder).wait(MOST) == 0, (folder / "log").read_text()
    context = next(folder.glob("*-image"))
    built = "; buildah is not there"
    if shutil.which("buildah"):
        # Some containers let nobody mount.
        built = "; buildah cannot build on this machine"
        if shell("buildah rm $(buildah from scratch)", folder).wait(MOST) == 0:
            assert shell(build, folder).wait(120) == 0, (folder / "log").read_text()
            built = ", built by buildah"
    if not can_mount():
        raise Skipped(f"only root can try the root file system{built}")
    root, port = context / "root", free_port()
    listen = f'0.0.0.0:{port}"\nallow_anonymous = true #'
    config = (root / "usr/share/doc/annex/specialist.toml").read_text().replace("127.0.0.1:9999", listen)
    (root / "etc/annex").mkdir()
    (root / "etc/annex/annex.toml").write_text(config)
    folder.chmod(0o755)
    declared = (context / "Containerfile").read_text()
    [program, arguments, check] = (words(declared, start) for start in ("ENTRYPOINT ", "CMD ", "HEALTHCHECK .* CMD "))
    command, environment = f"{program} {arguments}", re.search(r"^ENV (.*)$", declared, re.MULTILINE)[1]
    user = f"chroot --userspec={NOBODY}:{NOBODY} {root}"
    # What a container is given.
    for name in ("dev", "proc"):
        (root / name).mkdir()
    mounts = [
        f"mount --bind {root} {root}",
        f"mount --rbind /dev {root}/dev",
        f"mount -t proc proc {root}/proc",
        f"mount -o remount,bind,ro {root}",
        f"mount -t tmpfs -o mode=1777 tmpfs {root}/var/cache",
    ]
    script = f"unshare --mount sh -euc '{'; '.join(mounts)}; export {environment}; exec {user} {command}'"
    server = shell(f"exec {script}", folder)
    try:
        begin = time.monotonic()
        # The address is in the config, so the check needs nothing that is mounted.
        while shell(f"exec {user} {check}", folder).wait():
            assert server.poll() is None and time.monotonic() - begin < MOST, (folder / "log").read_text()
            time.sleep(0.05)
        server.terminate()
        assert server.wait(MOST) == 0, (folder / "log").read_text()
    finally:
        end(server)
    return f"healthy as the user {NOBODY}{built}"


def debian(packages: Path, folder: Path) -> str:
    """Installs, serves, upgrades with its data, and leaves nothing behind when it is purged."""
    place(packages, "*.deb", folder)
    root = folder / "root"
    if not can_mount():
        raise Skipped("only root can install it")
    # Its name says what the names of the other packages are.
    wheel = next(packages.glob("*.whl")).name
    # The changed files of the copy are in memory: an overlay cannot lie on another one.
    mount = f"""
        mkdir root changes
        mount -t tmpfs tmpfs changes
        mkdir changes/upper changes/work
        mount -t overlay overlay -o lowerdir=/,upperdir=changes/upper,workdir=changes/work root
        for name in proc dev; do mount --rbind /$name root/$name; done
        mount -t tmpfs tmpfs root/run
        mkdir root/tmp/packages
        cp *.deb root/tmp/packages
        touch root/tmp/packages/{wheel}
        mkdir --parents root{HERE} root{PAGE.parent}
        cp {HERE}/*.py root{HERE}
        cp {PAGE} root{PAGE}
        exec chroot root {sys.executable} {HERE}/check.py --inside /tmp/packages
    """
    done = subprocess.run(["unshare", "--mount", "sh", "-euc", mount], cwd=folder, capture_output=True, text=True)
    if "mount" in done.stderr and not root.joinpath("tmp/packages").exists() and done.returncode == 32:
        raise Skipped(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip().splitlines()[-1]


def entries() -> set[str]:
    """The files of the system, without what the package manager remembers."""
    walks = [walk for start in SYSTEM for walk in os.walk(start)]
    found = {os.path.join(folder, name) for folder, folders, files in walks for name in [*folders, *files]}
    return {path for path in found if not path.startswith(REMEMBERED)}


def inside(folder: Path) -> str:
    """What `debian` does in the copy of the root."""
    users, before = Path("/etc/passwd").read_text(), entries()
    told = story("Debian", folder, folder, "env XDG_CACHE_HOME=/var/lib/annex ")
    kept = Path("/var/lib/annex/kept")
    kept.write_text("a conversation")
    config = Path("/etc/annex/annex.toml")
    config.write_text(config.read_text() + "# changed\n")
    package = next(folder.glob("*.deb"))
    for command in (f"apt-get install --yes --reinstall {package}", "annex check /etc/annex/annex.toml"):
        assert shell(command, folder).wait(120) == 0, (folder / "log").read_text()
    assert kept.exists() and config.read_text().endswith("# changed\n"), "the upgrade lost something"
    postinst, postrm = (Path(f"/var/lib/dpkg/info/annex.{name}").read_text() for name in ("postinst", "postrm"))
    assert shell("apt-get purge --yes annex", folder).wait(120) == 0, (folder / "log").read_text()
    left = entries() - before
    assert not left and Path("/etc/passwd").read_text() == users, f"it left {sorted(left)}"
    # A person of the same name.
    subprocess.run(["useradd", "--home-dir", "/home/ada", "annex"], check=True)
    assert subprocess.run(["sh", "-c", postinst, "postinst", "configure"]).returncode == 1, "the service would run as a person"
    subprocess.run(["sh", "-c", postrm, "postrm", "purge"], check=True)
    assert "\nannex:" in Path("/etc/passwd").read_text(), "it deleted a user that it had not made"
    return f"{told}; upgraded and purged"


def main(packages: Path) -> int:
    steps: list[Callable[[Path, Path], str]] = [sums, sboms, signature, tar, pip, npm, debian, container]
    passed = skipped = 0
    for step in steps:
        with TemporaryDirectory() as folder:
            try:
                print(f"ok    {step.__name__}: {step(packages, Path(folder))}", flush=True)
                passed += 1
            except Skipped as reason:
                print(f"SKIPPED {step.__name__}: {reason}", flush=True)
                skipped += 1
            except Exception:
                print(f"FAILED {step.__name__}: {traceback.format_exc()}", flush=True)
    failed = len(steps) - passed - skipped
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1] == "--inside":
        print(inside(Path(sys.argv[2])))
    else:
        sys.exit(main(Path(sys.argv[1]).absolute()))
