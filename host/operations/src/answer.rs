//! The results of the operations. A binding encodes them for its clients.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;

use annex_conversation::{StoredTask, TaskSnapshot};
use annex_fairness::of_tenant;
use annex_protocol::{A2aError, ExtensionUri, Message, Task};

use futures::stream::{self, Stream, StreamExt};
use tokio_util::sync::CancellationToken;

use crate::fault;
use crate::tasks::list;
use crate::tasks::log::{LogReader, LoggedEvent};
use crate::tasks::long_work::LongWork;
use crate::tasks::shown::HiddenMetadata;

/// A result, and the extensions that were active for the request.
pub struct Answer<T> {
    pub value: T,
    pub active: Vec<ExtensionUri>,
}

impl<T> Answer<T> {
    /// Replaces the result by `form(result)` and keeps the active extensions.
    pub(crate) fn map<U>(self, form: impl FnOnce(T) -> U) -> Answer<U> {
        Answer { value: form(self.value), active: self.active }
    }
}

/// The result of SendMessage.
pub enum Sent {
    Message(Box<Message>),
    Task(ShownTask),
}

impl Sent {
    /// The JSON of a SendMessageResponse.
    pub fn json(&self) -> Result<String, A2aError> {
        let [head, value, tail] = &self.json_in_pieces()?;
        Ok([head.as_ref(), value, tail].concat())
    }

    /// The JSON of a SendMessageResponse in three pieces, to be written one after another. The second piece is the task
    /// or the message. If the task is already encoded, this piece borrows the text.
    pub fn json_in_pieces(&self) -> Result<[Cow<'_, str>; 3], A2aError> {
        let (head, value) = match self {
            Self::Message(message) => ("{\"message\":", Cow::Owned(encode(message)?)),
            Self::Task(task) => ("{\"task\":", task.json()?),
        };
        Ok([Cow::Borrowed(head), value, Cow::Borrowed("}")])
    }
}

/// The task in an answer to a client, encoded on demand.
pub struct ShownTask {
    form: Form,
    /// The permit for encoding a large task, held until the task is encoded. `None` for a small task.
    _long: Option<LongWork>,
}

enum Form {
    /// The whole task as the store has it.
    Stored(StoredTask),
    Snapshot(TaskSnapshot),
}

impl ShownTask {
    /// The stored task, with at most `history_length` messages of history and without the hidden metadata.
    pub(crate) async fn stored(
        stored: StoredTask,
        history_length: Option<i32>,
        hidden: &HiddenMetadata,
    ) -> Result<Self, A2aError> {
        let long = LongWork::begin(stored.bytes()).await;
        if history_length.is_none() && hidden.is_empty() {
            return Ok(Self { form: Form::Stored(stored), _long: long });
        }
        let task = stored.decode().map_err(fault::of_store)?;
        Ok(Self { form: shown(task, history_length, hidden), _long: long })
    }

    /// Like [`stored`](Self::stored), for a task in memory.
    pub(crate) async fn snapshot(snapshot: TaskSnapshot, history_length: Option<i32>, hidden: &HiddenMetadata) -> Self {
        let long = LongWork::begin(snapshot.size().bytes).await;
        Self { form: shown(snapshot, history_length, hidden), _long: long }
    }

    /// The task as JSON.
    pub fn json(&self) -> Result<Cow<'_, str>, A2aError> {
        match &self.form {
            Form::Stored(stored) => stored.json().map_err(fault::of_store),
            Form::Snapshot(task) => task.json().map_err(|error| fault::internal(&error)),
        }
    }

    pub fn into_task(self) -> Result<Task, A2aError> {
        match self.form {
            Form::Stored(stored) => stored.decode().map(TaskSnapshot::into_task).map_err(fault::of_store),
            Form::Snapshot(task) => Ok(task.into_task()),
        }
    }
}

fn shown(snapshot: TaskSnapshot, history_length: Option<i32>, hidden: &HiddenMetadata) -> Form {
    if history_length.is_none() && hidden.is_empty() {
        return Form::Snapshot(snapshot);
    }
    let mut task = snapshot.into_task();
    list::trim_history(&mut task, history_length);
    hidden.leave_out_of_task(&mut task);
    Form::Snapshot(task.into())
}

/// The events of a stream in order. Usually the first event is a task, or the message that is the only event. A reader
/// that resumes gets the events after the last event that it has received. An error is always the last item. It means
/// that the stream ended before the end of the task or the turn.
pub type EventStream = Pin<Box<dyn Stream<Item = Result<Arc<LoggedEvent>, A2aError>> + Send>>;

/// The event after which a stream ends. An error can end the stream earlier.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// The end of the turn: the task is finished or interrupted.
    TurnEnds,
    /// The end of the task.
    TaskEnds,
}

/// Returns a stream that yields `first` and then the events of `reader`. The stream ends after the event of `until`, or with an
/// error if the server closes its streams or the log breaks off.
pub(crate) fn events(
    first: Option<LoggedEvent>,
    reader: Option<LogReader>,
    (tenant, closing): (Arc<str>, CancellationToken),
    until: Until,
) -> EventStream {
    let rest = stream::unfold(reader, move |reader| {
        let (tenant, closing) = (Arc::clone(&tenant), closing.clone());
        async move {
            let mut reader = reader?;
            let logged = tokio::select! {
                // `biased`: logged events are sent before the server closes the stream.
                biased;
                logged = of_tenant(tenant, reader.next()) => logged,
                () = closing.cancelled() => {
                    let reason = "the server is shutting down and the task goes on; subscribe to it again".to_owned();
                    return Some((Err(A2aError::Overloaded { reason }), None));
                }
            };
            let Some(logged) = logged else { return reader.broken().map(|error| (Err(error), None)) };
            let over = until == Until::TurnEnds && logged.interrupts();
            Some((Ok(logged), Some(reader).filter(|_| !over)))
        }
    });
    Box::pin(stream::iter(first.map(|first| Ok(Arc::new(first)))).chain(rest))
}

/// Encodes a value as JSON.
pub fn encode<T: serde::Serialize>(value: &T) -> Result<String, A2aError> {
    serde_json::to_string(value).map_err(|error| fault::internal(&error))
}
