//! The cost of extensions: loading, a fresh instance, the hooks of state injection, a whole turn with it, the other
//! hooks, and chains of several extensions.
//!
//! `cargo bench --package annex-runtime` takes about two minutes. A turn runs on one thread with the system's
//! allocator. The `annex` command has a faster allocator.

use std::fs;
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use annex_protocol::{
    Artifact, ContextId, ExtensionUri, Json, JsonObject, Message, Metadata, Part, StreamResponse,
    TaskArtifactUpdateEvent,
};
use annex_runtime::{
    Caller, Chain, Extension, Grants, Installation, Instances, Limits, Runtime, RuntimeConfig, SessionStateGrant,
    TurnRequest, TurnView,
};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group};
use tokio::runtime::Runtime as Executor;

mod decisions;
mod kinds;

const STATE_KEY: &str = "github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1/state";

/// The schema of the benchmark's parameters: nested objects, formats, a pattern, an enumeration and a list of records.
const PARAMETERS: &str = r#"{"state_schema": {
    "type": "object",
    "required": ["user_info", "orders"],
    "properties": {
        "user_info": {
            "type": "object",
            "required": ["name", "role", "email"],
            "properties": {
                "name": {"type": "string", "minLength": 1},
                "role": {"enum": ["Engineer", "Manager", "Support"]},
                "email": {"type": "string", "format": "email"},
                "joined": {"type": "string", "format": "date"}
            }
        },
        "orders": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["id", "quantity"],
                "properties": {
                    "id": {"type": "string", "pattern": "^A-[0-9]{6}$"},
                    "quantity": {"type": "integer", "minimum": 1},
                    "price": {"type": "number", "minimum": 0},
                    "note": {"type": "string", "maxLength": 200}
                }
            }
        }
    }
}}"#;

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(3));
    targets = load, fresh_instance, hooks, turn, kinds::method, kinds::transition, kinds::content, kinds::client, kinds::chains,
        decisions::caller, decisions::steering, decisions::reply, decisions::reads,
        decisions::extended_card
}

fn main() {
    annex_runtime::compile_if_asked();
    benches();
    Criterion::default().configure_from_args().final_summary();
}

/// Measures loading, from the bytes of a file to a passed self-test, with and without compilation.
fn load(criterion: &mut Criterion) {
    let executor = executor();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let compiling = runtime(None);
    let caching = runtime(Some(folder.path().join("cache")));
    let state_injection = || load_state_injection(&caching);
    assert!(executor.block_on(state_injection()).was_compiled());
    assert!(!executor.block_on(state_injection()).was_compiled());

    let mut group = criterion.benchmark_group("load state-injection");
    group.sample_size(10).sampling_mode(SamplingMode::Flat);
    group.bench_function("compiled", |bencher| {
        bencher.to_async(&executor).iter(|| load_state_injection(&compiling));
    });
    group.bench_function("from the compile cache", |bencher| bencher.to_async(&executor).iter(state_injection));
    group.finish();
}

/// Measures instances whose hooks do almost nothing, and the chain around them. The time includes freeing the
/// instances.
fn fresh_instance(criterion: &mut Criterion) {
    let executor = executor();
    let runtime = runtime(None);
    let test = executor.block_on(load_component(&runtime, annex_components::TEST_EXTENSION, Grants::default(), "{}"));
    let requested = [test.uri().clone()];
    let turn = Turn::new(&requested, Metadata::new());

    let mut group = criterion.benchmark_group("fresh instance");
    group.sample_size(50);
    let mut bench = |name, extensions: &[Arc<Extension>]| {
        group.bench_function(name, |bencher| bencher.to_async(&executor).iter(|| turn.start(extensions)));
    };
    bench("none: a chain without extensions", &[]);
    bench("test-extension accepts", &[test]);
    group.finish();
}

/// Measures the hooks of state injection alone: on the way in with a fresh instance, on the way out without one.
fn hooks(criterion: &mut Criterion) {
    let bench = Bench::new();
    let mut group = criterion.benchmark_group("state-injection");
    for size in StateSize::ALL {
        let turn = bench.turn(&mut group, size);
        group.bench_function(BenchmarkId::new("state", size.name), |bencher| {
            bencher.to_async(&bench.executor).iter(|| turn.start(&bench.extensions));
        });
        group.bench_function(BenchmarkId::new("response", size.name), |bencher| {
            bencher.to_async(&bench.executor).iter_custom(|turns| turn.respond(&bench.extensions, turns));
        });
    }
    group.finish();
}

/// Measures a whole turn: the way in, one artifact on the way out, and freeing or keeping the instance.
fn turn(criterion: &mut Criterion) {
    turns(criterion, "chain", Instances::Fresh);
    turns(criterion, "chain, instance kept", Instances::Kept { turns: Instances::TURNS });
}

fn turns(criterion: &mut Criterion, name: &str, instances: Instances) {
    let bench = Bench::with(instances);
    let mut group = criterion.benchmark_group(name);
    for size in StateSize::ALL {
        let turn = bench.turn(&mut group, size);
        group.bench_function(size.name, |bencher| {
            bencher.to_async(&bench.executor).iter(async || {
                let mut chain = turn.start(&bench.extensions).await;
                let mut event = artifact();
                chain.run_response_hooks(&mut event).await.expect("state injection adds its state");
                event
            });
        });
    }
    group.finish();
}

/// An installation of state injection with a schema.
struct Bench {
    executor: Executor,
    extensions: [Arc<Extension>; 1],
}

impl Bench {
    fn new() -> Self {
        Self::with(Instances::Fresh)
    }

