//! The life of the server: listen, load, serve, drain.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use annex_tasks::LostTurn;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::admin;
use crate::app::{App, AppError};
use crate::config::Config;
use crate::connections::limits::{OF_ADMIN, OF_METRICS};
use crate::connections::listener;
use crate::installation::editions;
use crate::process::descriptors;
use crate::process::readiness_gate::ReadinessGate;
use crate::process::routes::Routes;

/// The longest time that turns may take to end once they are told to.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest that the shutdown waits for push notifications to be delivered.
const PUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest that the shutdown waits for databases to be closed.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// The reasons for which serving ended early.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address} ({key})")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The key of the config that names it.
        key: &'static str,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The parts cannot be joined.
    #[error(transparent)]
    App(#[from] AppError),
    /// The listener failed.
    #[error("the HTTP server failed")]
    Serve(#[source] io::Error),
}

/// A server that listens and is not ready yet.
pub struct Server {
    config: Config,
    listener: TcpListener,
    address: SocketAddr,
    admin: Option<(TcpListener, SocketAddr)>,
    metrics: Option<(TcpListener, SocketAddr)>,
}

impl Server {
    /// Takes the address.
    ///
    /// # Errors
    /// [`ServeError::Listen`].
    pub async fn bind(config: Config) -> Result<Self, ServeError> {
        descriptors::provide(&config);
        // All addresses are taken before anything is loaded, so that one that is in use is told at once.
        let (listener, address) = listen(config.server.listen, "server.listen")?;
        let admin = match &config.admin {
            Some(admin) => Some(listen(admin.listen, "admin.listen")?),
            None => None,
        };
        let metrics = match config.admin.as_ref().and_then(|admin| admin.metrics_listen) {
            Some(metrics) => Some(listen(metrics, "admin.metrics_listen")?),
            None => None,
        };
        Ok(Self { config, listener, address, admin, metrics })
    }

    /// The address that the admin API listens on, if there is one.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(|(_, address)| *address)
    }

    /// The address that has `/metrics` alone, if there is one.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(|(_, address)| *address)
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Calls `load` with the config and the base URL while `/livez` and `/readyz` already answer, then `ready`, serves
    /// until `shutdown` resolves, and drains: running turns get the configured time, then another process goes on with them
    /// or they end as failed. A load is given up when `shutdown` resolves. MCP programs of tenants that are loaded at that
    /// moment end with the runtime, or before it by [`end_programs`](crate::end_programs).
    ///
    /// # Errors
    /// When the app cannot be loaded or the listener fails.
    pub async fn run(
        self,
        load: impl AsyncFnOnce(&Config, &str) -> Result<App, AppError>,
        ready: impl FnOnce(&App),
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let gate = Arc::new(ReadinessGate::new(&self.config));
        let closed = CancellationToken::new();
        let routes = Routes::new(Arc::clone(&gate));
        let limits = gate.limits.connections();
        let mut serving = listener::spawn(self.listener, routes, limits, closed.clone());
        let base_url = self.config.server.public_url.clone().unwrap_or_else(|| format!("http://{}", self.address));
        let mut shutdown = pin!(shutdown);
        let loaded = tokio::select! {
            loaded = load(&self.config, &base_url) => loaded?,
            // No turn runs yet that would have to end.
            () = &mut shutdown => return Ok(()),
        };
        let app = gate.open(loaded);
        let (limits, cross_origin) = (Arc::clone(&gate.limits), Arc::clone(&gate.cross_origin));
        let access_log = Arc::clone(&gate.access_log);
        app.settings.attach(Box::new(move |config: &Config| {
            descriptors::provide(config);
            limits.set(&config.server);
            cross_origin.set(config);
            access_log.set(config.log.access);
        }));
        app.describe(&gate.phase().to_string());
        let housekeeping = keep_house(app);
        // The admin API opens after the load, because the installers that it shows do not exist before.
        if let (Some((listener, _)), Some(admin)) = (self.admin, &app.admin) {
            let router = admin::router(Arc::clone(admin), Arc::clone(&gate.access_log));
            let limits = watch::Sender::new(OF_ADMIN);
            listener::spawn(listener, router, limits.subscribe(), closed.clone());
        }
        if let (Some((listener, _)), Some(admin)) = (self.metrics, &app.admin) {
            let router = admin::metrics_router(Arc::clone(admin), Arc::clone(&gate.access_log));
            let limits = watch::Sender::new(OF_METRICS);
            listener::spawn(listener, router, limits.subscribe(), closed.clone());
        }
        name_known_faults();
        ready(app);
        tokio::select! {
            ended = &mut serving => return finished(ended),
            () = &mut shutdown => {}
        }
        // Requests are refused first, then turns end, and only then connections close: clients hear how their turns
        // ended.
        gate.drain();
        app.describe(&gate.phase().to_string());
        drain(app, gate.limits.drain()).await;
        closed.cancel();
        let ended = finished(serving.await);
        // Sweeps are told to stop before the stores are closed under them.
        drop(housekeeping);
        close_stores(app).await;
        ended
    }
}

