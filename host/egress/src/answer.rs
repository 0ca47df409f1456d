//! Reads answers of peers, up to a limit in bytes. The answers of models, upstream agents and receivers of
//! notifications are read here, and also Agent Cards and key sets.

use std::collections::VecDeque;
use std::future::Future;

use bytes::Bytes;

use crate::events::{Decoder, Lines, StreamEvent};

/// A body that arrives in pieces.
pub trait Body: Send {
    /// The error of a body that breaks off.
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

/// Why an answer was not read to its end.
#[derive(Debug, thiserror::Error)]
pub enum ReadError<E> {
    /// The answer is longer than allowed. Reading stopped.
    #[error("the {part} is longer than {limit} bytes")]
    TooLong {
        /// What is too long: `answer`, `event` or `line`.
        part: &'static str,
        /// The limit, in bytes.
        limit: usize,
    },
    /// The connection broke off.
    #[error("the answer broke off")]
    Broken(#[source] E),
}

impl<E> ReadError<E> {
    /// Converts the cause of `Broken`.
    pub fn map_broken<F>(self, map: impl FnOnce(E) -> F) -> ReadError<F> {
        match self {
            Self::TooLong { part, limit } => ReadError::TooLong { part, limit },
            Self::Broken(error) => ReadError::Broken(map(error)),
        }
    }
}

/// Reads a whole body of at most `limit` bytes. The declared length is ignored: bytes are counted as they arrive,
/// before they are stored.
///
/// # Errors
/// The body is longer than `limit`, or breaks off.
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

/// Reads the beginning of a body, at most `limit` bytes, for example to quote it in an error. If the body breaks off,
/// returns the bytes that arrived before.
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

/// Limits for reading a stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamLimits {
    /// Maximum size of one event or line, in bytes.
    pub event: usize,
    /// Maximum size of the whole stream, in bytes. [`usize::MAX`] means no limit, for callers that end the stream
    /// themselves.
    pub total: usize,
}

/// Reads the events of an answer one by one. The cost is proportional to the received bytes, regardless of how they
/// are split into pieces.
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
    /// Reads server-sent events.
    pub fn new(body: B, limits: StreamLimits) -> Self {
        Self::of(body, Format::Sse(Decoder::default()), limits)
    }

    /// Reads lines. Empty lines are skipped.
    pub fn lines(body: B, limits: StreamLimits) -> Self {
        Self::of(body, Format::Lines(Lines::default()), limits)
    }

    fn of(body: B, format: Format, limits: StreamLimits) -> Self {
        Self { body, format, limits, read: 0, complete: VecDeque::new() }
    }

    /// Returns the data of the next event; `None` at the end.
    ///
    /// # Errors
    /// The event or the whole stream is longer than allowed, or the answer breaks off. No further call succeeds.
    pub async fn next(&mut self) -> Result<Option<String>, ReadError<B::Error>> {
        Ok(self.next_event().await?.map(|event| event.data))
    }

    /// The next event with its name; `None` at the end.
    ///
    /// # Errors
    /// The event or the whole stream is longer than allowed, or the answer breaks off. No further call succeeds.
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
            // Pending bytes count too, because the end of the event may never arrive.
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

    /// Returns the incomplete event at the end of the stream. An event without its final blank line is dropped. A line
    /// without its line break is returned.
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
