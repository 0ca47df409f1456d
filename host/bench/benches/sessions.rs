//! The cost of a store of conversations. Measures appending to and reading from conversations with many events,
//! appending to many conversations at once, and states of two sizes.
//!
//! The stores are memory, a SQLite file, and the PostgreSQL database in `ANNEX_TEST_POSTGRES_URL` if that variable is
//! set.

use std::sync::Arc;
use std::time::{Duration, Instant};

use annex_conversation::{
    Append, AppendError, ConversationKey, ConversationStore, Entry, Event, Limits, MemoryBounds, MemoryStore, Position,
    PostgresStore, SqliteStore, StateDelta, USER_AUTHOR, Window,
};
use annex_database::PostgresConnections;
use annex_protocol::{Json, Part};
use criterion::Criterion;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Store = Arc<dyn ConversationStore>;

const EVENTS: [u64; 3] = [10, 1_000, 100_000];
const STATES: [usize; 2] = [1 << 10, 256 << 10];
/// The window that is read of a conversation. Its number of events is usual for a model's prompt.
const RECENT: Window = Window::latest(20);
const CONTEXTS: usize = 64;
/// The number of events that are stored in one step while a conversation is filled.
const AT_ONCE: u64 = 1_000;

fn main() -> anyhow::Result<()> {
    // Filling the stores takes minutes, and is skipped if the filter selects another bench.
    let filter = annex_bench::filter();
    if annex_bench::is_help()
        || filter.is_some_and(|filter| !["append", "get", "state/"].iter().any(|name| filter.starts_with(name)))
    {
        return Ok(());
    }
    let runtime = Runtime::new()?;
    let folder = tempfile::tempdir()?;
    let stores = runtime.block_on(stores(&folder))?;
    let mut criterion = Criterion::default().configure_from_args();
    for (name, store) in &stores {
        for events in EVENTS {
            let key = runtime.block_on(filled(store, events))?;
            append(&mut criterion, &runtime, (name, store, &key), events);
            get(&mut criterion, &runtime, (name, store, &key), events);
        }
        parallel(&mut criterion, &runtime, (name, store));
        for bytes in STATES {
            state(&mut criterion, &runtime, (name, store), bytes)?;
        }
    }
    criterion.final_summary();
    Ok(())
}

async fn stores(folder: &TempDir) -> anyhow::Result<Vec<(&'static str, Store)>> {
    let limits = Limits { events: usize::MAX, state_bytes: 1 << 20, ..Limits::default() };
    let bounds = MemoryBounds { max_conversation_bytes: usize::MAX, limits, ..MemoryBounds::default() };
    let sqlite = SqliteStore::open(&folder.path().join("conversations.sqlite"), None, limits).await?;
    let mut stores: Vec<(&str, Store)> =
        vec![("memory", Arc::new(MemoryStore::new(bounds))), ("sqlite", Arc::new(sqlite))];
    if let Ok(url) = std::env::var("ANNEX_TEST_POSTGRES_URL") {
        stores.push(("postgres", Arc::new(PostgresStore::open(&PostgresConnections::new(&url, 16)?, limits).await?)));
    }
    Ok(stores)
}

/// The key of a new conversation.
fn key() -> ConversationKey {
    let context = uuid::Uuid::now_v7().to_string();
    ConversationKey::new("", "bench", "principal:ada", context)
}

fn event(delta: StateDelta) -> Entry {
    let text = "What does a conversation cost when it is appended to, and what when it is read?";
    Event::new(USER_AUTHOR, "turn", vec![Part::text(text)], delta).into()
}

/// Appends entries to a conversation that has `number` events. Returns the new number of events.
async fn add(store: &Store, key: &ConversationKey, number: u64, entries: &[Entry]) -> Result<u64, AppendError> {
    let append = Append { entries, ..Append::default() };
    Ok(store.append(key, &Position::of_conversation(number), append).await?.number)
}

