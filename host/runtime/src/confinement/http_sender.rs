//! Sends an extension's HTTP requests, if the extension's grant allows them.
//!
//! The request is read completely, checked against the rules of the grant, and sent by a client that only connects to
//! screened addresses and follows no redirects. A redirect is returned to the guest. If the guest follows the redirect,
//! it sends another request, which is checked like the first one.

use std::sync::Arc;
use std::time::Duration;

use annex_egress::{Resolver, Screen, ScreenConfig, UrlRefusal};
use annex_telemetry::traces::Span;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use reqwest::Client;
use tokio::time::timeout;
use url::Url;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody};

use crate::confinement::grants::HttpGrant;
use crate::load::source::Source;
use crate::overrides::{HttpListener, ServiceOverrides, Unreachable};

/// Maximum size of the header fields of a request or a response, in bytes of memory.
pub(crate) const FIELD_BYTES: usize = 32 << 10;

/// Sends the requests of one extension.
pub(crate) struct Sender {
    grant: HttpGrant,
    screen: Screen,
    client: Client,
}

impl Sender {
    /// Creates the HTTP client.
    ///
    /// # Errors
    /// The client cannot be created.
    pub(crate) fn new(grant: HttpGrant, resolver: Arc<dyn Resolver>) -> Result<Self, Source> {
        let config = ScreenConfig { allow: grant.allow_private.clone(), https_only: false };
        let screen = Screen::with_resolver(config, resolver);
        // One request per connection: a second request would go to the address that the name had when the first was
        // sent.
        let client = annex_egress::client_builder(Vec::new()).pool_max_idle_per_host(0).timeout(grant.timeout);
        // Encodings that the guest does not request are not offered to the peer, regardless of enabled features.
        let client = client.no_gzip().no_brotli().no_zstd().no_deflate();
        Ok(Self { client: screen.guard(client).build()?, grant, screen })
    }

    /// Sends one request with a body of at most `max_body` bytes, as the work of a span. Uses the turn's own client, if the
    /// turn has one.
    pub(crate) async fn send(
        &self,
        (request, span): (Request<WasiBody>, &Span),
        options: Option<RequestOptions>,
        max_body: usize,
        overrides: &ServiceOverrides,
    ) -> Result<Response<WasiBody>, Error> {
        // The guest may set a longer timeout than its grant, without effect: the client's own timeout applies too.
        let first_byte = options.and_then(|options| options.first_byte_timeout).unwrap_or(self.grant.timeout);
        let (head, body) = request.into_parts();
        // The rules are compared with the URL as it will be requested: parsing resolves `..` in the path.
        let url = self.screen.parse(&head.uri.to_string()).map_err(|refused| denial(&refused))?;
        if !self.grant.covers(&head.method, &url) {
            return Err(Error::HttpRequestDenied);
        }
        // Read after checking the rules, so that a refused request takes no memory. Read completely, so that
        // streaming bodies need no second implementation.
        let body =
            timeout(self.grant.timeout, read(body, max_body)).await.map_err(|_| Error::HttpResponseTimeout)??;
        let mut request = Request::new(body.clone());
        *request.method_mut() = head.method;
        *request.uri_mut() = url.as_str().parse().map_err(|_| Error::HttpRequestUriInvalid)?;
        *request.headers_mut() = own_fields(head.headers);
        // The fields of the trace replace those of the guest.
        span.insert_into(request.headers_mut());
        let line = overrides.http_listener.is_some().then(|| request_line(request.method(), url.as_str()));
        let answer = match &overrides.http {
            Some(client) => client
                .send(request)
                .await
                .map(reqwest::Response::from)
                .map_err(|Unreachable| Error::DestinationUnavailable),
            None => self.reach(request, url, first_byte).await,
        };
        let answer = answer.and_then(|answer| self.bounded(answer));
        match (&overrides.http_listener, line) {
            (Some(listener), Some(line)) => overheard(Arc::clone(listener), line, body, answer),
            _ => answer,
        }
    }

    /// Sends a request to a URL that the grant allows.
    async fn reach(&self, request: Request<Bytes>, url: Url, first_byte: Duration) -> Result<reqwest::Response, Error> {
        let (head, body) = request.into_parts();
        let request = self.client.request(head.method, url).headers(head.headers).body(body);
        let answer = timeout(first_byte, request.send()).await.map_err(|_| Error::HttpResponseTimeout)?;
        answer.map_err(|error| failure(&error))
    }

