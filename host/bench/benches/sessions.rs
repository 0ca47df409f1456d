//! The cost of a session store: appends to and reads from sessions with many events, many sessions at once, and states
//! of two sizes. The stores are memory, a SQLite file, and the PostgreSQL database in `ANNEX_TEST_POSTGRES_URL` if it
//! is set.

use std::sync::Arc;
use std::time::{Duration, Instant};

use annex_protocol::{Json, Part};
use annex_session::{
    Bounds, Event, EventFilter, InMemorySessionService, Limits, PostgresSessionService, SessionError, SessionKey,
    SessionService, SqliteSessionService, StateDelta,
};
use criterion::Criterion;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Store = Arc<dyn SessionService>;

const EVENTS: [u64; 3] = [10, 1_000, 100_000];
const STATES: [usize; 2] = [1 << 10, 256 << 10];
/// A usual number of events in a model's prompt.
const RECENT: usize = 20;
const CONTEXTS: usize = 64;
/// Events that are stored in one step when a session is filled.
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
    let bounds = Bounds { max_bytes: usize::MAX, limits, ..Bounds::default() };
    let sqlite = SqliteSessionService::open(&folder.path().join("sessions.sqlite"), limits).await?;
    let mut stores: Vec<(&str, Store)> =
        vec![("memory", Arc::new(InMemorySessionService::new(bounds))), ("sqlite", Arc::new(sqlite))];
    if let Ok(url) = std::env::var("ANNEX_TEST_POSTGRES_URL") {
        stores.push(("postgres", Arc::new(PostgresSessionService::connect(&url, 16, limits).await?)));
    }
    Ok(stores)
}

/// A new session key.
fn key() -> SessionKey {
    let context = uuid::Uuid::now_v7().to_string();
    SessionKey::new("", "bench", "principal:ada", context)
}

fn event(delta: StateDelta) -> Event {
    let text = "What does a session cost when it is appended to, and what when it is read?";
    Event::of_user("turn", vec![Part::text(text)], delta)
}

async fn filled(store: &Store, events: u64) -> Result<SessionKey, SessionError> {
    let key = key();
    let mut revision = 0;
    while revision < events {
        let next = (0..AT_ONCE.min(events - revision)).map(|_| event(StateDelta::new())).collect();
        revision = store.append(&key, revision, next).await?.revision;
    }
    Ok(key)
}

/// Appends `count` events, one after the other.
async fn append_all(store: &Store, key: &SessionKey, count: u64) -> Result<Duration, SessionError> {
    let mut revision = store.read(key, EventFilter::NONE).await?.revision;
    let begun = Instant::now();
    for _ in 0..count {
        revision = store.append(key, revision, vec![event(StateDelta::new())]).await?.revision;
    }
    Ok(begun.elapsed())
}

fn append(criterion: &mut Criterion, runtime: &Runtime, (name, store, key): (&str, &Store, &SessionKey), events: u64) {
    criterion.bench_function(&format!("append/{name}/{events} events"), |bencher| {
        bencher.to_async(runtime).iter_custom(|count| async move { done(append_all(store, key, count).await) });
    });
}

fn get(criterion: &mut Criterion, runtime: &Runtime, (name, store, key): (&str, &Store, &SessionKey), events: u64) {
    criterion.bench_function(&format!("get/{name}/{events} events"), |bencher| {
        let read = || async { done(store.read(key, EventFilter::recent(RECENT)).await) };
        bencher.to_async(runtime).iter(read);
    });
}

/// One event in each of many sessions at once.
fn parallel(criterion: &mut Criterion, runtime: &Runtime, (name, store): (&str, &Store)) {
    criterion.bench_function(&format!("append/{name}/in {CONTEXTS} contexts"), |bencher| {
        let round = |count| async move {
            let keys: Vec<SessionKey> = (0..CONTEXTS).map(|_| key()).collect();
            let begun = Instant::now();
            let mut sessions = JoinSet::new();
            for key in keys {
                let store = Arc::clone(store);
                sessions.spawn(async move {
                    for revision in 0..count {
                        done(store.append(&key, revision, vec![event(StateDelta::new())]).await);
                    }
                });
            }
            sessions.join_all().await;
            begun.elapsed()
        };
        bencher.to_async(runtime).iter_custom(round);
    });
}

/// Replaces one key of a state with this number of bytes, and reads the state.
fn state(
    criterion: &mut Criterion,
    runtime: &Runtime,
    (name, store): (&str, &Store),
    bytes: usize,
) -> Result<(), SessionError> {
    const KEYS: usize = 8;
    let value = Json::string(&"x".repeat(bytes / KEYS));
    let key = key();
    let initial = (0..KEYS).map(|number| (format!("key{number}"), value.clone())).collect();
    runtime.block_on(store.create(&key, initial))?;
    let key = &key;
    let value = &value;
    criterion.bench_function(&format!("state/{name}/{} KiB/set one of {KEYS}", bytes >> 10), |bencher| {
        bencher.to_async(runtime).iter_custom(|count| async move {
            let mut revision = done(store.read(key, EventFilter::NONE).await).revision;
            let begun = Instant::now();
            for _ in 0..count {
                let delta = [("key0".to_owned(), value.clone())].into_iter().collect();
                revision = done(store.append(key, revision, vec![event(delta)]).await).revision;
            }
            begun.elapsed()
        });
    });
    criterion.bench_function(&format!("state/{name}/{} KiB/read", bytes >> 10), |bencher| {
        bencher.to_async(runtime).iter(|| async { done(store.read(key, EventFilter::NONE).await) });
    });
    Ok(())
}

#[expect(clippy::panic, reason = "a store that fails has no figures")]
fn done<T>(result: Result<T, SessionError>) -> T {
    result.unwrap_or_else(|error| panic!("the store fails: {error}"))
}
