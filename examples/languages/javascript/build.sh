#!/bin/sh
# Makes timestamp.wasm. Needs Node 20 or newer with npm.
set -eu
cd "$(dirname "$0")"
. ../contract.sh

# Without a lock file, which `npm ci` refuses: the binaries for some platforms were never published.
[ -d node_modules ] || npm install --no-package-lock --no-audit --no-fund --no-update-notifier --loglevel=error >/dev/null
npx componentize-qjs --sync --wit wit --world timestamp --js extension.js --output timestamp.wasm