    /// Limits a response: an announced length above the limit is refused at once, and a body is read up to the limit.
    fn bounded(&self, response: reqwest::Response) -> Result<Response<WasiBody>, Error> {
        let limit = self.grant.max_response_bytes;
        if response.content_length().is_some_and(|length| usize::try_from(length).unwrap_or(usize::MAX) > limit) {
            return Err(Error::HttpResponseBodySize(u64::try_from(limit).ok()));
        }
        let (head, body) = Response::<reqwest::Body>::from(response).into_parts();
        let fields: usize = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        if fields > FIELD_BYTES {
            return Err(Error::HttpResponseHeaderSectionSize(u32::try_from(fields).ok()));
        }
        let body = Limited::new(body, limit).map_err(move |error| match error.downcast_ref::<reqwest::Error>() {
            _ if error.is::<LengthLimitError>() => Error::HttpResponseBodySize(u64::try_from(limit).ok()),
            Some(error) if error.is_timeout() => Error::HttpResponseTimeout,
            _ => Error::HttpResponseIncomplete,
        });
        Ok(Response::from_parts(head, body.boxed_unsync()))
    }
}

/// Method and URL of a request.
pub(crate) fn request_line(method: &Method, url: &str) -> String {
    format!("{method} {url}")
}

/// Passes the answer on to the guest as it arrives, and makes a copy. After the guest has read or dropped the answer,
/// the listener gets the copy.
fn overheard(
    listener: Arc<dyn HttpListener>,
    line: String,
    sent: Bytes,
    answer: Result<Response<WasiBody>, Error>,
) -> Result<Response<WasiBody>, Error> {
    let (head, body) = answer.inspect_err(|_| listener.exchanged(&line, &sent, None))?.into_parts();
    let noted = Response::from_parts(head.clone(), ());
    let mut heard = ObservedAnswer { listener, line, sent, head: noted, body: Vec::new() };
    let body = body.map_frame(move |frame| {
        heard.add(frame.data_ref());
        frame
    });
    Ok(Response::from_parts(head, body.boxed_unsync()))
}

/// Maximum size of the copy of an answer's body for a listener, in bytes.
const MAX_HEARD: usize = 1 << 20;

/// An answer while the guest reads it.
struct ObservedAnswer {
    listener: Arc<dyn HttpListener>,
    line: String,
    sent: Bytes,
    head: Response<()>,
    body: Vec<u8>,
}

impl ObservedAnswer {
    fn add(&mut self, data: Option<&Bytes>) {
        let room = MAX_HEARD.saturating_sub(self.body.len());
        let data = data.map(Bytes::as_ref).unwrap_or_default();
        self.body.extend_from_slice(data.get(..room.min(data.len())).unwrap_or_default());
    }
}

impl Drop for ObservedAnswer {
    fn drop(&mut self) {
        let body = Bytes::from(std::mem::take(&mut self.body));
        let answer = std::mem::take(&mut self.head).map(|()| body);
        self.listener.exchanged(&self.line, &self.sent, Some(&answer));
    }
}

/// Reads the whole body. Trailers are dropped.
async fn read(body: WasiBody, limit: usize) -> Result<Bytes, Error> {
    let body = Limited::new(body, limit).collect().await;
    let too_large = |error: Source| match error.downcast::<Error>() {
        Ok(error) => *error,
        Err(_) => Error::HttpRequestBodySize(u64::try_from(limit).ok()),
    };
    Ok(body.map_err(too_large)?.to_bytes())
}

/// The guest's header fields without `host` and `content-length`, which the client derives from the request.
fn own_fields(mut fields: HeaderMap) -> HeaderMap {
    fields.remove(HOST);
    fields.remove(CONTENT_LENGTH);
    fields
}

fn denial(refused: &UrlRefusal) -> Error {
    match refused {
        UrlRefusal::TooLong { .. } => Error::HttpRequestUriTooLong,
        UrlRefusal::Malformed(_)
        | UrlRefusal::Scheme
        | UrlRefusal::NotHttps
        | UrlRefusal::UserInfo
        | UrlRefusal::NoHost => Error::HttpRequestUriInvalid,
        UrlRefusal::Port { .. } => Error::HttpRequestDenied,
        UrlRefusal::Address { .. } | UrlRefusal::PrivateName { .. } => Error::DestinationIpProhibited,
        UrlRefusal::UnknownName { .. } => Error::DestinationNotFound,
    }
}

/// Converts an error of the HTTP client. If the screen refused the destination, its refusal is one of the error's
/// causes.
fn failure(error: &reqwest::Error) -> Error {
    let mut causes = std::iter::successors(std::error::Error::source(error), |cause| (*cause).source());
    match causes.find_map(|cause| cause.downcast_ref::<UrlRefusal>()) {
        Some(refused) => denial(refused),
        None if error.is_timeout() => Error::HttpResponseTimeout,
        None if error.is_connect() => Error::DestinationUnavailable,
        None => Error::HttpProtocolError,
    }
}
