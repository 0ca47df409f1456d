//! A server in this process, stopped when it is dropped.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use annex_agent::AgentExecutor;
use annex_server::{App, Config, Installer, Locations, Server};
use anyhow::Context;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::request::Request;

/// A running server.
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
    /// Whatever keeps the server from becoming ready.
    pub async fn start(config: &str) -> anyhow::Result<Self> {
        Self::launch(Config::parse(Path::new("test.toml"), config)?, locations(), None, || ()).await
    }

    /// A server whose config is a file that can be read again; relative paths in it start at its folder. With
    /// `[admin]`, the admin API is on a free port too.
    ///
    /// # Errors
    /// As [`TestServer::start`].
    pub async fn from_file(config: &Path, agent: Option<Arc<dyn AgentExecutor>>) -> anyhow::Result<Self> {
        Self::from_file_and_then(config, agent, || ()).await
    }

    /// The same; `loaded` is called when the extensions are loaded and before the server is ready.
    ///
    /// # Errors
    /// As [`TestServer::start`].
    pub async fn from_file_and_then(
        config: &Path,
        agent: Option<Arc<dyn AgentExecutor>>,
        loaded: impl FnOnce() + Send + 'static,
    ) -> anyhow::Result<Self> {
        let folder = config.parent().unwrap_or(Path::new("")).to_owned();
        Self::launch(Config::read(config)?, Locations { config: folder, ..locations() }, agent, loaded).await
    }

    /// The same with an agent of the test's own.
    ///
    /// # Errors
    /// As [`TestServer::start`].
    pub async fn with_agent(config: &str, agent: Arc<dyn AgentExecutor>) -> anyhow::Result<Self> {
        Self::launch(Config::parse(Path::new("test.toml"), config)?, locations(), Some(agent), || ()).await
    }

    async fn launch(
        mut config: Config,
        locations: Locations,
        agent: Option<Arc<dyn AgentExecutor>>,
        loaded: impl FnOnce() + Send + 'static,
    ) -> anyhow::Result<Self> {
        // Each server gets a free port, so that tests run side by side.
        config.server.listen.set_port(0);
        if let Some(admin) = &mut config.admin {
            admin.listen.set_port(0);
            if let Some(metrics) = &mut admin.metrics_listen {
                metrics.set_port(0);
            }
        }
        let server = Server::bind(config).await?;
        let url = format!("http://{}", server.address());
        let admin = server.admin_address().map(|address| format!("http://{address}"));
        let metrics = server.metrics_address().map(|address| format!("http://{address}"));
        let (shutdown, shut_down) = oneshot::channel();
        let (ready, became_ready) = oneshot::channel();
        let running = tokio::spawn(async move {
            let announce = |app: &App| {
                // A test that gave up no longer waits for this.
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
            // A test that drops the server wants it to stop.
            let stop = async { drop(shut_down.await) };
            server.run(load, announce, stop).await.map_err(anyhow::Error::from)
        });
        // A load that fails drops the sender, and the task has the reason.
        let Ok(installer) = became_ready.await else {
            running.await??;
            anyhow::bail!("the server stopped before it was ready");
        };
        // This fails only where a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Ok(Self { url, admin, metrics, installer, client: reqwest::Client::new(), shutdown: Some(shutdown), running })
    }

    /// The URL that it listens at.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The URL of the admin API; empty without one.
    #[must_use]
    pub fn admin_url(&self) -> &str {
        self.admin.as_deref().unwrap_or_default()
    }

    /// The URL of the listener that has `/metrics` alone; empty without one.
    #[must_use]
    pub fn metrics_url(&self) -> &str {
        self.metrics.as_deref().unwrap_or_default()
    }

    /// The installer, which changes the set of installed extensions.
    #[must_use]
    pub fn installer(&self) -> &Arc<Installer> {
        &self.installer
    }

    /// A call of a JSON-RPC method; `params` is JSON text.
    #[must_use]
    pub fn call(&self, method: &str, params: impl Into<String>) -> Request {
        Request::new(self.client.clone(), &self.url, method, params.into())
    }

    /// A message of the user as SendMessage.
    #[must_use]
    pub fn say(&self, text: &str) -> Request {
        self.call("SendMessage", "").message(text)
    }

    /// A plain GET.
    ///
    /// # Errors
    /// When there is no HTTP answer.
    pub async fn get(&self, path: &str) -> reqwest::Result<reqwest::Response> {
        self.client.get(format!("{}{path}", self.url)).send().await
    }

    /// An HTTP client for requests that no client library would send.
    #[must_use]
    pub fn client(&self) -> &reqwest::Client {
        &self.client
    }

    /// Starts to drain, as SIGTERM does.
    pub fn begin_shutdown(&mut self) {
        // The server waits for this channel to be closed, as it is when the test drops it.
        drop(self.shutdown.take());
    }

    /// Waits for the server to end after [`TestServer::begin_shutdown`].
    ///
    /// # Errors
    /// Whatever the server ended with.
    pub async fn ended(self) -> anyhow::Result<()> {
        self.running.await.context("the server panicked")?
    }
}

/// Shipped components are taken from where they were built. Servers share a compile cache beside them: many that
/// compile at once would starve each other's turns.
fn locations() -> Locations {
    let built = Path::new(annex_components::STATE_INJECTION);
    let components = built.parent().unwrap_or(built).to_owned();
    let cache = Some(components.join("compile-cache"));
    Locations { config: PathBuf::new(), components, cache }
}
