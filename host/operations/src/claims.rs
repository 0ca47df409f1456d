//! Claims messages, so that a repeated message is processed only once (A2A 1.0 section 3.1.1).
//!
//! The store has the claim of each message, with the task that the message begins or joins. A claim is open until the message
//! is accepted. A repetition of the message waits for this decision. The process that accepts the message sends a hint to the
//! other processes. Hints can be lost, so a waiting repetition also tries to claim the message from time to time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annex_conversation::{Claim, Claimant, ConversationStore, MessageKey};
use annex_fairness::of_same_tenant;
use annex_leases::Replica;
use annex_leases::wake::Wake;
use annex_protocol::{A2aError, Message, Owner, SendMessageRequest, TaskId};
use futures::FutureExt;
use sha2::{Digest, Sha256};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::answer::encode;
use crate::completed::completed;
use crate::fault;

/// The longest time for which a repetition waits until the message is accepted or refused.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause between the first and the second attempt to claim a message. Each further pause is twice as long, up to
/// `LONGEST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The pause between two attempts to release a claim. There are at most `RETRIES` attempts.
const RETRY: Duration = Duration::from_millis(500);
const RETRIES: usize = 120;

/// Claims messages.
pub struct Claims {
    store: Arc<dyn ConversationStore>,
    /// Notifies other processes of decided messages, and receives their notifications.
    wake: Arc<dyn Wake>,
    /// The signals that wake the waiting repetitions in this process, by the task of the message.
    waiting: Mutex<HashMap<TaskId, Arc<Notify>>>,
}

/// The result of a claim.
pub(crate) enum Claimed {
    /// The caller processes the message, for the task of the claim.
    New(HeldClaim),
    /// The message is a repetition, and this is its task.
    Repeated(TaskId),
    /// The message is a repetition, and this was its answer.
    Answered(Box<Message>),
}

/// The claim of a message that is not yet accepted or refused. Dropping the claim without [`settle`](Self::settle) releases the
/// message, as if it had never arrived.
pub(crate) struct HeldClaim {
    claims: Arc<Claims>,
    owner: Owner,
    key: MessageKey,
    /// The task that the message begins or joins.
    task: TaskId,
    by: Claimant,
    is_held: bool,
}

/// The digest by which a repeated message is recognised. It covers the content and the metadata of the message, as the
/// client sent them.
pub(crate) fn digest(request: &SendMessageRequest) -> Result<[u8; 32], A2aError> {
    let mut digest = Sha256::new();
    digest.update(encode(&request.message)?);
    // A line break separates the two texts. JSON on one line contains none, so different pairs of texts have different
    // digests.
    digest.update(b"\n");
    digest.update(encode(&request.metadata)?);
    Ok(digest.finalize().into())
}

impl Claims {
    /// Creates the claims of messages in `store`. `wake` carries hints between processes.
    pub fn new(store: Arc<dyn ConversationStore>, wake: Arc<dyn Wake>) -> Arc<Self> {
        Arc::new(Self { store, wake, waiting: Mutex::default() })
    }

