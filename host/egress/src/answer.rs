//! Reads what a peer answers, and never more of it than the reader says. This is the one reader for models, upstream agents,
//! cards, key sets and receivers of notifications.

use std::collections::VecDeque;
use std::future::Future;

use bytes::Bytes;

use crate::events::{Decoder, Lines, StreamEvent};

/// A body that comes piece by piece.
pub trait Body: Send {
    /// The reason that no more of it comes.
    type Error;

    /// The next piece; `None` at the end.
    fn next(&mut self) -> impl Future<Output = Result<Option<Bytes>, Self::Error>> + Send;
}

impl Body for reqwest::Response {
    type Error = reqwest::Error;

    async fn next(&mut self) -> Result<Option<Bytes>, Self::Error> {
        self.chunk().await
    }
}

/// The reason that an answer was not read to its end.
#[derive(Debug, thiserror::Error)]
pub enum ReadError<E> {
    /// It is longer than allowed. Nothing more of it is read.
    #[error("the {part} is longer than {limit} bytes")]
    TooLong {
        /// The part that is too long: `answer`, `event` or `line`.
        part: &'static str,
        /// The most bytes that it may have.
        limit: usize,
    },
    /// The connection broke off.
    #[error("the answer broke off")]
    Broken(#[source] E),
}

impl<E> ReadError<E> {
    /// The same with another cause.
    pub fn map_broken<F>(self, map: impl FnOnce(E) -> F) -> ReadError<F> {
        match self {
            Self::TooLong { part, limit } => ReadError::TooLong { part, limit },
            Self::Broken(error) => ReadError::Broken(map(error)),
        }
    }
}

/// The whole of a body that has at most `limit` bytes. The length that the peer declares is not believed: bytes are counted
/// as they come, before they are kept.
///
/// # Errors
/// The body is longer, or breaks off.
pub async fn whole<B: Body>(body: &mut B, limit: usize) -> Result<Vec<u8>, ReadError<B::Error>> {
    let mut read = Vec::new();
    while let Some(piece) = body.next().await.map_err(ReadError::Broken)? {
        if read.len() + piece.len() > limit {
            return Err(ReadError::TooLong { part: "answer", limit });
        }
        read.extend_from_slice(&piece);
    }
    Ok(read)
}

/// The beginning of a body: at most `limit` bytes, for the text of an error. A body that breaks off has the beginning that
/// came.
pub async fn beginning<B: Body>(body: &mut B, limit: usize) -> Vec<u8> {
    let mut read = Vec::new();
    while let Ok(Some(piece)) = body.next().await {
        let room = limit - read.len();
        read.extend_from_slice(piece.get(..room).unwrap_or(&piece));
        if read.len() >= limit {
            break;
        }
    }
    read
}

/// The most that is read of an answer that is a stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamLimits {
    /// Bytes of one event or line.
    pub event: usize,
    /// Bytes of all of it. [`usize::MAX`] where somebody else ends it.
    pub total: usize,
}

/// The events of an answer, one after the other. What it costs grows with the bytes that came, however they are cut into
/// pieces.
pub struct Events<B> {
    body: B,
    format: Format,
    limits: StreamLimits,
    read: usize,
    complete: VecDeque<StreamEvent>,
}

enum Format {
    Sse(Decoder),
    Lines(Lines),
}

impl<B: Body> Events<B> {
    /// The events of an event stream.
    pub fn new(body: B, limits: StreamLimits) -> Self {
        Self::of(body, Format::Sse(Decoder::default()), limits)
    }

    /// The lines of an answer, without those that are empty.
    pub fn lines(body: B, limits: StreamLimits) -> Self {
        Self::of(body, Format::Lines(Lines::default()), limits)
    }

    fn of(body: B, format: Format, limits: StreamLimits) -> Self {
        Self { body, format, limits, read: 0, complete: VecDeque::new() }
    }

    /// The data of the next event; `None` at the end.
    ///
    /// # Errors
    /// As [`next_event`](Self::next_event).
    pub async fn next(&mut self) -> Result<Option<String>, ReadError<B::Error>> {
        Ok(self.next_event().await?.map(|event| event.data))
    }

    /// The next event with its name; `None` at the end.
    ///
    /// # Errors
    /// An event or all of them are longer than allowed, or the answer breaks off. Nothing can be read after an error.
    pub async fn next_event(&mut self) -> Result<Option<StreamEvent>, ReadError<B::Error>> {
        loop {
            if let Some(event) = self.complete.pop_front() {
                return Ok(Some(event));
            }
            let Some(piece) = self.body.next().await.map_err(ReadError::Broken)? else {
                return Ok(self.format.end());
            };
            self.read = self.read.saturating_add(piece.len());
            if self.read > self.limits.total {
                return Err(ReadError::TooLong { part: "answer", limit: self.limits.total });
            }
            self.format.push(&piece, &mut self.complete);
            let longest =
                self.complete.iter().map(|event| event.name.len() + event.data.len()).max().unwrap_or_default();
            // Pending bytes count too: the end of the event may never come.
            if longest.max(self.format.pending()) > self.limits.event {
                return Err(ReadError::TooLong { part: self.format.part(), limit: self.limits.event });
            }
        }
    }
}

impl Format {
    fn push(&mut self, bytes: &[u8], complete: &mut VecDeque<StreamEvent>) {
        match self {
            Self::Sse(decoder) => decoder.push(bytes, complete),
            Self::Lines(lines) => lines.push(bytes, complete),
        }
    }

    fn pending(&self) -> usize {
        match self {
            Self::Sse(decoder) => decoder.pending(),
            Self::Lines(lines) => lines.pending(),
        }
    }

    /// What is left at the end: an event without its blank line is dropped, a line without its line break is not.
    fn end(&mut self) -> Option<StreamEvent> {
        match self {
            Self::Sse(_) => None,
            Self::Lines(lines) => lines.end(),
        }
    }

    fn part(&self) -> &'static str {
        match self {
            Self::Sse(_) => "event",
            Self::Lines(_) => "line",
        }
    }
}

#[cfg(test)]
mod tests;
