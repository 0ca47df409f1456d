//! Host side of `annex:extension@0.1.0`, generated at build time from `wit/annex-extension@0.1.0`.

wasmtime::component::bindgen!({
    path: "../../wit/annex-extension@0.1.0",
    world: "extension",
    imports: {
        // Only what waits: for somebody outside of the process, or for a worker.
        "annex:extension/json-schema.compile": async | trappable,
        "annex:extension/json-schema.validate": async | trappable,
        "wasi:keyvalue/store.[method]bucket.get": async | trappable,
        "wasi:keyvalue/store.[method]bucket.set": async | trappable,
        "wasi:keyvalue/store.[method]bucket.delete": async | trappable,
        "wasi:keyvalue/store.[method]bucket.exists": async | trappable,
        "wasi:keyvalue/store.[method]bucket.list-keys": async | trappable,
        "wasi:keyvalue/atomics.increment": async | trappable,
        "annex:extension/tasks.list": async | trappable,
        default: trappable,
    },
    exports: { default: async },
    with: {
        "wasi:keyvalue/store.bucket": crate::imports::keyvalue::Bucket,
    },
});
