//! Deduplication of messages: a repeated message is processed only once (A2A 1.0 section 3.1.1).
//!
//! The store records for each message the task that the message began or joined. While a process decides whether to
//! accept a message, the message is open in memory, and a repetition in the same process waits. A repetition in another
//! process queries the store again after each notification, and periodically, up to a time limit.

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

/// The longest wait for another process that is deciding about the message.
const PATIENCE: Duration = Duration::from_secs(10);
/// The first pause before the store is queried again, and the longest one. Each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The pause before a failed write is tried again, and the most attempts.
const RETRY: Duration = Duration::from_millis(500);
const RETRIES: usize = 120;

type OpenKey = (Owner, ContextId, MessageId);

/// Records messages and recognises repetitions.
pub struct Deduplication {
    store: Arc<dyn TaskStore>,
    /// Notifies other processes of messages that were answered or released, and receives their notifications.
    wake: Arc<dyn Wake>,
    /// The messages whose acceptance is being decided. Dropping the sender wakes the repetitions that wait.
    open: Mutex<HashMap<OpenKey, watch::Sender<()>>>,
}

/// The store's knowledge of a message.
pub(crate) enum Delivery {
    /// The message is new, and the caller processes it.
    New(FirstDelivery),
    /// The message was claimed for this task by a process that has ended, or by this process before a failure of the
    /// database. The caller processes it for the same task.
    Left(FirstDelivery, TaskId),
    /// The message is a repetition, and this is its task.
    Repeated(TaskId),
    /// The message is a repetition, and this was its answer.
    Answered(Box<Message>),
}

/// The claim on a message that is being decided. Dropping it without [`settle`](Self::settle) releases the message, as
/// if it had never arrived.
pub(crate) struct FirstDelivery {
    open: Option<OpenMessage>,
}

/// The result of one query of the store.
enum Look {
    Over(Delivery),
    /// Another process is deciding about the message, for this task.
    Elsewhere(OpenMessage, TaskId),
}

struct OpenMessage {
    messages: Arc<Deduplication>,
    owner: Owner,
    key: MessageKey,
    /// The task that the message will create or join.
    task: TaskId,
}

/// The digest that identifies a message: of its content and its metadata, as the client sent them.
pub(crate) fn digest(request: &SendMessageRequest) -> Result<[u8; 32], A2aError> {
    let mut digest = Sha256::new();
    digest.update(encode(&request.message)?);
    // A line break separates the two texts. JSON on one line contains none, so different pairs of texts have different
    // digests.
    digest.update(b"\n");
    digest.update(encode(&request.metadata)?);
    Ok(digest.finalize().into())
}

/// The id of the message's event in its session. A message that is processed again for the same task, after its process
/// has ended, gets the same id.
pub(crate) fn event_id(task: &TaskId, message: &MessageId) -> String {
    let mut digest = Sha256::new();
    digest.update(task.as_str());
    // Task ids are made by the server and contain no line break.
    digest.update(b"\n");
    digest.update(message.as_str());
    let digest: [u8; 32] = digest.finalize().into();
    let mut id = [0; 16];
    id.iter_mut().zip(digest).for_each(|(byte, from)| *byte = from);
    Builder::from_custom_bytes(id).into_uuid().to_string()
}

impl Deduplication {
    /// Creates the records on top of the task store.
    pub fn new(store: Arc<dyn TaskStore>, wake: Arc<dyn Wake>) -> Arc<Self> {
        Arc::new(Self { store, wake, open: Mutex::default() })
    }

    /// Claims the message for `task`. Waits while the same message is being decided in this process.
    ///
    /// # Errors
    /// [`A2aError::InvalidParams`] if another message has the same id, and [`A2aError::Overloaded`] if another process
    /// takes too long to decide.
    pub(crate) async fn remember(
        self: &Arc<Self>,
        owner: &Owner,
        key: MessageKey,
        task: &TaskId,
    ) -> Result<Delivery, A2aError> {
        // The deadline covers all waits together, so that a queue of repetitions ends in time.
        let deadline = Instant::now() + PATIENCE;
        while let Some(mut other) = self.open(owner, &key) {
            // Wakes when the other request has settled or released the message.
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
                let reason = "another process of this server has not decided about this message yet; send it again \
                              under the same messageId";
                return Err(A2aError::Overloaded { reason: reason.to_owned() });
            }
            // A notification before this subscription is missed, but the next query sees its effect.
            let _ = timeout(pause, hints.get_or_insert_with(|| self.wake.hints()).of(elsewhere.as_str())).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// Opens the message. If it is already open, returns a receiver that wakes when it is closed.
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
    /// Keeps the claim: the message was accepted.
    pub(crate) fn settle(mut self) {
        drop(self.open.take());
    }

    /// Keeps the claim and stores the answer for repetitions.
    pub(crate) async fn answer(mut self, answer: &Message) {
        let Some(open) = self.open.take() else { return };
        let Err(error) = open.messages.store.answer(&open.owner, &open.key, answer).await else {
            open.tell();
            return;
        };
        fault::log(&error);
        let answer = answer.clone();
        // The client gets its answer anyway. A repetition waits until the answer is stored.
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
        // The message stays open until the claim is released.
        runtime.spawn(of_same_tenant(async move { open.forget().await }));
    }
}

impl OpenMessage {
    /// Queries the store, and claims the message if it is new.
    async fn look(mut self, task: TaskId) -> Result<Look, A2aError> {
        // A task of its own: if the client hangs up during the query, the claim must still be released.
        let looking = tokio::spawn(of_same_tenant(async move {
            let remembered = match self.messages.store.remember(&self.owner, &self.key, &task).await {
                Err(error @ StoreError::Database(_)) if self.messages.store.is_shared() => {
                    // The write may have succeeded. Other processes would then believe that this one is deciding.
                    tokio::spawn(of_same_tenant(self.forget()));
                    return Err(fault::of_store(error));
                }
                other => other.map_err(fault::of_store)?,
            };
            Ok(Look::Over(match remembered {
                Remembered::New => Delivery::New(FirstDelivery { open: Some(self) }),
                // No request in this process holds the claim, because the message would then be open.
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

    /// Releases the claim. Repetitions wait until the store has done so.
    async fn forget(self) {
        self.close_with(None).await;
        self.tell();
    }

    /// Stores the answer, or releases the claim if there is none. Retries while the store fails. The retries end with
    /// the lease of this process, because any process can take over the claim from then on.
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

    /// Wakes the repetitions in other processes.
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
