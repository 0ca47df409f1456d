//! The HTTP client for one MCP server. It is more lenient than the library's client: it accepts media types in any
//! case, and JSON that some readers refuse ([`annex_protocol::portable`]).

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use annex_egress::{Body, ReadError, beginning, whole};
use annex_protocol::portable;
use annex_telemetry::traces::TraceFields;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use http::{HeaderMap, HeaderName, HeaderValue};
use reqwest::header::{ACCEPT, CONTENT_TYPE, WWW_AUTHENTICATE};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, GetMeta, JsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::transport::common::http_header::{
    EVENT_STREAM_MIME_TYPE, HEADER_LAST_EVENT_ID, HEADER_SESSION_ID, JSON_MIME_TYPE,
};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::bounded::{MAX_BESIDE, MAX_MESSAGE, TooMuch, answer, aside_if_long};

/// The maximum number of bytes that are read from an error response.
const MAX_REFUSAL: usize = 64 << 10;
/// The pause before an answer that the server broke off is resumed.
const RESUMPTION_PAUSE: Duration = Duration::from_millis(500);

/// The HTTP client of one server.
#[derive(Clone)]
pub(super) struct BoundedHttp {
    pub(super) server: Arc<str>,
    pub(super) client: reqwest::Client,
    /// Fires when the transport is dropped, and then ends all requests and streams. While the server is being
    /// initialized, the library ends none of them. After the initialization it ends the session itself, with its own
    /// timeout.
    pub(super) stop: CancellationToken,
}

type HttpError = StreamableHttpError<reqwest::Error>;
type EventStream = BoxStream<'static, Result<Sse, SseError>>;
type Fields = HashMap<HeaderName, HeaderValue>;

