"""What each package has: the program, its components, completions, manual pages, the service, the licences,
and the list of dependencies."""

import json
import os
import platform
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import notices
import sbom
from tree import Tree, file, files_in

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SUMMARY = "A2A server and proxy that loads extensions as WebAssembly components"
# The names of this processor, as Python has them, in Debian and in Node.js.
PROCESSORS = {"x86_64": ("amd64", "x64"), "aarch64": ("arm64", "arm64")}
# A section of programs that BOLT has written. They have no symbols, and `strip` would break them.
BOLT_SECTION = b".note.bolt_info"
# Where a shell looks for its completions.
SHELLS = {"bash": "annex", "zsh": "_annex", "fish": "annex.fish"}


@dataclass(frozen=True)
class Contents:
    """The parts of a package. Trees have paths from the folder of their kind."""

    version: str
    # Seconds since 1970, the age of each entry.
    time: int
    # The oldest glibc that has all symbols of the program, such as 2.34.
    glibc: str
    processor: str
    program: bytes
    components: Tree
    completions: Tree
    manual: Tree
    service: str
    # A config that serves as it is, with every key as a comment.
    config: bytes
    example: bytes
    licence: bytes
    notices: bytes
    sbom: str

    @staticmethod
    def read(program: Path) -> "Contents":
        """Asks the program for what it writes itself, and reads the rest from the repository."""
        program = program.absolute()
        processor = platform.machine()
        if sys.platform != "linux" or processor not in PROCESSORS:
            sys.exit(f"packages are made on Linux, on {' or '.join(PROCESSORS)}; this is {sys.platform} on {processor}")
        components = files_in(program.parent / "components")
        if not components:
            sys.exit(f"{program.parent / 'components'} has no components: build the program with cargo, which makes them")
        with TemporaryDirectory() as folder:
            # What is packaged is what is asked, so a program that does not run is not packaged.
            stripped = Path(folder, "annex")
            stripped.write_bytes(program.read_bytes())
            stripped.chmod(0o755)
            if BOLT_SECTION not in stripped.read_bytes():
                # Names of functions and lines are two fifths of the program.
                run("strip", "--strip-all", str(stripped))
            manual = Path(folder, "man")
            run(str(stripped), "man", str(manual))
            config = Path(folder, "annex.toml")
            run(str(stripped), "init", str(config))
            data = stripped.read_bytes()
            return Contents(
                version=version(),
                time=int(os.environ.get("SOURCE_DATE_EPOCH") or run("git", "log", "-1", "--format=%ct")),
                glibc=oldest_glibc(data),
                processor=processor,
                program=data,
                components=components,
                completions={name: file(run(str(stripped), "completions", shell)) for shell, name in SHELLS.items()},
                manual=files_in(manual),
                service=(ROOT / "host/deploy/systemd/annex.service").read_text(),
                config=config.read_bytes(),
                example=example(),
                licence=(ROOT / "LICENSE").read_bytes(),
                notices=notices.text(ROOT, processor).encode(),
                sbom=sbom.text(ROOT, processor, version()),
            )

    def texts(self) -> Tree:
        """What a person reads: the example's config, the licence, and those of dependencies. And their list for scanners."""
        licences = {"LICENSE": file(self.licence), "NOTICES": file(self.notices)}
        return {"specialist.toml": file(self.example), **licences, sbom.NAME: file(self.sbom)}


def run(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def version() -> str:
    packages = json.loads(run("cargo", "metadata", "--format-version", "1", "--no-deps", "--locked"))["packages"]
    return next(package["version"] for package in packages if package["name"] == "annex-cli")


def oldest_glibc(program: bytes) -> str:
    """The newest version among the symbols of glibc that the program needs."""
    versions = {tuple(map(int, found.split(b"."))) for found in re.findall(rb"\0GLIBC_(2\.\d+)\b", program)}
    return ".".join(map(str, max(versions)))


def example() -> bytes:
    """The config of the README's first example. Its comments name a clone of the repository."""
    text = (ROOT / "examples/specialist/annex.toml").read_text()
    clone, installed = "cargo run --release -- serve examples/specialist/annex.toml", "annex serve specialist.toml"
    assert clone in text, clone
    return text.replace(clone, installed).encode()
