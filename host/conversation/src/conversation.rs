//! A conversation as the turn that runs in it sees it.

mod hold;

use std::borrow::Cow;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annex_protocol::{Json, JsonObject, Message, Parts, Timestamp};

use crate::entry::{Entry, Event};
use crate::error::{AppendError, StoreError};
use crate::fence::Fence;
use crate::history::{ConversationSnapshot, Window};
use crate::key::ConversationKey;
use crate::limits::TaskLimits;
use crate::queue::{Departure, Entrance, Submission};
use crate::state::{Scope, StateDelta};
use crate::store::{Append, Appended, ConversationStore, Outcome, Position};
use crate::task::TaskSnapshot;
use crate::view::View;
use hold::{Hold, Standing};

/// The maximum number of bytes of the history that a turn reads. Conversations in a database may hold more than fits into
/// memory.
const HISTORY_BYTES: usize = 8 << 20;

/// The input of a turn that begins.
#[derive(Clone, Debug)]
pub struct Beginning {
    /// The task that the turn works on, and the number of its last entry. `None` for a new task.
    pub task: Option<(TaskSnapshot, u64)>,
    /// The limits on the task.
    pub limits: TaskLimits,
    /// The number of latest events that the turn is going to ask for. They are read with the conversation.
    pub history: usize,
}

/// A turn that has entered the queue of its conversation.
pub enum Arrival {
    /// The turn runs now.
    Runs(Conversation),
    /// Other turns come first. The message is accepted, and its task is stored as SUBMITTED.
    Waits(Box<QueuedTurn>),
}

/// A turn that waits in the queue. Its message is accepted. If the value is dropped, other processes take the turn
/// over.
pub struct QueuedTurn {
    hold: Hold,
    beginning: Beginning,
}

/// The conversation of one running turn, with the `temp:` keys of that turn.
///
/// The state is read once, when the turn begins, and then includes the appends of this turn. If another conversation
/// changes a shared scope, the next turn sees the change. All clones stand for the same turn. If the last clone is
/// dropped before [`end`](Self::end), the turn goes to other processes. If the turn has appended nothing, the turn
/// leaves no trace.
#[derive(Clone)]
pub struct Conversation {
    inner: Arc<Inner>,
}

struct Inner {
    hold: Hold,
    limits: TaskLimits,
    view: Mutex<View>,
    /// Locked during an append, so that entries are stored and become visible in the same order.
    writing: tokio::sync::Mutex<Writing>,
}

/// The task and the number of its last entry, as the turn knows them, and the entries to store with the next append.
struct Writing {
    task: TaskSnapshot,
    /// The number of the last entry of the task.
    number: u64,
    /// Events that are stored with the next entries, or with the end of the turn if `keeps_staged`.
    staged: Vec<Entry>,
    keeps_staged: bool,
    /// True until the first append, which brings the submission to the store.
    is_first: bool,
    /// The append that is under way. If the caller drops the future of an append, the append stays here, because the
    /// store may have stored its entries.
    under_way: Option<UnderWay>,
}

/// An append whose result is not known yet: the entries that the call added, and the task after the append.
struct UnderWay {
    added: Vec<Entry>,
    task: TaskSnapshot,
    number: u64,
}

impl Conversation {
    /// Enters the queue of a conversation, which need not exist yet.
    ///
    /// # Errors
    /// The errors of [`ConversationStore::enter`].
    pub async fn enter(
        store: &Arc<dyn ConversationStore>,
        key: ConversationKey,
        submission: Submission,
        beginning: Beginning,
    ) -> Result<Arrival, AppendError> {
        let entrance = store.enter(&key, submission.clone(), window(beginning.history)).await?;
        let hold = |fence, standing| Hold::new(store, key, (fence, submission), standing);
        Ok(match entrance {
            Entrance::Runs(fence, found) => Arrival::Runs(Self::of(hold(fence, Standing::Unheard), beginning, *found)),
            Entrance::Waits(fence) => {
                Arrival::Waits(Box::new(QueuedTurn { hold: hold(fence, Standing::Accepted), beginning }))
            }
        })
    }

    /// Continues a turn that this process has taken over under `fence`. The turn may have to wait.
    #[must_use]
    pub fn resume(
        store: &Arc<dyn ConversationStore>,
        key: ConversationKey,
        (fence, submission): (Fence, Submission),
        beginning: Beginning,
    ) -> QueuedTurn {
        // At least one event is read, because the last event tells whether the message of the turn has an answer.
        let beginning = Beginning { history: beginning.history.max(1), ..beginning };
        QueuedTurn { hold: Hold::new(store, key, (fence, submission), Standing::Accepted), beginning }
    }

