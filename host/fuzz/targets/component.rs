//! Bytes of a component file into the loader: an error is fine, a panic, a crash or a hang is a finding.
//!
//! A component that passes inspection goes all the way: it is compiled, linked and self-tested under tight limits.

#![no_main]

use std::sync::LazyLock;
use std::time::Duration;

use annex_runtime::{Installation, Limits, LoadError, Runtime, RuntimeConfig};
use libfuzzer_sys::fuzz_target;

struct Host {
    executor: tokio::runtime::Runtime,
    runtime: Runtime,
}

static HOST: LazyLock<Host> = LazyLock::new(|| Host {
    executor: tokio::runtime::Builder::new_current_thread().enable_time().build().expect("an executor"),
    runtime: Runtime::new(&RuntimeConfig { instances: 2, ..RuntimeConfig::default() }).expect("the runtime starts"),
});

fn installation() -> Installation {
    let limits = Limits {
        memory: 2 << 20,
        cpu: Duration::from_millis(5),
        wall: Duration::from_millis(100),
        host_calls: 100,
        ..Limits::standard()
    };
    Installation::with_limits(limits)
}

/// A crash of a compiler process is a finding, because without that process the host would have crashed.
fn refuse_findings(error: &LoadError) {
    if matches!(error, LoadError::CompilerCrash { .. } | LoadError::CompilerForbidden { .. }) {
        panic!("{error}");
    }
}

fuzz_target!(init: annex_runtime::compile_if_asked(), |bytes: &[u8]| {
    let host = &*HOST;
    let inspection = match host.executor.block_on(host.runtime.inspect(bytes.to_vec())) {
        Ok(inspected) => inspected.inspection,
        Err(error) => return refuse_findings(&error),
    };
    assert_eq!(inspection.size, bytes.len());
    match host.executor.block_on(host.runtime.load(bytes.to_vec(), installation())) {
        Ok(extension) => {
            assert_eq!(extension.digest(), inspection.digest);
            assert_eq!(extension.uri(), &extension.card().uri);
        }
        Err(error) => refuse_findings(&error),
    }
});
