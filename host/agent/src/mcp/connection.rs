//! Starts an MCP server, restarts it whenever it ends, and stops it.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, PaginatedRequestParams, Tool};
use rmcp::service::{ClientInitializeError, Peer, RoleClient, RunningService, serve_client};
use rmcp::transport::WorkerTransport;
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransportConfig, StreamableHttpClientWorker};
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::bounded::BoundedProgram;
use super::config::{McpConfig, ServerAddress};
use super::http::BoundedHttp;
use super::program::{self, Program};
use super::stderr_log::log_lines;

/// The longest time for a start. Package runners may have to download the server first.
const START_PATIENCE: Duration = Duration::from_secs(120);
/// The first pause before a restart. Each further pause is twice as long, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The longest wait for a program's standard error after the program has ended.
const LAST_WORDS_PATIENCE: Duration = Duration::from_secs(1);
/// Limits on the tools of one server: their number, their total bytes, and the pages in which they are listed.
const MAX_TOOLS: usize = 1_000;
const MAX_TOOL_BYTES: usize = 4 << 20;
const MAX_PAGES: usize = 100;
/// The maximum number of bytes that an error quotes from a server's text.
const MAX_WORDS: usize = 1 << 10;
/// If a server ran at least this long, the pause before its restart is [`FIRST_PAUSE`] again.
const STEADY: Duration = Duration::from_secs(60);
/// The environment variables that every program gets. All others may contain secrets.
const USUAL_VARIABLES: [&str; 10] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "TZ", "TMPDIR", "XDG_CACHE_HOME"];

/// The reason why an MCP server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum McpError {
    /// An environment variable that the config names is not set.
    #[error("the environment variable {variable} is not set; set it before the start: MCP server `{server}` needs it")]
    Variable {
        /// The name of the server in the config.
        server: String,
        /// The name of the environment variable.
        variable: String,
    },
    /// A token has characters that a header field cannot have, such as a line break.
    #[error("environment variable {variable} has characters that cannot be sent to MCP server `{server}` as a token")]
    Token {
        /// The name of the server in the config.
        server: String,
        /// The name of the environment variable.
        variable: String,
    },
    /// The server does not start, or does not speak MCP.
    #[error("MCP server `{server}` cannot be started")]
    Start {
        /// The name of the server in the config.
        server: String,
        /// The cause.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The server lacks a tool that the config names.
    #[error("MCP server `{server}` has no tool `{tool}`; it has: {offered}")]
    NoSuchTool {
        /// The name of the server in the config.
        server: String,
        /// The name of the tool in the config.
        tool: String,
        /// The names of the tools that the server has.
        offered: String,
    },
}

type Source = Box<dyn Error + Send + Sync>;

/// The error of a program that does not start, with the last line of its standard error.
#[derive(Debug, thiserror::Error)]
#[error("it said: {line}")]
struct LastWords {
    line: String,
    source: Source,
}

type Service = RunningService<RoleClient, ClientConfig>;

/// The connection that calls use; `None` while the server is down.
pub(super) type CurrentPeer = watch::Receiver<Option<Peer<RoleClient>>>;

/// A server that is restarted until the connection is closed or dropped.
pub(super) struct Connection {
    peer: CurrentPeer,
    stop: CancellationToken,
    keeper: Mutex<Option<JoinHandle<()>>>,
}

/// A server's config, and the folder for relative paths.
struct Starter {
    config: McpConfig,
    folder: PathBuf,
}

impl McpConfig {
    /// The config key that names environment variables: `env` for a program, `token_env` for a URL.
    pub fn variables_key(&self) -> &'static str {
        match self.place {
            ServerAddress::Program { .. } => "env",
            ServerAddress::Url { .. } => "token_env",
        }
    }

    /// Returns an error for each environment variable that the config names and that cannot be used: it is not set, or its
    /// token cannot be sent. Starts no server.
    pub fn unusable_variables(&self) -> Vec<McpError> {
        match &self.place {
            ServerAddress::Program { env, .. } => env.iter().filter_map(|name| self.variable(name).err()).collect(),
            ServerAddress::Url { token_env, .. } => {
                token_env.iter().filter_map(|variable| self.token(variable).err()).collect()
            }
        }
    }

    /// Checks that the environment variable contains a token that can be sent.
    fn token(&self, variable: &str) -> Result<(), McpError> {
        let token = self.variable(variable)?;
        let is_sent = HeaderValue::try_from(format!("Bearer {token}")).is_ok();
        let unusable = || McpError::Token { server: self.name.clone(), variable: variable.to_owned() };
        if is_sent { Ok(()) } else { Err(unusable()) }
    }

    /// The value of a required environment variable.
    fn variable(&self, name: &str) -> Result<String, McpError> {
        let missing = || McpError::Variable { server: self.name.clone(), variable: name.to_owned() };
        env::var(name).ok().filter(|value| !value.is_empty()).ok_or_else(missing)
    }
}

