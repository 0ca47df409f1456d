//! Helpers of the tests: runtimes, installed extensions and turns.

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

/// A runtime for a few instances, with a compile cache that all tests share.
pub(crate) fn runtime() -> Runtime {
    Runtime::new(&RuntimeConfig { instances: 4, ..config() }).expect("the runtime starts")
}

/// Compiling a component takes longer than most tests.
pub(crate) fn config() -> RuntimeConfig {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compile-cache");
    RuntimeConfig { cache: Some(cache), ..RuntimeConfig::default() }
}

/// Settings without grants and parameters, and with the standard limits.
pub(crate) fn installation() -> Installation {
    Installation::with_limits(Limits::standard())
}

/// The same settings with kept instances.
pub(crate) fn kept(installation: Installation) -> Installation {
    Installation { instances: Instances::Kept { turns: Instances::TURNS }, ..installation }
}

/// Settings with parameters, given as a JSON object.
pub(crate) fn with_parameters(parameters: &str) -> Installation {
    Installation { parameters: JsonObject::parse(parameters).expect("a JSON object"), ..installation() }
}

/// Settings that state injection needs.
pub(crate) fn reading_the_session() -> Installation {
    let grants = Grants { session_state: Some(SessionStateGrant::default()), ..Grants::default() };
    Installation { grants, ..installation() }
}

pub(crate) async fn test_extension(runtime: &Runtime, installation: Installation) -> Arc<Extension> {
    let loaded = runtime.load(component(annex_components::TEST_EXTENSION), installation).await;
    Arc::new(loaded.expect("the test extension loads"))
}

/// The error when a new runtime refuses the component.
pub(crate) async fn refused(component: Vec<u8>, installation: Installation) -> LoadError {
    runtime().load(component, installation).await.expect_err("the component is refused")
}

/// An error and its causes in one line.
pub(crate) fn chain_of(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// The input of a turn: a message with metadata, and the view.
pub(crate) struct Turn {
    message: Message,
    view: Arc<dyn TurnView>,
}

impl Turn {
    /// A turn with this metadata, given as a JSON object.
    pub(crate) fn with(metadata: &str) -> Self {
        let metadata = Metadata::parse(metadata).expect("a JSON object");
        let message = Message { metadata, ..Message::user_text("Hello") };
        Self { message, view: Arc::new(NoTurn) }
    }

    /// The same turn with this view.
    pub(crate) fn seen_as(self, view: &Arc<dyn TurnView>) -> Self {
        Self { view: Arc::clone(view), ..self }
    }

    /// A turn with a command for the test extension, given as JSON.
    pub(crate) fn commanding(command: &str) -> Self {
        Self::with(&format!(r#"{{"test/command": {command}}}"#))
    }

    /// Starts the turn with all of `extensions` requested.
    pub(crate) async fn start(&self, extensions: &[Arc<Extension>]) -> Result<(Chain, JsonObject), HookError> {
        self.enter(extensions).await.map(|entered| (entered.chain, entered.delta))
    }

    /// Like `start`, returning the whole result of the way in.
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

    /// Why the turn does not start.
    pub(crate) async fn refusal(&self, extensions: &[Arc<Extension>]) -> HookError {
        self.start(extensions).await.err().expect("the turn does not start")
    }

    /// The fault that ends the turn.
    pub(crate) async fn fault(&self, extensions: &[Arc<Extension>]) -> Fault {
        match self.refusal(extensions).await {
            HookError::Fault(fault) => fault,
            HookError::Refused(error) => unreachable!("the client is blamed: {error}"),
        }
    }
}

/// The last chunk of an artifact.
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

/// Separates the logs of parallel tests by thread. A subscriber per thread would not work, because `tracing` caches
/// for all threads if one is not interested in an event.
struct LogOfThread;

impl Write for LogOfThread {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.with_borrow_mut(|log| log.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A request that no turn belongs to: a call of a method, or a read. Its message and metadata are empty.
pub(crate) fn outside_of_turns<'a>(
    operation: &'a str,
    requested: &'a [ExtensionUri],
    (message, request): (&'a Message, &'a Metadata),
) -> TurnRequest<'a> {
    let view = Arc::new(NoTurn);
    TurnRequest { operation, context_id: None, task_id: None, requested, message, request, view, resumed: false }
}
