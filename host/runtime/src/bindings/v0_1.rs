//! Host side of `annex:extension@0.1.0`, generated at build time from `wit/annex-extension@0.1.0`.

wasmtime::component::bindgen!({
    path: "../../wit/annex-extension@0.1.0",
    world: "extension",
    imports: { default: trappable },
    exports: { default: async },
});
