//! The context of WASI for one instance: with log lines for its output, and nothing else in it.

use std::sync::Arc;

use wasmtime::component::ResourceTable;
use wasmtime_wasi::WasiCtx;
use wasmtime_wasi_http::WasiHttpCtx;

use super::http::Hooks;
use super::stdio::LogStream;
use crate::confinement::http_sender::FIELD_BYTES;
use crate::confinement::profile::Profile;
use crate::contract::LogLevel;
use crate::observation::log::Log;

/// Handles that one instance can hold at once: streams, pollables, requests, responses.
const MAX_RESOURCES: usize = 100;
/// Random bytes that one call gives.
const MAX_RANDOM_BYTES: u64 = 64 << 10;

/// The WASI of one instance. It is made when it is first used, which most instances never do.
pub(crate) struct Wasi {
    pub(super) context: WasiCtx,
    pub(super) resources: ResourceTable,
    pub(super) http: WasiHttpCtx,
    pub(super) hooks: Hooks,
}

impl Wasi {
    pub(super) fn new(log: &Log, profile: &Arc<Profile>) -> Self {
        let mut resources = ResourceTable::new();
        // Handles, random bytes and header fields take memory of the host, which no limit of linear memory counts
        // (wasmtime GHSA-852m-cvvp-9p4w).
        resources.set_max_capacity(MAX_RESOURCES);
        let stream = |level, name| LogStream::new(log.clone(), level, name);
        let context = WasiCtx::builder()
            .stdout(stream(LogLevel::Info, "stdout"))
            .stderr(stream(LogLevel::Warn, "stderr"))
            .max_random_size(MAX_RANDOM_BYTES)
            // Every component may import sockets, as standard libraries do. None can be opened.
            .allow_tcp(false)
            .allow_udp(false)
            .allow_ip_name_lookup(false)
            .build();
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(FIELD_BYTES);
        Self { context, resources, http, hooks: Hooks::new(Arc::clone(profile), log.clone()) }
    }
}