    fn with(instances: Instances) -> Self {
        let executor = executor();
        let extension = executor.block_on(load_state_injection_as(&runtime(None), instances));
        Self { executor, extensions: [extension] }
    }

    /// A turn that sends state, for a benchmark group that reports throughput in bytes.
    fn turn(&self, group: &mut BenchmarkGroup<'_, WallTime>, size: StateSize) -> Turn {
        let state = state(size);
        group.sample_size(50).throughput(Throughput::Bytes(state.get().len() as u64));
        let requested = self.extensions.each_ref().map(|extension| extension.uri().clone());
        Turn::new(&requested, Metadata::from_iter([(STATE_KEY.to_owned(), state)]))
    }
}

/// The input of a turn.
struct Turn {
    context_id: ContextId,
    requested: Vec<ExtensionUri>,
    message: Message,
    request: Metadata,
    session: Arc<Session>,
}

impl Turn {
    fn new(requested: &[ExtensionUri], message: Metadata) -> Self {
        let state = message.get(STATE_KEY).map_or_else(JsonObject::new, |state| state.to().expect("an object"));
        Self {
            context_id: ContextId::generate(),
            requested: requested.to_vec(),
            message: Message { metadata: message, ..Message::user_text("Who am I?") },
            request: Metadata::new(),
            session: Arc::new(Session { state }),
        }
    }

    /// A request that names no conversation: a call of a method, or a read.
    fn call<'a>(&'a self, operation: &'a str) -> TurnRequest<'a> {
        TurnRequest {
            operation,
            context_id: None,
            task_id: None,
            requested: &self.requested,
            message: &self.message,
            request: &self.request,
            view: Arc::clone(&self.session) as Arc<dyn TurnView>,
            resumed: false,
        }
    }

    async fn start(&self, extensions: &[Arc<Extension>]) -> Chain {
        let request = TurnRequest { context_id: Some(&self.context_id), ..self.call("SendMessage") };
        let entered = Chain::run_request_hooks(extensions, &request).await.expect("nothing refuses the request");
        black_box(entered.delta);
        entered.chain
    }

    /// Returns the time of the way out in `turns` turns. Each turn has an instance that has done the way in before.
    async fn respond(&self, extensions: &[Arc<Extension>], turns: u64) -> Duration {
        let mut total = Duration::ZERO;
        for _ in 0..turns {
            let mut chain = self.start(extensions).await;
            let mut event = artifact();
            let started = Instant::now();
            chain.run_response_hooks(&mut event).await.expect("state injection adds its state");
            total += started.elapsed();
            black_box(event);
        }
        total
    }
}

/// A new session. It is empty when the client's state arrives. It has that state when the answer is sent.
struct Session {
    state: JsonObject,
}

impl TurnView for Session {
    fn session(&self) -> JsonObject {
        self.state.clone()
    }

    fn caller(&self) -> Option<&Caller> {
        Some(&decisions::CALLER)
    }
}

#[derive(Clone, Copy)]
struct StateSize {
    name: &'static str,
    bytes: usize,
}

impl StateSize {
    const ALL: [Self; 2] = [Self { name: "1 KiB", bytes: 1 << 10 }, Self { name: "16 KiB", bytes: 16 << 10 }];
}

/// Session state of a user. It has as many orders as the size needs.
fn state(size: StateSize) -> Json {
    const USER: &str = r#"{"name":"Ada Lovelace","role":"Engineer","email":"ada@example.com","joined":"2019-04-01"}"#;
    let mut state = format!(r#"{{"user_info":{USER},"orders":["#);
    let mut number = 100_000;
    while state.len() < size.bytes - 100 {
        let order =
            format!(r#"{{"id":"A-{number}","quantity":2,"price":17.25,"note":"Please \"ring\" twice – Zürich"}},"#);
        state.push_str(&order);
        number += 1;
    }
    state.push_str(r#"{"id":"A-000001","quantity":1}]}"#);
    Json::parse(state).expect("state is JSON")
}

fn artifact() -> StreamResponse {
    StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
        task_id: "t-1".into(),
        context_id: "c-1".into(),
        artifact: Artifact {
            artifact_id: "a-1".into(),
            parts: vec![Part::text("You are Ada Lovelace and your email is ada@example.com.")].into(),
            ..Artifact::default()
        },
        last_chunk: true,
        ..TaskArtifactUpdateEvent::default()
    })
}

fn executor() -> Executor {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("an executor")
}

fn runtime(cache: Option<PathBuf>) -> Runtime {
    Runtime::new(&RuntimeConfig { cache, ..RuntimeConfig::default() }).expect("the runtime starts")
}

async fn load_state_injection(runtime: &Runtime) -> Arc<Extension> {
    load_state_injection_as(runtime, Instances::Fresh).await
}

async fn load_state_injection_as(runtime: &Runtime, instances: Instances) -> Arc<Extension> {
    let grants = Grants { session_state: Some(SessionStateGrant::default()), ..Grants::default() };
    install(runtime, annex_components::STATE_INJECTION, grants, PARAMETERS, instances).await
}

async fn load_component(runtime: &Runtime, component: &str, grants: Grants, parameters: &str) -> Arc<Extension> {
    install(runtime, component, grants, parameters, Instances::Fresh).await
}

async fn install(
    runtime: &Runtime,
    component: &str,
    grants: Grants,
    parameters: &str,
    instances: Instances,
) -> Arc<Extension> {
    let parameters = JsonObject::parse(parameters).expect("parameters are a JSON object");
    let limits = Limits::standard();
    let installation = Installation { grants, parameters, instances, ..Installation::with_limits(limits) };
    let bytes = fs::read(component).expect("the component was built");
    Arc::new(runtime.load(bytes, installation).await.expect("the component loads"))
}
