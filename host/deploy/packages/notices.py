"""The licences of what is linked into the program and the components, as cargo knows them."""

import json
import re
import subprocess
from pathlib import Path

# Names of files with a licence or a notice that has to go with the binary.
LICENCE_FILE = re.compile(r"(?i)^(licen[cs]e|copying|copyright|notice|unlicense)([-._].*)?$")
GUEST_TARGETS = ("wasm32-unknown-unknown", "wasm32-wasip2")
HEAD = """Annex is licensed under the Apache License 2.0. The program and its components contain the Rust standard library (MIT or
Apache-2.0, https://github.com/rust-lang/rust) and these packages:

"""


def text(root: Path, processor: str) -> str:
    """A list of the packages, and then each licence text once, with the packages that it came with."""
    packages = linked(root, f"{processor}-unknown-linux-gnu", lambda member: member["name"] == "annex-cli")
    for target in GUEST_TARGETS:
        packages |= linked(root, target, lambda member: Path(member["manifest_path"]).parent.parent == root / "guest")
    listed = sorted(packages.values(), key=lambda package: (package["name"], package["version"]))
    parts = [HEAD]
    users: dict[str, list[str]] = {}
    for package in listed:
        name = f"{package['name']} {package['version']}"
        place = package["repository"] or f"https://crates.io/crates/{package['name']}"
        parts.append(f"{name}: {package['license'] or 'see its text below'}, {place}\n")
        for path in licence_files(package):
            users.setdefault(path.read_text(errors="replace").strip(), []).append(name)
    for licence, names in users.items():
        parts.append(f"\n{'-' * 79}\n{', '.join(dict.fromkeys(names))}\n\n{licence}\n")
    return "".join(parts)


def licence_files(package: dict) -> list[Path]:
    folder = Path(package["manifest_path"]).parent
    named = {folder / package["license_file"]} if package["license_file"] else set()
    found = {path for path in folder.iterdir() if path.is_file() and LICENCE_FILE.match(path.name)}
    return sorted(named | found)


def linked(root: Path, target: str, is_start) -> dict[str, dict]:
    """The packages of others that the chosen members are linked with on a target, by their ids."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", target]
    metadata = json.loads(subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    waiting = [member for member in metadata["workspace_members"] if is_start(packages[member])]
    found: set[str] = set()
    while waiting:
        package = waiting.pop()
        if package in found:
            continue
        found.add(package)
        for dependency in nodes[package]["deps"]:
            # `None` is an ordinary dependency; the others are for builds and tests.
            is_linked = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            if is_linked and not is_macro(packages[dependency["pkg"]]):
                waiting.append(dependency["pkg"])
    # A package without a source is one of Annex.
    return {package: packages[package] for package in found if packages[package]["source"]}


def is_macro(package: dict) -> bool:
    """True for what runs in the compiler alone."""
    return any("proc-macro" in target["kind"] for target in package["targets"])
