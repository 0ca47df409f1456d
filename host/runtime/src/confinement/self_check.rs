//! Checks that the engine stops a guest that loops, before any component is loaded. With an engine that does not stop
//! guests, the first looping guest would block the server, and no CPU limit would work.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use wasmtime::{Engine, Instance, Module, Store, Trap};

use crate::error::RuntimeError;

/// Longest time after which the loop must have stopped. On an idle machine one tick is enough.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// `(module (func (loop br 0)) (start 0))`: loops on instantiation.
const LOOP: &[u8] = b"\0asm\x01\0\0\0\
    \x01\x04\x01\x60\0\0\
    \x03\x02\x01\0\
    \x08\x01\0\
    \x0a\x09\x01\x07\0\x03\x40\x0c\0\x0b\x0b";

/// Runs the loop with one tick of CPU time.
///
/// # Errors
/// [`RuntimeError::NotStopped`] if it still runs after `timeout`, [`RuntimeError::Engine`] if it cannot run.
pub(crate) fn a_loop_is_stopped(engine: &Engine, timeout: Duration) -> Result<(), RuntimeError> {
    let failed = |error: wasmtime::Error| RuntimeError::Engine(error.into());
    let module = Module::new(engine, LOOP).map_err(failed)?;
    let (sender, ended) = mpsc::channel();
    let looping = engine.clone();
    let run = move || {
        // Sending fails if the check has timed out.
        let _ = sender.send(run(&looping, &module));
    };
    // On its own thread: an endless loop would otherwise block the start of the server.
    thread::Builder::new().name("annex-self-check".to_owned()).spawn(run).map_err(RuntimeError::Ticker)?;
    match ended.recv_timeout(timeout) {
        Ok(Err(error)) if matches!(error.downcast_ref(), Some(Trap::Interrupt)) => Ok(()),
        Ok(Err(error)) => Err(failed(error)),
        Ok(Ok(())) | Err(_) => {
            // Ends the thread, if that works at all.
            engine.increment_epoch();
            Err(RuntimeError::NotStopped)
        }
    }
}

/// Runs the loop until it is stopped.
fn run(engine: &Engine, module: &Module) -> wasmtime::Result<()> {
    let mut store = Store::new(engine, ());
    // Fails if instructions are not counted, and then no fuel is needed.
    let _ = store.set_fuel(u64::MAX);
    store.epoch_deadline_trap();
    store.set_epoch_deadline(1);
    Instance::new(&mut store, module, &[]).map(drop)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wasmtime::{Config, Engine};

    use super::a_loop_is_stopped;
    use crate::confinement::engine;
    use crate::error::RuntimeError;

    #[test]
    fn an_engine_whose_epoch_never_ticks_is_found_out() {
        let mut config = Config::new();
        let engine = Engine::new(config.epoch_interruption(true)).expect("an engine");
        let error = a_loop_is_stopped(&engine, Duration::from_millis(20)).expect_err("nothing ticks");
        assert!(matches!(error, RuntimeError::NotStopped), "{error:?}");
    }

    #[test]
    fn the_engine_of_this_crate_stops_a_loop() {
        // Starting it checks that as well.
        let engine = engine::start(1, engine::EngineOptions::default()).expect("the engine starts");
        a_loop_is_stopped(&engine, super::STOP_TIMEOUT).expect("the loop is stopped");
    }
}
