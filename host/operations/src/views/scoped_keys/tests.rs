//! Tests of the removal of keys by a sweep and at the end of a turn.

use std::sync::Arc;

use annex_protocol::{ContextId, Owner, StreamResponse, Task, TaskId};
use annex_runtime::{KeyValueStore, MemoryKeyValueStore, Quota, Scope, ScopeKind, Space};
use annex_session::{
    Beginning, Bounds, Event, InMemorySessionService, SessionService, StateDelta, TurnSession, Turns, USER_AUTHOR,
};
use annex_tasks::{Creator, MemoryBounds, MemoryTaskStore, TaskStore, WaitingBounds};

use super::{AgentNames, ScopedKeys, TurnKeys, session_key};

struct Bench {
    store: Arc<MemoryKeyValueStore>,
    tasks: Arc<MemoryTaskStore>,
    sessions: Arc<dyn SessionService>,
    keys: Arc<ScopedKeys>,
}

impl Bench {
    fn new() -> Self {
        let store = Arc::new(MemoryKeyValueStore::default());
        let bounds = MemoryBounds { max_tasks: 10, max_bytes: 1 << 20, waiting: WaitingBounds::UNBOUNDED };
        let tasks = Arc::new(MemoryTaskStore::new(bounds));
        let sessions: Arc<dyn SessionService> = Arc::new(InMemorySessionService::new(Bounds::default()));
        let apps = AgentNames::default();
        apps.set("", "app");
        let keys = ScopedKeys::new(store.clone(), tasks.clone(), sessions.clone(), apps);
        Self { store, tasks, sessions, keys }
    }

    /// Begins a turn whose task and session are not created yet.
    async fn turn(&self, task: &str) -> (TurnSession, TurnKeys) {
        let key = session_key("app", &ada(), &ContextId::from("c"));
        let turns = Turns::default();
        let session = TurnSession::open(&self.sessions, key, &turns, Beginning::default()).await.expect("a session");
        let keys = self.keys.of_turn(&ada(), &session, &task.into()).await.expect("keys");
        (session, keys)
    }

    async fn set(&self, scope: Scope) {
        let space = Space { extension: "https://annex.example/own/v1".into(), scope };
        self.store.set(&space, "a", Vec::new(), &Quota::default()).await.expect("room");
    }

    async fn create(&self, task: &str) {
        let task = Task { id: task.into(), context_id: "c".into(), ..Task::default() };
        let event = StreamResponse::Task(task.clone()).into();
        self.tasks.create(&ada(), &[event], &task.into(), Creator::default()).await.expect("room");
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

fn of_ada(task: &str) -> [Scope; 2] {
    [Scope::context("", "ada", &"c".into()), Scope::task("", "ada", &TaskId::from(task))]
}

#[tokio::test]
async fn a_sweep_spares_a_turn_whose_task_and_session_are_still_to_be_made() {
    let bench = Bench::new();
    let (session, keys) = bench.turn("t").await;
    for scope in of_ada("t") {
        assert_eq!(keys.scope(scope.kind), Some(scope.clone()));
        bench.set(scope).await;
    }
    bench.keys.sweep().await.expect("a sweep");
    assert_eq!(bench.kinds().await, [ScopeKind::Context, ScopeKind::Task]);
    bench.create("t").await;
    session.append(Event::new(USER_AUTHOR, "t", Vec::new(), StateDelta::new())).await.expect("room");
    drop((session, keys));
    bench.keys.sweep().await.expect("a sweep");
    assert_eq!(bench.kinds().await, [ScopeKind::Context, ScopeKind::Task], "they have come to be");
}

#[tokio::test]
async fn a_sweep_removes_what_belongs_to_nothing_and_only_that() {
    let bench = Bench::new();
    bench.create("t").await;
    let key = session_key("app", &ada(), &ContextId::from("c"));
    bench.sessions.create(&key, StateDelta::new()).await.expect("a session");
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
    assert!(bench.sessions.delete(&key).await.expect("a session"));
    bench.keys.sweep().await.expect("a sweep");
    assert_eq!(bench.kinds().await, [ScopeKind::Task], "its session was deleted");
}
