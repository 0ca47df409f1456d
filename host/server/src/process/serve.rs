//! The life of the server: listen, load, serve, drain.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use annex_conversation::LostTurn;
use futures::future::BoxFuture;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::admin;
use crate::app::{App, AppError};
use crate::config::Config;
use crate::connections::limits::{OF_ADMIN, OF_METRICS};
use crate::connections::listener::{self, BoundListener};
use crate::connections::tls::{Tls, TlsError};
use crate::console;
use crate::console::operator::ConsoleState;
use crate::installation::{editions, live_cards};
use crate::process::descriptors;
use crate::process::listeners_tls::{ListenersTls, WrongTls};
use crate::process::metrics_task::MetricsTask;
use crate::process::readiness_gate::ReadinessGate;
use crate::process::routes::Routes;

/// Time limit for turns to end after they are cancelled.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the delivery of push notifications during shutdown.
const PUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for closing the databases during shutdown.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// The reasons why serving ends early.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The server cannot listen on the address.
    #[error("cannot listen on {address} ({key})")]
    Listen {
        /// The address of the listener.
        address: SocketAddr,
        /// The config key of the address.
        key: &'static str,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The files of a TLS table cannot be used.
    #[error("cannot use {key}")]
    Tls {
        /// The config key of the file, such as `server.tls.certificate`.
        key: String,
        /// The reason.
        #[source]
        source: Box<TlsError>,
    },
    /// The app cannot be loaded.
    #[error(transparent)]
    App(#[from] AppError),
    /// The listener failed.
    #[error("the HTTP server failed")]
    Serve(#[source] io::Error),
}

/// A server whose listeners are open, but whose app is not loaded yet.
pub struct Server {
    config: Config,
    listener: TcpListener,
    address: SocketAddr,
    admin: Option<(TcpListener, SocketAddr)>,
    metrics: Option<(TcpListener, SocketAddr)>,
    tls: ListenersTls,
}

impl Server {
    /// Opens all listeners of the config, and reads the files of their TLS.
    ///
    /// # Errors
    /// [`ServeError::Listen`] and [`ServeError::Tls`].
    pub async fn bind(config: Config) -> Result<Self, ServeError> {
        descriptors::provide(&config);
        let tls = ListenersTls::load(&config, config.folder());
        let tls = tls.map_err(|WrongTls { key, error }| ServeError::Tls { key, source: error })?;
        // All listeners are opened before the load, so that an address in use is reported at once.
        let (listener, address) = listen(config.server.listen, "server.listen")?;
        let admin = match &config.admin {
            Some(admin) => Some(listen(admin.listen, "admin.listen")?),
            None => None,
        };
        let metrics = match config.admin.as_ref().and_then(|admin| admin.metrics_listen) {
            Some(metrics) => Some(listen(metrics, "admin.metrics_listen")?),
            None => None,
        };
        Ok(Self { config, listener, address, admin, metrics, tls })
    }

    /// The address of the admin API, if enabled.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(|(_, address)| *address)
    }

    /// The address of the listener for `/metrics` alone, if enabled.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(|(_, address)| *address)
    }

    /// The address of the A2A listener.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base URL of the A2A listener, without a slash at its end. Clients reach the server under `server.public_url` if
    /// the config has it.
    #[must_use]
    pub fn url(&self) -> String {
        url(self.tls.server.as_ref(), self.address)
    }

    /// The URL of the admin API, if enabled.
    #[must_use]
    pub fn admin_url(&self) -> Option<String> {
        self.admin_address().map(|address| url(self.tls.admin.as_ref(), address))
    }

    /// The URL of the listener for `/metrics` alone, if enabled.
    #[must_use]
    pub fn metrics_url(&self) -> Option<String> {
        self.metrics_address().map(|address| url(self.tls.admin.as_ref(), address))
    }

    /// Loads the app, serves until `shutdown` resolves, and drains.
    ///
    /// `load` gets the config and the base URL. While `load` runs, `/livez` and `/readyz` already answer. `ready` is
    /// called after the load. When the server drains, running turns get `server.drain_seconds` to finish. Turns that
    /// still run after this time continue in another process, or fail. If `shutdown` resolves during the load, the load
    /// is cancelled. MCP programs that tenants are starting at this moment end with the runtime, or earlier with
    /// [`end_programs`](crate::end_programs).
    ///
    /// # Errors
    /// The app cannot be loaded, or the listener fails.
    pub async fn run(
        self,
        load: impl AsyncFnOnce(&Config, &str) -> Result<App, AppError>,
        ready: impl FnOnce(&App),
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let gate = Arc::new(ReadinessGate::new(&self.config, self.tls.clone()));
        let closed = CancellationToken::new();
        let routes = Routes::new(Arc::clone(&gate));
        let limits = gate.limits.connections();
        let base_url = self.config.server.public_url.clone().unwrap_or_else(|| self.url());
        gate.tls.follow(&closed);
        let listener = BoundListener { socket: self.listener, tls: gate.tls.server.clone() };
        let mut serving = listener::spawn(listener, routes, limits, closed.clone());
        let mut shutdown = pin!(shutdown);
        let loaded = tokio::select! {
            loaded = load(&self.config, &base_url) => loaded?,
            // No turn is running yet, so nothing has to be drained.
            () = &mut shutdown => return Ok(()),
        };
        let lost = loaded.end_turns_of_others().await?;
        let app = gate.open(loaded);
        if let Some(traces) = &app.traces {
            gate.access_log.trace_with(traces.tracer.clone());
        }
        let metrics = MetricsTask::start(Arc::clone(&gate));
        let (limits, cross_origin) = (Arc::clone(&gate.limits), Arc::clone(&gate.cross_origin));
        let access_log = Arc::clone(&gate.access_log);
        app.settings.attach(Box::new(move |config: &Config| {
            descriptors::provide(config);
            limits.set(&config.server);
            cross_origin.set(config);
            access_log.set(config.log.access);
        }));
        app.describe(&gate.phase().to_string());
        let housekeeping = keep_house(app, lost);
        // The admin API opens after the load, because it needs the installers.
        let sockets = [self.admin, self.metrics].map(|bound| bound.map(|(socket, _)| socket));
        serve_admin(app, &gate, sockets, &closed);
        name_known_faults();
        ready(app);
        tokio::select! {
            ended = &mut serving => return finished(ended),
            () = &mut shutdown => {}
        }
        // First requests are refused, then turns end, and only then connections close. Clients so receive the ends of
        // their turns.
        gate.drain();
        app.describe(&gate.phase().to_string());
        drain(app, gate.limits.drain()).await;
        closed.cancel();
        let ended = finished(serving.await);
        // The sweeps stop before their stores close.
        drop(housekeeping);
        close_stores(app).await;
        if let Some(metrics) = metrics {
            metrics.close().await;
        }
        if let Some(traces) = &app.traces {
            traces.close().await;
        }
        ended
    }
}

