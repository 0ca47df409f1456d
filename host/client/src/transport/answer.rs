//! Answers of the two bindings that are JSON over HTTP: one body, or a stream of events.

use std::collections::VecDeque;

use annex_protocol::Json;
use futures::{StreamExt, stream};
use reqwest::Response;

use super::wire::JsonStream;
use crate::error::quoted;
use crate::http::{Http, failed};
use crate::sse::Decoder;
use crate::{ClientError, RemoteError};

/// The reason that a text is no result.
pub(super) enum Unreadable {
    /// It is the agent's error.
    Agent(RemoteError),
    /// It is not what the binding has.
    Foreign(Box<dyn std::error::Error + Send + Sync>),
}

/// Reads the result out of a body or of an event.
pub(super) type Reader = fn(&str) -> Result<Json, Unreadable>;

/// The one result of an answer.
pub(super) async fn single(http: &Http, response: Response, read: Reader) -> Result<Json, ClientError> {
    let status = response.status();
    let url = response.url().to_string();
    let body = http.text(response).await?;
    match read(&body) {
        // The agent's own error says more than the HTTP status that it comes with.
        Err(Unreadable::Agent(error)) => Err(error.into()),
        _ if !status.is_success() => Err(ClientError::Status { url, status, body: quoted(&body) }),
        Ok(json) => Ok(json),
        Err(Unreadable::Foreign(source)) => Err(ClientError::protocol(&url, &body, source)),
    }
}

/// The results of an event stream.
pub(super) fn events(http: &Http, response: Response, read: Reader) -> JsonStream {
    let url = response.url().to_string();
    let max_bytes = http.max_bytes;
    let events = Events { url, max_bytes, read, response, decoder: Decoder::default(), complete: VecDeque::new() };
    stream::try_unfold(events, Events::step).boxed()
}

struct Events {
    url: String,
    max_bytes: usize,
    read: Reader,
    response: Response,
    decoder: Decoder,
    complete: VecDeque<String>,
}

impl Events {
    /// `None` when the stream has ended.
    async fn step(mut self) -> Result<Option<(Json, Self)>, ClientError> {
        loop {
            if let Some(event) = self.complete.pop_front() {
                return Ok(Some((self.result(&event)?, self)));
            }
            let chunk = self.response.chunk().await.map_err(|error| failed(&self.url, error))?;
            let Some(chunk) = chunk else { return Ok(None) };
            let complete = self.decoder.push(&chunk);
            let longest = complete.iter().map(String::len).max().unwrap_or_default();
            self.complete.extend(complete);
            // Pending bytes count too: the blank line that ends an event may never come.
            if longest.max(self.decoder.pending()) > self.max_bytes {
                return Err(ClientError::TooLarge { url: self.url.clone(), max_bytes: self.max_bytes });
            }
        }
    }

    fn result(&self, event: &str) -> Result<Json, ClientError> {
        (self.read)(event).map_err(|unreadable| match unreadable {
            Unreadable::Agent(error) => error.into(),
            Unreadable::Foreign(source) => ClientError::protocol(&self.url, event, source),
        })
    }
}
