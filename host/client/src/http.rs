//! HTTP for this client: redirects within one origin only, limited bodies, limited waits.

use std::time::Duration;

use annex_egress::{Body, ReadError, Screen, UrlRefusal};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, StatusCode};
use reqwest::redirect::{Action, Attempt, Policy};
use reqwest::{Certificate, Identity, RequestBuilder, Url};

use crate::ClientError;
use crate::config::ClientConfig;

mod direct;

use direct::{Direct, DirectError, Incomplete};

pub(crate) const EVENT_STREAM: &str = "text/event-stream";

const MAX_REDIRECTS: usize = 10;

/// The HTTP clients of one [`Client`](crate::Client). Connections are pooled.
#[derive(Clone)]
pub(crate) struct Http {
    /// Speaks HTTP/1.1, and HTTP/2 where TLS offers it.
    pub(crate) client: reqwest::Client,
    /// Speaks HTTP/2 from the start, as gRPC without TLS requires.
    pub(crate) http2: reqwest::Client,
    /// The largest body, and the largest event of a stream, in bytes.
    pub(crate) max_bytes: usize,
    follows_redirects: bool,
    screen: Option<Screen>,
    connect_timeout: Duration,
    silence: Duration,
}

/// The URL of an interface, and the client for it.
pub(crate) struct Endpoint {
    pub(crate) http: Http,
    pub(crate) url: Url,
    direct: Option<Direct>,
}

/// A response whose body is not read yet.
pub(crate) struct Response {
    url: Box<str>,
    silence: Duration,
    body: Incoming,
}

enum Incoming {
    Reqwest(reqwest::Response),
    Direct(Box<Incomplete>),
}

impl Http {
    pub(crate) fn new(config: &ClientConfig) -> Result<Self, ClientError> {
        let authorities = config.tls.authorities.as_deref().map(|pem| Certificate::from_pem_bundle(pem.as_bytes()));
        let authorities = authorities.transpose().map_err(ClientError::Setup)?.unwrap_or_default();
        let identity = config.tls.identity.as_ref().map(|pem| Identity::from_pem(pem.expose().as_bytes()));
        let identity = identity.transpose().map_err(ClientError::Setup)?;
        let builder = || {
            let redirects = if config.follow_redirects { Policy::custom(same_origin) } else { Policy::none() };
            let builder = annex_egress::client_builder(authorities.clone()).redirect(redirects);
            // The screen looks at the addresses that names have; `check` looks at the URLs.
            let builder = config.screen.iter().fold(builder, |builder, screen| screen.guard(builder));
            let builder = builder.connect_timeout(config.connect_timeout);
            let builder = identity.iter().fold(builder, |builder, identity| builder.identity(identity.clone()));
            // The limit is on silence and not on the whole answer, because a stream lasts as long as its task.
            if config.silence == Duration::MAX { builder } else { builder.read_timeout(config.silence) }
        };
        Ok(Self {
            client: builder().build().map_err(ClientError::Setup)?,
            http2: builder().http2_prior_knowledge().build().map_err(ClientError::Setup)?,
            max_bytes: config.max_bytes,
            follows_redirects: config.follow_redirects,
            screen: config.screen.clone(),
            connect_timeout: config.connect_timeout,
            silence: config.silence,
        })
    }

    /// Refuses a URL that the screen does not allow. The addresses of its host are checked when a connection is opened.
    pub(crate) fn check(&self, url: &Url) -> Result<(), ClientError> {
        let Some(screen) = &self.screen else { return Ok(()) };
        let checked = screen.parse(url.as_str());
        checked.map(drop).map_err(|source| ClientError::Screened { url: url.to_string(), source })
    }

    /// Reads the whole body as text. Fails if the body is larger than [`Self::max_bytes`].
    pub(crate) async fn text(&self, response: Response) -> Result<String, ClientError> {
        self.text_of(response, self.max_bytes).await
    }

    /// Reads the whole body as text. Fails if the body is larger than `max_bytes` or than [`Self::max_bytes`].
    pub(crate) async fn text_of(&self, mut response: Response, max_bytes: usize) -> Result<String, ClientError> {
        let read = annex_egress::whole(&mut response, max_bytes.min(self.max_bytes)).await;
        let body = read.map_err(|error| unread(response.url(), error))?;
        String::from_utf8(body).map_err(|error| {
            let shown = String::from_utf8_lossy(error.as_bytes()).into_owned();
            ClientError::protocol(response.url(), &shown, error)
        })
    }
}

/// Follows redirects within one origin, so that header fields reach no other server.
fn same_origin(attempt: Attempt<'_>) -> Action {
    // Compared with the first URL, for which the header fields are intended.
    let is_same = attempt.previous().first().is_none_or(|first| first.origin() == attempt.url().origin());
    match (is_same, attempt.previous().len() < MAX_REDIRECTS) {
        (true, true) => attempt.follow(),
        (true, false) => attempt.error("too many redirects"),
        // The redirect itself is then the answer, and its status becomes the error.
        (false, _) => attempt.stop(),
    }
}

impl Endpoint {
    pub(crate) fn new(http: Http, url: Url) -> Self {
        // Redirects and screens are handled by reqwest, so calls that need one of them use it.
        let is_plain = !http.follows_redirects && http.screen.is_none();
        let direct = if is_plain { Direct::to(&url, http.connect_timeout) } else { None };
        Self { http, url, direct }
    }

