//! `annex:extension@0.1.0`: the only module that names the types generated from `wit/annex-extension@0.1.0`. Converts
//! them from and to the types of `contract`.

pub(crate) mod convert;
pub(crate) mod exports;
pub(crate) mod imports;

/// The Rust types and functions of the contract, which a macro generates at build time.
mod generated {
    wasmtime::component::bindgen!({
        path: "../../wit/annex-extension@0.1.0",
        world: "extension",
        imports: {
            // Only functions that wait: for I/O or for a worker thread.
            "annex:extension/json-schema.compile": async | trappable,
            "annex:extension/json-schema.validate": async | trappable,
            "wasi:keyvalue/store.[method]bucket.get": async | trappable,
            "wasi:keyvalue/store.[method]bucket.set": async | trappable,
            "wasi:keyvalue/store.[method]bucket.delete": async | trappable,
            "wasi:keyvalue/store.[method]bucket.exists": async | trappable,
            "wasi:keyvalue/store.[method]bucket.list-keys": async | trappable,
            "wasi:keyvalue/atomics.increment": async | trappable,
            "annex:extension/task-resumption.resume": async | trappable,
            "annex:extension/tasks.list": async | trappable,
            default: trappable,
        },
        exports: { default: async },
        with: {
            "wasi:keyvalue/store.bucket": crate::confinement::imports::keyvalue::Bucket,
        },
    });
}
