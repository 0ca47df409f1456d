//! A server whose extensions can be changed: a config file, a managed folder and an admin API.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use annex_agent::{AgentError, AgentEvent, AgentExecutor, EventSender, TurnContext};
use annex_protocol::{Artifact, ArtifactId, Part, TaskState};
use annex_test_support::{Reply, TEST_EXTENSION, TestConfig, TestServer};
use async_trait::async_trait;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Semaphore;

pub(crate) const CARD: &str = "/.well-known/agent-card.json";
pub(crate) const TOKEN: &str = "a-token-of-the-tests";
/// A config with the admin API, whose files are not watched.
pub(crate) const ADMIN: &str = "[runtime]\nwatch = false\n[admin]\ntoken_file = \"token\"\n";
/// The key under which the test extension answers.
pub(crate) const RESPONSE_KEY: &str = "test/response";

/// An agent that sends an artifact. On `ask` it then asks for input. On `wait` it sends a second artifact once the test
/// allows it.
pub(crate) struct TwoPieces {
    pub(crate) go: Semaphore,
}

#[async_trait]
impl AgentExecutor for TwoPieces {
    fn name(&self) -> &str {
        "two_pieces"
    }

    async fn execute(&self, turn: TurnContext, events: EventSender) -> Result<(), AgentError> {
        let piece = || {
            let artifact_id = ArtifactId::generate();
            let artifact = Artifact { artifact_id, parts: vec![Part::text("piece")].into(), ..Artifact::default() };
            AgentEvent::Artifact { artifact, append: false, last_chunk: true }
        };
        events.send(piece()).await?;
        match turn.message.text().as_str() {
            "ask" => events.send(AgentEvent::Status { state: TaskState::InputRequired, message: None }).await,
            "wait" => {
                self.go.acquire().await.map_err(AgentError::internal)?.forget();
                events.send(piece()).await
            }
            _ => Ok(()),
        }
    }
}

/// The files of a server, and the server once it runs.
pub(crate) struct Installation {
    pub(crate) folder: TempDir,
    pub(crate) agent: Arc<TwoPieces>,
}

impl Installation {
    pub(crate) fn new() -> Self {
        let agent = Arc::new(TwoPieces { go: Semaphore::new(0) });
        Self { folder: tempfile::tempdir().expect("a folder"), agent }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the config with `more` at its end.
    pub(crate) fn config(&self, more: &str) {
        let config = TestConfig::without_agent().with(more);
        fs::write(self.path("annex.toml"), config.toml()).expect("a config");
    }

    /// Writes the test extension to the folder, as a file `name` with this mark.
    pub(crate) fn component(&self, name: &str, mark: &str) {
        replace(&self.path(name), &marked(mark));
    }

    pub(crate) async fn serve(&self) -> TestServer {
        self.try_serve().await.expect("a server")
    }

    pub(crate) async fn try_serve(&self) -> anyhow::Result<TestServer> {
        fs::write(self.path("token"), format!("{TOKEN}\n"))?;
        let agent = Arc::clone(&self.agent) as Arc<dyn AgentExecutor>;
        TestServer::from_file(&self.path("annex.toml"), Some(agent)).await
    }
}

/// A server with this config, and its files. The test extension is in `test.wasm`.
pub(crate) async fn serve(config: &str) -> (Installation, TestServer) {
    let installation = Installation::new();
    installation.component("test.wasm", "first");
    installation.config(config);
    let server = installation.serve().await;
    (installation, server)
}

/// Appears at once, as a careful writer does it.
pub(crate) fn replace(path: &PathBuf, content: &[u8]) {
    let aside = path.with_extension("aside");
    fs::write(&aside, content).expect("a file");
    fs::rename(aside, path).expect("a file");
}

/// The test extension with a custom section that says `mark`: the same code with another digest.
pub(crate) fn marked(mark: &str) -> Vec<u8> {
    let mut component = fs::read(annex_test_support::component("test-extension")).expect("a component");
    let name = b"mark";
    let size = |length: usize| u8::try_from(length).ok().filter(|length| *length < 128).expect("a short mark");
    component.extend([0, size(1 + name.len() + mark.len()), size(name.len())]);
    component.extend(name);
    component.extend(mark.as_bytes());
    component
}

/// An `[[extension]]` of the config. `respond` is the behaviour of its response hook.
pub(crate) fn extension(component: &str, more: &str, respond: &str) -> String {
    format!(
        "[[extension]]\ncomponent = \"./{component}\"\n{more}\n[extension.parameters.behaviour]\nrespond = {respond:?}"
    )
}

/// Sends a message that asks for the test extension.
pub(crate) async fn say(server: &TestServer, text: &str) -> Reply {
    server.say(text).extensions(TEST_EXTENSION).send().await.expect("a reply")
}

/// The metadata that the test extension wrote on the last artifact of the answer.
pub(crate) fn written(reply: &Reply) -> Value {
    let artifacts = reply.task()["artifacts"].as_array().cloned().unwrap_or_default();
    artifacts.last().map(|artifact| artifact["metadata"][RESPONSE_KEY].clone()).unwrap_or_default()
}

pub(crate) async fn ready(server: &TestServer) -> Value {
    server.get("/readyz").await.expect("a reply").json().await.expect("JSON")
}

pub(crate) async fn etag(server: &TestServer) -> String {
    let card = server.get(CARD).await.expect("a card");
    card.headers()["etag"].to_str().expect("text").to_owned()
}

/// The URIs on the card, in order.
pub(crate) async fn on_card(server: &TestServer) -> Vec<String> {
    let card: Value = server.get(CARD).await.expect("a card").json().await.expect("JSON");
    let extensions = card["capabilities"]["extensions"].as_array().cloned().unwrap_or_default();
    extensions.iter().map(|extension| extension["uri"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Calls the admin API with the token. The path is below `/v1/`.
pub(crate) async fn admin(server: &TestServer, method: &str, path: &str, body: Value) -> (u16, Value) {
    let method = method.parse().expect("a method");
    let request = server.client().request(method, format!("{}/v1/{path}", server.admin_url())).bearer_auth(TOKEN);
    let request = if body.is_null() { request } else { request.body(body.to_string()) };
    let response = request.send().await.expect("a reply");
    (response.status().as_u16(), response.json().await.expect("JSON"))
}

/// The body that installs a component.
pub(crate) fn addition(name: &str, component: &[u8], settings: Option<&str>) -> Value {
    use base64::Engine as _;
    let component = base64::engine::general_purpose::STANDARD.encode(component);
    json!({"name": name, "component": component, "settings": settings})
}

/// The URI as one segment of a path.
pub(crate) fn segment(uri: &str) -> String {
    uri.replace(':', "%3A").replace('/', "%2F")
}
