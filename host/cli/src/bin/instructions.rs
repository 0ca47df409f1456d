//! Counts the instructions that the chain of extensions executes in a turn of state injection. Unlike a time, a count
//! does not depend on the speed of the machine.
//!
//! `cargo run --release --features instructions --bin instructions` counts with valgrind's callgrind and compares with
//! `host/cli/instructions.txt`. With `-- --update` it writes that file instead. The program runs a few turns, then
//! many, and takes the difference, so that starting a process does not count.

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
use anyhow::{Context, bail, ensure};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The file of the expected counts: a line for each value of [`LIVES`].
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.txt");
/// The largest difference from the expected count, in percent.
const TOLERANCE: u64 = 5;
/// The number of turns in the shorter run.
const FEW: u64 = 200;
const MANY: u64 = 1_200;

const STATE_KEY: &str = "github.com/lolejniczak-shared/a2a-samples/extensions/state_injection/v1/state";
const STATE: &str = r#"{"user_info":{"name":"Ada","role":"Engineer","email":"ada@example.com"}}"#;
const PARAMETERS: &str = r#"{"state_schema": {"type": "object", "required": ["user_info"], "properties": {
    "user_info": {"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string", "minLength": 1}, "role": {"type": "string"}, "email": {"type": "string"}}}}}}"#;

fn main() -> ExitCode {
    annex_runtime::compile_if_asked();
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ended = match arguments.as_slice() {
        ["--run", life, turns, cache] => run(life, turns, Path::new(cache)),
        [] => count_all().and_then(|counts| compare(&counts)),
        ["--update"] => count_all().and_then(|counts| update(&counts)),
        _ => Err(anyhow::anyhow!("the only argument is --update")),
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

/// The two kinds of instances that are counted: a fresh one for each turn, or one that is kept between turns.
const LIVES: [&str; 2] = ["fresh", "kept"];

/// Counts the instructions per turn, for each value of [`LIVES`].
fn count_all() -> anyhow::Result<Counts> {
    let cache = tempfile::tempdir()?;
    let mut counts = Counts::new();
    for life in LIVES {
        // Compiles the component, which cannot be done under valgrind: the process that compiles gives up opening
        // files.
        run(life, "1", cache.path())?;
        let few = count(life, FEW, cache.path())?;
        let many = count(life, MANY, cache.path())?;
        counts.insert(life, many.saturating_sub(few) / (MANY - FEW));
    }
    Ok(counts)
}

/// Counts the instructions of a process that runs `turns` turns, from the first turn to the end of the process.
fn count(life: &str, turns: u64, cache: &Path) -> anyhow::Result<u64> {
    let file = cache.join("callgrind.out");
    let mut command = Command::new("valgrind");
    // The work before the turns varies: when an engine starts, a guest loops until the clock of the engine ticks.
    command
        .args(["--tool=callgrind", "--quiet", "--zero-before=*turns_begin*"])
        // Valgrind runs one thread at a time. Without this the guest that loops may keep the thread that ticks from
        // running.
        .arg("--fair-sched=yes")
        .arg(format!("--callgrind-out-file={}", file.display()));
    command.arg(env::current_exe()?).args(["--run", life, &turns.to_string()]).arg(cache);
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
    for (life, count) in counts {
        let expected: u64 =
            expected.get(life).with_context(|| format!("{FILE} has no line for {life}"))?.trim().parse()?;
        let is_near = count.abs_diff(expected) * 100 <= expected * TOLERANCE;
        println!(
            "{life:6}{count:>9} instructions per turn, {expected} expected{}",
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
    let text: String = counts.iter().map(|(life, count)| format!("{life} {count}\n")).collect();
    print!("{text}");
    Ok(fs::write(FILE, text)?)
}

/// Runs `turns` turns in this process, with the compile cache in `cache`.
fn run(life: &str, turns: &str, cache: &Path) -> anyhow::Result<()> {
    let turns: u64 = turns.parse()?;
    let executor = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    executor.block_on(async {
        // Valgrind has few addresses for a pool, and knows no processor of today.
        let config = RuntimeConfig {
            instances: 2,
            cache: Some(cache.to_owned()),
            any_processor: true,
            ..RuntimeConfig::default()
        };
        let runtime = Runtime::new(&config)?;
        let extension =
            Arc::new(runtime.load(fs::read(annex_components::STATE_INJECTION)?, installation(life)?).await?);
        let turn = Turn::new(&extension)?;
        let extensions = [extension];
        turns_begin();
        for _ in 0..turns {
            turn.run(&extensions).await?;
        }
        let kept = extensions.iter().map(|extension| extension.metrics().kept_turns).sum::<u64>();
        // The first turn of a kept instance is the one that makes it.
        ensure!(life != "kept" || kept + 1 >= turns, "only {kept} of {turns} turns had an instance that was kept");
        Ok(())
    })
}

/// Marks the beginning of the turns: callgrind sets its counts to zero when this function is entered.
#[inline(never)]
fn turns_begin() {
    std::hint::black_box(());
}

fn installation(life: &str) -> anyhow::Result<Installation> {
    // Under valgrind a turn takes fifty times as long.
    let long = Duration::from_secs(3_600);
    let limits = Limits { cpu: long, turn_cpu: long, wall: long, turn_wall: long, ..Limits::standard() };
    let instances = if life == "kept" { Instances::Kept { turns: u32::MAX } } else { Instances::Fresh };
    let grants = Grants { session_state: Some(SessionStateGrant::default()), ..Grants::default() };
    let parameters = JsonObject::parse(PARAMETERS)?;
    Ok(Installation { grants, parameters, instances, ..Installation::with_limits(limits) })
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
    fn new(extension: &Extension) -> anyhow::Result<Self> {
        let state = JsonObject::parse(STATE)?;
        let metadata = Metadata::parse(&format!("{{{STATE_KEY:?}:{STATE}}}"))?;
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
            requested: vec![extension.uri().clone()],
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
        ensure!(event != self.event, "the answer carries no state");
        Ok(())
    }
}
