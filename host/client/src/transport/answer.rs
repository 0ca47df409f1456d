//! Responses of the JSON bindings: one body, or a stream of events.

use std::sync::Arc;
use std::time::SystemTime;

use annex_egress::{Body, Events, StreamLimits, retry_after};
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::StatusCode;

use super::raw_answer::{Form, RawAnswer, Text};
use super::wire::Answers;
use crate::http::{Http, Response, unread};
use crate::{ClientError, StreamRoom};

/// Reads the only answer of a call.
pub(super) async fn single(http: &Http, response: Response, form: Form) -> Result<RawAnswer, ClientError> {
    let status = response.status();
    let url = response.url().into();
    let wait = retry_after(response.headers(), SystemTime::now());
    let text = http.text(response).await?;
    let unread = RawAnswer::Text(Text::new(url, status, text, form, &mut false));
    unread.check_status(status, wait.map(|wait| wait.as_secs()))?;
    Ok(unread)
}

/// The answers of an event stream. Their bytes count against `room`.
pub(super) fn events(http: &Http, response: Response, form: Form, room: Option<StreamRoom>) -> Answers {
    let url = response.url().into();
    let status = response.status();
    // A stream lasts as long as its task. Its total size is limited by the room, or by its reader.
    let limits = StreamLimits { event: http.max_bytes, total: usize::MAX };
    let events = Events::new(CountedBody { response, room }, limits);
    let answers = EventAnswers { url, status, form, events, is_repair_told: false };
    stream::try_unfold(answers, EventAnswers::step).boxed()
}

struct EventAnswers {
    url: Arc<str>,
    status: StatusCode,
    form: Form,
    events: Events<CountedBody>,
    /// True after a log line about repaired events.
    is_repair_told: bool,
}

/// A body that counts its bytes on arrival.
struct CountedBody {
    response: Response,
    room: Option<StreamRoom>,
}

impl Body for CountedBody {
    type Error = ClientError;

    async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        let piece = self.response.next().await?;
        if let (Some(room), Some(piece)) = (&self.room, &piece) {
            let taken = room.take(piece.len());
            taken.map_err(|full| ClientError::no_room(&full, self.response.url()))?;
        }
        Ok(piece)
    }
}

impl EventAnswers {
    /// Reads the next answer; `None` at the end of the stream.
    async fn step(mut self) -> Result<Option<(RawAnswer, Self)>, ClientError> {
        let Some(event) = self.events.next_event().await.map_err(|error| unread(&self.url, error))? else {
            return Ok(None);
        };
        let url = Arc::clone(&self.url);
        let text = Text::new(url, self.status, event.data, self.form, &mut self.is_repair_told);
        Ok(Some((RawAnswer::Text(text.named(&event.name)), self)))
    }
}
