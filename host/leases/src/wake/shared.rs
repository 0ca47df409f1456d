//! Wake-ups over a medium that processes share: an outbox, readers, and two tasks that send and receive.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::hints::{Hints, Readers, Wake};
use super::outbox::Outbox;

/// Wake-ups over a medium that processes share: [PostgreSQL](Self::over_postgres), or NATS.
#[derive(Debug)]
pub struct SharedWake {
    outbox: Arc<Outbox>,
    readers: Readers,
    /// The tasks that receive and send, until this value is dropped.
    work: [JoinHandle<()>; 2],
}

impl SharedWake {
    pub(super) fn new(
        outbox: Arc<Outbox>,
        readers: Readers,
        receiving: impl Future<Output = ()> + Send + 'static,
        sending: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        Self { outbox, readers, work: [tokio::spawn(receiving), tokio::spawn(sending)] }
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
        for work in &self.work {
            work.abort();
        }
    }
}
