//! Sends the HTTP requests of an extension: those that the grant covers.
//!
//! The guest's request is read to its end, checked against the grant's rules and sent by a client that connects to
//! screened addresses only and follows no redirects. A redirect is an answer like any other: following it is another
//! request of the guest, which is checked again.

use std::sync::Arc;
use std::time::Duration;

use annex_egress::{Refused, Resolver, Screen, ScreenConfig};
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
use crate::outside::{HttpListener, Outside, Unreachable};

/// The most that the header fields of a request or a response may take in memory, in bytes.
pub(crate) const FIELD_BYTES: usize = 32 << 10;

/// Sends the requests of one extension.
pub(crate) struct Sender {
    grant: HttpGrant,
    screen: Screen,
    client: Client,
}

impl Sender {
    /// # Errors
    /// When the client cannot be set up.
    pub(crate) fn new(grant: HttpGrant, resolver: Arc<dyn Resolver>) -> Result<Self, Source> {
        // The whole process uses one provider; somebody else may have installed it already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = ScreenConfig { allow: grant.allow_private.clone(), https_only: false };
        let screen = Screen::with_resolver(config, resolver);
        // A connection serves one request: a second one would go where the name pointed to when the first was sent.
        let client = Client::builder().pool_max_idle_per_host(0).timeout(grant.timeout);
        // What the guest does not ask for is not offered to the peer, whichever features the process was built with.
        let client = client.no_gzip().no_brotli().no_zstd().no_deflate();
        Ok(Self { client: screen.guard(client).build()?, grant, screen })
    }

    /// Sends one request whose body has at most `max_body` bytes, by the client that the turn brings, if there is one.
    pub(crate) async fn send(
        &self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        max_body: usize,
        outside: &Outside,
    ) -> Result<Response<WasiBody>, Error> {
        // A guest can be more patient than its grant here, and gains nothing: the client's own timeout holds as well.
        let first_byte = options.and_then(|options| options.first_byte_timeout).unwrap_or(self.grant.timeout);
        let (head, body) = request.into_parts();
        // The rules of the grant are compared with the URL as it will be requested: parsing resolves `..` in its path.
        let url = self.screen.parse(&head.uri.to_string()).map_err(|refused| denial(&refused))?;
        if !self.grant.covers(&head.method, &url) {
            return Err(Error::HttpRequestDenied);
        }
        // After the rules, so that a request which is not sent takes no memory, and to its end, so that no second
        // sender is needed for bodies that stream.
        let body =
            timeout(self.grant.timeout, read(body, max_body)).await.map_err(|_| Error::HttpResponseTimeout)??;
        let mut request = Request::new(body.clone());
        *request.method_mut() = head.method;
        *request.uri_mut() = url.as_str().parse().map_err(|_| Error::HttpRequestUriInvalid)?;
        *request.headers_mut() = own_fields(head.headers);
        let line = outside.http_listener.is_some().then(|| request_line(request.method(), url.as_str()));
        let answer = match &outside.http {
            Some(client) => client
                .send(request)
                .await
                .map(reqwest::Response::from)
                .map_err(|Unreachable| Error::DestinationUnavailable),
            None => self.reach(request, url, first_byte).await,
        };
        let answer = answer.and_then(|answer| self.bounded(answer));
        match (&outside.http_listener, line) {
            (Some(listener), Some(line)) => overheard(Arc::clone(listener), line, body, answer),
            _ => answer,
        }
    }

    /// Sends the request to the URL, which the grant covers.
    async fn reach(&self, request: Request<Bytes>, url: Url, first_byte: Duration) -> Result<reqwest::Response, Error> {
        let (head, body) = request.into_parts();
        let request = self.client.request(head.method, url).headers(head.headers).body(body);
        let answer = timeout(first_byte, request.send()).await.map_err(|_| Error::HttpResponseTimeout)?;
        answer.map_err(|error| failure(&error))
    }

    /// A response that announces too large a body is refused at once; of any other no more than the limit is read.
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

/// The answer, of which a listener is told once the guest has read it or has let it go. The guest gets it as it comes.
fn overheard(
    listener: Arc<dyn HttpListener>,
    line: String,
    sent: Bytes,
    answer: Result<Response<WasiBody>, Error>,
) -> Result<Response<WasiBody>, Error> {
    let (head, body) = answer.inspect_err(|_| listener.exchanged(&line, &sent, None))?.into_parts();
    let noted = Response::from_parts(head.clone(), ());
    let mut heard = Heard { listener, line, sent, head: noted, body: Vec::new() };
    let body = body.map_frame(move |frame| {
        heard.add(frame.data_ref());
        frame
    });
    Ok(Response::from_parts(head, body.boxed_unsync()))
}

/// The bytes of an answer that are kept for a listener.
const MAX_HEARD: usize = 1 << 20;

/// An answer while the guest reads it.
struct Heard {
    listener: Arc<dyn HttpListener>,
    line: String,
    sent: Bytes,
    head: Response<()>,
    body: Vec<u8>,
}

impl Heard {
    fn add(&mut self, data: Option<&Bytes>) {
        let room = MAX_HEARD.saturating_sub(self.body.len());
        let data = data.map(Bytes::as_ref).unwrap_or_default();
        self.body.extend_from_slice(data.get(..room.min(data.len())).unwrap_or_default());
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        let body = Bytes::from(std::mem::take(&mut self.body));
        let answer = std::mem::take(&mut self.head).map(|()| body);
        self.listener.exchanged(&self.line, &self.sent, Some(&answer));
    }
}

/// The whole body; trailers are dropped.
async fn read(body: WasiBody, limit: usize) -> Result<Bytes, Error> {
    let body = Limited::new(body, limit).collect().await;
    let too_large = |error: Source| match error.downcast::<Error>() {
        Ok(error) => *error,
        Err(_) => Error::HttpRequestBodySize(u64::try_from(limit).ok()),
    };
    Ok(body.map_err(too_large)?.to_bytes())
}

/// The guest's fields without those that the client writes itself, from what is really sent.
fn own_fields(mut fields: HeaderMap) -> HeaderMap {
    fields.remove(HOST);
    fields.remove(CONTENT_LENGTH);
    fields
}

fn denial(refused: &Refused) -> Error {
    match refused {
        Refused::TooLong { .. } => Error::HttpRequestUriTooLong,
        Refused::Malformed(_) | Refused::Scheme | Refused::NotHttps | Refused::UserInfo | Refused::NoHost => {
            Error::HttpRequestUriInvalid
        }
        Refused::Port { .. } => Error::HttpRequestDenied,
        Refused::Address { .. } | Refused::PrivateName { .. } => Error::DestinationIpProhibited,
        Refused::UnknownName { .. } => Error::DestinationNotFound,
    }
}

/// The screen refuses from within the client, at the bottom of its error.
fn failure(error: &reqwest::Error) -> Error {
    let mut causes = std::iter::successors(std::error::Error::source(error), |cause| (*cause).source());
    match causes.find_map(|cause| cause.downcast_ref::<Refused>()) {
        Some(refused) => denial(refused),
        None if error.is_timeout() => Error::HttpResponseTimeout,
        None if error.is_connect() => Error::DestinationUnavailable,
        None => Error::HttpProtocolError,
    }
}
