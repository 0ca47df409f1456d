//! Messages that come twice: each is worked on once (A2A 1.0 section 3.1.1).
//!
//! The store remembers which task a message began or continued. While it is open whether the message is taken at all,
//! its claim is held in memory, and the same message that comes meanwhile waits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annex_protocol::{A2aError, ContextId, Message, MessageId, SendMessageRequest, TaskId};
use annex_tasks::{MessageKey, Owner, Remembered, StoreError, TaskStore};
use sha2::{Digest, Sha256};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::answer::encode;
use crate::fault;

type Place = (Owner, ContextId, MessageId);

/// The claims that are open.
pub(crate) struct Claims {
    store: Arc<dyn TaskStore>,
    /// Whoever waits for a claim sees its sender go.
    open: Mutex<HashMap<Place, watch::Sender<()>>>,
}

/// What became of a claim.
pub(crate) enum Claimed {
    /// The message is the caller's to work on.
    New(Claim),
    /// It came before and went to this task.
    Repeated(TaskId),
    /// It came before and was answered with this message.
    Answered(Box<Message>),
}

/// A message that is being looked at. Dropped before it is [settled](Self::settle), it is as if it had never come.
pub(crate) struct Claim {
    open: Option<OpenClaim>,
}

struct OpenClaim {
    claims: Arc<Claims>,
    owner: Owner,
    key: MessageKey,
}

/// What a request is recognised by: its message as the client sent it, and its metadata.
pub(crate) fn digest(request: &SendMessageRequest) -> Result<[u8; 32], A2aError> {
    let mut digest = Sha256::new();
    digest.update(encode(&request.message)?);
    digest.update(b"\n");
    digest.update(encode(&request.metadata)?);
    Ok(digest.finalize().into())
}

impl Claims {
    pub(crate) fn new(store: Arc<dyn TaskStore>) -> Arc<Self> {
        Arc::new(Self { store, open: Mutex::default() })
    }

    /// Claims the message for `task`, once the same one is not being looked at elsewhere in this process.
    ///
    /// # Errors
    /// [`A2aError::InvalidParams`] when another message has the id.
    pub(crate) async fn claim(
        self: &Arc<Self>,
        owner: &Owner,
        key: MessageKey,
        task: &TaskId,
    ) -> Result<Claimed, A2aError> {
        while let Some(mut other) = self.enter(owner, &key) {
            // Ends when the other one is settled or given up.
            let _ = other.changed().await;
        }
        let open = OpenClaim { claims: Arc::clone(self), owner: owner.clone(), key };
        let task = task.clone();
        // In a task of its own: a client that goes away must not leave a claim that nobody holds.
        let claiming = tokio::spawn(async move {
            Ok(match open.claims.store.remember(&open.owner, &open.key, &task).await? {
                Remembered::New => Some(Claimed::New(Claim { open: Some(open) })),
                Remembered::Same(task) => Some(Claimed::Repeated(task)),
                Remembered::Answered(answer) => Some(Claimed::Answered(answer)),
                Remembered::Different => None,
            })
        });
        let claimed = claiming.await.map_err(|error| fault::internal(&error))?.map_err(fault::of_store)?;
        let description = "names another message that came before; give each message an id of its own";
        claimed.ok_or_else(|| A2aError::invalid_field("message.messageId", description))
    }

    /// Takes the message's place; whom to wait for when it is taken.
    fn enter(&self, owner: &Owner, key: &MessageKey) -> Option<watch::Receiver<()>> {
        let place = (owner.clone(), key.context.clone(), key.message.clone());
        let mut open = self.lock();
        if let Some(other) = open.get(&place) {
            return Some(other.subscribe());
        }
        open.insert(place, watch::Sender::default());
        None
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Place, watch::Sender<()>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claim {
    /// The message is taken: it stays remembered.
    pub(crate) fn settle(&mut self) {
        drop(self.open.take());
    }

    /// The message is taken, and whoever repeats it gets this answer.
    pub(crate) async fn answer(mut self, answer: &Message) {
        let Some(open) = &self.open else { return };
        if let Err(error) = open.claims.store.answer(&open.owner, &open.key, answer).await {
            // The client gets its answer all the same.
            drop(fault::logged(&error));
        }
        self.settle();
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let Some(open) = self.open.take() else { return };
        let Ok(runtime) = Handle::try_current() else { return };
        // The place stays taken until the message is forgotten.
        runtime.spawn(async move { open.forget().await });
    }
}

impl OpenClaim {
    async fn forget(self) {
        let forgotten: Result<(), StoreError> = self.claims.store.forget(&self.owner, &self.key).await;
        if let Err(error) = forgotten {
            drop(fault::logged(&error));
        }
    }
}

impl Drop for OpenClaim {
    fn drop(&mut self) {
        let place = (self.owner.clone(), self.key.context.clone(), self.key.message.clone());
        self.claims.lock().remove(&place);
    }
}
