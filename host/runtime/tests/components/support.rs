//! The parts that the tests share: runtimes, installed extensions, turns.

use std::cell::RefCell;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Once};

use annex_protocol::{
    Artifact, ExtensionUri, JsonObject, Message, Metadata, Part, StreamResponse, TaskArtifactUpdateEvent,
};
use annex_runtime::{
    Chain, Extension, Fault, Grants, HookError, Installation, Instances, Limits, LoadError, NoTurn, RequestOutcome,
    Runtime, RuntimeConfig, SessionStateGrant, TurnRequest, TurnView,
};

/// The key under which the test extension answers.
pub(crate) const RESPONSE_KEY: &str = "test/response";

pub(crate) fn component(path: &str) -> Vec<u8> {
    fs::read(path).expect("the component was built")
}

/// Room for a few instances, and a compile cache that all tests share.
pub(crate) fn runtime() -> Runtime {
    Runtime::new(&RuntimeConfig { instances: 4, ..config() }).expect("the runtime starts")
}

/// Compiling a component takes longer than most tests.
pub(crate) fn config() -> RuntimeConfig {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compile-cache");
    RuntimeConfig { cache: Some(cache), ..RuntimeConfig::default() }
}

/// Nothing granted, the standard limits, no parameters.
pub(crate) fn installation() -> Installation {
    Installation::with_limits(Limits::standard())
}

/// With instances that are kept.
pub(crate) fn kept(installation: Installation) -> Installation {
    Installation { instances: Instances::Kept { turns: Instances::TURNS }, ..installation }
}

/// `parameters` is a JSON object.
pub(crate) fn with_parameters(parameters: &str) -> Installation {
    Installation { parameters: JsonObject::parse(parameters).expect("a JSON object"), ..installation() }
}

/// As state injection needs it.
pub(crate) fn reading_the_session() -> Installation {
    let grants = Grants { session_state: Some(SessionStateGrant::default()), ..Grants::default() };
    Installation { grants, ..installation() }
}

pub(crate) async fn test_extension(runtime: &Runtime, installation: Installation) -> Arc<Extension> {
    let loaded = runtime.load(component(annex_components::TEST_EXTENSION), installation).await;
    Arc::new(loaded.expect("the test extension loads"))
}

/// The error with which a runtime that has nothing else in it refuses the component.
pub(crate) async fn refused(component: Vec<u8>, installation: Installation) -> LoadError {
    runtime().load(component, installation).await.expect_err("the component is refused")
}

/// An error and all that caused it, in one line.
pub(crate) fn chain_of(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// The data that a turn begins with: a message with its metadata, and the view of the turn.
pub(crate) struct Turn {
    message: Message,
    view: Arc<dyn TurnView>,
}

impl Turn {
    /// `metadata` is a JSON object.
    pub(crate) fn with(metadata: &str) -> Self {
        let metadata = Metadata::parse(metadata).expect("a JSON object");
        let message = Message { metadata, ..Message::user_text("Hello") };
        Self { message, view: Arc::new(NoTurn) }
    }

    /// With this view of the turn.
    pub(crate) fn seen_as(self, view: &Arc<dyn TurnView>) -> Self {
        Self { view: Arc::clone(view), ..self }
    }

    /// `command` is JSON for the test extension.
    pub(crate) fn commanding(command: &str) -> Self {
        Self::with(&format!(r#"{{"test/command": {command}}}"#))
    }

    /// Asks for all of `extensions`.
    pub(crate) async fn start(&self, extensions: &[Arc<Extension>]) -> Result<(Chain, JsonObject), HookError> {
        self.enter(extensions).await.map(|entered| (entered.chain, entered.delta))
    }

    /// The same with all that the way in gives.
    pub(crate) async fn enter(&self, extensions: &[Arc<Extension>]) -> Result<RequestOutcome, HookError> {
        let requested: Vec<ExtensionUri> = extensions.iter().map(|extension| extension.uri().clone()).collect();
        let request = TurnRequest {
            operation: "SendMessage",
            context_id: None,
            task_id: None,
            requested: &requested,
            message: &self.message,
            request: &Metadata::new(),
            view: Arc::clone(&self.view),
            resumed: false,
        };
        Chain::run_request_hooks(extensions, &request).await
    }

    pub(crate) async fn chain(&self, extensions: &[Arc<Extension>]) -> Chain {
        let (chain, _) = self.start(extensions).await.expect("the turn starts");
        chain
    }

    /// The reason for which the turn does not start.
    pub(crate) async fn refusal(&self, extensions: &[Arc<Extension>]) -> HookError {
        self.start(extensions).await.err().expect("the turn does not start")
    }

    /// The fault that stops the turn.
    pub(crate) async fn fault(&self, extensions: &[Arc<Extension>]) -> Fault {
        match self.refusal(extensions).await {
            HookError::Fault(fault) => fault,
            HookError::Refused(error) => unreachable!("the client is blamed: {error}"),
        }
    }
}

/// The last piece of an artifact.
pub(crate) fn artifact() -> TaskArtifactUpdateEvent {
    TaskArtifactUpdateEvent {
        task_id: "t-1".into(),
        context_id: "c-1".into(),
        artifact: Artifact {
            artifact_id: "a-1".into(),
            parts: vec![Part::text("answer")].into(),
            ..Artifact::default()
        },
        last_chunk: true,
        ..TaskArtifactUpdateEvent::default()
    }
}

/// The artifact after the way out through `chain`.
pub(crate) async fn respond(chain: &mut Chain) -> Result<Artifact, Fault> {
    let mut event = StreamResponse::ArtifactUpdate(artifact());
    chain.run_response_hooks(&mut event).await?;
    match event {
        StreamResponse::ArtifactUpdate(update) => Ok(update.artifact),
        other => unreachable!("the event became another: {other:?}"),
    }
}

/// The log of this test's thread while `running` runs.
pub(crate) async fn log_of(running: impl Future<Output = ()>) -> String {
    static SUBSCRIBER: Once = Once::new();
    SUBSCRIBER.call_once(|| {
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(|| LogOfThread).finish();
        tracing::subscriber::set_global_default(subscriber).expect("the only subscriber");
    });
    LOG.take();
    running.await;
    String::from_utf8(LOG.take()).expect("text")
}

thread_local! {
    static LOG: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Keeps the log of each test apart: a test has a thread, and its runtime no other. A subscriber per thread would not
/// do, because `tracing` remembers for all threads that one of them does not want an event.
struct LogOfThread;

impl Write for LogOfThread {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.with_borrow_mut(|log| log.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
