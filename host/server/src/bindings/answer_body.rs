//! Bodies of answers. A long one counts for its caller while the client has not read it.
//!
//! hyper asks for the next chunk when it has room for it, so a client that does not read leaves the rest of its answer here,
//! from where it can be taken when others need the room.

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

/// Bytes that are handed to hyper at once. They count no more.
const CHUNK: usize = 16 << 10;

/// A body whose long pieces are counted for its caller.
pub(crate) struct AnswerBody {
    caller: Caller,
    body: Body,
    /// A frame that was read already: a short piece of data, or trailers.
    next: Option<Frame<Bytes>>,
    /// The rest of a long piece.
    rest: Option<Holding>,
    /// Its place, if this is a stream.
    _place: Option<StreamPlace>,
}

impl AnswerBody {
    /// An answer in one piece.
    ///
    /// # Errors
    /// [`A2aError::Overloaded`] when there is no room for it.
    fn whole(caller: Caller, bytes: Bytes) -> Result<Self, A2aError> {
        let rest = Some(caller.hold_answer(bytes)?);
        Ok(Self { caller, body: Body::empty(), next: None, rest, _place: None })
    }

    /// A body that is made while it is sent. Its first frame is taken now if it is there, so that the answer can still
    /// be refused.
    ///
    /// # Errors
    /// As [`AnswerBody::whole`].
    pub(crate) fn begun(caller: Caller, mut body: Body) -> Result<Self, A2aError> {
        // As long as nothing was sent, a lack of room can still be the answer itself.
        let first = body.frame().now_or_never().flatten();
        let mut begun = Self { caller, body, next: None, rest: None, _place: None };
        match first {
            Some(Ok(frame)) => begun.accept(frame)?,
            // The error is put back, to be met when the body is read.
            Some(Err(error)) => begun.body = Body::from_stream(futures::stream::iter([Err::<Bytes, _>(error)])),
            None => {}
        }
        Ok(begun)
    }

    /// Takes a piece from the body behind this one.
    fn accept(&mut self, frame: Frame<Bytes>) -> Result<(), A2aError> {
        match frame.into_data() {
            Ok(data) if data.len() > SMALL_ANSWER => self.rest = Some(self.caller.hold_answer(data)?),
            Ok(data) => self.next = Some(Frame::data(data)),
            Err(trailers) => self.next = Some(trailers),
        }
        Ok(())
    }

    /// The next chunk of the long piece, if there is one.
    fn chunk(&mut self) -> Result<Option<Bytes>, A2aError> {
        let Some(rest) = &mut self.rest else { return Ok(None) };
        let chunk = rest.take(CHUNK)?;
        // The part is dropped with its last bytes, so that it counts no longer than it is here.
        if rest.left() == 0 {
            self.rest = None;
        }
        Ok(chunk)
    }
}

/// The body of an answer. A long one counts until the client has read it.
///
/// # Errors
/// [`A2aError::Overloaded`] when callers have left too much unread already.
pub(crate) fn of_text(caller: &Caller, text: String) -> Result<Body, A2aError> {
    if text.len() <= SMALL_ANSWER {
        return Ok(Body::from(text));
    }
    Ok(Body::new(AnswerBody::whole(caller.clone(), text.into())?))
}

/// The stream's answer, which has the place until it is over.
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
        // hyper derives `content-length` from an exact hint, so bytes that were taken from the body behind count too.
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