    /// Sends a request to `url`, which has the origin of this interface, and waits for the head of the response.
    /// `headers` contains all header fields of the request.
    pub(crate) async fn send(
        &self,
        (method, url): (Method, &Url),
        headers: HeaderMap,
        body: String,
    ) -> Result<Response, ClientError> {
        let Some(direct) = &self.direct else {
            let request = self.http.client.request(method, url.clone()).headers(headers);
            return send(url.as_str(), if body.is_empty() { request } else { request.body(body) }).await;
        };
        let silence = self.http.silence;
        let sent = direct.send((method, url), headers, Bytes::from(body));
        let sent = in_silence(silence, url.as_str(), sent).await?;
        Ok(Response { url: url.as_str().into(), silence, body: Incoming::Direct(Box::new(sent)) })
    }
}

impl Response {
    /// The URL of the response.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn status(&self) -> StatusCode {
        match &self.body {
            Incoming::Reqwest(response) => response.status(),
            Incoming::Direct(answer) => answer.head.status,
        }
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        match &self.body {
            Incoming::Reqwest(response) => response.headers(),
            Incoming::Direct(answer) => &answer.head.headers,
        }
    }
}

impl Body for Response {
    type Error = ClientError;

    async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        let Self { url, silence, body } = self;
        match body {
            // reqwest measures the silence itself.
            Incoming::Reqwest(response) => response.chunk().await.map_err(|error| failed(url, error)),
            Incoming::Direct(answer) => {
                let chunk = async { answer.chunk().await.map_err(|error| failed_direct(url, error)) };
                in_silence(*silence, url, chunk).await
            }
        }
    }
}

impl From<reqwest::Response> for Response {
    fn from(response: reqwest::Response) -> Self {
        let url = response.url().as_str().into();
        Self { url, silence: Duration::MAX, body: Incoming::Reqwest(response) }
    }
}

/// The error of a response that could not be read to its end.
pub(crate) fn unread(url: &str, error: ReadError<ClientError>) -> ClientError {
    match error {
        ReadError::TooLong { limit, .. } => ClientError::TooLarge { url: url.to_owned(), max_bytes: limit },
        ReadError::Broken(error) => error,
    }
}

/// Waits for bytes from the agent, and fails after `silence`. With [`Duration::MAX`] no timer runs.
async fn in_silence<T>(
    silence: Duration,
    url: &str,
    waited: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    if silence == Duration::MAX {
        return waited.await;
    }
    let timed_out = |_| Err(ClientError::TimedOut { url: url.to_owned() });
    tokio::time::timeout(silence, waited).await.unwrap_or_else(timed_out)
}

/// Sends a request to `url` and waits for the head of the response.
pub(crate) async fn send(url: &str, request: RequestBuilder) -> Result<Response, ClientError> {
    request.send().await.map(Response::from).map_err(|error| failed(url, error))
}

pub(crate) fn failed(url: &str, error: reqwest::Error) -> ClientError {
    let url = url.to_owned();
    // `ClientError` contains the URL already, and reqwest's error would repeat it.
    let source = error.without_url();
    // The screen refuses from within the client, at the bottom of its error.
    let mut causes = std::iter::successors(std::error::Error::source(&source), |cause| (*cause).source());
    match causes.find_map(|cause| cause.downcast_ref::<UrlRefusal>()) {
        // The name may resolve the next time.
        None | Some(UrlRefusal::UnknownName { .. }) => {}
        Some(refused) => return ClientError::Screened { url, source: refused.clone() },
    }
    // A timeout while connecting is both a timeout and a failed connection. It counts as unreachable, because nothing
    // was sent.
    if source.is_connect() {
        ClientError::Unreachable { url, source: cause_of_unreachable(&source).into() }
    } else if source.is_timeout() {
        ClientError::TimedOut { url }
    } else {
        ClientError::Broken { url, source: source.into() }
    }
}

/// The reason why there is no connection: the innermost cause. The outer errors only repeat that connecting failed.
fn cause_of_unreachable(error: &reqwest::Error) -> String {
    let mut causes = std::iter::successors(Some(error as &dyn std::error::Error), |cause| cause.source());
    let mut innermost = error.to_string();
    for cause in &mut causes {
        if cause.is::<UrlRefusal>() {
            return annex_text::with_causes(cause);
        }
        innermost = cause.to_string();
    }
    innermost
}

/// Converts the error of a request over a direct connection.
fn failed_direct(url: &str, error: DirectError) -> ClientError {
    let url = url.to_owned();
    match error {
        DirectError::Connect(source) => ClientError::Unreachable { url, source },
        DirectError::ConnectTimeout => ClientError::Unreachable { url, source: error.into() },
        DirectError::Exchange(error) => ClientError::Broken { url, source: error.into() },
    }
}

/// Tells whether the response is an event stream. An agent that does not stream answers with JSON.
pub(crate) fn is_event_stream(response: &Response) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    response.status().is_success() && content_type.is_some_and(is_media_type_of_events)
}

/// True for the media type of event streams, in upper or lower case and with or without parameters.
fn is_media_type_of_events(content_type: &str) -> bool {
    content_type.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(EVENT_STREAM)
}
