"""The root file system of the container image, and the Containerfile that makes the image of it."""

import re
import subprocess
import tempfile
from pathlib import Path

from contents import HERE, Contents
from tree import Tree, below, file, program, write_files, write_tar

# The authorities that an agent trusts when it calls models and other agents.
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")


def make(contents: Contents, into: Path) -> None:
    name = f"annex-{contents.version}-{contents.processor}-image"
    files = {**below("root", tree(contents)), "Containerfile": file((HERE / "Containerfile").read_text())}
    write_tar(into / f"{name}.tar.gz", below(name, files), contents.time)


def tree(contents: Contents) -> Tree:
    if not AUTHORITIES.is_file():
        raise SystemExit(f"{AUTHORITIES} is missing: install the package ca-certificates")
    return {
        "opt/annex/annex": program(contents.program),
        **below("opt/annex/components", contents.components),
        **below("usr/share/doc/annex", contents.texts()),
        **libraries(contents.program),
        str(AUTHORITIES).lstrip("/"): file(AUTHORITIES.read_bytes()),
        # Makes the folder for compiled components, over which a volume or a tmpfs is mounted.
        "var/cache/.keep": file(b""),
    }


def libraries(data: bytes) -> Tree:
    """The libraries of this machine that the program is linked with, all of which belong to glibc or gcc."""
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder), {"annex": program(data)})
        listed = subprocess.run(["ldd", f"{folder}/annex"], check=True, stdout=subprocess.PIPE, text=True).stdout
    # `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)`, and without an arrow the loader.
    paths = re.findall(r"^\s(?:\S+ => )?(/\S+) \(", listed, re.MULTILINE)
    return {path.lstrip("/"): program(Path(path).read_bytes()) for path in paths}
