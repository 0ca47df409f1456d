//! The tool calls of a turn: lets the extensions decide about them, stores them, makes them, and makes the task wait for
//! results of the client or for extensions.

use std::collections::HashSet;

use annex_conversation::{Event, StateDelta};
use annex_protocol::{ExtensionUri, Json, Message, Part, Parts, TaskState};

use super::run::{AnswerStep, Run, status};
use crate::call_part;
use crate::conversation::Hold;
use crate::executor::{AgentError, AgentEvent, Question};
use crate::model::{ToolCall, ToolResult};
use crate::steering::{MadeCall, Pause, ToolDecision, ToolPlan};
use crate::toolbox::{CallFate, DecidedCall, Outcome, Outcomes, Toolbox, is_object};

/// The answer to a client whose message lacks the tool results for which its task waits.
const REMINDER: &str = "This task waits for the results of the calls below. Send for each a data part with its `id`, its \
                        `name` and the result as `response`, and `\"adk_type\": \"function_response\"` in the metadata \
                        of the part.";

/// The maximum number of times that the task waits before one call. The call is then denied.
const MAX_WAITS: u32 = 16;
/// The result of a call that nobody can decide about.
const UNDECIDED: &str = "the call waited for an extension that is not active any more, so it was not made";

/// The calls of one answer that are not over.
pub(super) struct Called {
    /// The calls whose results the client sends later.
    pub(super) pending: Vec<Outcome>,
    /// The wait of the task before further calls are made.
    pub(super) pause: Option<CallPause>,
}

/// The wait of the task before a call is made.
pub(super) struct CallPause {
    call: ToolCall,
    /// The waits before this call, with this one.
    hold: Hold,
    pause: Pause,
}

