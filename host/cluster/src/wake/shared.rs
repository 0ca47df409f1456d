//! Wake-ups among processes: an outbox for what is told, readers for what is heard, and the two pieces of work in between.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::hints::{Hints, Readers, Wake};
use super::outbox::Outbox;

/// Wake-ups through what the processes share: [PostgreSQL](Self::over_postgres), or NATS.
#[derive(Debug)]
pub struct SharedWake {
    outbox: Arc<Outbox>,
    readers: Readers,
    /// The work that hears and the work that tells, both until this is dropped.
    working: [JoinHandle<()>; 2],
}

impl SharedWake {
    pub(super) fn new(
        outbox: Arc<Outbox>,
        readers: Readers,
        hearing: impl Future<Output = ()> + Send + 'static,
        telling: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        Self { outbox, readers, working: [tokio::spawn(hearing), tokio::spawn(telling)] }
    }
}

impl Wake for SharedWake {
    fn tell(&self, id: &str, seq: u64) {
        self.outbox.put(id, seq);
    }

    fn hints(&self) -> Hints {
        self.readers.hints()
    }
}

impl Drop for SharedWake {
    fn drop(&mut self) {
        for work in &self.working {
            work.abort();
        }
    }
}
