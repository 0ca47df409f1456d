//! Benchmarks of the other hooks and of chains of several extensions.

use std::hint::black_box;
use std::sync::Arc;

use annex_protocol::{
    AgentExtension, ContextId, Json, Message, Metadata, TaskId, TaskState, TaskStatus, TaskStatusUpdateEvent,
};
use annex_runtime::{ClientCall, ClientCallRequest, Extension, Grants, MethodAnswer, MethodCall, SessionStateGrant};
use criterion::{BenchmarkId, Criterion, Throughput};

use crate::decisions::load_steering;
use crate::{PARAMETERS, Session, StateSize, Turn, artifact, executor, load_component, runtime, state};

const KIB: StateSize = StateSize { name: "1 KiB", bytes: 1 << 10 };

/// Measures a call of a method that returns its parameters. The time includes the creation of the instance.
pub(crate) fn method(criterion: &mut Criterion) {
    let executor = executor();
    let parameters = r#"{"methods": ["test/echo"]}"#;
    let runtime = runtime(None);
    let loading = load_component(&runtime, annex_components::TEST_EXTENSION, Grants::default(), parameters);
    let extension = executor.block_on(loading);
    let turn = Turn::new(&[extension.uri().clone()], Metadata::new());
    let params = state(KIB);
    let mut group = criterion.benchmark_group("method");
    group.sample_size(50).throughput(Throughput::Bytes(params.get().len() as u64));
    group.bench_function(KIB.name, |bencher| {
        bencher.to_async(&executor).iter(async || {
            let request = turn.call("test/echo");
            match MethodCall::start(&extension, &request, &params).await {
                Ok(MethodAnswer::Value(value)) => value,
                _ => unreachable!("it answers with one value"),
            }
        });
    });
    group.finish();
}

/// Measures the hook `transition` per turn: the call before the agent runs, and one change of state.
pub(crate) fn transition(criterion: &mut Criterion) {
    let executor = executor();
    let runtime = runtime(None);
    let loading = load_component(&runtime, annex_components::TEST_EXTENSION, Grants::default(), "{}");
    let extensions = [executor.block_on(loading)];
    let turn = Turn::new(&[extensions[0].uri().clone()], Metadata::new());
    let mut group = criterion.benchmark_group("transition");
    group.sample_size(50);
    group.bench_function("begin and one change", |bencher| {
        bencher.to_async(&executor).iter_custom(async |turns| {
            let mut total = std::time::Duration::ZERO;
            for _ in 0..turns {
                let mut chain = turn.start(&extensions).await;
                let mut update = working();
                let started = std::time::Instant::now();
                let entry = chain.run_beginning_hooks(&TaskId::from("t-1"), &turn.context_id, None, false).await;
                let changed = chain.run_transition_hooks(TaskState::Submitted, &mut update).await;
                total += started.elapsed();
                black_box((entry.expect("it proceeds"), changed.expect("it passes")));
            }
            total
        });
    });
    group.finish();
}

/// Measures two hooks on an artifact: `output` replaces its text, and `response` gets its payload.
pub(crate) fn content(criterion: &mut Criterion) {
    let executor = executor();
    let runtime = runtime(None);
    let parameters = r#"{"payload": true, "behaviour": {"revise": "upper", "respond": "payload"}}"#;
    let extensions = [executor.block_on(load_steering(&runtime, parameters))];
    let turn = Turn::new(&[extensions[0].uri().clone()], Metadata::new());
    let mut group = criterion.benchmark_group("content of an artifact");
    group.sample_size(50);
    group.bench_function("output", |bencher| {
        bencher.to_async(&executor).iter_custom(async |turns| {
            let mut total = std::time::Duration::ZERO;
            for _ in 0..turns {
                let mut chain = turn.start(&extensions).await;
                let event = artifact();
                let started = std::time::Instant::now();
                let outcome = chain.run_output_hooks(event).await;
                total += started.elapsed();
                black_box(outcome.expect("it revises"));
            }
            total
        });
    });
    group.bench_function("response", |bencher| {
        bencher.to_async(&executor).iter_custom(async |turns| {
            let mut total = std::time::Duration::ZERO;
            for _ in 0..turns {
                let mut chain = turn.start(&extensions).await;
                let mut event = artifact();
                let started = std::time::Instant::now();
                let responded = chain.run_response_hooks(&mut event).await;
                total += started.elapsed();
                responded.expect("it adds the event");
                black_box(event);
            }
            total
        });
    });
    group.finish();
}

fn working() -> TaskStatusUpdateEvent {
    TaskStatusUpdateEvent {
        task_id: "t-1".into(),
        context_id: "c-1".into(),
        status: TaskStatus { state: TaskState::Working, ..TaskStatus::default() },
        ..TaskStatusUpdateEvent::default()
    }
}

/// Measures the client half of state injection: extending a call and reading the answer.
pub(crate) fn client(criterion: &mut Criterion) {
    let executor = executor();
    let extension = executor.block_on(crate::load_state_injection(&runtime(None)));
    let declaration = AgentExtension { uri: extension.uri().clone(), ..AgentExtension::default() };
    let message = Message::user_text("Who am I?");
    let input = state(KIB);
    let mut group = criterion.benchmark_group("client");
    group.sample_size(50).throughput(Throughput::Bytes(input.get().len() as u64));
    group.bench_function(BenchmarkId::new("before and after", KIB.name), |bencher| {
        bencher.to_async(&executor).iter(async || {
            let call = ClientCallRequest {
                operation: "SendMessage",
                agent: "http://a.example/.well-known/agent-card.json",
                declaration: Some(&declaration),
                input: Some(&input),
                message: Some(&message),
            };
            let (mut call, addition) = ClientCall::start(&extension, &call).await.expect("it adds");
            black_box(addition);
            call.after(&artifact(), true).await.expect("it reads")
        });
    });
    group.finish();
}

/// Measures chains of one and more installations of state injection. Each has a URI and state of its own.
pub(crate) fn chains(criterion: &mut Criterion) {
    let executor = executor();
    let runtime = runtime(None);
    let mut group = criterion.benchmark_group("extensions in a chain");
    group.sample_size(30);
    for count in [1_usize, 3, 10] {
        let extensions: Vec<Arc<Extension>> = (0..count)
            .map(|number| {
                let grants = Grants { session_state: Some(SessionStateGrant::default()), ..Grants::default() };
                let parameters = PARAMETERS.replacen('{', &format!(r#"{{"uri": "urn:bench:{number}","#), 1);
                executor.block_on(load_component(&runtime, annex_components::STATE_INJECTION, grants, &parameters))
            })
            .collect();
        let sent = |number: usize| (format!("urn:bench:{number}/state"), state(KIB));
        let turn = Turn {
            context_id: ContextId::generate(),
            requested: extensions.iter().map(|extension| extension.uri().clone()).collect(),
            message: Message { metadata: (0..count).map(sent).collect(), ..Message::user_text("Who am I?") },
            request: Metadata::new(),
            session: Arc::new(Session { state: object(&state(KIB)) }),
        };
        group.bench_function(BenchmarkId::new(KIB.name, count), |bencher| {
            bencher.to_async(&executor).iter(async || {
                let mut chain = turn.start(&extensions).await;
                let mut event = artifact();
                chain.run_response_hooks(&mut event).await.expect("each adds its state");
                event
            });
        });
    }
    group.finish();
}

fn object(state: &Json) -> annex_protocol::JsonObject {
    state.to().expect("an object")
}