/// Serves the admin API and the console on the first socket and `/metrics` alone on the second, if they are enabled.
fn serve_admin(app: &App, gate: &Arc<ReadinessGate>, sockets: [Option<TcpListener>; 2], closed: &CancellationToken) {
    let Some(admin) = &app.admin else { return };
    let [api, metrics] = sockets;
    if let Some(socket) = api {
        let api = admin::router(Arc::clone(admin), Arc::clone(&gate.access_log), gate.tls.clone());
        let router = api.merge(console::router(ConsoleState::new(Arc::clone(admin), Arc::clone(gate))));
        let limits = watch::Sender::new(OF_ADMIN);
        let listener = BoundListener { socket, tls: gate.tls.admin.clone() };
        listener::spawn(listener, router, limits.subscribe(), closed.clone());
    }
    if let Some(socket) = metrics {
        let router = admin::metrics_router(Arc::clone(admin), Arc::clone(&gate.access_log), gate.tls.clone());
        let limits = watch::Sender::new(OF_METRICS);
        let listener = BoundListener { socket, tls: gate.tls.admin.clone() };
        listener::spawn(listener, router, limits.subscribe(), closed.clone());
    }
}

/// Starts the watches and sweeps. They stop when the returned guard is dropped.
fn keep_house(app: &App, lost: Vec<LostTurn>) -> DropGuard {
    let stop = CancellationToken::new();
    let process = &app.process;
    let tasks = Arc::clone(&process.tasks);
    let keys = Arc::clone(&process.views.keys);
    app.installers().keep_house(&stop);
    let installers = Arc::clone(app.installers());
    tokio::spawn(live_cards::follow(move || installers.without_debt(), stop.clone()));
    if let Some(peers) = app.peers.clone() {
        let installers = Arc::clone(app.installers());
        tokio::spawn(editions::follow(move || installers.serving(), peers, stop.clone()));
    }
    let others = Arc::clone(&tasks);
    let stopped = stop.clone();
    tokio::spawn(async move { others.watch_others(stopped).await });
    watch_lost(app, lost, stop.clone());
    let places = Arc::clone(&process.places);
    let stopped = stop.clone();
    tokio::spawn(async move { places.watch(stopped).await });
    let quotas = Arc::clone(&process.quotas);
    let stopped = stop.clone();
    tokio::spawn(async move { quotas.watch(stopped).await });
    if let Some(push) = process.push.clone() {
        let tasks = Arc::clone(&tasks);
        let stopped = stop.clone();
        tokio::spawn(async move { push.send_left(&tasks, stopped).await });
    }
    let stopped = stop.clone();
    tokio::spawn(async move { tasks.keep_house(&keys, stopped).await });
    stop.drop_guard()
}

