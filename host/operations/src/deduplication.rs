//! Messages that come twice: each is worked on once (A2A 1.0 section 3.1.1).
//!
//! The store remembers which task a message began or continued. Until it is decided whether the message is taken at all, it
//! is kept open in memory, and the same message waits if it comes meanwhile. Where another process looks at it, the store is
//! asked again when that one tells of it, and from time to time, for a while.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annex_fairness::of_same_tenant;
use annex_leases::Replica;
use annex_leases::wake::Wake;
use annex_protocol::{A2aError, ContextId, Message, MessageId, Owner, SendMessageRequest, TaskId};
use annex_tasks::{MessageKey, Remembered, StoreError, TaskStore};
use sha2::{Digest, Sha256};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use uuid::Builder;

use crate::answer::encode;
use crate::fault;

/// The longest wait for another process that looks at the message.
const PATIENCE: Duration = Duration::from_secs(10);
/// The first pause before the store is asked again; each one after it is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The time until something that the store has refused is tried again, and how often it is at most.
const RETRY: Duration = Duration::from_millis(500);
const RETRIES: usize = 120;

type OpenKey = (Owner, ContextId, MessageId);

/// Tells whether a message came before.
pub struct Deduplication {
    store: Arc<dyn TaskStore>,
    /// Tells other processes which messages are answered or given up, and hears of those that they look at.
    wake: Arc<dyn Wake>,
    /// The messages that are being looked at. Dropping a sender wakes the requests that wait for its message.
    open: Mutex<HashMap<OpenKey, watch::Sender<()>>>,
}

/// Tells whether a message came before.
pub(crate) enum Delivery {
    /// The message is the caller's to work on.
    New(FirstDelivery),
    /// The same, as this task: a process that is gone has left it, or this one has while the database failed.
    Left(FirstDelivery, TaskId),
    /// It came before and went to this task.
    Repeated(TaskId),
    /// It came before and was answered with this message.
    Answered(Box<Message>),
}

/// A message that is being looked at. Dropped before it is [settled](Self::settle), it is as if it had never come.
pub(crate) struct FirstDelivery {
    open: Option<OpenMessage>,
}

/// The result of one look at a message.
enum Look {
    Over(Delivery),
    /// Another process looks at it, for this task.
    Elsewhere(OpenMessage, TaskId),
}

struct OpenMessage {
    messages: Arc<Deduplication>,
    owner: Owner,
    key: MessageKey,
    /// The task that the message is to become or to join.
    task: TaskId,
}

/// The digest by which a request is recognised: of its message as the client sent it, and of its metadata.
pub(crate) fn digest(request: &SendMessageRequest) -> Result<[u8; 32], A2aError> {
    let mut digest = Sha256::new();
    digest.update(encode(&request.message)?);
    // JSON on one line has no line break, so that no other pair of texts has the same digest.
    digest.update(b"\n");
    digest.update(encode(&request.metadata)?);
    Ok(digest.finalize().into())
}

/// The id of the message's event in its session: the same when the message comes again as the same task, because the process
/// that stored the event is gone.
pub(crate) fn event_id(task: &TaskId, message: &MessageId) -> String {
    let mut digest = Sha256::new();
    digest.update(task.as_str());
    // Ids of tasks are the server's own, and have no line break.
    digest.update(b"\n");
    digest.update(message.as_str());
    let digest: [u8; 32] = digest.finalize().into();
    let mut id = [0; 16];
    id.iter_mut().zip(digest).for_each(|(byte, from)| *byte = from);
    Builder::from_custom_bytes(id).into_uuid().to_string()
}

impl Deduplication {
    /// Remembers messages in the store of the tasks.
    pub fn new(store: Arc<dyn TaskStore>, wake: Arc<dyn Wake>) -> Arc<Self> {
        Arc::new(Self { store, wake, open: Mutex::default() })
    }