impl BoundedHttp {
    fn request(
        &self,
        method: Method,
        uri: &str,
        session: Option<&str>,
        token: Option<String>,
        fields: Fields,
    ) -> RequestBuilder {
        let accepted = format!("{EVENT_STREAM_MIME_TYPE}, {JSON_MIME_TYPE}");
        let request = self.client.request(method, uri).headers(HeaderMap::from_iter(fields)).header(ACCEPT, accepted);
        let request = match session {
            Some(session) => request.header(HEADER_SESSION_ID, session),
            None => request,
        };
        match token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// Runs a request, or fails as soon as the transport is dropped.
    async fn unless_stopped<T>(&self, request: impl Future<Output = Result<T, HttpError>>) -> Result<T, HttpError> {
        self.stop.run_until_cancelled(request).await.unwrap_or(Err(StreamableHttpError::TransportChannelClosed))
    }

    /// Filters a stream, and ends it when the transport is dropped.
    fn until_stopped(&self, events: EventStream, id: Option<RequestId>) -> EventStream {
        answer(Arc::clone(&self.server), events, id).take_until(self.stop.clone().cancelled_owned()).boxed()
    }

    /// Sends a message. Returns the answer, or the events of an answer that is a stream. `asked` is the id of the
    /// message if it is a request.
    async fn post(
        &self,
        message: RequestBuilder,
        asked: Option<RequestId>,
        has_session: bool,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let mut response = admitted(message.send().await.map_err(StreamableHttpError::Client)?)?;
        let status = response.status();
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == StatusCode::NOT_FOUND && has_session {
            return Err(StreamableHttpError::SessionExpired);
        }
        let session = response.headers().get(HEADER_SESSION_ID);
        let session = session.and_then(|value| value.to_str().ok()).map(str::to_owned);
        if !status.is_success() {
            return refusal(&mut response, session).await;
        }
        // A server has nothing to say to a notification or an answer, and some say it with 200.
        let Some(asked) = asked else { return Ok(StreamableHttpPostResponse::Accepted) };
        match media_type(&response).as_str() {
            EVENT_STREAM_MIME_TYPE => {
                let events = self.until_stopped(events(response), Some(asked));
                Ok(StreamableHttpPostResponse::Sse(events, session))
            }
            JSON_MIME_TYPE => {
                let body = whole(&mut response, MAX_MESSAGE).await.map_err(unread)?;
                let parsed = aside_if_long(body, |body| parse(&body)).await;
                let parsed = parsed.map_err(|error| unexpected(format!("the answer was not read: {error}")))?;
                let message = parsed.map_err(|error| unexpected(format!("the answer is no message: {error}")))?;
                Ok(StreamableHttpPostResponse::Json(message, session))
            }
            _ => Err(other_type(&response)),
        }
    }
}

impl StreamableHttpClient for BoundedHttp {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Fields,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let asked = match &message {
            JsonRpcMessage::Request(request) => Some(request.id.clone()),
            JsonRpcMessage::Notification(_) | JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => None,
        };
        let mut request = self.request(Method::POST, &uri, session_id.as_deref(), auth_header, custom_headers);
        if let Some(trace) = trace_of(&message) {
            let mut fields = HeaderMap::new();
            trace.insert_into(&mut fields);
            request = request.headers(fields);
        }
        self.unless_stopped(self.post(request.json(&message), asked, session_id.is_some())).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: Fields,
    ) -> Result<(), HttpError> {
        self.client.delete_session(uri, session_id, auth_header, custom_headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Fields,
    ) -> Result<EventStream, HttpError> {
        // Streams without a request are not opened: no message on such a stream would be used here.
        let Some(last) = last_event_id else { return Err(StreamableHttpError::ServerDoesNotSupportSse) };
        // The pause prevents a loop if a server breaks off each answer at once.
        sleep(RESUMPTION_PAUSE).await;
        let request = self.request(Method::GET, &uri, session_id.as_deref(), auth_header, custom_headers);
        let opened = self.unless_stopped(opened(request.header(HEADER_LAST_EVENT_ID, last))).await?;
        Ok(self.until_stopped(events(opened), None))
    }
}

/// The context of the trace in the metadata of a request. The library sends requests in a tokio task of its own, which
/// works in no span.
fn trace_of(message: &ClientJsonRpcMessage) -> Option<TraceFields> {
    let JsonRpcMessage::Request(request) = message else { return None };
    let meta = request.request.get_meta();
    let parent = meta.get_traceparent()?.to_owned();
    Some(TraceFields { parent, state: meta.get_tracestate().map(str::to_owned) })
}

/// Opens a stream by a GET request.
async fn opened(request: RequestBuilder) -> Result<Response, HttpError> {
    let response = admitted(request.send().await.map_err(StreamableHttpError::Client)?)?;
    match response.status() {
        StatusCode::METHOD_NOT_ALLOWED => Err(StreamableHttpError::ServerDoesNotSupportSse),
        status if !status.is_success() => Err(HttpStatusError::new(status.as_u16(), None).into()),
        _ if media_type(&response) != EVENT_STREAM_MIME_TYPE => Err(other_type(&response)),
        _ => Ok(response),
    }
}

/// Returns the response, or an error if the server requires credentials.
fn admitted(response: Response) -> Result<Response, HttpError> {
    match response.headers().get(WWW_AUTHENTICATE) {
        Some(challenge) if response.status() == StatusCode::UNAUTHORIZED => {
            let challenge = String::from_utf8_lossy(challenge.as_bytes()).into_owned();
            Err(StreamableHttpError::AuthRequired(AuthRequiredError::new(challenge)))
        }
        _ => Ok(response),
    }
}

/// Reads an error response, whose body may be a JSON-RPC error for the model. A demand for credentials is not shown to
/// the model.
async fn refusal(response: &mut Response, session: Option<String>) -> Result<StreamableHttpPostResponse, HttpError> {
    let body = beginning(response, MAX_REFUSAL).await;
    let is_about_credentials = matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    if !is_about_credentials
        && media_type(response) == JSON_MIME_TYPE
        && let Ok(message @ JsonRpcMessage::Error(_)) = parse(&body)
    {
        return Ok(StreamableHttpPostResponse::Json(message, session));
    }
    Err(unexpected(format!("HTTP {}: {}", response.status(), String::from_utf8_lossy(&body))))
}

/// Parses a message. Values that some JSON parsers refuse are rewritten first.
fn parse(json: &[u8]) -> Result<ServerJsonRpcMessage, serde_json::Error> {
    let json = String::from_utf8_lossy(json);
    serde_json::from_str(portable::repaired(&json).as_deref().unwrap_or(&json))
}

/// The media type of the response, in lower case and without parameters.
fn media_type(response: &Response) -> String {
    let field = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let essence = field.split(|byte| *byte == b';').next().unwrap_or_default();
    String::from_utf8_lossy(essence.trim_ascii()).to_ascii_lowercase()
}

fn other_type(response: &Response) -> HttpError {
    let field = response.headers().get(CONTENT_TYPE);
    StreamableHttpError::UnexpectedContentType(
        field.map(|field| String::from_utf8_lossy(field.as_bytes()).into_owned()),
    )
}

fn unexpected(text: String) -> HttpError {
    StreamableHttpError::UnexpectedServerResponse(text.into())
}

fn unread(error: ReadError<reqwest::Error>) -> HttpError {
    match error {
        ReadError::TooLong { limit, .. } => StreamableHttpError::ResponseBodyTooLarge { max_size: limit },
        ReadError::Broken(error) => StreamableHttpError::Client(error),
    }
}

/// Reads the body of a response as a stream of events. Each event has at most [`MAX_MESSAGE`] bytes. The stream, including
/// comments and blank lines, has at most [`MAX_BESIDE`] bytes.
fn events(response: Response) -> EventStream {
    let begun = (response, EventLength::default(), MAX_BESIDE);
    let pieces = stream::try_unfold(begun, |(mut response, mut length, left)| async move {
        let Some(piece) = Body::next(&mut response).await.map_err(std::io::Error::other)? else { return Ok(None) };
        match left.checked_sub(piece.len()) {
            Some(left) if length.after(&piece) <= MAX_MESSAGE => Ok(Some((piece, (response, length, left)))),
            _ => Err(std::io::Error::other(TooMuch)),
        }
    });
    SseStream::from_bytes_stream(pieces).boxed()
}

/// The length so far of the event that is being read, comments included.
#[derive(Default)]
struct EventLength {
    event: usize,
    line: usize,
    after_cr: bool,
}

impl EventLength {
    /// Returns the length of the event after the bytes of `piece`.
    fn after(&mut self, piece: &[u8]) -> usize {
        for byte in piece {
            let after_cr = mem::replace(&mut self.after_cr, *byte == b'\r');
            match byte {
                b'\n' if after_cr => {}
                b'\r' | b'\n' => {
                    // An empty line ends an event.
                    self.event = if self.line == 0 { 0 } else { self.event + 1 };
                    self.line = 0;
                }
                _ => {
                    self.line += 1;
                    self.event += 1;
                }
            }
        }
        self.event
    }
}

#[cfg(test)]
mod tests {
    use super::EventLength;

    #[test]
    fn the_length_of_an_event_begins_anew_with_each_event_wherever_the_stream_is_cut() {
        for (stream, expected) in [
            ("data: abc", 9),
            ("data: abc\n", 10),
            ("data: abc\n\n", 0),
            ("data: abc\r\n", 10),
            ("data: abc\r\ndata: d\r\n", 18),
            ("data: abc\r\n\r\n", 0),
            ("data: abc\r\rdata", 4),
            (": ping\n\ndata: d\n", 8),
        ] {
            let mut whole = EventLength::default();
            let mut cut = EventLength::default();
            let of_pieces = stream.as_bytes().iter().map(|byte| cut.after(&[*byte])).last();
            assert_eq!((whole.after(stream.as_bytes()), of_pieces), (expected, Some(expected)), "{stream:?}");
        }
    }
}