impl Connection {
    /// Starts the server and lists its tools.
    pub(super) async fn start(config: &McpConfig, folder: &Path) -> Result<(Self, Vec<Tool>), McpError> {
        let starter = Starter { config: config.clone(), folder: folder.to_owned() };
        let (service, tools) = starter.start().await?;
        let (peers, peer) = watch::channel(Some(service.peer().clone()));
        let stop = program::stop_token();
        let keeper = tokio::spawn(keep(starter, service, peers, stop.clone()));
        Ok((Self { peer, stop, keeper: Mutex::new(Some(keeper)) }, tools))
    }

    pub(super) fn peer(&self) -> CurrentPeer {
        self.peer.clone()
    }

    /// Stops the server and waits for its end.
    pub(super) async fn close(&self) {
        self.stop.cancel();
        let keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(keeper) = keeper {
            // The keeper ends by itself. A panic in the keeper is in the log.
            let _ = keeper.await;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The keeper then ends the server by itself. Only `close` waits for this.
        self.stop.cancel();
    }
}

/// Restarts the server each time it ends.
async fn keep(
    starter: Starter,
    mut service: Service,
    peers: watch::Sender<Option<Peer<RoleClient>>>,
    stop: CancellationToken,
) {
    let server = starter.config.name.clone();
    let mut pause = FIRST_PAUSE;
    loop {
        let started = Instant::now();
        let ending = service.cancellation_token();
        let mut ended = std::pin::pin!(service.waiting());
        tokio::select! {
            () = stop.cancelled() => {
                peers.send_replace(None);
                ending.cancel();
                let _ = ended.await;
                return;
            }
            _ = &mut ended => {}
        }
        // From now on calls fail at once instead of waiting for an ended server.
        peers.send_replace(None);
        tracing::warn!(server, "an MCP server has ended; restarting it");
        // A server that ends right after each start keeps the longer pause, so that restarts do not loop.
        if started.elapsed() > STEADY {
            pause = FIRST_PAUSE;
        }
        let Some(restarted) = stop.run_until_cancelled(starter.start_again(&mut pause)).await else { return };
        service = restarted;
        peers.send_replace(Some(service.peer().clone()));
        tracing::info!(server, "an MCP server was restarted");
    }
}

impl Starter {
    /// Starts the server, retrying with growing pauses until it works.
    async fn start_again(&self, pause: &mut Duration) -> Service {
        loop {
            sleep(*pause).await;
            *pause = (*pause * 2).min(LONGEST_PAUSE);
            match self.start().await {
                // The tools are those of the first start: the agent and its model know them by that list.
                Ok((service, _)) => return service,
                Err(error) => {
                    let cause = error.source().map(annex_text::with_causes);
                    tracing::warn!(%error, cause, "an MCP server cannot be restarted");
                }
            }
        }
    }

    async fn start(&self) -> Result<(Service, Vec<Tool>), McpError> {
        let server = || self.config.name.clone();
        let failed = |source| McpError::Start { server: server(), source };
        // Boxed, because the future of both kinds of connection is large.
        let started = timeout(START_PATIENCE, Box::pin(self.connect()));
        started.await.map_err(|_| failed(format!("it was not ready after {} s", START_PATIENCE.as_secs()).into()))?
    }

