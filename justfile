# Each recipe is what a person would type; `just` alone lists them.

_default:
    @just --list

# Run all tests
test:
    cargo test --workspace

# Check formatting, lints and documentation
lint:
    cargo fmt --check
    cargo clippy --workspace --all-targets -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# Serve the example agent on 127.0.0.1:9999
serve config="examples/specialist/annex.toml":
    cargo run --release -- serve {{ config }}

# Measure the runtime (load, fresh instance, hooks, chain) and the server under load
bench:
    cargo bench --package annex-runtime
    cargo bench --package annex-bench

# Build the extensions only; the shipped ones are in target/debug/components
guests:
    cargo build --package annex-components

# Build the program with the profile `dist`, and packages of it in target/packages (host/docs/packages.md)
dist:
    python3 host/deploy/packages/make.py

# Run the official clients against a running agent, over every binding
clients url="http://127.0.0.1:9999":
    python3 -m venv examples/clients/python/.venv
    examples/clients/python/.venv/bin/pip install --quiet -r examples/clients/python/requirements.txt
    examples/clients/python/.venv/bin/python examples/clients/python/client.py {{ url }}
    npm ci --prefix examples/clients/js
    node examples/clients/js/client.mjs {{ url }}
    python3 -m venv examples/clients/python-0.3/.venv
    examples/clients/python-0.3/.venv/bin/pip install --quiet -r examples/clients/python-0.3/requirements.txt
    examples/clients/python-0.3/.venv/bin/python examples/clients/python-0.3/client.py {{ url }}
