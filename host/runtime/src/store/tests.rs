//! When a store stops its guest, in ticks that the test counts: nothing ticks here but the test.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use annex_protocol::{ExtensionUri, JsonObject};
use wasmtime::{Engine, Instance, Module};

use super::{new, rearm};
use crate::engine::{self, TICK};
use crate::extension::{Installation, Profile, Services};
use crate::grants::Grants;
use crate::keyvalue::MemoryKeyValueStore;
use crate::limits::{LimitReached, Limits};

const LOOPS: [&str; 3] = [
    r#"(module (func (export "run") (loop $ever (br $ever))))"#,
    r#"(module (func $run (export "run") (loop $ever (call $nothing) (br $ever))) (func $nothing))"#,
    r#"(module (memory 16)
        (func (export "run")
            (loop $ever (memory.fill (i32.const 0) (i32.const 1) (i32.const 0x100000)) (br $ever))))"#,
];

fn profile(cpu: Duration) -> Arc<Profile> {
    let limits = Limits { cpu, ..Limits::standard() };
    let installation =
        Installation { grants: Grants::default(), limits, parameters: JsonObject::new(), required: false };
    let services = Services { keyvalue: Arc::new(MemoryKeyValueStore::default()), http: None };
    Arc::new(Profile::new(ExtensionUri::from("https://annex.example/loop/v1"), &installation, services))
}

/// Ticks from the start of the call to the moment when it is broken off.
async fn ticks_to_stop(module: &str, cpu: Duration) -> u128 {
    let engine = Engine::new(&engine::config(1)).expect("an engine");
    let module = Module::new(&engine, wat::parse_str(module).expect("a module")).expect("a module");
    let mut store = new(&engine, profile(cpu), None);
    let instance = Instance::new_async(&mut store, &module, &[]).await.expect("an instance");
    let run = instance.get_typed_func::<(), ()>(&mut store, "run").expect("a function");
    rearm(&mut store);
    let mut running = pin!(run.call_async(&mut store, ()));
    let mut ticks = 0;
    loop {
        // The guest runs until it finds that a tick has come, and yields. Without one it would run for ever.
        engine.increment_epoch();
        ticks += 1;
        match running.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => unreachable!("the loop ended"),
            Poll::Ready(Err(error)) => {
                assert_eq!(error.downcast_ref::<LimitReached>(), Some(&LimitReached::Cpu), "{error:?}");
                return ticks;
            }
        }
    }
}

#[tokio::test]
async fn a_loop_is_stopped_at_its_limit_and_at_most_two_ticks_later() {
    for cpu in [Duration::from_nanos(1), TICK, TICK * 2, TICK * 10, TICK * 3 + Duration::from_millis(1)] {
        let limit = cpu.as_nanos().div_ceil(TICK.as_nanos());
        for module in LOOPS {
            let ticks = ticks_to_stop(module, cpu).await;
            assert!(limit <= ticks && ticks <= limit + 2, "{ticks} ticks for a limit of {limit}: {module}");
        }
    }
}
