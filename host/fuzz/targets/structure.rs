//! Components that pass the structure check into the real compiler. A compilation that exceeds its bound is a finding.
//!
//! Half of the inputs are modules that wasm-smith makes of the bytes, half are the bytes themselves as a module. Each
//! is wrapped into a component that passes for an extension, and compiled as a host does it: in a confined process.

#![no_main]

use std::sync::LazyLock;
use std::time::Duration;

use annex_runtime::{Installation, Limits, LoadError, Runtime, RuntimeConfig};
use libfuzzer_sys::arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use wasm_smith::{Config, Module};

/// The memory, and below it the time, that compiling anything that passes the check may cost. The largest input has as
/// many bytes as libFuzzer gives it.
const MEMORY: u64 = 256 << 20;
const TIME: Duration = Duration::from_secs(10);

struct Host {
    executor: tokio::runtime::Runtime,
    runtime: Runtime,
}

static HOST: LazyLock<Host> = LazyLock::new(|| {
    let config = RuntimeConfig { instances: 2, compile_memory: MEMORY, compile_time: TIME, ..RuntimeConfig::default() };
    Host {
        executor: tokio::runtime::Builder::new_current_thread().enable_time().build().expect("an executor"),
        runtime: Runtime::new(&config).expect("the runtime starts"),
    }
});

/// `(component (instance $nothing) (export "annex:extension/descriptor@0.1.0" (instance $nothing)))`
static EXTENSION: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let text = r#"(component (instance $nothing) (export "annex:extension/descriptor@0.1.0" (instance $nothing)))"#;
    wat::parse_str(text).expect("a component")
});

/// Bytes of a component before its first section.
const HEADER: usize = 8;

fn module(bytes: &[u8]) -> Option<Vec<u8>> {
    let (kind, rest) = bytes.split_first()?;
    if kind % 2 == 0 {
        return Some(rest.to_vec());
    }
    let config = Config {
        max_instructions: 2_000,
        max_type_size: 10_000,
        max_funcs: 200,
        max_memories: 1,
        max_tables: 4,
        gc_enabled: false,
        exceptions_enabled: false,
        threads_enabled: false,
        memory64_enabled: false,
        shared_everything_threads_enabled: false,
        custom_page_sizes_enabled: false,
        wide_arithmetic_enabled: false,
        ..Config::default()
    };
    Module::new(config, &mut Unstructured::new(rest)).ok().map(|module| module.to_bytes())
}

/// The component with the module as its first section.
fn component(module: &[u8]) -> Vec<u8> {
    let (header, rest) = EXTENSION.split_at(HEADER);
    let mut component = header.to_vec();
    component.push(1);
    let mut length = module.len();
    while length >= 0x80 {
        component.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    component.push(length as u8);
    component.extend_from_slice(module);
    component.extend_from_slice(rest);
    component
}

fuzz_target!(init: annex_runtime::compile_if_asked(), |bytes: &[u8]| {
    let Some(module) = module(bytes) else { return };
    let host = &*HOST;
    let limits = Limits::standard();
    let installation = Installation::with_limits(limits);
    let loaded = host.executor.block_on(host.runtime.load(component(&module), installation));
    match loaded.expect_err("the descriptor describes nothing") {
        error @ (LoadError::CompileTime { .. }
        | LoadError::CompileMemory { .. }
        | LoadError::CompilerStart { .. }
        | LoadError::CompilerForbidden { .. }
        | LoadError::CompilerCrash { .. }
        | LoadError::CompilerAnswer { .. }) => panic!("{error}: {:?}", std::error::Error::source(&error)),
        _ => {}
    }
});
