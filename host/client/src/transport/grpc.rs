//! The gRPC binding (specification section 10). It uses the same HTTP client as the JSON bindings.

use std::error::Error;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use annex_grpc::CallError;
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use reqwest::Url;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;

use super::raw_answer::RawAnswer;
use super::wire::{Answers, Transport, WireCall};
use crate::http::{Http, failed};
use crate::{Answer, ClientError, Operation, RemoteError, StreamRoom};

const BINDING: &str = "GRPC";

pub(super) struct Grpc {
    url: Arc<str>,
    origin: Uri,
    sender: Sender,
    max_bytes: usize,
}

impl Grpc {
    pub(super) fn new(http: &Http, url: &Url) -> Result<Self, ClientError> {
        let unusable = |_| ClientError::InterfaceUrl { interface: url.to_string() };
        let origin = url.as_str().parse().map_err(unusable)?;
        let sender = Sender { client: http.http2.clone(), url: url.to_string(), room: None };
        Ok(Self { url: url.as_str().into(), origin, sender, max_bytes: http.max_bytes })
    }

    /// A client whose received bytes count against `room`.
    fn client(&self, room: Option<StreamRoom>) -> annex_grpc::Client<Sender> {
        annex_grpc::Client::new(Sender { room, ..self.sender.clone() }, self.origin.clone(), self.max_bytes)
    }
}

#[async_trait]
impl Transport for Grpc {
    async fn call(&self, call: WireCall) -> Result<Answer<RawAnswer>, ClientError> {
        let params = call.members(BINDING)?;
        let WireCall { operation, headers, .. } = call;
        let client = self.client(None);
        let called = match &operation {
            Operation::Extension(method) => client.call_method(&method.name, &params, headers).await,
            operation => client.call(operation.name(), &params, headers).await,
        };
        let reply = called.map_err(|error| told(&self.url, self.max_bytes, error))?;
        Ok(Answer { value: RawAnswer::Result { url: Arc::clone(&self.url), json: reply.value }, active: reply.active })
    }

    async fn open(&self, call: WireCall) -> Result<Answer<Answers>, ClientError> {
        let params = call.members(BINDING)?;
        let WireCall { operation, headers, room, .. } = call;
        let client = self.client(room);
        let opened = match &operation {
            Operation::Extension(method) => client.open_method(&method.name, &params, headers).await,
            operation => client.open(operation.name(), &params, headers).await,
        };
        let reply = opened.map_err(|error| told(&self.url, self.max_bytes, error))?;
        let url = Arc::clone(&self.url);
        let max_bytes = self.max_bytes;
        let events = reply.value.map(move |event| match event {
            Ok(json) => Ok(RawAnswer::Result { url: Arc::clone(&url), json }),
            Err(error) => Err(told(&url, max_bytes, error)),
        });
        Ok(Answer { value: events.boxed(), active: reply.active })
    }
}

fn told(url: &str, max_bytes: usize, error: CallError) -> ClientError {
    let url = url.to_owned();
    match error {
        CallError::Request(problem) => ClientError::NotCarried { binding: BINDING, problem },
        CallError::Answer(problem) => ClientError::protocol(&url, "a protobuf message", problem),
        CallError::TooLarge => ClientError::TooLarge { url, max_bytes },
        CallError::Agent { status, message, details } => {
            RemoteError::without_code(Some(status.to_owned()), message, details).into()
        }
        CallError::Transport(status) => not_sent(url, status),
    }
}

fn not_sent(url: String, status: Status) -> ClientError {
    if let Some(error) = status.source().and_then(|source| source.downcast_ref::<NotSent>()).and_then(NotSent::take) {
        return error;
    }
    // Errors after the head of the answer come from the body, which is reqwest's own.
    let cause = status.source().and_then(|source| source.downcast_ref::<reqwest::Error>());
    if cause.is_some_and(reqwest::Error::is_timeout) {
        return ClientError::TimedOut { url };
    }
    ClientError::Broken { url, source: status.into() }
}

/// Carries an error of this client through tonic. It holds a mutex because tonic returns its source error by reference
/// only.
#[derive(Debug, thiserror::Error)]
#[error("the request was not sent")]
pub(crate) struct NotSent(Mutex<Option<ClientError>>);

impl NotSent {
    fn take(&self) -> Option<ClientError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl From<ClientError> for NotSent {
    fn from(error: ClientError) -> Self {
        Self(Mutex::new(Some(error)))
    }
}

/// The HTTP client in tonic's form. It reads the body of a request completely before it sends the request, because a
/// request of A2A is only one message.
#[derive(Clone)]
pub(crate) struct Sender {
    client: reqwest::Client,
    url: String,
    room: Option<StreamRoom>,
}

type AnyError = Box<dyn Error + Send + Sync>;

/// The body of a response that counts its bytes on arrival.
type CountedBody = UnsyncBoxBody<Bytes, AnyError>;

impl Service<Request<Body>> for Sender {
    type Response = Response<CountedBody>;
    type Error = NotSent;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, NotSent>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), NotSent>> {
        // reqwest has connections opened and shared by itself, so a request never waits here.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { client, url, room } = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let broken = |source: Status| ClientError::Broken { url: url.clone(), source: source.into() };
            let body = body.collect().await.map_err(broken)?.to_bytes();
            let request = client.request(head.method, head.uri.to_string()).headers(head.headers).body(body);
            let response = request.send().await.map_err(|error| failed(&url, error))?;
            Ok(Response::<reqwest::Body>::from(response).map(|body| counted(body, url, room)))
        })
    }
}

fn counted(body: reqwest::Body, url: String, room: Option<StreamRoom>) -> CountedBody {
    let frames = BodyStream::new(body).map(move |frame| {
        let frame = frame.map_err(AnyError::from)?;
        if let (Some(room), Some(bytes)) = (&room, frame.data_ref()) {
            let taken = room.take(bytes.len());
            taken.map_err(|full| NotSent::from(ClientError::no_room(&full, &url)))?;
        }
        Ok::<_, AnyError>(frame)
    });
    StreamBody::new(frames).boxed_unsync()
}
