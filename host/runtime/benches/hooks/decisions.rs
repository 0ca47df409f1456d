//! Benchmarks of the hooks that decide about turns and readers, and of the import `caller`.

use std::hint::black_box;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use annex_protocol::{AgentExtension, Json, JsonObject, Metadata, TaskId, TaskState};
use annex_runtime::{
    Caller, CallerGrant, Chain, Extension, Grants, LiveCardGrant, ModelParameters, PlannedModelCall, PlannedToolCall,
    Presence, Quota, Runtime, TaskToShow, show_entries, show_tasks,
};
use criterion::Criterion;

use crate::{Turn, executor, load_component, runtime};

/// The caller of each turn.
pub(crate) static CALLER: LazyLock<Caller> = LazyLock::new(|| Caller {
    presence: Presence::Authenticated,
    principal: Some("ada".to_owned()),
    claims: JsonObject::parse(r#"{"org":"acme"}"#).expect("a JSON object"),
    headers: None,
});

/// Loads the extension that decides about turns on command.
pub(crate) async fn load_steering(runtime: &Runtime, parameters: &str) -> Arc<Extension> {
    let caller = CallerGrant { principal: true, claims: vec!["org".to_owned()], ..CallerGrant::default() };
    let grants = Grants {
        keyvalue: Some(Quota::default()),
        agent_steps: true,
        steering: true,
        caller: Some(caller),
        task_metadata: true,
        rewrite_answer: true,
        answer: true,
        reads: true,
        live_card: Some(LiveCardGrant::default()),
        ..Grants::default()
    };
    load_component(runtime, annex_components::TEST_STEERING, grants, parameters).await
}

/// Measures the hook `response` with and without calls of the import `caller`. The extension calls the import twice, and
/// writes one line to its log.
pub(crate) fn caller(criterion: &mut Criterion) {
    let executor = executor();
    let runtime = runtime(None);
    let mut group = criterion.benchmark_group("response");
    group.sample_size(50);
    for (name, command) in [("without the caller", "ok"), ("with the caller, twice", "caller")] {
        let parameters = format!(r#"{{"behaviour": {{"respond": "{command}"}}}}"#);
        let extensions = [executor.block_on(load_steering(&runtime, &parameters))];
        let turn = Turn::new(&[extensions[0].uri().clone()], Metadata::new());
        group.bench_function(name, |bencher| {
            bencher.to_async(&executor).iter_custom(|turns| turn.respond(&extensions, turns));
        });
    }
    group.finish();
}

/// Measures the hook `steering` per call of the model and per call of a tool. Both pass.
pub(crate) fn steering(criterion: &mut Criterion) {
    let executor = executor();
    let runtime = runtime(None);
    let extensions = [executor.block_on(load_steering(&runtime, "{}"))];
    let turn = Turn::new(&[extensions[0].uri().clone()], Metadata::new());
    let mut group = criterion.benchmark_group("steering");
    group.sample_size(50);
    group.bench_function("call of the model", |bencher| {
        bencher.to_async(&executor).iter_custom(async |turns| {
            let mut total = Duration::ZERO;
            for _ in 0..turns {
                let mut chain = turn.start(&extensions).await;
                let mut call = model_call();
                let started = Instant::now();
                let steered = chain.run_model_hooks(&mut call).await;
                total += started.elapsed();
                black_box(steered.expect("it passes"));
            }
            total
        });
    });
    group.bench_function("call of a tool", |bencher| {
        bencher.to_async(&executor).iter_custom(async |turns| {
            let mut total = Duration::ZERO;
            for _ in 0..turns {
                let mut chain = turn.start(&extensions).await;
                let mut call = tool_call();
                let started = Instant::now();
                let steered = chain.run_tool_hooks(&mut call, &[]).await;
                total += started.elapsed();
                black_box(steered.expect("it passes"));
            }
            total
        });
    });
    group.finish();
}

fn model_call() -> PlannedModelCall {
    PlannedModelCall {
        round: 0,
        model: "default".to_owned(),
        lent: vec!["default".to_owned()],
        instruction: vec!["You answer questions about orders, and you are brief.".to_owned()],
        parameters: ModelParameters::default(),
        tools: vec!["search".to_owned()],
    }
}

fn tool_call() -> PlannedToolCall {
    PlannedToolCall {
        id: "call-1".to_owned(),
        name: "search".to_owned(),
        origin: "orders".to_owned(),
        arguments: Json::parse(r#"{"text":"the last order"}"#.to_owned()).expect("JSON"),
        waited_for: Vec::new(),
    }
}

/// Measures the hook `reply` of an extension that answers in place of the agent.
pub(crate) fn reply(criterion: &mut Criterion) {
    let executor = executor();
    let runtime = runtime(None);
    let parameters = r#"{"behaviour": {"before-agent": "answer"}}"#;
    let extensions = [executor.block_on(load_steering(&runtime, parameters))];
    let turn = Turn::new(&[extensions[0].uri().clone()], Metadata::new());
    let mut group = criterion.benchmark_group("reply");
    group.sample_size(50);
    group.bench_function("answer", |bencher| {
        bencher.to_async(&executor).iter_custom(async |turns| {
            let mut total = Duration::ZERO;
            for _ in 0..turns {
                let mut chain = begun(&turn, &extensions).await;
                let started = Instant::now();
                let answer = chain.run_reply_hooks(&turn.message).await;
                total += started.elapsed();
                black_box(answer.expect("no fault").expect("an answer"));
            }
            total
        });
    });
    group.finish();
}

/// A turn in which the agent would run next.
async fn begun(turn: &Turn, extensions: &[Arc<Extension>]) -> Chain {
    let mut chain = turn.start(extensions).await;
    let entry = chain.run_beginning_hooks(&TaskId::from("t-1"), &turn.context_id, None, false).await;
    black_box(entry.expect("it proceeds"));
    chain
}

/// Measures reads of one task and of a page of tasks. The hook `reads` adds an entry to each task. The time includes the
/// creation of the instance.
pub(crate) fn reads(criterion: &mut Criterion) {
    let executor = executor();
    let runtime = runtime(None);
    let extensions = [executor.block_on(load_steering(&runtime, r#"{"reads": "add"}"#))];
    let turn = Turn::new(&[extensions[0].uri().clone()], Metadata::new());
    let mut group = criterion.benchmark_group("reads");
    group.sample_size(50);
    for (name, count) in [("one task", 1), ("a page of 50 tasks", 50)] {
        let tasks: Vec<TaskToShow> = (0..count).map(task).collect();
        group.bench_function(name, |bencher| {
            bencher.to_async(&executor).iter(async || {
                let request = turn.call("ListTasks");
                let shown = show_tasks(&extensions, &request, &tasks).await;
                assert_eq!(shown.active.len(), 1, "it takes part");
                shown
            });
        });
    }
    group.finish();
}

/// Measures a read of the extended card. The hook `extended-card` replaces the params of the entry. The time includes the
/// creation of the instance, and no signature.
pub(crate) fn extended_card(criterion: &mut Criterion) {
    let executor = executor();
    let runtime = runtime(None);
    let extensions = [executor.block_on(load_steering(&runtime, r#"{"entry": "change"}"#))];
    let entries = [AgentExtension::clone(&extensions[0].card())];
    let turn = Turn::new(&[extensions[0].uri().clone()], Metadata::new());
    let mut group = criterion.benchmark_group("extended-card");
    group.sample_size(50);
    group.bench_function("one entry", |bencher| {
        bencher.to_async(&executor).iter(async || {
            let request = turn.call("GetExtendedAgentCard");
            let shown = show_entries(&extensions, &request, &entries).await;
            assert_eq!(shown.changed.len(), 1, "it changes its entry");
            shown
        });
    });
    group.finish();
}

fn task(number: usize) -> TaskToShow {
    TaskToShow {
        id: format!("t-{number}").into(),
        context_id: "c-1".into(),
        state: TaskState::Completed,
        metadata: Metadata::new(),
    }
}