    fn of(hold: Hold, beginning: Beginning, found: ConversationSnapshot) -> Self {
        let Beginning { task, limits, history } = beginning;
        let (task, number) = task.unwrap_or_else(|| {
            let Submission { task, since, .. } = &hold.submission;
            (TaskSnapshot::submitted(task.clone(), hold.key.context.clone(), *since), 0)
        });
        let view = Mutex::new(View::of(found, history, &hold.submission.task));
        let writing =
            Writing { task, number, staged: Vec::new(), keeps_staged: false, is_first: true, under_way: None };
        let writing = tokio::sync::Mutex::new(writing);
        Self { inner: Arc::new(Inner { hold, limits, view, writing }) }
    }

    /// The key of the conversation.
    #[must_use]
    pub fn key(&self) -> &ConversationKey {
        &self.inner.hold.key
    }

    /// The fence of the turn, which is its right to write.
    #[must_use]
    pub fn fence(&self) -> &Fence {
        &self.inner.hold.fence
    }

    /// True if the turn has left the queue, or belongs to another process.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.inner.hold.standing() == Standing::Over
    }

    /// True if the conversation exists. Its first event creates it.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.inner.view().exists
    }

    /// The ids of the conversation at the upstream agent.
    #[must_use]
    pub fn upstream(&self) -> Option<Arc<str>> {
        self.inner.view().upstream.clone()
    }

    /// The number and the digest of the conversation's last receipt.
    #[must_use]
    pub fn receipt(&self) -> Option<Arc<str>> {
        self.inner.view().receipt.clone()
    }

    /// The state that this turn can read: the conversation's own keys, then `app:`, `user:` and `temp:` keys with their
    /// prefixes.
    #[must_use]
    pub fn state(&self) -> JsonObject {
        let view = self.inner.view();
        let mut state = view.state.merged();
        state.extend(view.temp.clone());
        state
    }

    /// The value of a full key, such as `user:theme`; `None` if the key does not exist.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<Json> {
        let view = self.inner.view();
        match Scope::of(key).0 {
            Scope::Temp => view.temp.get(key).cloned(),
            Scope::Conversation | Scope::User | Scope::App => view.state.value(key).cloned(),
        }
    }

    /// The conversation's own keys, which may be shown to a client.
    #[must_use]
    pub fn own_state(&self) -> JsonObject {
        self.inner.view().state.own().clone()
    }

    /// Checks the keys and values of a change before it is appended. The total size of the state is only checked by the
    /// append.
    ///
    /// # Errors
    /// The reason for which an append would be refused.
    pub fn check(&self, delta: &StateDelta) -> Result<(), AppendError> {
        self.inner.hold.store.limits().check_delta(delta)
    }

    /// True if the last event of this turn is from the user.
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        self.inner.view().is_unanswered
    }

    /// The latest events in order of arrival: at most `count`, and at most 8 MiB together.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn history(&self, count: usize) -> Result<Vec<Arc<Event>>, StoreError> {
        let window = Window { events: count, bytes: HISTORY_BYTES };
        if let Some(events) = self.inner.view().take_history(window) {
            return Ok(events);
        }
        // The history is read again and not kept, because it may be large and the turn long.
        let Hold { store, key, .. } = &self.inner.hold;
        Ok(store.conversation(key, window).await?.history)
    }

    /// The latest version of an artifact of the conversation.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn artifact(&self, name: &str) -> Result<Option<Parts>, StoreError> {
        let Hold { store, key, .. } = &self.inner.hold;
        Ok(store.artifact(key, name).await?.map(|artifact| artifact.parts))
    }

    /// The task with all stored entries applied.
    pub async fn task(&self) -> TaskSnapshot {
        self.inner.writing.lock().await.task.clone()
    }

    /// Replaces the task by the stored one. Called before the first append of a turn that continues a task, because the
    /// task may have changed before the turn entered the queue.
    pub async fn follow(&self, task: TaskSnapshot, number: u64) {
        let mut writing = self.inner.writing.lock().await;
        (writing.task, writing.number) = (task, number);
    }

    /// Makes an event visible to this turn now, and stores the event with the next entries. Used for the last event of
    /// an agent, which is stored in one step with the end of the turn.
    ///
    /// # Errors
    /// The reason for which an append would be refused. The total size of the state is only checked by the append.
    pub async fn stage(&self, event: Event) -> Result<(), AppendError> {
        let limits = self.inner.hold.store.limits();
        limits.check_event(&event)?;
        let mut writing = self.inner.writing.lock().await;
        let entry = Entry::from(event);
        self.inner.view().apply(&entry, limits.null_removes);
        writing.staged.push(entry);
        Ok(())
    }

    /// Stores staged events only with the end of the turn, so that [`amend_staged`](Self::amend_staged) can change them until
    /// then.
    pub async fn keep_staged(&self) {
        self.inner.writing.lock().await.keeps_staged = true;
    }

    /// Changes the staged events, for the store and for this turn. `amended` returns the new parts of an event, or `None` for
    /// an event that stays as it is. An artifact that has the same parts as its event, and a value of state that is the text of
    /// its event, change with the event.
    pub async fn amend_staged(&self, amended: impl Fn(&Event) -> Option<Parts>) {
        let null_removes = self.inner.hold.store.limits().null_removes;
        let mut writing = self.inner.writing.lock().await;
        let mut view = self.inner.view();
        let mut is_amended = false;
        for entry in &mut writing.staged {
            if let Entry::Event(event) = entry {
                if let Some(parts) = amended(event) {
                    *event = Arc::new(event.amended(parts));
                    is_amended = true;
                }
                // A later event may set the same keys as an amended one.
                if is_amended {
                    view.apply_amended(event, null_removes);
                }
            }
        }
    }

    /// Stores entries in one step, together with the task and the state that result from the entries. `temp:` keys last until
    /// the turn ends.
    ///
    /// # Errors
    /// The errors of [`ConversationStore::append`].
    pub async fn append(&self, entries: impl AsRef<[Entry]> + Send + Sync) -> Result<Appended, AppendError> {
        let mut writing = self.inner.writing.lock().await;
        self.inner.write(&mut writing, entries.as_ref(), (false, Outcome::Task)).await
    }

    /// Stores the last entries of the turn and leaves the queue, in one step. The next turn of the conversation may begin in
    /// another process.
    ///
    /// # Errors
    /// The errors of [`append`](Self::append). After an error the turn has not ended.
    pub async fn end(&self, entries: impl AsRef<[Entry]> + Send + Sync) -> Result<Appended, AppendError> {
        let mut writing = self.inner.writing.lock().await;
        self.inner.write(&mut writing, entries.as_ref(), (true, Outcome::Task)).await
    }

    /// Ends the turn with a message as the answer. The task is deleted, and the history stays.
    ///
    /// # Errors
    /// The errors of [`append`](Self::append). After an error the turn has not ended.
    pub async fn answer(
        &self,
        entries: impl AsRef<[Entry]> + Send + Sync,
        answer: &Message,
    ) -> Result<Appended, AppendError> {
        let mut writing = self.inner.writing.lock().await;
        self.inner.write(&mut writing, entries.as_ref(), (true, Outcome::Answer(answer))).await
    }

    /// Ends the turn with a refusal by the agent: the task and the claim of the message are deleted, and the history stays.
    ///
    /// # Errors
    /// The errors of [`append`](Self::append). After an error the turn has not ended.
    pub async fn refuse(&self, entries: impl AsRef<[Entry]> + Send + Sync) -> Result<Appended, AppendError> {
        let mut writing = self.inner.writing.lock().await;
        self.inner.write(&mut writing, entries.as_ref(), (true, Outcome::Refusal)).await
    }

    /// Leaves the queue without a last entry.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn leave(&self, departure: Departure) -> Result<(), StoreError> {
        self.inner.hold.leave(departure).await
    }
}

