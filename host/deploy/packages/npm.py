"""The npm packages: one that starts the program, and an optional dependency that brings it for this platform."""

import json
from pathlib import Path

from contents import HERE, PROCESSORS, SUMMARY, Contents
from tree import Tree, below, file, program, write_tar


def make(contents: Contents, into: Path) -> None:
    node = PROCESSORS[contents.processor][1]
    # Only the owner of a scope can publish into it, also for the platforms that have no package yet.
    platform = f"@annex-a2a/linux-{node}"
    common = {"version": contents.version, "description": SUMMARY, "license": "Apache-2.0"}
    starter = {
        "name": "annex-a2a",
        **common,
        "type": "module",
        "bin": {"annex-a2a": "annex.mjs", "annex": "annex.mjs"},
        "engines": {"node": ">=18"},
        "optionalDependencies": {platform: contents.version},
    }
    for_platform = {"os": ["linux"], "cpu": [node], "libc": ["glibc"], "preferUnplugged": True}
    brought = {"name": platform, **common, **for_platform, "publishConfig": {"access": "public"}}
    start: Tree = {"annex.mjs": program((HERE / "npm" / "annex.mjs").read_text())}
    parts = {"annex": program(contents.program), **below("components", contents.components), **contents.texts()}
    write(into, starter, {**start, "LICENSE": file(contents.licence)}, contents.time)
    write(into, brought, parts, contents.time)


def write(into: Path, about: dict, tree: Tree, time: int) -> None:
    """Writes the archive that `npm pack` would make: a folder `package`."""
    files = {"package.json": file(json.dumps(about, indent=2) + "\n"), **tree}
    name = about["name"].removeprefix("@").replace("/", "-")
    write_tar(into / f"{name}-{about['version']}.tgz", below("package", files), time)
