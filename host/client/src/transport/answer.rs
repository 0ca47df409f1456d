//! Answers of the bindings that are JSON over HTTP: one body, or a stream of events.

use std::sync::Arc;
use std::time::SystemTime;

use annex_egress::{Events, StreamLimits, retry_after};
use futures::{StreamExt, stream};
use http::StatusCode;

use super::unread::{Form, Text, Unread};
use super::wire::Answers;
use crate::ClientError;
use crate::http::{Http, Response, unread};

/// The one answer to a call.
pub(super) async fn single(http: &Http, response: Response, form: Form) -> Result<Unread, ClientError> {
    let status = response.status();
    let url = response.url().into();
    let wait = retry_after(response.headers(), SystemTime::now());
    let text = http.text(response).await?;
    let unread = Unread::Text(Text::new(url, status, text, form, &mut false));
    unread.check_status(status, wait.map(|wait| wait.as_secs()))?;
    Ok(unread)
}

/// The answers of an event stream.
pub(super) fn events(http: &Http, response: Response, form: Form) -> Answers {
    let url = response.url().into();
    let status = response.status();
    // A stream lasts as long as its task: whoever reads it says when it is enough.
    let limits = StreamLimits { event: http.max_bytes, total: usize::MAX };
    let events = Events::new(response, limits);
    let answers = EventAnswers { url, status, form, events, is_repair_told: false };
    stream::try_unfold(answers, EventAnswers::step).boxed()
}

struct EventAnswers {
    url: Arc<str>,
    status: StatusCode,
    form: Form,
    events: Events<Response>,
    /// True once the log has said that events had to be repaired.
    is_repair_told: bool,
}

impl EventAnswers {
    /// `None` when the stream has ended.
    async fn step(mut self) -> Result<Option<(Unread, Self)>, ClientError> {
        let Some(event) = self.events.next().await.map_err(|error| unread(&self.url, error))? else { return Ok(None) };
        let url = Arc::clone(&self.url);
        let text = Text::new(url, self.status, event, self.form, &mut self.is_repair_told);
        Ok(Some((Unread::Text(text), self)))
    }
}