impl Run<'_> {
    /// Stores the calls, runs the tools, and stores the results.
    pub(super) async fn call_tools(&self, answered: AnswerStep) -> Result<Called, AgentError> {
        let calls = self.with_ids_of_their_own(answered.answer.calls).await?;
        let mut decided = Vec::with_capacity(calls.len());
        let mut pause = None;
        for call in calls {
            decided.push(self.decided(call, None, &mut pause).await?);
        }
        let mut parts = Vec::new();
        if !answered.answer.text.is_empty() {
            parts.extend(self.revised(answered.answer.text).await?);
        }
        parts.extend(decided.iter().map(|decided| self.stored(decided)));
        // The calls are stored before they are made, so that a turn that breaks off leaves calls that are known to be
        // broken off.
        self.store(self.event(parts, answered.changes)).await?;
        let pending = self.make(decided).await?;
        Ok(Called { pending, pause })
    }

    /// Asks again about the calls before which the task has waited, and makes those that are allowed. Returns the next
    /// wait, if the task must wait again.
    pub(super) async fn call_held(&self, held: Vec<(ToolCall, Hold)>) -> Result<Option<CallPause>, AgentError> {
        let mut decided = Vec::with_capacity(held.len());
        let mut pause: Option<CallPause> = None;
        let mut notes = Vec::new();
        for (call, hold) in held {
            let (held_call, known) = (call.clone(), hold.clone());
            let one = self.decided(call, Some(hold), &mut pause).await?;
            let is_shown = pause.as_ref().is_some_and(|pause| pause.call.id == one.call.id);
            match &one.fate {
                CallFate::Made => notes.push(call_part::released(&one.call)),
                CallFate::Held(by) if !is_shown && !known.has(by.as_str()) => {
                    notes.push(call_part::waited(&held_call, known.unshown_for(by.as_str())));
                }
                CallFate::Held(_) | CallFate::Denied(_) => {}
            }
            decided.push(one);
        }
        // Stored before the calls are made, and fenced. Whoever finds this event never makes the calls again, also if
        // no result follows.
        if !notes.is_empty() {
            self.store(self.event(notes, StateDelta::new())).await?;
        }
        self.make(decided).await?;
        Ok(pause)
    }

    /// Makes the calls that are allowed, and stores their results. Returns the calls whose results the client sends later.
    async fn make(&self, decided: Vec<DecidedCall>) -> Result<Vec<Outcome>, AgentError> {
        let calls: Vec<DecidedCall> =
            decided.into_iter().filter(|decided| !matches!(decided.fate, CallFate::Held(_))).collect();
        if calls.is_empty() {
            return Ok(Vec::new());
        }
        let toolbox =
            Toolbox { tools: &self.agent.tools, callbacks: self.callbacks(), turn: self.turn, events: self.events };
        let Outcomes { results, changes, artifacts } = toolbox.call_all(calls).await?;
        let parts: Parts =
            results.iter().map(|outcome| call_part::response(&outcome.result, outcome.is_pending)).collect();
        let artifacts = artifacts.into_iter().map(|(name, parts)| (name, parts.into())).collect();
        // The results and their state changes are stored as one event, so that neither exists without the other.
        self.store(Event { artifacts, ..self.event(parts, changes) }).await?;
        Ok(results.into_iter().filter(|outcome| outcome.is_pending).collect())
    }

    /// Lets the extensions replace the results that the client has sent, and stores the results as the model gets them.
    pub(super) async fn take_results(&self, sent: Vec<(ToolCall, Json)>) -> Result<(), AgentError> {
        let mut parts = Vec::with_capacity(sent.len());
        for (call, output) in sent {
            let (id, name) = (call.id.clone(), call.name.clone());
            let made = MadeCall { call, output, failed: false };
            let response = self.events.ask(|answer| Question::Result { made, answer }).await?;
            parts.push(call_part::response(&ToolResult { id, name, response }, false));
        }
        self.store(self.event(parts, StateDelta::new())).await
    }

    /// The parts of a text that is stored early, as the extensions leave them.
    async fn revised(&self, text: String) -> Result<Parts, AgentError> {
        let parts = Parts::from(vec![Part::text(text)]);
        if !self.turn.is_revised {
            return Ok(parts);
        }
        let revised: Parts = self.events.ask(|answer| Question::Unsent { parts, answer }).await?;
        // A text has no calls and no results, whatever the extensions make of it.
        Ok(revised.into_iter().filter(|part| call_part::read(part).is_none()).collect())
    }

    /// Lets the extensions decide about a call. `hold` is the present wait before the call. The first wait becomes `pause`.
    /// A further call that would have to wait is held and asked about in the next turn, because the client learns of one
    /// wait at a time.
    async fn decided(
        &self,
        mut call: ToolCall,
        hold: Option<Hold>,
        pause: &mut Option<CallPause>,
    ) -> Result<DecidedCall, AgentError> {
        // Arguments in another form are an error for the model.
        if !self.turn.is_steered || !is_object(&call.arguments) {
            let fate = hold.map_or(CallFate::Made, |_| CallFate::Denied(UNDECIDED.to_owned()));
            return Ok(DecidedCall { call, fate });
        }
        let hold = hold.unwrap_or_default();
        let uris = |uris: &[String]| uris.iter().map(|uri| ExtensionUri::from(uri.as_str())).collect::<Vec<_>>();
        let waited_for = uris(&hold.by);
        let plan = ToolPlan {
            origin: self.agent.tools.get(&call.name).and_then(|tool| tool.server()).unwrap_or_default().to_owned(),
            call: call.clone(),
            held_by: waited_for.iter().cloned().chain(uris(&hold.unshown)).collect(),
            waited_for,
        };
        let fate = match self.events.ask(|answer| Question::Tool { plan, answer }).await? {
            ToolDecision::Make(arguments) => {
                call.arguments = arguments;
                CallFate::Made
            }
            ToolDecision::Deny(text) => CallFate::Denied(text),
            ToolDecision::Wait { .. } if hold.times >= MAX_WAITS => CallFate::Denied(format!(
                "the call has waited {MAX_WAITS} times, which is the most, so it was not made"
            )),
            ToolDecision::Wait { arguments, pause: asked } => {
                call.arguments = arguments;
                let asker = asked.by.clone();
                if pause.is_none() {
                    let hold = hold.shown_for(asker.as_str());
                    *pause = Some(CallPause { call: call.clone(), hold, pause: *asked });
                }
                CallFate::Held(asker)
            }
        };
        Ok(DecidedCall { call, fate })
    }

    /// The part for a call in the session.
    fn stored(&self, DecidedCall { call, fate }: &DecidedCall) -> Part {
        match fate {
            CallFate::Held(by) => call_part::held(call, by.as_str()),
            CallFate::Denied(_) => call_part::call(call, false),
            CallFate::Made => {
                let is_long_running = self.agent.tools.get(&call.name).is_some_and(|tool| tool.is_long_running());
                call_part::call(call, is_long_running)
            }
        }
    }

    /// Makes the task wait before a call is made. `text` is what the model has said before its calls, and `pending` are
    /// calls whose results the client sends later.
    pub(super) async fn pause(&self, pause: CallPause, text: String, pending: &[Outcome]) -> Result<(), AgentError> {
        let CallPause { call, hold, pause } = pause;
        let note = Box::new(self.event(vec![call_part::waited(&call, hold)], StateDelta::new()));
        let parts = spoken(text, pending);
        self.events.send(AgentEvent::Waits { pause: Box::new(pause), parts, note }).await
    }

    /// Gives the calls ids that are unique in the conversation. Some providers number the calls per answer or omit the
    /// ids.
    async fn with_ids_of_their_own(&self, mut calls: Vec<ToolCall>) -> Result<Vec<ToolCall>, AgentError> {
        let conversation = self.conversation().await?;
        let mut taken: HashSet<String> = conversation.call_ids().into_iter().map(str::to_owned).collect();
        for call in &mut calls {
            if call.id.is_empty() || taken.contains(&call.id) {
                call.id = format!("call-{}", uuid::Uuid::now_v7());
            }
            taken.insert(call.id.clone());
        }
        Ok(calls)
    }

    /// Makes the task wait for results from the client.
    pub(super) async fn wait(&self, text: String, pending: &[Outcome]) -> Result<(), AgentError> {
        self.require(spoken(text, pending)).await
    }

    /// Asks the client for the results once more, because the client's message does not contain them.
    pub(super) async fn remind(&self, waiting: &[ToolCall]) -> Result<(), AgentError> {
        self.store_last(self.event(vec![Part::text(REMINDER)], StateDelta::new())).await?;
        let calls = waiting.iter().map(|call| call_part::call(call, true));
        self.require(std::iter::once(Part::text(REMINDER)).chain(calls).collect()).await
    }

    async fn require(&self, parts: Vec<Part>) -> Result<(), AgentError> {
        let context = self.turn.context_id.clone();
        let task = self.turn.task_id.clone();
        let message = Message::agent(context, Some(task), parts);
        self.events.send(status(TaskState::InputRequired, Some(message))).await
    }
}

/// The parts of a status message with a text of the model, and with calls whose results the client sends.
fn spoken(text: String, pending: &[Outcome]) -> Vec<Part> {
    let text = (!text.is_empty()).then(|| Part::text(text));
    let calls = pending
        .iter()
        .flat_map(|Outcome { call, result, .. }| [call_part::call(call, true), call_part::response(result, true)]);
    text.into_iter().chain(calls).collect()
}
