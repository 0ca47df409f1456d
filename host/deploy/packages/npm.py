"""The npm packages: one that starts the program, and an optional dependency that brings it for this platform."""

import json
from pathlib import Path

from contents import HERE, PROCESSORS, SUMMARY, Contents
from tree import Tree, below, file, program, write_tar


def make(contents: Contents, into: Path) -> None:
    node = PROCESSORS[contents.processor][1]
    platform = f"annex-a2a-linux-{node}"
    common = {"version": contents.version, "description": SUMMARY, "license": "Apache-2.0"}
    starter = {
        "name": "annex-a2a",
        **common,
        "type": "module",
        "bin": {"annex-a2a": "annex.mjs", "annex": "annex.mjs"},
        "engines": {"node": ">=18"},
        "optionalDependencies": {platform: contents.version},
    }
    brought = {"name": platform, **common, "os": ["linux"], "cpu": [node], "libc": ["glibc"], "preferUnplugged": True}
    start: Tree = {"annex.mjs": program((HERE / "npm" / "annex.mjs").read_text())}
    parts = {"annex": program(contents.program), **below("components", contents.components), **contents.texts()}
    write(into, starter, {**start, "LICENSE": file(contents.licence)}, contents.time)
    write(into, brought, parts, contents.time)


def write(into: Path, about: dict, tree: Tree, time: int) -> None:
    """Writes the archive that `npm pack` would make: a folder `package`."""
    files = {"package.json": file(json.dumps(about, indent=2) + "\n"), **tree}
    write_tar(into / f"{about['name']}-{about['version']}.tgz", below("package", files), time)
