//! A harmless client that measures how long it waits for answers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::http::{call, exchange, get, message};

/// The pause between two requests.
const PAUSE: Duration = Duration::from_millis(20);

/// The longest wait of each kind since the previous reading.
#[derive(Clone, Copy, Default)]
pub(crate) struct Waits {
    pub(crate) livez: Duration,
    pub(crate) turn: Duration,
}

/// A client with two threads: one requests `/livez`, the other sends messages.
pub(crate) struct Neighbour {
    waits: Arc<Mutex<Waits>>,
    stops: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Neighbour {
    pub(crate) fn start(address: &str) -> Self {
        let waits = Arc::new(Mutex::new(Waits::default()));
        let stops = Arc::new(AtomicBool::new(false));
        let lives = watch(address, &waits, &stops, |_| get("/livez"), "live", |waits| &mut waits.livez);
        let turns = watch(address, &waits, &stops, turn, "TASK_STATE_COMPLETED", |waits| &mut waits.turn);
        Self { waits, stops, threads: vec![lives, turns] }
    }

    pub(crate) fn longest(&self) -> Waits {
        std::mem::take(&mut *self.waits.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Stops both threads.
    ///
    /// # Errors
    /// When a request failed or had another answer than expected.
    pub(crate) fn stop(self) -> Result<()> {
        self.stops.store(true, Ordering::Relaxed);
        for thread in self.threads {
            match thread.join() {
                Ok(ended) => ended?,
                Err(_) => bail!("the neighbour panicked"),
            }
        }
        Ok(())
    }
}

fn turn(number: u64) -> Vec<u8> {
    call("SendMessage", &message(&format!("neighbour-{number}"), "Hello", ""), "")
}

fn watch(
    address: &str,
    waits: &Arc<Mutex<Waits>>,
    stops: &Arc<AtomicBool>,
    request: fn(u64) -> Vec<u8>,
    expected: &'static str,
    select: fn(&mut Waits) -> &mut Duration,
) -> JoinHandle<Result<()>> {
    let address = address.to_owned();
    let waits = Arc::clone(waits);
    let stops = Arc::clone(stops);
    let sent = AtomicU64::new(0);
    std::thread::spawn(move || {
        while !stops.load(Ordering::Relaxed) {
            let began = Instant::now();
            let answer = exchange(&address, &request(sent.fetch_add(1, Ordering::Relaxed)))?;
            let took = began.elapsed();
            ensure!(answer.contains(expected), "a neighbour was answered: {answer}");
            let mut waits = waits.lock().unwrap_or_else(PoisonError::into_inner);
            let longest = select(&mut waits);
            *longest = took.max(*longest);
            drop(waits);
            std::thread::sleep(PAUSE);
        }
        Ok(())
    })
}
