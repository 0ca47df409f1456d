//! Counts the instructions that the chain of extensions executes in a turn, with one and with five extensions that
//! inject state, and with traces. Unlike a time, a count does not depend on the speed of the machine. Spans are made and
//! queued. Sending them does not count.
//!
//! `cargo run --release --features instructions --bin instructions` counts with valgrind's callgrind and compares with
//! `host/cli/instructions.txt`. With `-- --update` it writes that file instead. With names of cases, as in
//! `-- fresh kept`, it counts these alone. The program runs a few turns, then many, and takes the difference, so that
//! starting a process does not count.

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs};

use annex_protocol::{
    Artifact, ContextId, JsonObject, Message, Metadata, Part, StreamResponse, TaskArtifactUpdateEvent,
};
use annex_runtime::{
    Chain, Extension, Grants, Installation, Instances, Limits, Runtime, RuntimeConfig, SessionStateGrant, TurnRequest,
    TurnView,
};
use annex_telemetry::traces::{RequestTrace, Tracer, TracerConfig};
use annex_telemetry::{Request, of_request};
use anyhow::{Context, bail, ensure};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The file of the expected counts: a line for each value of [`CASES`].
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.txt");
/// The largest difference from the expected count, in percent.
const TOLERANCE: u64 = 5;
/// The number of turns of one extension in the shorter run. Turns with more extensions run less often.
const FEW: u64 = 200;
const MANY: u64 = 1_200;
/// The maximum number of spans of one turn.
const MAX_SPANS: usize = 1_000;
/// The number of live instances. Valgrind has too few addresses for the pool of ten.
const INSTANCES: u32 = 5;

const STATE: &str = r#"{"user_info":{"name":"Ada","role":"Engineer","email":"ada@example.com"}}"#;
const PARAMETERS: &str = r#"{"state_schema": {"type": "object", "required": ["user_info"], "properties": {
    "user_info": {"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string", "minLength": 1}, "role": {"type": "string"}, "email": {"type": "string"}}}}}}"#;

