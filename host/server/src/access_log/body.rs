//! The body of an answer of unknown length: a stream, or an answer over gRPC. The request ends with this body.

use std::pin::Pin;
use std::task::{Context, Poll};

use annex_telemetry::in_request;
use axum::Error;
use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::{Exchange, refused};

/// A body whose end is the end of the request. All work that a poll of the body does is attributed to the request.
pub(super) struct WatchedBody {
    body: Body,
    exchange: Exchange,
}

impl WatchedBody {
    pub(super) fn new(body: Body, exchange: Exchange) -> Self {
        Self { body, exchange }
    }
}

impl HttpBody for WatchedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let Self { body, exchange } = self.get_mut();
        let polled = in_request(exchange.request(), || {
            let polled = Pin::new(&mut *body).poll_frame(context);
            // A body fails for one reason only: the rest of the answer was evicted because others needed the memory.
            if let Poll::Ready(Some(Err(_))) = &polled {
                refused("overloaded");
            }
            polled
        });
        let is_over = match &polled {
            Poll::Pending => false,
            Poll::Ready(Some(Ok(frame))) => {
                exchange.sent += frame.data_ref().map_or(0, |data| data.len() as u64);
                // hyper stops polling after trailers, or when the body reports its end.
                frame.is_trailers() || body.is_end_stream()
            }
            Poll::Ready(None | Some(Err(_))) => true,
        };
        if is_over {
            exchange.end();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
