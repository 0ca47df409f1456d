//! The WASI context of an instance: output goes to the log, and everything else is empty.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use rand::TryRng;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{HostMonotonicClock, HostWallClock, WasiCtx};
use wasmtime_wasi_http::WasiHttpCtx;

use super::http::Hooks;
use super::stdio::LogStream;
use crate::confinement::http_sender::FIELD_BYTES;
use crate::confinement::profile::Profile;
use crate::contract::LogLevel;
use crate::observation::log::Log;
use crate::overrides::{Clock, Random, ServiceOverrides};

/// Most handles that an instance can hold: streams, pollables, requests, responses.
const MAX_RESOURCES: usize = 100;
/// Most random bytes per call.
const MAX_RANDOM_BYTES: u64 = 64 << 10;

/// The WASI state of an instance, created on first use.
pub(crate) struct Wasi {
    pub(super) context: WasiCtx,
    pub(super) resources: ResourceTable,
    pub(super) http: WasiHttpCtx,
    pub(super) hooks: Hooks,
}

impl Wasi {
    pub(super) fn new(log: &Log, profile: &Arc<Profile>, overrides: &ServiceOverrides) -> Self {
        let mut resources = ResourceTable::new();
        // Handles, random bytes and header fields take host memory, which the limit on linear memory does not cover
        // (wasmtime GHSA-852m-cvvp-9p4w).
        resources.set_max_capacity(MAX_RESOURCES);
        let stream = |level, name| LogStream::new(log.clone(), level, name);
        let mut context = WasiCtx::builder();
        context
            .stdout(stream(LogLevel::Info, "stdout"))
            .stderr(stream(LogLevel::Warn, "stderr"))
            .max_random_size(MAX_RANDOM_BYTES)
            // Components may import sockets, as standard libraries do. Opening one fails.
            .allow_tcp(false)
            .allow_udp(false)
            .allow_ip_name_lookup(false);
        let ServiceOverrides { clock, random, .. } = overrides.clone();
        if let Some(clock) = clock {
            context.wall_clock(WasiService(Arc::clone(&clock))).monotonic_clock(WasiService(clock));
        }
        if let Some(random) = random {
            let mut seed = [0; 16];
            random.fill(&mut seed);
            context.insecure_random_seed(u128::from_le_bytes(seed));
            context.secure_random(WasiService(Arc::clone(&random))).insecure_random(WasiService(random));
        }
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(FIELD_BYTES);
        Self {
            context: context.build(),
            resources,
            http,
            hooks: Hooks::new(Arc::clone(profile), log.clone(), overrides.clone()),
        }
    }
}

/// Adapts the turn's replacement of a clock or a source of random numbers to WASI.
struct WasiService<T: ?Sized>(Arc<T>);

impl HostWallClock for WasiService<dyn Clock> {
    fn resolution(&self) -> Duration {
        Duration::from_nanos(1)
    }

    fn now(&self) -> Duration {
        self.0.now()
    }
}

impl HostMonotonicClock for WasiService<dyn Clock> {
    fn resolution(&self) -> u64 {
        1
    }

    fn now(&self) -> u64 {
        u64::try_from(self.0.monotonic().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl TryRng for WasiService<dyn Random> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut bytes = [0; 4];
        self.0.fill(&mut bytes);
        Ok(u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.0.fill(bytes);
        Ok(())
    }
}
