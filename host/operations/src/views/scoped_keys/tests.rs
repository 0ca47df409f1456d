//! Tests of the removal of keys by a sweep and at the end of a turn.

use std::sync::Arc;

use annex_conversation::{
    Append, Arrival, Beginning, Conversation, ConversationAdmin, ConversationKey, ConversationStore, Entry,
    MemoryBounds, MemoryStore, Position, StateDelta, Submission, TaskLimits, TaskSnapshot,
};
use annex_protocol::{Message, Owner, TaskId, Timestamp};
use annex_runtime::{KeyValueStore, MemoryKeyValueStore, Quota, Scope, ScopeKind, Space};

use super::{AgentNames, ScopedKeys, TurnKeys};

struct Bench {
    store: Arc<MemoryKeyValueStore>,
    conversations: Arc<MemoryStore>,
    keys: Arc<ScopedKeys>,
}

impl Bench {
    fn new() -> Self {
        let store = Arc::new(MemoryKeyValueStore::default());
        let conversations = Arc::new(MemoryStore::new(MemoryBounds::default()));
        let apps = AgentNames::default();
        apps.set("", "app");
        let keys = ScopedKeys::new(store.clone(), conversations.clone(), apps);
        Self { store, conversations, keys }
    }

    /// Begins a turn whose task and conversation are not stored yet.
    async fn turn(&self, task: &str) -> (Conversation, TurnKeys) {
        let submission = Submission::of_process("one".into(), task.into());
        let limits = TaskLimits { bytes: 1 << 20, messages: 10, artifacts: 10 };
        let store: Arc<dyn ConversationStore> = self.conversations.clone();
        let entered =
            Conversation::enter(&store, key(), submission, Beginning { task: None, limits, history: 0 }).await;
        let Ok(Arrival::Runs(conversation)) = entered else { panic!("no other turn runs") };
        let keys = self.keys.of_turn(&ada(), &conversation, &task.into()).await.expect("keys");
        (conversation, keys)
    }

    async fn set(&self, scope: Scope) {
        let space = Space { extension: "https://annex.example/own/v1".into(), scope };
        self.store.set(&space, "a", Vec::new(), &Quota::default()).await.expect("room");
    }

    /// Stores a task with its conversation.
    async fn create(&self, task: &str) {
        let submitted = TaskSnapshot::submitted(task.into(), "c".into(), Timestamp::now());
        let entries = [said(task)];
        let snapshot = submitted.with(&entries);
        let append = Append { entries: &entries, task: Some(&snapshot), ..Append::default() };
        self.conversations.append(&key(), &Position::of_task(task.into(), 0), append).await.expect("room");
    }

    async fn scopes(&self) -> Vec<Scope> {
        let mut scopes = self.store.scopes(None).await.expect("a page");
        scopes.sort();
        scopes
    }

    async fn kinds(&self) -> Vec<ScopeKind> {
        self.scopes().await.into_iter().map(|scope| scope.kind).collect()
    }
}

fn ada() -> Owner {
    Owner { tenant: String::new(), principal: "ada".to_owned() }
}

fn key() -> ConversationKey {
    ConversationKey::of("app", &ada(), &"c".into())
}

fn said(task: &str) -> Entry {
    Entry::said_by_user(Message::user_text("Hello"), task, StateDelta::new(), Some(Timestamp::now()))
}

fn of_ada(task: &str) -> [Scope; 2] {
    [Scope::context("", "ada", &"c".into()), Scope::task("", "ada", &TaskId::from(task))]
}

#[tokio::test]
async fn a_sweep_spares_a_turn_whose_task_and_conversation_are_still_to_be_stored() {
    let bench = Bench::new();
    let (conversation, keys) = bench.turn("t").await;
    for scope in of_ada("t") {
        assert_eq!(keys.scope(scope.kind), Some(scope.clone()));
        bench.set(scope).await;
    }
    bench.keys.sweep().await.expect("a sweep");
    assert_eq!(bench.kinds().await, [ScopeKind::Context, ScopeKind::Task]);
    conversation.append([said("t")]).await.expect("room");
    drop((conversation, keys));
    bench.keys.sweep().await.expect("a sweep");
    assert_eq!(bench.kinds().await, [ScopeKind::Context, ScopeKind::Task], "they have come to be");
}

#[tokio::test]
async fn a_sweep_removes_what_belongs_to_nothing_and_only_that() {
    let bench = Bench::new();
    bench.create("t").await;
    let others = [Scope::task("", "bob", &"t".into()), Scope::task("", "ada", &"u".into())];
    let contexts = [Scope::context("", "", &"c".into()), Scope::context("", "ada", &"d".into())];
    for scope in of_ada("t").into_iter().chain(others).chain(contexts).chain([Scope::lasting("")]) {
        bench.set(scope).await;
    }
    // More keys than fit on one page.
    for number in 0..1_000 {
        bench.set(Scope::task("", "eve", &number.to_string().into())).await;
    }
    bench.keys.sweep().await.expect("a sweep");
    assert_eq!(bench.scopes().await, of_ada("t"));
    let lasting = Space { extension: "https://annex.example/own/v1".into(), scope: Scope::lasting("") };
    assert_eq!(bench.store.keys(&lasting, 0).await.expect("keys"), ["a"]);
    assert!(bench.conversations.delete(&key()).await.expect("a conversation"));
    bench.keys.sweep().await.expect("a sweep");
    assert_eq!(bench.kinds().await, [ScopeKind::Task], "its conversation was deleted");
}
