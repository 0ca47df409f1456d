"""Makes the packages of Annex for the machine that it runs on, which has to be Linux with glibc.

    python3 host/deploy/packages/make.py                      # builds with the profile `dist`, orders the code, then packs
    python3 host/deploy/packages/make.py --profile FILE       # orders the code by the profile of an earlier build
    python3 host/deploy/packages/make.py --plain              # leaves the code as the compiler orders it
    python3 host/deploy/packages/make.py --program PROGRAM    # packs a program that is built, and the components beside it

With the file of a private key in ANNEX_SIGNING_KEY, the program signs SHA256SUMS.

The same program and commit give the same bytes: entries are sorted, owned by 0, and as old as the commit, or as
SOURCE_DATE_EPOCH says.
"""

import argparse
import gzip
import hashlib
import os
import platform
import re
import subprocess
from pathlib import Path

import bolt
import debian
import image
import npm
import tarball
import wheel
from contents import ROOT, Contents, version

# The files that `main` writes.
PACKAGE = re.compile(r"SHA256SUMS(\.sigstore\.json)?|annex[-_].*\.(tar\.gz|deb|whl|tgz|fdata\.gz)")

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--program", type=Path, help="a program that is built already, with `components` beside it")
parser.add_argument("--plain", action="store_true", help="leave the code in the order of the compiler, which needs no BOLT")
parser.add_argument("--profile", type=Path, help="the profile of an earlier build, in place of a training")
parser.add_argument("--into", type=Path, default=ROOT / "target" / "packages", help="the folder of the packages")


def build(*linking: str) -> Path:
    """Builds the program with link-time optimisation."""
    command = ["cargo", "rustc", "--locked", "--profile", "dist", "--package", "annex-cli", "--bin", "annex"]
    # The components are files of the packages.
    subprocess.run([*command, "--no-default-features", "--", *linking], cwd=ROOT, check=True)
    return ROOT / "target" / "dist" / "annex"


def ordered(into: Path, earlier: Path | None) -> Path:
    """Builds the program and orders its code. The profile is stored beside the packages."""
    bolt.check()
    program = build("-C", "link-arg=-Wl,--emit-relocs")
    folder = program.parent / "ordered"
    folder.mkdir(exist_ok=True)
    profile = folder / "annex.fdata"
    if earlier:
        profile.write_bytes(gzip.decompress(earlier.read_bytes()))
    else:
        bolt.train(program, profile)
    bolt.reorder(program, profile, folder / "annex")
    components = folder / "components"
    components.unlink(missing_ok=True)
    components.symlink_to(program.parent / "components")
    kept = into / f"annex-{version()}-{platform.machine()}.fdata.gz"
    kept.write_bytes(gzip.compress(profile.read_bytes(), mtime=0))
    return folder / "annex"


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
    # A profile may be one of the folder's own.
    earlier = arguments.profile
    if earlier and arguments.into in earlier.parents:
        raise SystemExit(f"{earlier} would be replaced: copy it to another folder first")
    clear(arguments.into)
    program = arguments.program or (build() if arguments.plain else ordered(arguments.into, earlier))
    contents = Contents.read(program)
    for kind in (tarball, debian, wheel, npm, image):
        kind.make(contents, arguments.into)
    text = sums(arguments.into)
    (arguments.into / "SHA256SUMS").write_text(text)
    print(text, end="", flush=True)
    if key := os.environ.get("ANNEX_SIGNING_KEY"):
        sign(program, arguments.into / "SHA256SUMS", key)


if __name__ == "__main__":
    main()
