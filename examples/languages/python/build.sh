#!/bin/sh
# Makes timestamp.wasm. Needs Python 3.10 or newer with venv.
set -eu
cd "$(dirname "$0")"
. ../contract.sh

if [ ! -x .venv/bin/componentize-py ]; then
    python3 -m venv .venv
    .venv/bin/pip install --quiet --disable-pip-version-check componentize-py==0.25.1
fi

# For editors and type checkers: componentize makes bindings of its own.
rm -rf generated
.venv/bin/componentize-py -d wit -w timestamp bindings generated

.venv/bin/componentize-py -d wit -w timestamp componentize extension -o timestamp.wasm