async fn filled(store: &Store, events: u64) -> Result<ConversationKey, AppendError> {
    let key = key();
    let mut number = 0;
    while number < events {
        let next: Vec<Entry> = (0..AT_ONCE.min(events - number)).map(|_| event(StateDelta::new())).collect();
        number = add(store, &key, number, &next).await?;
    }
    Ok(key)
}

/// Appends `count` events, one after the other. Returns the time that this takes.
async fn append_all(store: &Store, key: &ConversationKey, count: u64) -> Result<Duration, AppendError> {
    let mut number = store.conversation(key, Window::NONE).await?.number;
    let begun = Instant::now();
    for _ in 0..count {
        number = add(store, key, number, &[event(StateDelta::new())]).await?;
    }
    Ok(begun.elapsed())
}

fn append(
    criterion: &mut Criterion,
    runtime: &Runtime,
    (name, store, key): (&str, &Store, &ConversationKey),
    events: u64,
) {
    criterion.bench_function(&format!("append/{name}/{events} events"), |bencher| {
        bencher.to_async(runtime).iter_custom(|count| async move { done(append_all(store, key, count).await) });
    });
}

fn get(
    criterion: &mut Criterion,
    runtime: &Runtime,
    (name, store, key): (&str, &Store, &ConversationKey),
    events: u64,
) {
    criterion.bench_function(&format!("get/{name}/{events} events"), |bencher| {
        let read = || async { done(store.conversation(key, RECENT).await) };
        bencher.to_async(runtime).iter(read);
    });
}

/// Measures appending to [`CONTEXTS`] conversations at once, one event at a time in each.
fn parallel(criterion: &mut Criterion, runtime: &Runtime, (name, store): (&str, &Store)) {
    criterion.bench_function(&format!("append/{name}/in {CONTEXTS} contexts"), |bencher| {
        let round = |count| async move {
            let keys: Vec<ConversationKey> = (0..CONTEXTS).map(|_| key()).collect();
            let begun = Instant::now();
            let mut conversations = JoinSet::new();
            for key in keys {
                let store = Arc::clone(store);
                conversations.spawn(async move {
                    for number in 0..count {
                        done(add(&store, &key, number, &[event(StateDelta::new())]).await);
                    }
                });
            }
            conversations.join_all().await;
            begun.elapsed()
        };
        bencher.to_async(runtime).iter_custom(round);
    });
}

/// Measures replacing one key of a state, and reading the state. The state has about `bytes` bytes.
fn state(
    criterion: &mut Criterion,
    runtime: &Runtime,
    (name, store): (&str, &Store),
    bytes: usize,
) -> Result<(), AppendError> {
    const KEYS: usize = 8;
    let value = Json::string(&"x".repeat(bytes / KEYS));
    let key = key();
    let initial = (0..KEYS).map(|number| (format!("key{number}"), value.clone())).collect();
    runtime.block_on(add(store, &key, 0, &[event(initial)]))?;
    let key = &key;
    let value = &value;
    criterion.bench_function(&format!("state/{name}/{} KiB/set one of {KEYS}", bytes >> 10), |bencher| {
        bencher.to_async(runtime).iter_custom(|count| async move {
            let mut number = done(store.conversation(key, Window::NONE).await).number;
            let begun = Instant::now();
            for _ in 0..count {
                let delta = [("key0".to_owned(), value.clone())].into_iter().collect();
                number = done(add(store, key, number, &[event(delta)]).await);
            }
            begun.elapsed()
        });
    });
    criterion.bench_function(&format!("state/{name}/{} KiB/read", bytes >> 10), |bencher| {
        bencher.to_async(runtime).iter(|| async { done(store.conversation(key, Window::NONE).await) });
    });
    Ok(())
}

#[expect(clippy::panic, reason = "a store that fails has no figures")]
fn done<T, E: std::fmt::Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("the store fails: {error}"))
}
