//! Answers of the bindings that are JSON over HTTP: one body, or a stream of events.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::{StreamExt, stream};
use http::StatusCode;

use super::unread::{Form, Text, Unread};
use super::wire::Answers;
use crate::ClientError;
use crate::http::{Http, Response};
use crate::sse::Decoder;

/// The one answer to a call.
pub(super) async fn single(http: &Http, response: Response, form: Form) -> Result<Unread, ClientError> {
    let status = response.status();
    let url = response.url().into();
    let text = http.text(response).await?;
    Ok(Unread::Text(Text::new(url, status, text, form, &mut false)))
}

/// The answers of an event stream.
pub(super) fn events(http: &Http, response: Response, form: Form) -> Answers {
    let url = response.url().into();
    let status = response.status();
    let max_bytes = http.max_bytes;
    let decoder = Decoder::default();
    let events =
        Events { url, status, max_bytes, form, response, decoder, complete: VecDeque::new(), is_repair_told: false };
    stream::try_unfold(events, Events::step).boxed()
}

struct Events {
    url: Arc<str>,
    status: StatusCode,
    max_bytes: usize,
    form: Form,
    response: Response,
    decoder: Decoder,
    complete: VecDeque<String>,
    /// True once the log has said that events had to be repaired.
    is_repair_told: bool,
}

impl Events {
    /// `None` when the stream has ended.
    async fn step(mut self) -> Result<Option<(Unread, Self)>, ClientError> {
        loop {
            if let Some(text) = self.complete.pop_front() {
                let url = Arc::clone(&self.url);
                let text = Text::new(url, self.status, text, self.form, &mut self.is_repair_told);
                return Ok(Some((Unread::Text(text), self)));
            }
            let chunk = self.response.chunk().await?;
            let Some(chunk) = chunk else { return Ok(None) };
            self.decoder.push(&chunk, &mut self.complete);
            let longest = self.complete.iter().map(String::len).max().unwrap_or_default();
            // Pending bytes count too: the blank line that ends an event may never come.
            if longest.max(self.decoder.pending()) > self.max_bytes {
                return Err(ClientError::TooLarge { url: self.url.to_string(), max_bytes: self.max_bytes });
            }
        }
    }
}