fn main() -> ExitCode {
    annex_runtime::compile_if_asked();
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ended = match arguments.as_slice() {
        ["--run", case, turns, cache] => run(case, turns, Path::new(cache)),
        [] => count_all(&CASES).and_then(|counts| compare(&counts)),
        ["--update"] => count_all(&CASES).and_then(|counts| update(&counts)),
        names => named(names).and_then(|cases| count_all(&cases)).and_then(|counts| compare(&counts)),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

type Counts = BTreeMap<&'static str, u64>;

/// A kind of turn.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    /// The number of active extensions. They have the same code, and each has a URI and a key of its own.
    extensions: u64,
    /// True if each extension is another component: the same code with another digest.
    differ: bool,
    /// True if instances are kept between turns. False if each turn has fresh instances.
    keeps: bool,
    traces: Traces,
}

/// The traces of the turns.
#[derive(Clone, Copy)]
enum Traces {
    /// The turns belong to no request.
    NoRequest,
    /// Each turn belongs to a request of a server without `[traces]`.
    Off,
    /// Each turn belongs to a request of a server that samples this share of the traces.
    Sampled(f64),
}

/// The turns that are counted.
const CASES: [Case; 7] = [
    Case { name: "fresh", ..FRESH },
    Case { name: "fresh-5", extensions: 5, ..FRESH },
    Case { name: "fresh-5-components", extensions: 5, differ: true, ..FRESH },
    Case { name: "kept", keeps: true, ..FRESH },
    Case { name: "traces-off", traces: Traces::Off, ..FRESH },
    Case { name: "traces-1-percent", traces: Traces::Sampled(0.01), ..FRESH },
    Case { name: "traces-all", traces: Traces::Sampled(1.0), ..FRESH },
];

/// A turn with one extension, in a fresh instance.
const FRESH: Case = Case { name: "fresh", extensions: 1, differ: false, keeps: false, traces: Traces::NoRequest };

/// The cases with these names.
fn named(names: &[&str]) -> anyhow::Result<Vec<Case>> {
    names.iter().map(|name| Case::named(name)).collect()
}

impl Case {
    fn named(name: &str) -> anyhow::Result<Self> {
        let known = || CASES.map(|case| case.name).join(", ");
        let case = CASES.iter().find(|case| case.name == name);
        case.copied().with_context(|| format!("there is no case {name}; name --update, or some of {}", known()))
    }
}

/// Counts the instructions per turn, for each of the cases.
fn count_all(cases: &[Case]) -> anyhow::Result<Counts> {
    let cache = tempfile::tempdir()?;
    let mut counts = Counts::new();
    for case in cases {
        // Compiles the component, which cannot be done under valgrind: the process that compiles gives up opening
        // files.
        run(case.name, "1", cache.path())?;
        let (few, many) = (FEW / case.extensions, MANY / case.extensions);
        let begun = count(case.name, few, cache.path())?;
        let all = count(case.name, many, cache.path())?;
        counts.insert(case.name, all.saturating_sub(begun) / (many - few));
    }
    Ok(counts)
}

/// Counts the instructions of a process that runs `turns` turns, from the first turn to the end of the process.
fn count(case: &str, turns: u64, cache: &Path) -> anyhow::Result<u64> {
    let file = cache.join("callgrind.out");
    let mut command = Command::new("valgrind");
    // The work before the turns varies: when an engine starts, a guest loops until the clock of the engine ticks.
    command
        .args(["--tool=callgrind", "--quiet", "--zero-before=*turns_begin*"])
        // Valgrind runs one thread at a time. Without this the guest that loops may keep the thread that ticks from
        // running.
        .arg("--fair-sched=yes")
        .arg(format!("--callgrind-out-file={}", file.display()));
    command.arg(env::current_exe()?).args(["--run", case, &turns.to_string()]).arg(cache);
    let status = command.status().context("valgrind does not start; install it")?;
    ensure!(status.success(), "valgrind ended with {status}");
    let text = fs::read_to_string(file)?;
    let total = text.lines().find_map(|line| line.strip_prefix("totals: ")).context("callgrind wrote no totals")?;
    Ok(total.trim().parse()?)
}

fn compare(counts: &Counts) -> anyhow::Result<()> {
    let text = fs::read_to_string(FILE).with_context(|| format!("{FILE} is missing; write it with --update"))?;
    let expected = text.lines().filter_map(|line| line.split_once(' '));
    let expected: BTreeMap<&str, &str> = expected.collect();
    let mut differs = false;
    for (case, count) in counts {
        let expected: u64 =
            expected.get(case).with_context(|| format!("{FILE} has no line for {case}"))?.trim().parse()?;
        let is_near = count.abs_diff(expected) * 100 <= expected * TOLERANCE;
        println!(
            "{case:20}{count:>9} instructions per turn, {expected} expected{}",
            if is_near { "" } else { ": TOO FAR" }
        );
        differs |= !is_near;
    }
    if differs {
        bail!("more than {TOLERANCE} % away from {FILE}; if that is meant, write the new counts with --update");
    }
    Ok(())
}

fn update(counts: &Counts) -> anyhow::Result<()> {
    let text: String = counts.iter().map(|(case, count)| format!("{case} {count}\n")).collect();
    print!("{text}");
    Ok(fs::write(FILE, text)?)
}

/// Runs `turns` turns in this process, with the compile cache in `cache`.
fn run(case: &str, turns: &str, cache: &Path) -> anyhow::Result<()> {
    let turns: u64 = turns.parse()?;
    let case = Case::named(case)?;
    let executor = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    executor.block_on(async {
        // Valgrind knows no processor of today.
        let config = RuntimeConfig {
            instances: INSTANCES,
            cache: Some(cache.to_owned()),
            any_processor: true,
            ..RuntimeConfig::default()
        };
        let runtime = Runtime::new(&config)?;
        let mut extensions = Vec::new();
        for number in 0..case.extensions {
            extensions.push(Arc::new(runtime.load(component(&case, number)?, installation(&case, number)?).await?));
        }
        let turn = Turn::new(&extensions)?;
        turns_begin();
        run_turns(case.traces, turns, &turn, &extensions).await?;
        // The first turn of a kept instance is the one that makes it.
        let is_kept = |extension: &Arc<Extension>| extension.metrics().kept_turns + 1 >= turns;
        ensure!(!case.keeps || extensions.iter().all(is_kept), "some turns had no instance that was kept");
        Ok(())
    })
}

async fn run_turns(traces: Traces, turns: u64, turn: &Turn, extensions: &[Arc<Extension>]) -> anyhow::Result<()> {
    let sample = match traces {
        Traces::NoRequest => {
            for _ in 0..turns {
                turn.run(extensions).await?;
            }
            return Ok(());
        }
        Traces::Off => None,
        Traces::Sampled(sample) => Some(sample),
    };
    let tracer = sample.map(|sample| Tracer::new(&TracerConfig { sample, follow_parent: true, max_queued: MAX_SPANS }));
    let (tracer, mut queue) = tracer.unzip();
    let mut spans = 0;
    for _ in 0..turns {
        let request = Request::begin_traced(false, tracer.clone().map(RequestTrace::served));
        let span = request.span("SendMessage");
        of_request(request, turn.run(extensions)).await?;
        drop(span);
        while queue.as_mut().is_some_and(|queue| queue.try_recv().is_ok()) {
            spans += 1;
        }
    }
    // The span of the request, and at least one of a hook.
    ensure!(sample.is_none_or(|sample| sample < 1.0) || spans >= 2 * turns, "only {spans} spans of {turns} turns");
    Ok(())
}

/// Marks the beginning of the turns: callgrind sets its counts to zero when this function is entered.
#[inline(never)]
fn turns_begin() {
    std::hint::black_box(());
}

/// The component of the extension with this number.
fn component(case: &Case, number: u64) -> anyhow::Result<Vec<u8>> {
    let mut component = fs::read(annex_components::STATE_INJECTION)?;
    if case.differ {
        // A custom section without a name: its length, the length of the name, four digits.
        component.extend([0, 5, 0]);
        component.extend(format!("{number:04}").bytes());
    }
    Ok(component)
}

fn uri(number: u64) -> String {
    format!("https://annex.example/state/{number}")
}

fn installation(case: &Case, number: u64) -> anyhow::Result<Installation> {
    // Under valgrind a turn takes fifty times as long.
    let long = Duration::from_secs(3_600);
    let limits = Limits { cpu: long, turn_cpu: long, wall: long, turn_wall: long, ..Limits::standard() };
    let instances = if case.keeps { Instances::Kept { turns: u32::MAX } } else { Instances::Fresh };
    let grants = Grants { session_state: Some(SessionStateGrant::default()), ..Grants::default() };
    let own = format!(r#"{{"uri": {:?}, "state_key": {:?}, "#, uri(number), key(number));
    let parameters = JsonObject::parse(&PARAMETERS.replacen('{', &own, 1))?;
    Ok(Installation { grants, parameters, instances, ..Installation::with_limits(limits) })
}

/// The metadata key of the state.
fn key(number: u64) -> String {
    format!("annex.example/state/{number}")
}

/// The data that each turn begins with.
struct Turn {
    context: ContextId,
    requested: Vec<annex_protocol::ExtensionUri>,
    message: Message,
    session: Arc<Session>,
    event: StreamResponse,
}

/// A session with the state that the client sent.
struct Session(JsonObject);

impl TurnView for Session {
    fn session(&self) -> JsonObject {
        self.0.clone()
    }
}

impl Turn {
    fn new(extensions: &[Arc<Extension>]) -> anyhow::Result<Self> {
        let state = JsonObject::parse(STATE)?;
        let sent = (0..).zip(extensions).map(|(number, _)| format!("{:?}:{STATE}", key(number)));
        let metadata = Metadata::parse(&format!("{{{}}}", sent.collect::<Vec<_>>().join(",")))?;
        let artifact = Artifact {
            artifact_id: "a-1".into(),
            parts: vec![Part::text("You are Ada and your email is ada@example.com.")].into(),
            ..Artifact::default()
        };
        let event = TaskArtifactUpdateEvent {
            task_id: "t-1".into(),
            context_id: "c-1".into(),
            artifact,
            last_chunk: true,
            ..TaskArtifactUpdateEvent::default()
        };
        Ok(Self {
            context: ContextId::generate(),
            requested: extensions.iter().map(|extension| extension.uri().clone()).collect(),
            message: Message { metadata, ..Message::user_text("Who am I?") },
            session: Arc::new(Session(state)),
            event: StreamResponse::ArtifactUpdate(event),
        })
    }

    async fn run(&self, extensions: &[Arc<Extension>]) -> anyhow::Result<()> {
        let request = TurnRequest {
            operation: "SendMessage",
            context_id: Some(&self.context),
            task_id: None,
            requested: &self.requested,
            message: &self.message,
            request: &Metadata::new(),
            view: Arc::clone(&self.session) as Arc<dyn TurnView>,
            resumed: false,
        };
        let entered = Chain::run_request_hooks(extensions, &request).await?;
        let mut chain = entered.chain;
        let mut event = self.event.clone();
        chain.run_response_hooks(&mut event).await?;
        let StreamResponse::ArtifactUpdate(update) = &event else { bail!("the event is another one") };
        let added = update.artifact.extensions.len();
        ensure!(added == extensions.len(), "the answer carries the state of {added} extensions");
        Ok(())
    }
}
