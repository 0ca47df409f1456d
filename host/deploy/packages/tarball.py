"""The tar, which is unpacked anywhere: the program finds the components beside it."""

from pathlib import Path

from contents import Contents
from tree import Tree, below, file, program, write_tar


def make(contents: Contents, into: Path) -> None:
    name = f"annex-{contents.version}-{contents.processor}-linux"
    write_tar(into / f"{name}.tar.gz", below(name, tree(contents)), contents.time)


def tree(contents: Contents) -> Tree:
    return {
        "annex": program(contents.program),
        **below("components", contents.components),
        **below("completions", contents.completions),
        **below("man/man1", contents.manual),
        "annex.service": file(contents.service),
        **contents.texts(),
    }