impl QueuedTurn {
    /// The fence of the turn, which is its right to write once the turn runs.
    #[must_use]
    pub fn fence(&self) -> &Fence {
        &self.hold.fence
    }

    /// The time since which a new task of the turn is SUBMITTED.
    #[must_use]
    pub fn since(&self) -> Timestamp {
        self.hold.submission.since
    }

    /// Leaves the queue without a last entry.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn leave(self, departure: Departure) -> Result<(), StoreError> {
        self.hold.leave(departure).await
    }

    /// Waits until the turn runs.
    ///
    /// # Errors
    /// The errors of [`ConversationStore::wait`].
    pub async fn runs(self) -> Result<Conversation, AppendError> {
        let found = self.comes().await?;
        Ok(self.begin(found))
    }

    /// Waits until the turn runs, and reads the conversation. Unlike [`runs`](Self::runs), this call does not begin the turn:
    /// the caller calls [`begin`](Self::begin) or [`end`](Self::end). The turn stays in the queue if the future is dropped.
    ///
    /// # Errors
    /// The errors of [`ConversationStore::wait`].
    pub async fn comes(&self) -> Result<ConversationSnapshot, AppendError> {
        let Self { hold, beginning } = self;
        let waited = hold.store.wait(&hold.key, &hold.fence, window(beginning.history)).await;
        if let Err(AppendError::Fenced) = &waited {
            // The turn belongs to another process.
            hold.set(Standing::Over);
        }
        waited
    }

    /// Begins the turn in the conversation that [`comes`](Self::comes) has read.
    #[must_use]
    pub fn begin(self, found: ConversationSnapshot) -> Conversation {
        Conversation::of(self.hold, self.beginning, found)
    }

    /// Ends the turn before it has begun. The entries must not contain an event of the history.
    ///
    /// # Errors
    /// The errors of [`ConversationStore::append`].
    pub async fn end(self, entries: impl AsRef<[Entry]> + Send + Sync) -> Result<Appended, AppendError> {
        let Self { hold, beginning } = self;
        let nothing = hold.store.conversation(&hold.key, Window::NONE).await?;
        Conversation::of(hold, beginning, nothing).end(entries).await
    }
}