    /// Remembers the message with `task`, once the same one is not being looked at elsewhere in this process.
    ///
    /// # Errors
    /// [`A2aError::InvalidParams`] when another message has the id, and [`A2aError::Overloaded`] while another process looks
    /// at this one.
    pub(crate) async fn remember(
        self: &Arc<Self>,
        owner: &Owner,
        key: MessageKey,
        task: &TaskId,
    ) -> Result<Delivery, A2aError> {
        // From the beginning: those who wait here one after the other wait no longer than the first.
        let deadline = Instant::now() + PATIENCE;
        while let Some(mut other) = self.open(owner, &key) {
            // Ends when the other one is settled or given up.
            let _ = other.changed().await;
        }
        let mut open = OpenMessage { messages: Arc::clone(self), owner: owner.clone(), key, task: task.clone() };
        let mut pause = FIRST_PAUSE;
        let mut hints = None;
        loop {
            let elsewhere;
            (open, elsewhere) = match open.look(task.clone()).await? {
                Look::Over(delivery) => return Ok(delivery),
                Look::Elsewhere(open, elsewhere) => (open, elsewhere),
            };
            if Instant::now() >= deadline {
                let reason =
                    "another process of it still looks at this message; send it again under the same messageId";
                return Err(A2aError::Overloaded { reason: reason.to_owned() });
            }
            // What was told before the first look is found by the second one.
            let _ = timeout(pause, hints.get_or_insert_with(|| self.wake.hints()).of(elsewhere.as_str())).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// Opens the message. Returns what to wait for while the same message is open already.
    fn open(&self, owner: &Owner, key: &MessageKey) -> Option<watch::Receiver<()>> {
        let key = (owner.clone(), key.context.clone(), key.message.clone());
        let mut open = self.lock();
        if let Some(other) = open.get(&key) {
            return Some(other.subscribe());
        }
        open.insert(key, watch::Sender::default());
        None
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<OpenKey, watch::Sender<()>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FirstDelivery {
    /// The message is taken: it stays remembered.
    pub(crate) fn settle(mut self) {
        drop(self.open.take());
    }

    /// The message is taken, and whoever repeats it gets this answer.
    pub(crate) async fn answer(mut self, answer: &Message) {
        let Some(open) = self.open.take() else { return };
        let Err(error) = open.messages.store.answer(&open.owner, &open.key, answer).await else {
            open.tell();
            return;
        };
        fault::log(&error);
        let answer = answer.clone();
        // The client gets its answer all the same. Whoever repeats the message waits until it is stored.
        tokio::spawn(of_same_tenant(async move {
            open.close_with(Some(&answer)).await;
            open.tell();
        }));
    }
}

impl Drop for FirstDelivery {
    fn drop(&mut self) {
        let Some(open) = self.open.take() else { return };
        let Ok(runtime) = Handle::try_current() else { return };
        // The message stays open until the message is forgotten.
        runtime.spawn(of_same_tenant(async move { open.forget().await }));
    }
}

impl OpenMessage {
    /// Asks the store whether the message came before, and claims it if not.
    async fn look(mut self, task: TaskId) -> Result<Look, A2aError> {
        // In a task of its own: a client that goes away must not leave a message remembered that nobody works on.
        let looking = tokio::spawn(of_same_tenant(async move {
            let remembered = match self.messages.store.remember(&self.owner, &self.key, &task).await {
                Err(error @ StoreError::Database(_)) if self.messages.store.is_shared() => {
                    // It may be remembered all the same, and other processes would take it for being looked at here.
                    tokio::spawn(of_same_tenant(self.forget()));
                    return Err(fault::of_store(error));
                }
                other => other.map_err(fault::of_store)?,
            };
            Ok(Look::Over(match remembered {
                Remembered::New => Delivery::New(FirstDelivery { open: Some(self) }),
                // Nobody in this process works on it: it would be open.
                Remembered::Left(task) | Remembered::Own(task) => {
                    self.task = task.clone();
                    Delivery::Left(FirstDelivery { open: Some(self) }, task)
                }
                Remembered::Same(task) => Delivery::Repeated(task),
                Remembered::Answered(answer) => Delivery::Answered(answer),
                Remembered::Elsewhere(task) => return Ok(Look::Elsewhere(self, task)),
                Remembered::Different => {
                    let description = "names another message that came before; give each message an id of its own";
                    return Err(A2aError::invalid_field("message.messageId", description));
                }
            }))
        }));
        looking.await.map_err(|error| fault::internal(&error))?
    }

    /// Takes the claim back. The same message waits until that is done.
    async fn forget(self) {
        self.close_with(None).await;
        self.tell();
    }

    /// Stores the answer, or takes the claim back, and again while the store fails. That is in vain once the lease of this
    /// process is over, because the claim is anybody's then, and stays with its task.
    async fn close_with(&self, answer: Option<&Message>) {
        let store = &self.messages.store;
        let replica = store.replica();
        for attempt in 0..RETRIES {
            if replica.as_ref().is_some_and(Replica::is_over) {
                return;
            }
            let closed = match answer {
                Some(answer) => store.answer(&self.owner, &self.key, answer).await,
                None => store.forget(&self.owner, &self.key).await,
            };
            match closed {
                Ok(()) => return,
                Err(error) if attempt == 0 => fault::log(&error),
                Err(_) => {}
            }
            sleep(RETRY).await;
        }
    }

    /// Wakes those who wait for the message in other processes.
    fn tell(&self) {
        self.messages.wake.tell(self.task.as_str(), 0);
    }
}

impl Drop for OpenMessage {
    fn drop(&mut self) {
        let key = (self.owner.clone(), self.key.context.clone(), self.key.message.clone());
        self.messages.lock().remove(&key);
    }
}
