"""The list of what is linked into the program and the components (SBOM), as CycloneDX 1.5 in JSON.

It has no serial number and no time, so that the same Cargo.lock gives the same bytes.
"""

import json
import re
from pathlib import Path
from urllib.parse import quote

from dependencies import Key, Package, linked

# The end of the name is the one that CycloneDX recommends.
NAME = "annex.cdx.json"
# The reference of Annex itself.
ANNEX = "annex"


def text(root: Path, processor: str, version: str) -> str:
    found = linked(root, processor)
    edges = {ANNEX: found.direct, **{purl((package.name, package.version)): package.needs for package in found.packages}}
    about = {"type": "application", "bom-ref": ANNEX, "name": "annex", "version": version}
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {**about, "licenses": [{"expression": "Apache-2.0"}]}},
        "components": [component(package) for package in found.packages],
        "dependencies": [{"ref": ref, "dependsOn": [purl(need) for need in needs]} for ref, needs in edges.items()],
    }
    return json.dumps(document, indent=1) + "\n"


def component(package: Package) -> dict:
    place = purl((package.name, package.version))
    entry = {"type": "library", "bom-ref": place, "name": package.name, "version": package.version}
    entry["hashes"] = [{"alg": "SHA-256", "content": package.checksum}]
    if package.licence:
        # Packages from before SPDX expressions separate licences by a slash.
        entry["licenses"] = [{"expression": re.sub(r"\s*/\s*", " OR ", package.licence)}]
    entry["purl"] = place
    if package.repository:
        entry["externalReferences"] = [{"type": "vcs", "url": package.repository}]
    return entry


def purl(package: Key) -> str:
    name, version = package
    return f"pkg:cargo/{name}@{quote(version, safe='')}"
