//! A server in this process. Dropping it stops the server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use annex_agent::AgentExecutor;
use annex_server::{App, Config, Installer, Locations, Server};
use anyhow::Context;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::request::Request;

/// The maximum number of instances of a server. Each reserves 8 GiB of addresses, and servers of tests that run in one
/// process share its 128 TiB.
const MAX_INSTANCES: u32 = 200;

/// A running server. Dropping this value stops the server.
pub struct TestServer {
    url: String,
    admin: Option<String>,
    metrics: Option<String>,
    installer: Arc<Installer>,
    client: reqwest::Client,
    shutdown: Option<oneshot::Sender<()>>,
    running: JoinHandle<anyhow::Result<()>>,
}

impl TestServer {
    /// Starts a server with this config on a free port and waits until it is ready.
    ///
    /// # Errors
    /// When the server does not become ready. The error has the cause.
    pub async fn start(config: &str) -> anyhow::Result<Self> {
        Box::pin(Self::launch(Config::parse(Path::new("test.toml"), config)?, locations(), None, || ())).await
    }

    /// Starts a server whose config is a file, so that it can be reloaded. Relative paths start at the file's folder.
    /// With `[admin]`, the admin API also gets a free port.
    ///
    /// # Errors
    /// When the server does not become ready.
    pub async fn from_file(config: &Path, agent: Option<Arc<dyn AgentExecutor>>) -> anyhow::Result<Self> {
        Self::from_file_and_then(config, agent, || ()).await
    }

    /// Starts a server as [`from_file`](Self::from_file) does. Calls `loaded` after the extensions are loaded and
    /// before the server is ready.
    ///
    /// # Errors
    /// When the server does not become ready.
    pub async fn from_file_and_then(
        config: &Path,
        agent: Option<Arc<dyn AgentExecutor>>,
        loaded: impl FnOnce() + Send + 'static,
    ) -> anyhow::Result<Self> {
        let folder = config.parent().unwrap_or(Path::new("")).to_owned();
        Box::pin(Self::launch(Config::read(config)?, Locations { config: folder, ..locations() }, agent, loaded)).await
    }

    /// Starts a server as [`from_file`](Self::from_file) does, with the pulled components in the folder `registry` of
    /// `caches`. Compiled components are in the cache that all test servers share.
    ///
    /// # Errors
    /// When the server does not become ready.
    pub async fn from_file_with_caches(
        config: &Path,
        agent: Option<Arc<dyn AgentExecutor>>,
        caches: &Path,
    ) -> anyhow::Result<Self> {
        let folder = config.parent().unwrap_or(Path::new("")).to_owned();
        let mut read = Config::read(config)?;
        let locations = Locations { config: folder, ..locations() };
        read.runtime.cache_dir = locations.cache.clone();
        let locations = Locations { cache: Some(caches.join("components")), ..locations };
        Box::pin(Self::launch(read, locations, agent, || ())).await
    }

    /// Starts a server as [`start`](Self::start) does, with an agent that the test provides.
    ///
    /// # Errors
    /// When the server does not become ready.
    pub async fn with_agent(config: &str, agent: Arc<dyn AgentExecutor>) -> anyhow::Result<Self> {
        Box::pin(Self::launch(Config::parse(Path::new("test.toml"), config)?, locations(), Some(agent), || ())).await
    }

    async fn launch(
        mut config: Config,
        locations: Locations,
        agent: Option<Arc<dyn AgentExecutor>>,
        loaded: impl FnOnce() + Send + 'static,
    ) -> anyhow::Result<Self> {
        // Each server gets a free port, so that tests run in parallel.
        config.server.listen.set_port(0);
        if let Some(admin) = &mut config.admin {
            admin.listen.set_port(0);
            if let Some(metrics) = &mut admin.metrics_listen {
                metrics.set_port(0);
            }
        }
        config.runtime.max_instances = config.runtime.max_instances.min(MAX_INSTANCES);
        let server = Server::bind(config).await?;
        let (url, admin, metrics) = (server.url(), server.admin_url(), server.metrics_url());
        let (shutdown, shut_down) = oneshot::channel();
        let (ready, became_ready) = oneshot::channel();
        let running = tokio::spawn(async move {
            let announce = |app: &App| {
                // Sending fails if the test has given up.
                let _ = ready.send(Arc::clone(app.installer()));
            };
            let load = async |config: &Config, url: &str| {
                let app = match agent {
                    Some(agent) => App::with_agent(config, &locations, url, agent).await?,
                    None => App::load(config, &locations, url).await?,
                };
                loaded();
                Ok(app)
            };
            // Dropping the server drops the sender, which stops it.
            let stop = async { drop(shut_down.await) };
            server.run(load, announce, stop).await.map_err(anyhow::Error::from)
        });
        // If loading fails, the sender is dropped and the task returns the error.
        let Ok(installer) = became_ready.await else {
            running.await??;
            anyhow::bail!("the server stopped before it was ready");
        };
        // Fails only if a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Ok(Self { url, admin, metrics, installer, client: reqwest::Client::new(), shutdown: Some(shutdown), running })
    }

    /// The base URL of the server.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The URL of the admin API; empty if it is off.
    #[must_use]
    pub fn admin_url(&self) -> &str {
        self.admin.as_deref().unwrap_or_default()
    }

    /// The URL of the listener that serves only `/metrics`; empty if that listener is off.
    #[must_use]
    pub fn metrics_url(&self) -> &str {
        self.metrics.as_deref().unwrap_or_default()
    }

    /// The installer, which changes the set of installed extensions.
    #[must_use]
    pub fn installer(&self) -> &Arc<Installer> {
        &self.installer
    }

    /// A call of a JSON-RPC method. `params` is JSON text.
    #[must_use]
    pub fn call(&self, method: &str, params: impl Into<String>) -> Request {
        Request::new(self.client.clone(), &self.url, method, params.into())
    }

    /// A SendMessage request whose message has this text.
    #[must_use]
    pub fn say(&self, text: &str) -> Request {
        self.call("SendMessage", "").message(text)
    }

    /// Sends a GET request to `path`.
    ///
    /// # Errors
    /// There is no HTTP answer.
    pub async fn get(&self, path: &str) -> reqwest::Result<reqwest::Response> {
        self.client.get(format!("{}{path}", self.url)).send().await
    }

    /// The HTTP client of this server's requests, for requests that [`Request`] cannot make.
    #[must_use]
    pub fn client(&self) -> &reqwest::Client {
        &self.client
    }

    /// Makes the server drain, as SIGTERM does.
    pub fn begin_shutdown(&mut self) {
        // The server waits until this channel is closed.
        drop(self.shutdown.take());
    }

    /// Waits for the server to end after [`TestServer::begin_shutdown`].
    ///
    /// # Errors
    /// The error that ended the server.
    pub async fn ended(self) -> anyhow::Result<()> {
        self.running.await.context("the server panicked")?
    }
}

/// The locations of the shipped components and of the compile cache. All test servers share the cache, because many
/// servers that compile at once would slow each other down.
fn locations() -> Locations {
    let built = Path::new(annex_components::STATE_INJECTION);
    let components = built.parent().unwrap_or(built).to_owned();
    let cache = Some(components.join("compile-cache"));
    Locations { config: PathBuf::new(), components, cache }
}
