"""The Debian package: the program, its service, and a user for the service."""

import gzip
import hashlib
import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from contents import HERE, PROCESSORS, SUMMARY, Contents
from tree import File, Tree, below, file, link, program, write_files

CONFIG = "etc/annex/annex.toml"
SCRIPTS = ("postinst", "prerm", "postrm")
CONTROL = """Package: annex
Version: {version}
Architecture: {architecture}
Maintainer: The authors of Annex
Section: net
Priority: optional
Depends: libc6 (>= {glibc}), libgcc-s1, passwd, init-system-helpers, ca-certificates
Installed-Size: {size}
Description: {summary}
 Annex serves A2A agents, or stands in front of agents that are there, and runs
 extensions of the protocol as plug-ins with the rights that a config grants.
"""
# What is different from the unit for a folder that was unpacked by hand. The user is a lasting one, so that files can be its
# own, and commands can run as it.
UNIT = {
    "# Annex as a service of systemd. The executable and the folder `components` beside it are in /opt/annex, the config is\n"
    "# /etc/annex/annex.toml: host/docs/deployment.md.\n": "# Annex as a service of systemd. The config is /etc/annex/annex.toml.\n",
    "ExecStart=/opt/annex/annex ": "ExecStart=/usr/bin/annex ",
    "DynamicUser=yes\n": "User=annex\nGroup=annex\n",
}


def make(contents: Contents, into: Path) -> None:
    architecture = PROCESSORS[contents.processor][0]
    # A tilde sorts before the release.
    version = contents.version.replace("-", "~")
    files = tree(contents)
    about = CONTROL.format(
        version=version,
        architecture=architecture,
        glibc=contents.glibc,
        size=sum(len(entry.data) for entry in files.values()) // 1024,
        summary=SUMMARY,
    )
    sums = "".join(f"{hashlib.md5(entry.data).hexdigest()}  {path}\n" for path, entry in sorted(files.items()) if not entry.link)
    control = {"control": file(about), "conffiles": file(f"/{CONFIG}\n"), "md5sums": file(sums)}
    control |= {name: program((HERE / "debian" / name).read_text()) for name in SCRIPTS}
    with TemporaryDirectory() as folder:
        write_files(Path(folder), {**files, **below("DEBIAN", control)})
        package = into / f"annex_{version}_{architecture}.deb"
        # One thread: with several, the bytes would depend on their number.
        options = ["--root-owner-group", "-Zzstd", "--threads-max=1", "--build", folder, str(package)]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(contents.time)}
        subprocess.run(["dpkg-deb", *options], env=environment, check=True, stdout=subprocess.DEVNULL)


def tree(contents: Contents) -> Tree:
    manual = {f"{name}.gz": packed(page) for name, page in contents.manual.items()}
    completions = contents.completions
    texts = contents.texts()
    licence, others = texts.pop("LICENSE"), texts.pop("NOTICES")
    return {
        "usr/bin/annex": link("../lib/annex/annex"),
        "usr/lib/annex/annex": program(contents.program),
        **below("usr/lib/annex/components", contents.components),
        "usr/lib/systemd/system/annex.service": file(unit(contents.service)),
        "usr/share/bash-completion/completions/annex": completions["annex"],
        "usr/share/zsh/vendor-completions/_annex": completions["_annex"],
        "usr/share/fish/vendor_completions.d/annex.fish": completions["annex.fish"],
        **below("usr/share/man/man1", manual),
        **below("usr/share/doc/annex", {"copyright": file(licence.data + b"\n" + others.data), **texts}),
        CONFIG: file(contents.config),
    }


def packed(entry: File) -> File:
    return file(gzip.compress(entry.data, 9, mtime=0))


def unit(text: str) -> str:
    for before, after in UNIT.items():
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    return text