/// Continues the turns in `lost`, and takes over the turns of processes that die later. The handler of the turn's
/// tenant continues the turn. If the tenant is not served, the task fails.
fn watch_lost(app: &App, lost: Vec<LostTurn>, stop: CancellationToken) {
    let tasks = Arc::clone(&app.process.tasks);
    let running = app.process.running.clone();
    let tenants = app.tenants().clone();
    tokio::spawn(async move {
        let go_on = |lost: LostTurn| {
            let tenants = tenants.clone();
            let tasks = Arc::clone(&tasks);
            // A tenant may have to be loaded first.
            tokio::spawn(async move {
                match tenants.serving_owner(lost.key.owner()).await {
                    Some(handler) => handler.go_on_with(lost),
                    None => tasks.end_lost_turn(&lost).await,
                }
            });
        };
        lost.into_iter().for_each(&go_on);
        tasks.watch_lost((go_on, || running.is_closed()), stop).await;
    });
}

/// Logs the known faults of the engine that an extension may reach. `annex doctor` lists the other known faults. Called
/// after the load, so that these warnings do not hide the reason of a failed load.
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

/// The URL of a listener.
fn url(tls: Option<&Arc<Tls>>, address: SocketAddr) -> String {
    let scheme = if tls.is_some() { "https" } else { "http" };
    format!("{scheme}://{address}")
}

/// Opens the listener at `address`. `key` is the config key of the address, for errors.
fn listen(address: SocketAddr, key: &'static str) -> Result<(TcpListener, SocketAddr), ServeError> {
    let refused = |source| ServeError::Listen { address, key, source };
    let listener = open(address).map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    Ok((listener, address))
}

/// The number of connections that the kernel queues until they are accepted. The kernel drops further connections, and
/// their clients retry after a second.
const BACKLOG: u32 = 4_096;

/// Opens a listener on the address.
pub(crate) fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restarted server need not wait for old connections to time out.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn drain(app: &App, drain_timeout: Duration) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        let process = &app.process;
        // This also refuses messages that have passed the gate and not begun a turn yet.
        process.begin_to_drain();
        tracing::info!(turns = process.running.len(), "draining");
        if timeout(drain_timeout, process.running.wait()).await.is_err() {
            tracing::warn!(turns = process.running.len(), "turns still run after the drain time and are cancelled");
            process.stop.cancel();
            // Hooks end at their own limits, which an operator may have raised. A store may hang.
            if timeout(STOP_TIMEOUT, process.running.wait()).await.is_err() {
                tracing::warn!(
                    turns = process.running.len(),
                    "turns still run after their cancellation; the server ends without waiting for them"
                );
            }
        }
        // The agents are closed after the last turn, so that no turn still uses them.
        app.tenants().close_agents().await;
        // The stream of a task that waits for its client would never end.
        process.closing.cancel();
        if let Some(push) = &process.push {
            push.close(PUSH_TIMEOUT).await;
        }
    })
}

/// Closes the audit file and the databases. Closing merges SQLite's write-ahead log into the database file. If closing takes too long,
/// this function stops waiting for it. No stored data is lost then.
fn close_stores(app: &App) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        let audit = app.admin.as_ref().and_then(|admin| admin.audit.as_ref());
        if let Some(audit) = audit
            && timeout(STORE_TIMEOUT, audit.close()).await.is_err()
        {
            tracing::error!("the audit file is still busy; it may lack the receipts of the last turns");
        }
        let stores = async {
            app.tenant_stores.close().await;
            app.process.tasks.close().await;
            app.process.views.keys.close().await;
        };
        if timeout(STORE_TIMEOUT, stores).await.is_err() {
            tracing::warn!("a database is still busy and is not closed; no stored data is lost");
        }
    })
}

fn finished(ended: Result<io::Result<()>, tokio::task::JoinError>) -> Result<(), ServeError> {
    ended.map_err(io::Error::other).flatten().map_err(ServeError::Serve)
}
