//! One call from beginning to end. Runs the interceptors, and checks that the server may receive the header fields of
//! the call.

use std::mem;
use std::sync::Arc;

use annex_protocol::{ExtensionUri, Message, Metadata, StreamResponse};
use futures::{StreamExt, TryStreamExt, stream};
use http::{Extensions, HeaderMap};
use reqwest::Url;

use crate::card::AgentCardDocument;
use crate::transport::{Answers, RawAnswer};
use crate::{
    Answer, ClientError, EventStream, Incoming, Interceptor, Operation, OutgoingCall, ServiceParameters, StreamRoom,
};

/// The maximum number of events of one stream that are skipped. An agent that sends more unknown events does not speak
/// A2A.
const MAX_PASSED_OVER: usize = 1_000;

/// The context that all calls to an agent share.
pub(super) struct CallContext {
    pub(super) document: Arc<AgentCardDocument>,
    pub(super) interface: Url,
    /// True if header fields may be sent to the interface.
    pub(super) takes_fields: bool,
    pub(super) interceptors: Vec<Arc<dyn Interceptor>>,
}

pub(super) struct Exchange {
    pub(super) operation: Operation,
    around: Arc<CallContext>,
    parameters: ServiceParameters,
    context: Extensions,
}

/// What is needed to read the next event of a stream.
struct EventReader {
    exchange: Exchange,
    active: Vec<ExtensionUri>,
    events: Answers,
    /// The number of skipped events.
    passed_over: usize,
}

impl Exchange {
    pub(super) fn new(around: &Arc<CallContext>, operation: Operation, parameters: ServiceParameters) -> Self {
        Self { operation, around: Arc::clone(around), parameters, context: Extensions::new() }
    }

    /// Calls the interceptors before the call is sent.
    pub(super) async fn begin(
        &mut self,
        message: Option<&mut Message>,
        metadata: Option<&mut Metadata>,
    ) -> Result<(), ClientError> {
        let mut call = OutgoingCall {
            operation: &self.operation,
            card: &self.around.document.card,
            card_url: self.around.document.url.as_str(),
            message,
            metadata,
            parameters: &mut self.parameters,
            context: &mut self.context,
        };
        for interceptor in &self.around.interceptors {
            // The first refusal ends the call: nothing is sent, and the following interceptors are not called.
            interceptor.before(&mut call).await.map_err(ClientError::Refused)?;
        }
        Ok(())
    }

    /// The limit on the bytes of streams; `None` without a limit. Call this before [`Self::headers`], which consumes
    /// the parameters.
    pub(super) fn room(&self) -> Option<StreamRoom> {
        self.parameters.room()
    }

    /// The header fields of the request, after the interceptors have added theirs.
    pub(super) fn headers(&mut self) -> Result<HeaderMap, ClientError> {
        // A card can name any interface, and a field may be a credential. The URIs of extensions are no secret and go
        // along.
        if !self.parameters.fields().is_empty() && !self.around.takes_fields {
            let card = self.around.document.url.origin();
            let interface = self.around.interface.origin();
            let card = card.ascii_serialization();
            let interface = interface.ascii_serialization();
            return Err(ClientError::OtherOrigin { card, interface });
        }
        Ok(mem::take(&mut self.parameters).into_headers())
    }

    /// Calls the interceptors with an answer.
    pub(super) async fn end(
        &mut self,
        active: &[ExtensionUri],
        event: Option<&StreamResponse>,
    ) -> Result<(), ClientError> {
        let card = &self.around.document.card;
        let mut incoming = Incoming { operation: &self.operation, card, active, event, context: &mut self.context };
        // In reverse order: the interceptor that was called last before sending is called first with the answer.
        for interceptor in self.around.interceptors.iter().rev() {
            interceptor.after(&mut incoming).await.map_err(ClientError::AnswerRefused)?;
        }
        Ok(())
    }

    /// Converts the answers of a stream to events. Each event passes through the interceptors before the caller gets the event.
    pub(super) fn follow(self, answer: Answer<Answers>) -> Answer<EventStream> {
        let Answer { value: events, active } = answer;
        // The header arrives before the first event, so its active extensions apply to all events.
        let followed = EventReader { exchange: self, active: active.clone(), events, passed_over: 0 };
        Answer { value: stream::try_unfold(followed, EventReader::step).boxed(), active }
    }
}

impl EventReader {
    async fn step(mut self) -> Result<Option<(StreamResponse, Self)>, ClientError> {
        loop {
            let Some(answer) = self.events.try_next().await? else { return Ok(None) };
            // An error drops `self` and the connection with it, so that no item follows.
            let Some(event) = answer.decode_event()? else {
                self.pass_over(&answer)?;
                continue;
            };
            self.exchange.end(&self.active, Some(&event)).await?;
            return Ok(Some((event, self)));
        }
    }

    /// Skips an event of an unknown kind (specification section 5.7). Fails after [`MAX_PASSED_OVER`] such events.
    fn pass_over(&mut self, answer: &RawAnswer) -> Result<(), ClientError> {
        self.passed_over += 1;
        let problem = answer.misshapen("an event of an unknown kind");
        match self.passed_over {
            // Agents keep streams alive by such events.
            ..=MAX_PASSED_OVER if answer.is_named() => {
                tracing::debug!(%problem, "an event with an unknown name is skipped");
            }
            1 => tracing::warn!(%problem, "events of an unknown kind are skipped"),
            ..=MAX_PASSED_OVER => {}
            _ => return Err(problem),
        }
        Ok(())
    }
}
