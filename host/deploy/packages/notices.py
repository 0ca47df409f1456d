"""The licences of what is linked into the program and the components."""

import re
from pathlib import Path

from dependencies import Package, linked

# Names of files with a licence or a notice that has to go with the binary.
LICENCE_FILE = re.compile(r"(?i)^(licen[cs]e|copying|copyright|notice|unlicense)([-._].*)?$")
HEAD = """Annex is licensed under the Apache License 2.0. The program and its components contain the Rust standard library (MIT or
Apache-2.0, https://github.com/rust-lang/rust) and these packages:

"""


def text(root: Path, processor: str) -> str:
    """A list of the packages, and then each licence text once, with the packages that it came with."""
    parts = [HEAD]
    users: dict[str, list[str]] = {}
    for package in linked(root, processor).packages:
        name = f"{package.name} {package.version}"
        place = package.repository or f"https://crates.io/crates/{package.name}"
        parts.append(f"{name}: {package.licence or 'see its text below'}, {place}\n")
        for path in licence_files(package):
            users.setdefault(path.read_text(errors="replace").strip(), []).append(name)
    for licence, names in users.items():
        parts.append(f"\n{'-' * 79}\n{', '.join(dict.fromkeys(names))}\n\n{licence}\n")
    return "".join(parts)


def licence_files(package: Package) -> list[Path]:
    named = {package.folder / package.licence_file} if package.licence_file else set()
    found = {path for path in package.folder.iterdir() if path.is_file() and LICENCE_FILE.match(path.name)}
    return sorted(named | found)
