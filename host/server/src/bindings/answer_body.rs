//! Bodies of answers. The part of a long answer that the client has not read yet counts against the memory share of the
//! caller.
//!
//! hyper asks for the next chunk only when its buffer has room. The part that a client does not read therefore stays in
//! this body, and can be dropped when other callers need the memory.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use annex_protocol::A2aError;
use axum::Error;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::FutureExt;
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use crate::connections::budget::Holding;
use crate::connections::caller::{Caller, SMALL_ANSWER};
use crate::connections::streams::StreamPlace;

/// The maximum size of a chunk that is handed to hyper, in bytes. A chunk that hyper has taken no longer counts against
/// the caller's share.
const CHUNK: usize = 16 << 10;

/// A body whose long pieces count against the memory share of its caller.
pub(crate) struct AnswerBody {
    caller: Caller,
    body: Body,
    /// A frame that was already read: a short piece of data, or trailers.
    next: Option<Frame<Bytes>>,
    /// The part of a long piece that was not sent yet.
    rest: Option<Holding>,
    /// The place in the caller's limit of streams. `None` unless this body is a stream.
    _place: Option<StreamPlace>,
}

impl AnswerBody {
    /// Makes a body from bytes that are complete.
    ///
    /// # Errors
    /// [`A2aError::Overloaded`] if the callers' unread answers leave no room for this body.
    fn whole(caller: Caller, bytes: Bytes) -> Result<Self, A2aError> {
        let rest = Some(caller.hold_answer(bytes)?);
        Ok(Self { caller, body: Body::empty(), next: None, rest, _place: None })
    }

    /// Makes a body from `body`, which is produced while it is sent. If the first frame of `body` is ready, reads this
    /// frame now. If there is no room for the frame, the client can still get an error instead of the answer.
    ///
    /// # Errors
    /// [`A2aError::Overloaded`] if the callers' unread answers leave no room for the first frame.
    pub(crate) fn begun(caller: Caller, mut body: Body) -> Result<Self, A2aError> {
        // Until the first byte is sent, a lack of room can still be the answer itself.
        let first = body.frame().now_or_never().flatten();
        let mut begun = Self { caller, body, next: None, rest: None, _place: None };
        match first {
            Some(Ok(frame)) => begun.accept(frame)?,
            // The error goes back into the body. Reading the body then fails.
            Some(Err(error)) => begun.body = Body::from_stream(futures::stream::iter([Err::<Bytes, _>(error)])),
            None => {}
        }
        Ok(begun)
    }

    /// Stores the next frame of the inner body until the client has read the frame.
    fn accept(&mut self, frame: Frame<Bytes>) -> Result<(), A2aError> {
        match frame.into_data() {
            Ok(data) if data.len() > SMALL_ANSWER => self.rest = Some(self.caller.hold_answer(data)?),
            Ok(data) => self.next = Some(Frame::data(data)),
            Err(trailers) => self.next = Some(trailers),
        }
        Ok(())
    }

    /// Takes the next chunk of the long piece that is being sent. `None` if no long piece is being sent.
    fn chunk(&mut self) -> Result<Option<Bytes>, A2aError> {
        let Some(rest) = &mut self.rest else { return Ok(None) };
        let chunk = rest.take(CHUNK)?;
        // The piece is dropped with its last bytes, and then no longer counts.
        if rest.left() == 0 {
            self.rest = None;
        }
        Ok(chunk)
    }
}

/// Makes the body of an answer from a text. A long text counts against the caller's share until the client has read it.
///
/// # Errors
/// [`A2aError::Overloaded`] if the callers' unread answers leave no room for the text.
pub(crate) fn of_text(caller: &Caller, text: String) -> Result<Body, A2aError> {
    if text.len() <= SMALL_ANSWER {
        return Ok(Body::from(text));
    }
    Ok(Body::new(AnswerBody::whole(caller.clone(), text.into())?))
}

/// Stores the stream's place in the body of the answer. The body frees the place when the stream ends.
pub(crate) fn stream(caller: &Caller, place: Option<StreamPlace>, answer: Response) -> Response {
    let watched = |body| AnswerBody { caller: caller.clone(), body, next: None, rest: None, _place: place };
    answer.map(|body| Body::new(watched(body)))
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        loop {
            if let Some(chunk) = self.chunk().map_err(Error::new)? {
                return Poll::Ready(Some(Ok(Frame::data(chunk))));
            }
            if let Some(frame) = self.next.take() {
                return Poll::Ready(Some(Ok(frame)));
            }
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => self.accept(frame).map_err(Error::new)?,
                other => return Poll::Ready(other),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_none() && self.next.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // hyper derives `content-length` from an exact size hint, so the frame that was already read must count too.
        let next = self.next.as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len);
        let here = next.saturating_add(self.rest.as_ref().map_or(0, Holding::left)) as u64;
        let behind = self.body.size_hint();
        let mut whole = SizeHint::new();
        whole.set_lower(behind.lower().saturating_add(here));
        if let Some(upper) = behind.upper() {
            whole.set_upper(upper.saturating_add(here));
        }
        whole
    }
}
