//! Request bodies: their limits on size and time, and the counting of their bytes per caller.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use annex_protocol::A2aError;
use axum::http::StatusCode;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

use crate::access_log;
use crate::connections::budget::Holding;
use crate::connections::caller::Caller;

/// The reasons why a body is not read to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the body took longer than {} seconds", .0.as_secs())]
    Late(Duration),
    #[error(transparent)]
    NoRoom(A2aError),
    #[error("the body broke off")]
    Broken,
    #[error("the body is larger than {0} bytes, the most that is read here")]
    TooLarge(usize),
}

impl BodyError {
    /// The HTTP status and the error for the client. Proxies on the way see only the status.
    pub(crate) fn told(self) -> (StatusCode, A2aError) {
        // Proxies read the status. A2A clients read the error in the body.
        let (status, reason) = match self {
            Self::Late(_) => (StatusCode::REQUEST_TIMEOUT, "late"),
            Self::NoRoom(error) => return (StatusCode::SERVICE_UNAVAILABLE, error),
            Self::Broken => (StatusCode::BAD_REQUEST, "broken_body"),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
        };
        access_log::refused(reason);
        (status, A2aError::InvalidRequest { reason: self.to_string() })
    }
}

/// A request body with a time limit. While the server waits for more bytes, the received bytes count against the
/// caller's budget. A body that arrives in one piece is never counted.
pub(crate) struct RequestBody<B> {
    body: B,
    caller: Caller,
    timeout: Duration,
    /// The number of bytes that were read.
    read: usize,
    /// The deadline and the counted bytes. `None` until the server has to wait for bytes of the body.
    wait: Option<Box<Wait>>,
}

struct Wait {
    deadline: Pin<Box<Sleep>>,
    holding: Holding,
    /// The bytes of the body that the budget counts so far.
    counted: usize,
}

impl<B: HttpBody<Data = Bytes> + Unpin> RequestBody<B> {
    pub(crate) fn new(caller: Caller, body: B, timeout: Duration) -> Self {
        Self { body, caller, timeout, read: 0, wait: None }
    }

    /// Reads the whole body.
    ///
    /// # Errors
    /// [`BodyError::TooLarge`] if the body has more than `max` bytes. Another [`BodyError`] if the body breaks off,
    /// takes too long, or finds no room in the budget.
    pub(crate) async fn whole(&mut self, max: usize) -> Result<Bytes, BodyError> {
        // A declared length above the limit is refused before the body is read.
        if self.body.size_hint().lower() > max as u64 {
            return Err(BodyError::TooLarge(max));
        }
        let mut first = Bytes::new();
        // Chunks are copied into one buffer, because thousands of small chunks take more memory than their bytes.
        let mut rest = BytesMut::new();
        while let Some(frame) = self.frame().await {
            // Trailers mean nothing to a binding that reads whole bodies.
            let Ok(data) = frame?.into_data() else { continue };
            // A body need not declare its length, so the received bytes are checked too.
            if self.read > max {
                return Err(BodyError::TooLarge(max));
            }
            if first.is_empty() {
                first = data;
            } else {
                if rest.is_empty() {
                    rest.extend_from_slice(&first);
                }
                rest.extend_from_slice(&data);
            }
        }
        Ok(if rest.is_empty() { first } else { rest.freeze() })
    }

    /// Returns the caller. From now on, the body's bytes no longer count against the caller's budget.
    pub(crate) fn into_caller(self) -> Caller {
        self.caller
    }

    /// Must be called whenever the server has to wait for bytes of the body. Starts or checks the deadline, and counts
    /// the received bytes.
    ///
    /// # Errors
    /// When the deadline has passed, or when the budget has no room.
    fn wait(&mut self, context: &mut Context<'_>) -> Result<(), BodyError> {
        let caller = &self.caller;
        let timeout = self.timeout;
        // The deadline starts with the first wait. A client that sends a byte now and then does not extend it.
        let wait = self.wait.get_or_insert_with(|| {
            let deadline = Box::pin(sleep(timeout));
            Box::new(Wait { deadline, holding: caller.begin_reading(), counted: 0 })
        });
        if wait.deadline.as_mut().poll(context).is_ready() {
            return Err(BodyError::Late(timeout));
        }
        if self.read > wait.counted {
            wait.holding.grow(self.read - wait.counted).map_err(BodyError::NoRoom)?;
            wait.counted = self.read;
        }
        if wait.holding.poll_given_up(context) {
            return Err(BodyError::NoRoom(wait.holding.error()));
        }
        Ok(())
    }
}

impl<B: HttpBody<Data = Bytes> + Unpin> HttpBody for RequestBody<B> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                self.read = self.read.saturating_add(bytes);
                annex_telemetry::with(|request| request.add_received(bytes));
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(_))) => Poll::Ready(Some(Err(BodyError::Broken))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => match self.wait(context) {
                Ok(()) => Poll::Pending,
                Err(error) => Poll::Ready(Some(Err(error))),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
