"""Makes the packages of Annex for the machine that it runs on, which has to be Linux with glibc.

    python3 host/deploy/packages/make.py                      # builds with the profile `dist`, then packs into target/packages
    python3 host/deploy/packages/make.py --program PROGRAM    # packs a program that is built, and the components beside it

With the file of a private key in ANNEX_SIGNING_KEY, the program signs SHA256SUMS.

The same program and commit give the same bytes: entries are sorted, owned by 0, and as old as the commit, or as
SOURCE_DATE_EPOCH says.
"""

import argparse
import hashlib
import os
import re
import subprocess
from pathlib import Path

import debian
import image
import npm
import tarball
import wheel
from contents import ROOT, Contents

# The files that `main` writes.
PACKAGE = re.compile(r"SHA256SUMS(\.sigstore\.json)?|annex[-_].*\.(tar\.gz|deb|whl|tgz)")

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--program", type=Path, help="a program that is built already, with `components` beside it")
parser.add_argument("--into", type=Path, default=ROOT / "target" / "packages", help="the folder of the packages")


def build() -> Path:
    """Builds the program with link-time optimisation."""
    command = ["cargo", "build", "--locked", "--profile", "dist", "--package", "annex-cli", "--bin", "annex"]
    subprocess.run(command, cwd=ROOT, check=True)
    return ROOT / "target" / "dist" / "annex"


def clear(folder: Path) -> None:
    """Removes the packages of an earlier version. A folder with anything else is no folder of packages."""
    folder.mkdir(parents=True, exist_ok=True)
    earlier = list(folder.iterdir())
    other = [path.name for path in earlier if not PACKAGE.fullmatch(path.name) or not path.is_file()]
    if other:
        raise SystemExit(f"{folder} has {min(other)}, which is no package: name another folder with --into")
    for path in earlier:
        path.unlink()


def sums(folder: Path) -> str:
    """The lines that `sha256sum --check` reads, for each package in the folder."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


def sign(program: Path, sums: Path, key: str) -> None:
    """Writes the signature of the digests beside them."""
    subprocess.run([program.absolute(), "sign", sums, "--key", Path(key).absolute()], check=True)


def main() -> None:
    arguments = parser.parse_args()
    program = arguments.program or build()
    contents = Contents.read(program)
    clear(arguments.into)
    for kind in (tarball, debian, wheel, npm, image):
        kind.make(contents, arguments.into)
    text = sums(arguments.into)
    (arguments.into / "SHA256SUMS").write_text(text)
    print(text, end="", flush=True)
    if key := os.environ.get("ANNEX_SIGNING_KEY"):
        sign(program, arguments.into / "SHA256SUMS", key)


if __name__ == "__main__":
    main()
