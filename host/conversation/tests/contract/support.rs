//! Short ways to say what the cases are about.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use annex_conversation::{
    Append, AppendError, Appended, Arrival, Beginning, Claimant, Conversation, ConversationKey, ConversationQuery,
    ConversationSnapshot, ConversationStore, Entrance, Entry, Event, Fence, Keep, Owner, Position, Retention,
    StateDelta, StoredEntry, StoredTask, Submission, Swept, TaskLimits, TaskSnapshot, Window,
};
use annex_protocol::{Part, StreamResponse, Task, TaskId, TaskState, TaskStatus, TaskStatusUpdateEvent, Timestamp};

pub(crate) use crate::backend::{Backend, Store, memory};

/// The holder of a new claim of a process.
pub(crate) fn holder(replica: &str) -> Claimant {
    Claimant::new(replica.into())
}

/// Waits until the clock shows the next millisecond: stores keep times in milliseconds.
pub(crate) async fn next_millisecond() {
    let now = Timestamp::now();
    while Timestamp::now() == now {
        tokio::task::yield_now().await;
    }
}

/// A key from `tenant/app/user/context`, read from the right: what is missing on the left is `-`.
pub(crate) fn key(path: &str) -> ConversationKey {
    let mut names = path.rsplit('/').chain(std::iter::repeat("-"));
    let mut next = || names.next().unwrap();
    let context = next();
    let user = next();
    let app = next();
    let tenant = next();
    ConversationKey::new(tenant, app, user, context)
}

pub(crate) fn delta(json: &str) -> StateDelta {
    StateDelta::parse(json).unwrap()
}

pub(crate) fn event(id: &str, state_delta: &str) -> Event {
    event_at(id, 1_000, state_delta)
}

pub(crate) fn event_at(id: &str, millis: i64, state_delta: &str) -> Event {
    let parts = vec![Part::text(format!("text of {id}"))];
    let timestamp = Timestamp::from_millis(millis);
    Event { id: id.to_owned(), timestamp, ..Event::new("agent", "turn", parts, delta(state_delta)) }
}

/// The author of the event with which a test makes a conversation; it is left out where tests look at events.
const MAKER: &str = "maker";

/// Makes a conversation with its initial state.
pub(crate) async fn make(
    store: &Store,
    key: &ConversationKey,
    initial: StateDelta,
) -> Result<ConversationSnapshot, AppendError> {
    append_all(store, key, 0, vec![Event::new(MAKER, "", Vec::new(), initial)]).await?;
    Ok(store.conversation(key, Window::NONE).await.unwrap())
}

pub(crate) async fn create(store: &Store, path: &str, initial: &str) -> ConversationSnapshot {
    make(store, &key(path), delta(initial)).await.unwrap()
}

/// Appends events without a turn. Returns the number of events that the conversation has then.
pub(crate) async fn append_all(
    store: &Store,
    key: &ConversationKey,
    expected: u64,
    events: Vec<Event>,
) -> Result<u64, AppendError> {
    let entries: Vec<Entry> = events.into_iter().map(Entry::from).collect();
    let append = Append { entries: &entries, ..Append::default() };
    store.append(key, &Position::of_conversation(expected), append).await.map(|appended| appended.number)
}

/// Appends one event without a turn.
pub(crate) async fn add(store: &Store, path: &str, expected: u64, event: Event) -> Result<u64, AppendError> {
    append_all(store, &key(path), expected, vec![event]).await
}

pub(crate) async fn find(store: &Store, path: &str) -> Option<ConversationSnapshot> {
    Some(store.conversation(&key(path), Window::NONE).await.unwrap()).filter(ConversationSnapshot::exists)
}

/// The merged state that a conversation of this key reads, as JSON.
pub(crate) async fn state_of(store: &Store, path: &str) -> String {
    find(store, path).await.expect("the conversation exists").state.merged().to_json_string()
}

/// The latest events that tests have appended.
pub(crate) async fn latest(store: &Store, key: &ConversationKey, window: Window) -> Vec<Arc<Event>> {
    let events = store.conversation(key, window).await.unwrap().history;
    events.into_iter().filter(|event| *event.author != *MAKER).collect()
}

pub(crate) async fn events(store: &Store, path: &str) -> Vec<Arc<Event>> {
    latest(store, &key(path), Window::ALL).await
}

pub(crate) fn ids(events: &[Arc<Event>]) -> Vec<&str> {
    events.iter().map(|event| event.id.as_str()).collect()
}