    async fn connect(&self) -> Result<(Service, Vec<Tool>), McpError> {
        let failed = |source| McpError::Start { server: self.config.name.clone(), source };
        let service = match &self.config.place {
            ServerAddress::Program { command, args, env } => {
                let command = self.command(command, args, env)?;
                let (process, stderr) = Program::spawn(command).map_err(|error| failed(error.into()))?;
                // Read continuously, because a program blocks if its pipe is full.
                let words = stderr.map(|stderr| tokio::spawn(log_lines(self.config.name.clone(), stderr)));
                match serve_client(client(), BoundedProgram::new(&self.config.name, process)).await {
                    Ok(service) => service,
                    Err(error) => return Err(failed(with_last_words(ended(error), words).await)),
                }
            }
            ServerAddress::Url { url, token_env } => {
                let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str());
                if let Some(variable) = token_env {
                    config = config.auth_header(self.config.variable(variable)?);
                }
                config.retry_config = Arc::new(resumption());
                let stop = CancellationToken::new();
                let http = self.http_client(url, stop.clone()).map_err(failed)?;
                // Dropping the transport, also when this start is dropped, cancels the token, and so ends the client's
                // waits.
                let transport = WorkerTransport::spawn_with_ct(StreamableHttpClientWorker::new(http, config), stop);
                serve_client(client(), transport).await.map_err(|error| failed(cut(&error)))?
            }
        };
        let tools = offered(&service).await.map_err(failed)?;
        Ok((service, tools))
    }

    /// Creates the HTTP client. It follows no redirects, so that the token is sent to this server only.
    fn http_client(&self, url: &str, stop: CancellationToken) -> Result<BoundedHttp, Source> {
        let mut builder = annex_egress::client_builder(Vec::new()).redirect(reqwest::redirect::Policy::none());
        if let Some(screen) = &self.config.screen {
            screen.parse(url)?;
            builder = screen.guard(builder);
        }
        Ok(BoundedHttp { server: self.config.name.as_str().into(), client: builder.build()?, stop })
    }

    fn command(&self, program: &str, args: &[String], env: &[String]) -> Result<Command, McpError> {
        // A bare name is looked up in `PATH`; a path starts at the folder of the config.
        let program = if program.contains('/') { self.folder.join(program) } else { PathBuf::from(program) };
        let mut command = Command::new(program);
        // The environment contains the keys of the agent's models, and a package runner starts third-party programs.
        command.args(args).env_clear();
        if !self.folder.as_os_str().is_empty() {
            command.current_dir(&self.folder);
        }
        command.envs(USUAL_VARIABLES.into_iter().filter_map(|name| Some((name, env::var_os(name)?))));
        for name in env {
            command.env(name, self.config.variable(name)?);
        }
        Ok(command)
    }
}

/// Converts the error of a start. A closed connection and a failed write mean that the program has ended, so both become the
/// same error. Any other error is shortened.
fn ended(error: ClientInitializeError) -> Source {
    match error {
        ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::TransportError { .. } => {
            "connection closed: it ended before it answered".into()
        }
        other => cut(&other),
    }
}

/// Shortens the text of an error, because a server may have contributed to the text.
fn cut(error: &(dyn Error + 'static)) -> Source {
    annex_text::line_within(&annex_text::with_causes(error), MAX_WORDS).into()
}

/// The policy for resuming an answer that broke off: at most three tries, with growing pauses.
fn resumption() -> ExponentialBackoff {
    let mut backoff = ExponentialBackoff::default();
    backoff.max_times = Some(3);
    backoff
}

/// Lists the tools of the server, page by page.
async fn offered(service: &Service) -> Result<Vec<Tool>, Source> {
    let mut tools: Vec<Tool> = Vec::new();
    let mut bytes = 0;
    let mut cursor = None;
    for _ in 0..MAX_PAGES {
        let page = PaginatedRequestParams::default().with_cursor(cursor);
        let page = service.list_tools(Some(page)).await.map_err(|error| cut(&error))?;
        bytes += page.tools.iter().map(size).sum::<usize>();
        tools.extend(page.tools);
        if tools.len() > MAX_TOOLS || bytes > MAX_TOOL_BYTES {
            let limits = format!("more than {MAX_TOOLS} tools, or more than {MAX_TOOL_BYTES} bytes of them");
            return Err(format!("it has {limits}, which no model could choose from").into());
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(tools);
        }
    }
    Err(format!("its list of tools has more than {MAX_PAGES} pages").into())
}

fn size(tool: &Tool) -> usize {
    serde_json::to_vec(tool).map_or(0, |text| text.len())
}

fn client() -> ClientConfig {
    ClientConfig::new(ClientCapabilities::default(), Implementation::new("annex", env!("CARGO_PKG_VERSION")))
}

/// Adds the program's standard error to the cause, because programs write there why they cannot start.
async fn with_last_words(source: Source, words: Option<JoinHandle<String>>) -> Source {
    let Some(words) = words else { return source };
    match timeout(LAST_WORDS_PATIENCE, words).await {
        Ok(Ok(line)) if !line.is_empty() => LastWords { line, source }.into(),
        _ => source,
    }
}
