//! Plain HTTP/1.1 to one origin. The caller of a request drives the connection itself, without a task for each
//! connection. For a short call, switching between tasks would take more time than sending the bytes.
//!
//! Supports no TLS, proxies or redirects. Requests that may need one of them use reqwest.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};
use std::{future, mem};

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderMap, HeaderValue, Method, Request, Uri, response};
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::ServiceExt;
use url::{Position, Url};

use super::failed_direct;
use crate::ClientError;

/// The longest time that an idle connection is kept.
const IDLE: Duration = Duration::from_secs(90);
const MAX_IDLE: usize = 1_024;
/// The interval between checks of idle connections.
const SWEEP: Duration = Duration::from_secs(15);

/// An origin with a pool of direct connections.
#[derive(Clone)]
pub(crate) struct Direct {
    pool: Arc<Pool>,
}

struct Pool {
    origin: Uri,
    host: HeaderValue,
    connector: HttpConnector,
    connect_timeout: Duration,
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    /// The idle connections, each with the time of its last use. Requests take from the end, where the most recently
    /// used connection is.
    connections: Vec<(Instant, Connection)>,
    /// True while a task checks the connections.
    is_swept: bool,
}

type Driver = http1::Connection<TokioIo<TcpStream>, Full<Bytes>>;

struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: Pin<Box<Driver>>,
}

/// A response whose body is not read yet.
pub(crate) struct Incomplete {
    pub(crate) head: response::Parts,
    body: Incoming,
    /// The connection that delivers the body. `None` if the connection has ended or is back in the pool.
    connection: Option<Connection>,
    pool: Arc<Pool>,
}

/// The reason why a response is missing or incomplete.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DirectError {
    /// No connection could be opened. Nothing was sent.
    #[error("no connection was established")]
    Connect(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the connection took too long")]
    ConnectTimeout,
    #[error(transparent)]
    Exchange(#[from] hyper::Error),
}

impl Direct {
    /// Creates an empty pool for the origin of `url`. `None` if the URL contains credentials, or the origin needs TLS or a
    /// proxy.
    pub(crate) fn to(url: &Url, connect_timeout: Duration) -> Option<Self> {
        let has_user = !url.username().is_empty() || url.password().is_some();
        if url.scheme() != "http" || has_user {
            return None;
        }
        let origin: Uri = url[..Position::BeforePath].parse().ok()?;
        // Proxies from the environment, as in reqwest.
        if Matcher::from_system().intercept(&origin).is_some() {
            return None;
        }
        let host = HeaderValue::from_str(&url[Position::BeforeHost..Position::AfterPort]).ok()?;
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(connect_timeout));
        let idle = Mutex::default();
        Some(Self { pool: Arc::new(Pool { origin, host, connector, connect_timeout, idle }) })
    }

    /// Sends a request and waits for the head of the response. Sends the request again only if the server closed an
    /// idle connection before any part of the request was written.
    pub(crate) async fn send(
        &self,
        (method, url): (Method, &Url),
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<Incomplete, ClientError> {
        let unusable = |_| ClientError::InterfaceUrl { interface: url.to_string() };
        let path: Uri = url[Position::BeforePath..Position::AfterQuery].parse().map_err(unusable)?;
        headers.insert(HOST, self.pool.host.clone());
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = path;
        *request.headers_mut() = headers;
        self.exchange(request).await.map_err(|error| failed_direct(url.as_str(), error))
    }

    async fn exchange(&self, mut request: Request<Full<Bytes>>) -> Result<Incomplete, DirectError> {
        loop {
            let (mut connection, was_kept) = match self.pool.take() {
                Some(connection) => (connection, true),
                None => (self.pool.connect().await?, false),
            };
            let mut answered = pin!(connection.sender.try_send_request(request));
            let mut is_over = false;
            let answer = future::poll_fn(|context| {
                // The driver is polled first, so that received data is available to the response.
                is_over = is_over || connection.driver.as_mut().poll(context).is_ready();
                answered.as_mut().poll(context)
            });
            let mut error = match answer.await {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    let connection = (!is_over).then_some(connection);
                    return Ok(Incomplete { head, body, connection, pool: Arc::clone(&self.pool) });
                }
                Err(error) => error,
            };
            match error.take_message() {
                // The server closed an idle connection before anything was written to it.
                Some(message) if was_kept => request = message,
                _ => return Err(error.into_error().into()),
            }
        }
    }
}

impl Pool {
    async fn connect(&self) -> Result<Connection, DirectError> {
        let connected = tokio::time::timeout(self.connect_timeout, self.connector.clone().oneshot(self.origin.clone()));
        let stream = connected.await.map_err(|_| DirectError::ConnectTimeout)?;
        let stream = stream.map_err(|error| DirectError::Connect(error.into()))?;
        let (sender, driver) = http1::handshake(stream).await?;
        Ok(Connection { sender, driver: Box::pin(driver) })
    }

    /// Takes an idle connection that seems to be open. `None` if there is no such connection.
    fn take(&self) -> Option<Connection> {
        loop {
            let (_, mut connection) = self.lock().connections.pop()?;
            if connection.is_ready() {
                return Some(connection);
            }
        }
    }

    fn keep(self: &Arc<Self>, connection: Connection) {
        let mut idle = self.lock();
        if idle.connections.len() >= MAX_IDLE {
            return;
        }
        idle.connections.push((Instant::now(), connection));
        if !mem::replace(&mut idle.is_swept, true) {
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes idle connections that the server has closed or that exceeded [`IDLE`]. Ends when no idle connection is left.
async fn sweep(pool: Weak<Pool>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let Some(pool) = pool.upgrade() else { return };
        let mut idle = pool.lock();
        idle.connections.retain_mut(|(since, connection)| since.elapsed() < IDLE && connection.is_ready());
        if idle.connections.is_empty() {
            idle.is_swept = false;
            return;
        }
    }
}

impl Connection {
    /// True if the connection is open and can send another request.
    fn is_ready(&mut self) -> bool {
        // No task needs to be woken: the next user polls the connection again.
        let mut context = Context::from_waker(Waker::noop());
        self.driver.as_mut().poll(&mut context).is_pending() && self.sender.is_ready()
    }
}

impl Incomplete {
    /// Reads the next piece of the body; `None` at the end of the body.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, DirectError> {
        while let Some(frame) = future::poll_fn(|context| self.poll_frame(context)).await {
            // Frames without data are trailers, which are ignored.
            if let Ok(data) = frame?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut polled = Pin::new(&mut self.body).poll_frame(context);
        if let (Poll::Pending, Some(connection)) = (&polled, &mut self.connection) {
            if connection.driver.as_mut().poll(context).is_ready() {
                self.connection = None;
            }
            polled = Pin::new(&mut self.body).poll_frame(context);
        }
        let frame = ready!(polled);
        if frame.is_none()
            && let Some(mut connection) = self.connection.take()
            && connection.is_ready()
        {
            self.pool.keep(connection);
        }
        Poll::Ready(frame)
    }
}
