#!/bin/sh
# Makes timestamp.wasm. Needs Rust, and of Debian: clang-19 lld-19 libclang-rt-19-dev-wasm32 wasi-libc.
set -eu
cd "$(dirname "$0")"
. ../contract.sh

cargo run --quiet --locked --manifest-path ../tool/Cargo.toml -- c wit timestamp

# Rust's linker for WebAssembly makes the component; it calls wasm-ld.
tools=$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin
PATH=$tools:$(dirname "$(clang-19 --print-prog-name=wasm-ld)"):$PATH

clang-19 --target=wasm32-wasi -mexec-model=reactor -Os -flto -s -Wall -Wextra -Wno-unused-parameter \
    "-fuse-ld=$tools/wasm-component-ld" \
    -o timestamp.wasm extension.c generated/timestamp.c generated/timestamp_component_type.o