/// The conversations of `-/-` and of one user, or of all.
pub(crate) fn query(user: Option<&str>) -> ConversationQuery {
    let tenant = "-".to_owned();
    let app = "-".to_owned();
    ConversationQuery { tenant, app, user: user.map(str::to_owned), after: None, limit: 1_000 }
}

pub(crate) async fn sweep_conversations(store: &Store, age: Duration, count: u64) -> u64 {
    let retention = Retention { conversations: Keep { age, count }, ..Retention::ALL };
    store.sweep(&retention).await.unwrap().conversations
}

pub(crate) async fn sweep_tasks(store: &Store, age: Duration, count: u64) -> u64 {
    let Swept { tasks, .. } = store.sweep(&Retention { tasks: Keep { age, count }, ..Retention::ALL }).await.unwrap();
    tasks
}

/// Limits that no test reaches by chance.
pub(crate) const ROOMY: TaskLimits = TaskLimits { bytes: 1 << 30, messages: 10_000, artifacts: 1_000 };

/// A turn on a new task.
pub(crate) fn beginning(history: usize) -> Beginning {
    Beginning { task: None, limits: ROOMY, history }
}

pub(crate) fn submission(replica: &str, task: &str) -> Submission {
    let task = TaskId::from(task);
    Submission {
        replica: replica.into(),
        task,
        since: Timestamp::now(),
        message: None,
        request: Some("again".into()),
        resume: Some("again".into()),
        max_waiting: 64,
    }
}

pub(crate) async fn arrive(store: &Store, path: &str, submission: Submission) -> Result<Arrival, AppendError> {
    let store: Arc<dyn ConversationStore> = store.clone();
    Conversation::enter(&store, key(path), submission, beginning(0)).await
}