/// The window of the events that are read with the conversation: the latest `history` events, at most 8 MiB together.
fn window(history: usize) -> Window {
    Window { events: history, bytes: HISTORY_BYTES }
}

impl Inner {
    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn write(
        &self,
        writing: &mut Writing,
        added: &[Entry],
        (ends, outcome): (bool, Outcome<'_>),
    ) -> Result<Appended, AppendError> {
        let mut entries = Cow::Borrowed(added);
        if !writing.staged.is_empty() && (ends || !writing.keeps_staged) {
            // Taken out even if the write fails: an event that cannot be stored fails the turn, and must not fail the
            // end of the turn too.
            let staged = mem::take(&mut writing.staged);
            entries = staged.into_iter().chain(added.iter().cloned()).collect();
        }
        // Taken out even if the write fails: the history is then read again.
        let history = self.view().history.take();
        let dropped = writing.under_way.take();
        let appended = match (self.try_write(writing, (added, &entries), (ends, outcome)).await, dropped) {
            (Err(AppendError::Stale { found, .. }), Some(dropped)) if dropped.number == found => {
                self.wrote(writing, dropped);
                self.try_write(writing, (added, &entries), (ends, outcome)).await?
            }
            (Ok(appended), _) => {
                self.view().history = history;
                appended
            }
            (Err(error), dropped) => {
                writing.under_way = dropped;
                return Err(error);
            }
        };
        self.hold.set(if ends { Standing::Over } else { Standing::Accepted });
        if let Some(stored) = writing.under_way.take() {
            self.wrote(writing, stored);
        }
        Ok(appended)
    }

    /// Appends `entries`: staged entries, and then the entries that this call has `added`. If the caller drops the
    /// future, the append stays under way.
    async fn try_write(
        &self,
        writing: &mut Writing,
        (added, entries): (&[Entry], &[Entry]),
        (ends, outcome): (bool, Outcome<'_>),
    ) -> Result<Appended, AppendError> {
        let Hold { store, key, fence, submission, .. } = &self.hold;
        let task = writing.task.with(entries);
        task.check(&writing.task, &self.limits)?;
        let at = Position::of_task(task.id().clone(), writing.number);
        let submission = Some(submission).filter(|_| writing.is_first || matches!(outcome, Outcome::Answer(_)));
        let append = Append { by: Some(fence), submission, entries, task: Some(&task), ends, outcome };
        let number = writing.number.saturating_add(entries.len() as u64);
        writing.under_way = Some(UnderWay { added: added.to_vec(), task: task.clone(), number });
        store.append(key, &at, append).await.inspect_err(|error| {
            writing.under_way = None;
            if let AppendError::Fenced = error {
                self.hold.set(Standing::Over);
            }
        })
    }

    /// Applies a stored append to the task and the state that this turn sees.
    fn wrote(&self, writing: &mut Writing, stored: UnderWay) {
        let UnderWay { added, task, number } = stored;
        (writing.task, writing.number, writing.is_first) = (task, number, false);
        let null_removes = self.hold.store.limits().null_removes;
        let mut view = self.view();
        added.iter().for_each(|entry| view.apply(entry, null_removes));
    }
}