/// Begins the watches and sweeps. They are told to stop when the guard is dropped, also where that is early.
fn keep_house(app: &App) -> DropGuard {
    let stop = CancellationToken::new();
    let handler = app.tenants().own();
    let tasks = Arc::clone(&handler.tasks);
    let keys = Arc::clone(&handler.views.keys);
    app.installers().keep_house(&stop);
    if let Some(peers) = app.peers.clone() {
        tokio::spawn(editions::follow(Arc::clone(app.installers()), peers, stop.clone()));
    }
    let sessions = Arc::clone(&app.settings.session_sweep);
    let others = Arc::clone(&tasks);
    let stopped = stop.clone();
    tokio::spawn(async move { others.watch_others(stopped).await });
    watch_lost(app, stop.clone());
    let places = Arc::clone(handler.turn_limiter.places());
    let stopped = stop.clone();
    tokio::spawn(async move { places.watch(stopped).await });
    let quotas = Arc::clone(&app.quotas);
    let stopped = stop.clone();
    tokio::spawn(async move { quotas.watch(stopped).await });
    if let Some(push) = handler.push.clone() {
        let tasks = Arc::clone(&tasks);
        let stopped = stop.clone();
        tokio::spawn(async move { push.send_left(&tasks, stopped).await });
    }
    let stopped = stop.clone();
    tokio::spawn(async move { tasks.keep_house(&sessions, &keys, stopped).await });
    stop.drop_guard()
}

/// Takes over what processes leave that are gone. Who serves the owner of a turn goes on with it.
fn watch_lost(app: &App, stop: CancellationToken) {
    let handler = app.tenants().own();
    let tasks = Arc::clone(&handler.tasks);
    let running = handler.running.clone();
    let tenants = app.tenants().clone();
    tokio::spawn(async move {
        let go_on = |lost: LostTurn| {
            let tenants = tenants.clone();
            let tasks = Arc::clone(&tasks);
            // A tenant may have to be loaded first.
            tokio::spawn(async move {
                match tenants.serving_owner(&lost.owner).await {
                    Some(handler) => handler.go_on_with(lost),
                    None => tasks.fail_lost_turn(&lost).await,
                }
            });
        };
        tasks.watch_lost((go_on, || running.is_closed()), stop).await;
    });
}

/// Logs the known faults of the engine that a guest may reach; `annex doctor` names the others. Called after the load, so
/// that the reason of a load that fails stands alone in the log.
fn name_known_faults() {
    for advisory in annex_runtime::advisories() {
        let annex_runtime::Advisory { id, about, mended, kept_off } = advisory;
        let engine = annex_runtime::ENGINE_VERSION;
        if kept_off.is_none() {
            tracing::warn!(
                "the engine that confines extensions, wasmtime {engine}, has a known fault that an extension may reach \
                 ({id}: {about}); take a release of Annex that is built with {mended} or later"
            );
        }
    }
}

/// Takes the address that `key` names.
fn listen(address: SocketAddr, key: &'static str) -> Result<(TcpListener, SocketAddr), ServeError> {
    let refused = |source| ServeError::Listen { address, key, source };
    let listener = open(address).map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    Ok((listener, address))
}

/// Connections that the kernel keeps until they are accepted. When there are more, it drops those that come, and their
/// clients try again after a second.
const BACKLOG: u32 = 4_096;

/// Listens on the address.
pub(crate) fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A server that starts again does not wait for the connections of the one before it.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

async fn drain(app: &App, drain_timeout: Duration) {
    // The handlers of all tenants share what is closed here, so one of them stands for all.
    let handler = app.tenants().own();
    // This also refuses messages that have passed the gate and have not begun a turn yet.
    handler.begin_to_drain();
    tracing::info!(turns = handler.running.len(), "draining");
    if timeout(drain_timeout, handler.running.wait()).await.is_err() {
        tracing::warn!(turns = handler.running.len(), "turns still run after the drain time and are ended");
        handler.stop.cancel();
        // Hooks end with their own limits, which an operator may have raised; a store may hang.
        if timeout(STOP_TIMEOUT, handler.running.wait()).await.is_err() {
            tracing::warn!(turns = handler.running.len(), "turns still run, and the server ends without them");
        }
    }
    // Agents end when no turn uses them any more.
    app.tenants().close_agents().await;
    // A stream of a task that waits for its client would not end by itself.
    handler.closing.cancel();
    if let Some(push) = &handler.push {
        push.close(PUSH_TIMEOUT).await;
    }
}

/// Closes the databases. Nothing is lost where that takes too long; closing moves what SQLite keeps beside its files
/// into them.
async fn close_stores(app: &App) {
    let stores = async {
        let handler = app.tenants().own();
        handler.sessions.close().await;
        handler.tasks.close().await;
        handler.views.keys.close().await;
    };
    if timeout(STORE_TIMEOUT, stores).await.is_err() {
        tracing::warn!("a database is still busy and is left as it is; nothing that was stored is lost");
    }
}

fn finished(ended: Result<io::Result<()>, tokio::task::JoinError>) -> Result<(), ServeError> {
    ended.map_err(io::Error::other).flatten().map_err(ServeError::Serve)
}