/// Begins a turn, which must not have to wait, and reads so many events with the conversation.
pub(crate) async fn open_with(store: &Store, path: &str, history: usize) -> Conversation {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let task = format!("task-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let store: Arc<dyn ConversationStore> = store.clone();
    match Conversation::enter(&store, key(path), submission("one", &task), beginning(history)).await.unwrap() {
        Arrival::Runs(turn) => turn,
        Arrival::Waits(_) => panic!("another turn runs in {path}"),
    }
}

pub(crate) async fn open(store: &Store, path: &str) -> Conversation {
    open_with(store, path, 0).await
}

/// Short ways to say something in a turn.
pub(crate) trait Says {
    async fn say(&self, event: Event) -> Result<Appended, AppendError>;
    async fn close(self);
}

impl Says for Conversation {
    async fn say(&self, event: Event) -> Result<Appended, AppendError> {
        self.append(vec![event.into()]).await
    }

    /// Ends the turn by completing its task.
    async fn close(self) {
        let task = self.task().await;
        self.end(vec![update(&task, TaskState::Completed)]).await.unwrap();
    }
}

/// The text of a refusal.
pub(crate) fn refusal<T: std::fmt::Debug>(result: Result<T, AppendError>) -> String {
    result.unwrap_err().to_string()
}

pub(crate) fn owner(principal: &str) -> Owner {
    Owner { tenant: "acme".to_owned(), principal: principal.to_owned() }
}

pub(crate) fn at(millis: i64) -> Option<Timestamp> {
    Some(Timestamp::from_millis(millis))
}

/// A task in context `c-1`.
pub(crate) fn task(id: &str, state: TaskState, timestamp: Option<Timestamp>) -> Task {
    let status = TaskStatus { state, message: None, timestamp };
    Task { id: id.into(), context_id: "c-1".into(), status, ..Task::default() }
}

pub(crate) fn working(id: &str) -> Task {
    task(id, TaskState::Working, at(1_000))
}

/// The update that brings a task into another state now.
pub(crate) fn update(task: &Task, state: TaskState) -> Entry {
    change(&mut task.clone(), state, Some(Timestamp::now()))
}

/// Brings `task` into another state, and the entry that says so.
pub(crate) fn change(task: &mut Task, state: TaskState, timestamp: Option<Timestamp>) -> Entry {
    let update = TaskStatusUpdateEvent {
        task_id: task.id.clone(),
        context_id: task.context_id.clone(),
        status: TaskStatus { state, message: None, timestamp },
        ..TaskStatusUpdateEvent::default()
    };
    task.apply_status(&update);
    StreamResponse::StatusUpdate(update).into()
}

pub(crate) fn numbers(entries: &[StoredEntry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.number).collect()
}

/// The key of the conversation that a task of an owner belongs to.
pub(crate) fn key_of(owner: &Owner, task: &Task) -> ConversationKey {
    ConversationKey::of("agent", owner, &task.context_id)
}

/// A turn that goes on, as a store sees it.
pub(crate) struct Running {
    store: Store,
    pub(crate) key: ConversationKey,
    pub(crate) fence: Fence,
    pub(crate) task: TaskSnapshot,
    pub(crate) number: u64,
}

impl Running {
    async fn append(&self, (entries, ends): (&[Entry], bool), task: &TaskSnapshot) -> Result<Appended, AppendError> {
        let append = Append { by: Some(&self.fence), entries, task: Some(task), ends, ..Append::default() };
        self.store.append(&self.key, &Position::of_task(task.id().clone(), self.number), append).await
    }

    /// Appends entries, with which the turn may end.
    pub(crate) async fn write(&mut self, entries: &[Entry], ends: bool) -> Result<Appended, AppendError> {
        let task = self.task.with(entries);
        let appended = self.append((entries, ends), &task).await?;
        (self.task, self.number) = (task, appended.number);
        Ok(appended)
    }

    /// Ends the turn with the task in this state.
    pub(crate) async fn end(
        &mut self,
        state: TaskState,
        timestamp: Option<Timestamp>,
    ) -> Result<Appended, AppendError> {
        let entry = change(&mut Task::clone(&self.task), state, timestamp);
        self.write(&[entry], true).await
    }
}

/// Writes tasks without a turn.
pub(crate) trait WritesTasks {
    async fn begin(&self, owner: &Owner, task: &Task) -> Result<Appended, AppendError>;
    async fn run(&self, owner: &Owner, task: &Task) -> Result<Running, AppendError>;
    async fn add(&self, id: &TaskId, expected: u64, entry: &Entry, task: &Task) -> Result<u64, AppendError>;
    async fn add_all(
        &self,
        id: &TaskId,
        expected: u64,
        entries: &[Entry],
        task: &TaskSnapshot,
    ) -> Result<u64, AppendError>;
    async fn load(&self, owner: &Owner, id: &TaskId) -> Option<StoredTask>;
}

impl WritesTasks for Store {
    /// Stores a task without a turn. The task itself is its first entry.
    async fn begin(&self, owner: &Owner, task: &Task) -> Result<Appended, AppendError> {
        let entries = [StreamResponse::Task(task.clone()).into()];
        let snapshot = task.clone().into();
        let append = Append { entries: &entries, task: Some(&snapshot), ..Append::default() };
        self.append(&key_of(owner, task), &Position::of_task(task.id.clone(), 0), append).await
    }

    /// Stores a task in a turn that then continues, in a conversation of its own. The task itself is its first entry.
    async fn run(&self, owner: &Owner, task: &Task) -> Result<Running, AppendError> {
        let task = Task { context_id: task.id.to_string().into(), ..task.clone() };
        let key = key_of(owner, &task);
        let entered = self.enter(&key, submission("one", task.id.as_str()), Window::NONE).await?;
        let Entrance::Runs(fence, _) = entered else { panic!("a turn runs in {key:?}") };
        let running = Running { store: self.clone(), key, fence, task: task.clone().into(), number: 0 };
        running.append((&[StreamResponse::Task(task.clone()).into()], false), &running.task).await?;
        Ok(Running { number: 1, ..running })
    }

    async fn add(&self, id: &TaskId, expected: u64, entry: &Entry, task: &Task) -> Result<u64, AppendError> {
        self.add_all(id, expected, std::slice::from_ref(entry), &task.clone().into()).await
    }

    async fn add_all(
        &self,
        id: &TaskId,
        expected: u64,
        entries: &[Entry],
        task: &TaskSnapshot,
    ) -> Result<u64, AppendError> {
        let key = match self.task(id).await.unwrap() {
            Some(stored) => stored.key,
            None => key_of(&owner("ada"), task),
        };
        let append = Append { entries, task: Some(task), ..Append::default() };
        self.append(&key, &Position::of_task(id.clone(), expected), append).await.map(|appended| appended.number)
    }

    async fn load(&self, owner: &Owner, id: &TaskId) -> Option<StoredTask> {
        self.task(id).await.unwrap().filter(|task| task.is_of(owner))
    }
}
