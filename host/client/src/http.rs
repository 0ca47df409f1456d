//! HTTP as this client uses it: redirects within one place only, bounded bodies, bounded waiting.

use http::header::CONTENT_TYPE;
use reqwest::redirect::{Action, Attempt, Policy};
use reqwest::{RequestBuilder, Response};

use crate::ClientError;
use crate::config::ClientConfig;

pub(crate) const EVENT_STREAM: &str = "text/event-stream";

const MAX_REDIRECTS: usize = 10;

/// The clients of one [`Client`](crate::Client). Connections are kept and shared.
#[derive(Clone)]
pub(crate) struct Http {
    /// Speaks HTTP/1.1, and HTTP/2 where TLS offers it.
    pub(crate) client: reqwest::Client,
    /// Speaks HTTP/2 at once, as gRPC has it without TLS.
    pub(crate) http2: reqwest::Client,
    /// Of a body, and of one event of a stream.
    pub(crate) max_bytes: usize,
}

impl Http {
    pub(crate) fn new(config: &ClientConfig) -> Result<Self, ClientError> {
        let builder = || {
            let redirects = if config.follow_redirects { Policy::custom(same_origin) } else { Policy::none() };
            let builder = reqwest::Client::builder().redirect(redirects);
            // The limit is on silence and not on the whole answer, because a stream lasts as long as its task.
            builder.connect_timeout(config.connect_timeout).read_timeout(config.silence)
        };
        Ok(Self {
            client: builder().build().map_err(ClientError::Setup)?,
            http2: builder().http2_prior_knowledge().build().map_err(ClientError::Setup)?,
            max_bytes: config.max_bytes,
        })
    }

    /// The whole body as text.
    pub(crate) async fn text(&self, response: Response) -> Result<String, ClientError> {
        self.text_of(response, self.max_bytes).await
    }

    /// The same of at most so many bytes.
    pub(crate) async fn text_of(&self, mut response: Response, max_bytes: usize) -> Result<String, ClientError> {
        let max_bytes = max_bytes.min(self.max_bytes);
        let url = response.url().to_string();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| failed(&url, error))? {
            // Checked before the chunk is kept, so that an answer without an end takes no memory beyond the limit.
            if body.len() + chunk.len() > max_bytes {
                return Err(ClientError::TooLarge { url, max_bytes });
            }
            body.extend_from_slice(&chunk);
        }
        String::from_utf8(body).map_err(|error| {
            let shown = String::from_utf8_lossy(error.as_bytes()).into_owned();
            ClientError::protocol(&url, &shown, error)
        })
    }
}

/// Redirects are followed within one place, so that header fields reach nobody else.
fn same_origin(attempt: Attempt<'_>) -> Action {
    // Compared with the first address, to which the header fields were meant to go.
    let is_same = attempt.previous().first().is_none_or(|first| first.origin() == attempt.url().origin());
    match (is_same, attempt.previous().len() < MAX_REDIRECTS) {
        (true, true) => attempt.follow(),
        (true, false) => attempt.error("too many redirects"),
        // The redirect itself is then the answer, and its status becomes the error.
        (false, _) => attempt.stop(),
    }
}

/// Sends a request to `url` and waits for the head of the answer.
pub(crate) async fn send(url: &str, request: RequestBuilder) -> Result<Response, ClientError> {
    request.send().await.map_err(|error| failed(url, error))
}

pub(crate) fn failed(url: &str, error: reqwest::Error) -> ClientError {
    let url = url.to_owned();
    // `ClientError` names the URL that was asked for, and reqwest's error would name one once more.
    let source = error.without_url();
    // A timeout while connecting is both. It counts as unreachable, because nothing was sent.
    if source.is_connect() {
        ClientError::Unreachable { url, source }
    } else if source.is_timeout() {
        ClientError::TimedOut { url }
    } else {
        ClientError::Broken { url, source: source.into() }
    }
}

/// Tells whether the answer is an event stream. An agent that refuses to stream answers with JSON.
pub(crate) fn is_event_stream(response: &Response) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    response.status().is_success() && content_type.is_some_and(|text| text.starts_with(EVENT_STREAM))
}
