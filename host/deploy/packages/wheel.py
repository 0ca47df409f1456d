"""The wheel: an archive whose parts pip copies into a prefix, the program to `bin` and the components to `share`."""

import hashlib
import time
import zipfile
from base64 import urlsafe_b64encode
from pathlib import Path

import sbom
from contents import SUMMARY, Contents
from tree import Tree, below, file, program

METADATA = """Metadata-Version: 2.1
Name: annex-a2a
Version: {version}
Summary: {summary}
License: Apache-2.0
Requires-Python: >=3.8
Description-Content-Type: text/markdown

The program `annex`, with the extensions that ship with it.
"""
KIND = """Wheel-Version: 1.0
Generator: annex
Root-Is-Purelib: false
Tag: {tag}
"""


def make(contents: Contents, into: Path) -> None:
    name = f"annex_a2a-{contents.version}"
    tag = f"py3-none-manylinux_{contents.glibc.replace('.', '_')}_{contents.processor}"
    files = tree(contents, name, tag)
    # The list of files comes last and has no digest of its own.
    record = f"{name}.dist-info/RECORD"
    lines = [f"{path},sha256={digest(entry.data)},{len(entry.data)}\n" for path, entry in sorted(files.items())]
    entries = [*sorted(files.items()), (record, file("".join([*lines, f"{record},,\n"])))]
    # The oldest time that an archive of this kind can have is 1980.
    made = max(time.gmtime(contents.time)[:6], (1980, 1, 1, 0, 0, 0))
    with zipfile.ZipFile(into / f"{name}-{tag}.whl", "w") as archive:
        for path, entry in entries:
            described = zipfile.ZipInfo(path, made)
            described.create_system = 3  # Unix, whose permissions are in the upper half of the attributes
            described.external_attr = (0o100000 | entry.mode) << 16
            archive.writestr(described, entry.data, zipfile.ZIP_DEFLATED, 6)


def tree(contents: Contents, name: str, tag: str) -> Tree:
    texts = contents.texts()
    about = {
        "METADATA": file(METADATA.format(version=contents.version, summary=SUMMARY)),
        "WHEEL": file(KIND.format(tag=tag)),
        "licenses/LICENSE": texts.pop("LICENSE"),
        "licenses/NOTICES": texts.pop("NOTICES"),
        # PEP 770.
        f"sboms/{sbom.NAME}": texts.pop(sbom.NAME),
    }
    shared = {**below("components", contents.components), **texts}
    return {
        f"{name}.data/scripts/annex": program(contents.program),
        **below(f"{name}.data/data/share/annex", shared),
        **below(f"{name}.dist-info", about),
    }


def digest(data: bytes) -> str:
    return urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
