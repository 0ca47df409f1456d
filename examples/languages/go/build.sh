#!/bin/sh
# Makes timestamp.wasm. Needs Go 1.27.1 or newer and Rust.
set -eu
cd "$(dirname "$0")"
. ../contract.sh

tool() {
    cargo run --quiet --locked --manifest-path ../tool/Cargo.toml -- "$@"
}

# The bindings, and the package that they call, which is part of the generator's crate.
tool go wit timestamp timestamp
generator=$(cargo metadata --locked --format-version 1 --manifest-path ../tool/Cargo.toml |
    sed 's|.*"manifest_path":"\([^"]*/wit-bindgen-go-[^"/]*\)/Cargo.toml".*|\1|')
mkdir generated/pkg
cp -r "$generator/src/pkg/go.mod" "$generator/src/pkg/LICENSE" "$generator/src/pkg/wit" generated/pkg/

# The bindings name a function of Go's runtime that its linker keeps to itself.
GOOS=wasip1 GOARCH=wasm go build -trimpath -buildmode=c-shared -ldflags='-s -w -checklinkname=0' \
    -o timestamp.core.wasm ./generated
tool component wit timestamp timestamp.core.wasm timestamp.wasm
rm timestamp.core.wasm