    /// Claims the message for `task`. If the message is already claimed, waits until it is accepted or its claim is released.
    ///
    /// # Errors
    /// [`A2aError::InvalidParams`] if another message has the same id, and [`A2aError::Overloaded`] if the decision takes too
    /// long.
    pub(crate) async fn claim(
        self: &Arc<Self>,
        owner: &Owner,
        key: &MessageKey,
        task: &TaskId,
        by: &Replica,
    ) -> Result<Claimed, A2aError> {
        let deadline = Instant::now() + PATIENCE;
        let mut pause = FIRST_PAUSE;
        let mut hints = None;
        loop {
            let decided_elsewhere = match self.claim_once(owner, key, task, by).await? {
                (Claim::New(_), Some(held)) => return Ok(Claimed::New(held)),
                (Claim::Repeated(task), _) => return Ok(Claimed::Repeated(task)),
                (Claim::Answered(answer), _) => return Ok(Claimed::Answered(answer)),
                (Claim::Different, _) => {
                    let description = "names another message that came before; give each message an id of its own";
                    return Err(A2aError::invalid_field("message.messageId", description));
                }
                (Claim::Open(task) | Claim::New(task), _) => task,
            };
            if Instant::now() >= deadline {
                let reason =
                    "this server has not decided about this message yet; send it again under the same messageId";
                return Err(A2aError::Overloaded { reason: reason.to_owned() });
            }
            // A notification before this subscription is missed, but the next claim sees its effect.
            let repetition = self.repetition(&decided_elsewhere);
            tokio::select! {
                () = repetition.decided.notified() => {}
                () = hints.get_or_insert_with(|| self.wake.hints()).of(decided_elsewhere.as_str()) => {}
                () = sleep(pause) => {}
            }
            drop(repetition);
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// Tries once to claim the message. The attempt completes even if the client disconnects. In that case the claim is
    /// released afterwards.
    async fn claim_once(
        self: &Arc<Self>,
        owner: &Owner,
        key: &MessageKey,
        task: &TaskId,
        by: &Replica,
    ) -> Result<(Claim, Option<HeldClaim>), A2aError> {
        let mut held = HeldClaim {
            claims: Arc::clone(self),
            owner: owner.clone(),
            key: key.clone(),
            task: task.clone(),
            by: Claimant::new(by.clone()),
            is_held: false,
        };
        completed(async move {
            let claims = Arc::clone(&held.claims);
            match claims.store.claim(&held.owner, &held.key, &held.task, &held.by).await {
                Ok(Claim::New(task)) => {
                    (held.task, held.is_held) = (task.clone(), true);
                    Ok((Claim::New(task), Some(held)))
                }
                Ok(claim) => Ok((claim, None)),
                Err(error) => Err(fault::of_append(error)),
            }
        })
        .await
    }

    /// Registers a repetition that waits for the decision about the message of `task`.
    fn repetition<'a>(&'a self, task: &'a TaskId) -> WaitingRepetition<'a> {
        let decided = Arc::clone(self.waiting().entry(task.clone()).or_default());
        WaitingRepetition { claims: self, task, decided }
    }

    /// Wakes the repetitions that wait for the message of `task`, in this process and in other processes.
    fn tell(&self, task: &TaskId) {
        if let Some(decided) = self.waiting().get(task) {
            decided.notify_waiters();
        }
        self.wake.tell(task.as_str(), 0);
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<TaskId, Arc<Notify>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A repetition that waits for the decision about a message. When the last waiting repetition of a task is dropped, the signal
/// of the task is removed.
struct WaitingRepetition<'a> {
    claims: &'a Claims,
    task: &'a TaskId,
    /// The signal that fires when this process has accepted or refused the message of the task.
    decided: Arc<Notify>,
}

impl Drop for WaitingRepetition<'_> {
    fn drop(&mut self) {
        let mut waiting = self.claims.waiting();
        // Two references are this one and the one in the map.
        if Arc::strong_count(&self.decided) <= 2 {
            waiting.remove(self.task);
        }
    }
}

impl HeldClaim {
    /// The task of the message. A message that another process has claimed before keeps its task.
    pub(crate) fn task(&self) -> &TaskId {
        &self.task
    }

    /// The key under which the store has the claim.
    pub(crate) fn key(&self) -> &MessageKey {
        &self.key
    }

    /// Keeps the claim, because the message is accepted. Wakes the repetitions of the message.
    pub(crate) fn settle(mut self) {
        self.is_held = false;
        self.claims.tell(&self.task);
    }

    /// Releases the claim. Retries while the store fails. The retries end with the lease of this process, because any
    /// process can take over the claim from then on.
    async fn release(&self) {
        for attempt in 0..RETRIES {
            if self.by.replica().is_over() {
                return;
            }
            match self.claims.store.release(&self.owner, &self.key, &self.by).await {
                Ok(()) => break,
                Err(error) if attempt == 0 => fault::log(&error),
                Err(_) => {}
            }
            sleep(RETRY).await;
        }
        self.claims.tell(&self.task);
    }
}

impl Drop for HeldClaim {
    fn drop(&mut self) {
        let Ok(runtime) = Handle::try_current() else { return };
        if !std::mem::take(&mut self.is_held) {
            return;
        }
        let (claims, owner, key) = (Arc::clone(&self.claims), self.owner.clone(), self.key.clone());
        let (task, by) = (self.task.clone(), self.by.clone());
        let released = Self { claims, owner, key, task, by, is_held: false };
        let mut release = Box::pin(of_same_tenant(async move { released.release().await }));
        // The store in memory needs no task for that.
        if release.as_mut().now_or_never().is_none() {
            runtime.spawn(release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use annex_conversation::{MemoryBounds, MemoryStore, MessageKey};
    use annex_leases::wake::LocalWake;
    use annex_protocol::{Owner, TaskId};
    use tokio::time::timeout;

    use super::{Arc, Claimed, Claims};

    #[tokio::test(start_paused = true)]
    async fn a_repetition_whose_client_hangs_up_is_forgotten() {
        let claims = Claims::new(Arc::new(MemoryStore::new(MemoryBounds::default())), Arc::new(LocalWake));
        let (owner, by) = (Owner::default(), "one".into());
        let key = MessageKey { context: "c".into(), message: "m".into(), digest: [1; 32] };
        let (first, again) = (TaskId::new("t-1"), TaskId::new("t-2"));
        let held = claims.claim(&owner, &key, &first, &by).await;
        assert!(matches!(held, Ok(Claimed::New(_))));
        let repeated = timeout(Duration::from_secs(1), claims.claim(&owner, &key, &again, &by)).await;
        assert!(repeated.is_err() && claims.waiting().is_empty());
    }
}
