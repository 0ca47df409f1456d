//! Asks the extensions and the agent whether they accept a message (the stage `Asked`).

use std::sync::Arc;

use annex_agent::UpstreamContext;
use annex_conversation::{Departure, Entry, Event, StateDelta, UserMessage};
use annex_protocol::A2aError;
use annex_runtime::{BeginOutcome, Chain, RequestOutcome};

use crate::fault;
use crate::request_handler::RequestHandler;
use crate::send_message::entered::Entered;

/// A message that the extensions have accepted, with their chain, ready to be stored.
pub(crate) struct Asked {
    pub(super) entered: Entered,
    pub(super) chain: Chain,
    /// The outcome of the hooks that run at the beginning of the turn.
    pub(super) beginning: BeginOutcome,
    /// The message for the log. `None` for a turn without a message of the client.
    pub(super) said: Option<Entry>,
    /// The context for a remote agent. `None` for a local agent.
    pub(super) remote: Option<UpstreamContext>,
}

/// A message that was refused after its turn had entered the queue.
pub(crate) struct Refused {
    pub(crate) entered: Entered,
    pub(crate) error: A2aError,
}

/// The results of asking the extensions and the agent.
struct Answers {
    chain: Chain,
    beginning: BeginOutcome,
    said: Option<Entry>,
    remote: Option<UpstreamContext>,
}

impl RequestHandler {
    /// Asks the extensions and the agent whether they accept the message.
    pub(super) async fn asked(&self, mut entered: Entered) -> Result<Asked, Box<Refused>> {
        match self.ask(&mut entered).await {
            Ok(Answers { chain, beginning, said, remote }) => Ok(Asked { entered, chain, beginning, said, remote }),
            Err(error) => Err(Box::new(Refused { entered, error })),
        }
    }

    async fn ask(&self, entered: &mut Entered) -> Result<Answers, A2aError> {
        let Entered { incoming, extensions, active, conversation, .. } = entered;
        let view = self.process.views.of_turn(active, &incoming.call, incoming.visible(conversation)).await?;
        let remote = self.upstream_context(incoming, extensions, conversation);
        let whole = incoming.forgotten.put_back(&incoming.request);
        let mut hooks = incoming.for_hooks(incoming.operation, view);
        if let Some(whole) = &whole {
            (hooks.message, hooks.request) = (&whole.0, &whole.1);
        }
        let asked = Chain::run_request_hooks(active, &hooks).await.map_err(fault::of_hook)?;
        let RequestOutcome { mut chain, delta, parts } = asked;
        let mut delta = StateDelta::from(delta);
        if incoming.again.is_none() {
            if let Some(parts) = parts {
                incoming.request.message.parts = parts.into();
            }
            self.agent.before_turn(&incoming.request, conversation, &mut delta)?;
            incoming.place();
            // Checked again, because an extension may have rewritten the message.
            self.check_size(incoming)?;
        }
        let waits_in = incoming.record.as_ref().filter(|record| record.numbered().1 > 0);
        let waits_in = waits_in.map(|record| record.task_state());
        let is_resumed = incoming.again.is_some();
        let beginning = chain.run_beginning_hooks(&incoming.task_id, incoming.context_id(), waits_in, is_resumed).await;
        let mut beginning = beginning.map_err(|fault| fault::of_hook(fault.into()))?;
        if matches!(beginning, BeginOutcome::Proceed) {
            let answer = chain.run_reply_hooks(&incoming.request.message).await.map_err(fault::of_hook)?;
            beginning = answer.map_or(beginning, |answer| BeginOutcome::Answered(Box::new(answer)));
        }
        let said = match &incoming.again {
            Some(_) => None,
            None => {
                let message = incoming.request.message.clone();
                // A vetoed message is not part of the history.
                let is_heard = !matches!(beginning, BeginOutcome::Vetoed(_));
                let event = is_heard
                    .then(|| Event::of_user(incoming.task_id.clone(), message.parts.clone(), delta))
                    .map(Arc::new);
                let opens = entered.opens().await;
                Some(Entry::Message(Arc::new(UserMessage { message, event, opens })))
            }
        };
        Ok(Answers { chain, beginning, said, remote })
    }
}

impl Refused {
    /// Releases the permit, the place in the queue and the claim, as if the message had never arrived. Returns the
    /// error for the client.
    pub(crate) async fn leave_nothing(self) -> A2aError {
        let Self { entered, error } = self;
        if let Err(failed) = entered.conversation.leave(Departure::Refused).await {
            // The turn leaves when it is dropped.
            fault::log(&failed);
        }
        error
    }
}
