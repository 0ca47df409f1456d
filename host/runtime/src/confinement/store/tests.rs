//! A store stops its guest after a number of ticks. The guests of these tests advance the epoch themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use annex_keyvalue::MemoryKeyValueStore;
use annex_protocol::ExtensionUri;
use wasmtime::{Engine, Func, Instance, Module};

use super::{new, rearm};
use crate::confinement::engine::{self, TICK};
use crate::confinement::guest_time::GuestTime;
use crate::confinement::limits::{LimitReached, Limits};
use crate::confinement::profile::{Profile, Services, Validators};
use crate::load::installation::Installation;
use crate::observation::log::Log;
use crate::overrides::ServiceOverrides;

/// Modules that advance the epoch once per iteration.
const LOOPS: [&str; 3] = [
    r#"(module (import "" "tick" (func $tick))
        (func (export "run") (loop $ever (call $tick) (br $ever))))"#,
    r#"(module (import "" "tick" (func $tick))
        (func $run (export "run") (call $tick) (call $nothing) (return_call $run))
        (func $nothing))"#,
    r#"(module (import "" "tick" (func $tick)) (memory 16)
        (func (export "run")
            (loop $ever (call $tick) (memory.fill (i32.const 0) (i32.const 1) (i32.const 0x100000)) (br $ever))))"#,
];

fn profile(cpu: Duration) -> Arc<Profile> {
    let limits = Limits { cpu, ..Limits::standard() };
    let installation = Installation::with_limits(limits);
    let keyvalue = Arc::new(MemoryKeyValueStore::default());
    let validators = Validators::default();
    let tenant = Arc::default();
    let guest_time = GuestTime::new();
    let (overrides, metrics) = (ServiceOverrides::default(), Arc::default());
    let services = Services { keyvalue, overrides, http: None, metrics, validators, guest_time, tenant };
    Arc::new(Profile::new(ExtensionUri::from("https://annex.example/loop/v1"), &installation, services))
}

/// Number of ticks until a call is stopped.
async fn ticks_to_stop(module: &str, cpu: Duration) -> u64 {
    let engine =
        Engine::new(&engine::config(1, engine::EngineOptions::default()).expect("settings")).expect("an engine");
    let module = Module::new(&engine, wat::parse_str(module).expect("a module")).expect("a module");
    let profile = profile(cpu);
    let log = Log::new(Arc::clone(&profile), None);
    let mut store = new(&engine, profile, None, log);
    let ticks = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&ticks);
    let tick = Func::wrap(&mut store, move || {
        engine.increment_epoch();
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let instance = Instance::new_async(&mut store, &module, &[tick.into()]).await.expect("an instance");
    let run = instance.get_typed_func::<(), ()>(&mut store, "run").expect("a function");
    rearm(&mut store);
    let error = run.call_async(&mut store, ()).await.expect_err("the loop is stopped");
    assert_eq!(error.downcast_ref::<LimitReached>(), Some(&LimitReached::Cpu), "{error:?}");
    ticks.load(Ordering::Relaxed)
}

#[tokio::test]
async fn a_loop_is_stopped_at_its_limit_and_at_most_two_ticks_later() {
    for cpu in [Duration::from_nanos(1), TICK, TICK * 2, TICK * 10, TICK * 3 + Duration::from_millis(1)] {
        let limit = u64::try_from(cpu.as_nanos().div_ceil(TICK.as_nanos())).expect("few ticks");
        for module in LOOPS {
            let ticks = ticks_to_stop(module, cpu).await;
            assert!(limit <= ticks && ticks <= limit + 2, "{ticks} ticks for a limit of {limit}: {module}");
        }
    }
}

#[tokio::test]
async fn growth_beyond_a_maximum_of_the_guests_own_fails_and_is_not_counted() {
    let module = r#"(module (memory 1 2) (table 1 2 funcref)
        (func (export "run") (result i32 i32)
            (memory.grow (i32.const 1000)) (table.grow (ref.null func) (i32.const 1000))))"#;
    let engine =
        Engine::new(&engine::config(1, engine::EngineOptions::default()).expect("settings")).expect("an engine");
    let module = Module::new(&engine, wat::parse_str(module).expect("a module")).expect("a module");
    let profile = profile(TICK);
    let log = Log::new(Arc::clone(&profile), None);
    let mut store = new(&engine, profile, None, log);
    let instance = Instance::new_async(&mut store, &module, &[]).await.expect("an instance");
    let run = instance.get_typed_func::<(), (i32, i32)>(&mut store, "run").expect("a function");
    rearm(&mut store);
    assert_eq!(run.call_async(&mut store, ()).await.expect("it goes on"), (-1, -1));
    let state = store.data();
    assert_eq!((state.memory, state.table_elements), (64 << 10, 1));
}
