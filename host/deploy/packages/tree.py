"""Files of a package, and the archives of them whose bytes depend on nothing else."""

import gzip
import io
import tarfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True)
class File:
    data: bytes
    mode: int
    # The target of a symbolic link, which has no data.
    link: str | None = None


# Files by their paths.
Tree = dict[str, File]


def file(data: bytes | str) -> File:
    return File(data.encode() if isinstance(data, str) else data, 0o644)


def program(data: bytes | str) -> File:
    return File(data.encode() if isinstance(data, str) else data, 0o755)


def link(target: str) -> File:
    return File(b"", 0o777, target)


def below(folder: str, tree: Tree) -> Tree:
    return {f"{folder}/{path}": entry for path, entry in tree.items()}


def files_in(folder: Path) -> Tree:
    """The files of a folder without those of its subfolders."""
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return {path.name: file(path.read_bytes()) for path in paths if path.is_file()}


def folders(tree: Tree) -> list[str]:
    """The folders above the files, each after those above it."""
    return sorted({str(folder) for path in tree for folder in PurePosixPath(path).parents} - {"."})


def write_tar(path: Path, tree: Tree, time: int) -> None:
    """Writes a compressed tar, sorted, with this time, and of the owner 0, who has no name."""
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=time) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for name in sorted([*folders(tree), *tree]):
                entry = tarfile.TarInfo(name)
                entry.mtime = time
                if name not in tree:
                    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                    archive.addfile(entry)
                    continue
                entry.mode = tree[name].mode
                if tree[name].link:
                    entry.type, entry.linkname = tarfile.SYMTYPE, tree[name].link
                else:
                    entry.size = len(tree[name].data)
                archive.addfile(entry, io.BytesIO(tree[name].data))


def write_files(folder: Path, tree: Tree) -> None:
    """Writes the files below a folder, whatever the mask of the process is."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    for name in folders(tree):
        (folder / name).mkdir(exist_ok=True)
        (folder / name).chmod(0o755)
    for name, entry in tree.items():
        path = folder / name
        if entry.link:
            path.symlink_to(entry.link)
        else:
            path.write_bytes(entry.data)
            path.chmod(entry.mode)
