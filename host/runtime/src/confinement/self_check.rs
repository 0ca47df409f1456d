//! Before anything is loaded: a guest that loops must be stopped. Otherwise the first one that did would stop the
//! server, and no limit of CPU time would hold.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use wasmtime::{Engine, Instance, Module, Store, Trap};

use crate::error::RuntimeError;

/// The longest that a guest without time left may run on before the engine counts as broken. A tick is enough where
/// nothing else keeps the machine busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// `(module (func (loop br 0)) (start 0))`: it loops as soon as it is instantiated.
const LOOP: &[u8] = b"\0asm\x01\0\0\0\
    \x01\x04\x01\x60\0\0\
    \x03\x02\x01\0\
    \x08\x01\0\
    \x0a\x09\x01\x07\0\x03\x40\x0c\0\x0b\x0b";

/// Runs the loop with one tick of CPU time.
///
/// # Errors
/// [`RuntimeError::NotStopped`] when it still runs after `timeout`, [`RuntimeError::Engine`] when it cannot run at all.
pub(crate) fn a_loop_is_stopped(engine: &Engine, timeout: Duration) -> Result<(), RuntimeError> {
    let failed = |error: wasmtime::Error| RuntimeError::Engine(error.into());
    let module = Module::new(engine, LOOP).map_err(failed)?;
    let (sender, ended) = mpsc::channel();
    let looping = engine.clone();
    let run = move || {
        // It fails when the check has given up waiting.
        let _ = sender.send(run(&looping, &module));
    };
    // On a thread of its own: a loop that nothing stops would otherwise hold the start of the server for ever.
    thread::Builder::new().name("annex-self-check".to_owned()).spawn(run).map_err(RuntimeError::Ticker)?;
    match ended.recv_timeout(timeout) {
        Ok(Err(error)) if matches!(error.downcast_ref(), Some(Trap::Interrupt)) => Ok(()),
        Ok(Err(error)) => Err(failed(error)),
        Ok(Ok(())) | Err(_) => {
            // Ends the thread, if that is possible at all.
            engine.increment_epoch();
            Err(RuntimeError::NotStopped)
        }
    }
}

/// Runs until the loop ends.
fn run(engine: &Engine, module: &Module) -> wasmtime::Result<()> {
    let mut store = Store::new(engine, ());
    // It fails where instructions are not counted, and no fuel is needed.
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
        a_loop_is_stopped(&engine, super::PATIENCE).expect("the loop is stopped");
    }
}
