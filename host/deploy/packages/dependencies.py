"""The packages of others that are linked into the program and the components, as cargo knows them."""

import json
import re
import subprocess
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

GUEST_TARGETS = ("wasm32-unknown-unknown", "wasm32-wasip2")
# The number of dependencies above it, the name and the version of a package in what `cargo tree` prints.
TREE_LINE = re.compile(r"(\d+)(\S+) v(\S+)(?: .*)?")

# The name and the version of a package.
Key = tuple[str, str]


@dataclass(frozen=True)
class Package:
    name: str
    version: str
    licence: str | None
    repository: str | None
    # The SHA-256 of the package's archive, as in Cargo.lock.
    checksum: str
    folder: Path
    licence_file: str | None
    needs: tuple[Key, ...]


@dataclass(frozen=True)
class Linked:
    # Sorted by name and version.
    packages: tuple[Package, ...]
    # Those that Annex itself needs.
    direct: tuple[Key, ...]


@cache
def linked(root: Path, processor: str) -> Linked:
    metadata = json.loads(cargo(root, "metadata", "--format-version", "1"))
    described = {(package["name"], package["version"]): package for package in metadata["packages"]}
    # A package without a source is one of Annex.
    own = {key for key, package in described.items() if not package["source"]}
    guests = [name for name, version in own if is_guest(root, described[name, version])]
    needs = tree(root, f"{processor}-unknown-linux-gnu", ["annex-cli"])
    for target in GUEST_TARGETS:
        for key, found in tree(root, target, sorted(guests)).items():
            needs.setdefault(key, set()).update(found)
    with (root / "Cargo.lock").open("rb") as lock:
        checksums = {(entry["name"], entry["version"]): entry.get("checksum") for entry in tomllib.load(lock)["package"]}

    def package(key: Key) -> Package:
        about = described[key]
        return Package(
            *key,
            licence=about["license"],
            repository=about["repository"],
            checksum=checksums[key],
            folder=Path(about["manifest_path"]).parent,
            licence_file=about["license_file"],
            needs=tuple(sorted(needs[key])),
        )

    direct = {need for key in needs.keys() & own for need in needs[key]} - own
    return Linked(tuple(package(key) for key in sorted(needs.keys() - own)), tuple(sorted(direct)))


def is_guest(root: Path, package: dict) -> bool:
    return Path(package["manifest_path"]).parent.parent == root / "guest"


def tree(root: Path, target: str, starts: list[str]) -> dict[Key, set[Key]]:
    """The packages that some members are linked with on a target, each with those that it needs. Unlike the metadata, the tree has
    only what the features of these members need."""
    chosen = [argument for start in starts for argument in ("--package", start)]
    edges = ("--edges", "normal,no-proc-macro", "--target", target)
    needs: dict[Key, set[Key]] = {}
    above: list[Key] = []
    for line in filter(None, cargo(root, "tree", "--prefix", "depth", *edges, *chosen).splitlines()):
        depth, name, version = TREE_LINE.fullmatch(line).groups()
        del above[int(depth) :]
        needs.setdefault((name, version), set())
        if above:
            needs[above[-1]].add((name, version))
        above.append((name, version))
    return needs


def cargo(root: Path, command: str, *arguments: str) -> str:
    whole = ["cargo", command, "--locked", *arguments]
    return subprocess.run(whole, cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout
