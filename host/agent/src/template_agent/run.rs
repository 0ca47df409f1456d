//! One turn of the template agent: calls the model and the tools that the model requests, until the model answers or a
//! tool's result must come from the client.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use annex_conversation::{Event, StateDelta};
use annex_protocol::{Json, Message, Part, Parts, TaskState};
use futures::StreamExt;

use super::pieces::Pieces;
use super::{HISTORY, MAX_CALLS, MAX_CALLS_OF_TURN, TemplateAgent};
use crate::call_part;
use crate::callbacks::{CallbackContext, Callbacks, ModelAnswer};
use crate::conversation::{Conversation, readable, says_nothing};
use crate::executor::{AgentError, AgentEvent, EventSender, TurnContext};
use crate::model::{ModelError, ModelEvent, ModelStream, Prompt, PromptTooLong, ToolCall};
use crate::steps::{OpenStep, StepKind};
use crate::template::{ARTIFACT_PREFIX, artifact_names, render};
use crate::toolbox::{Outcome, Outcomes, Toolbox, callback_context};

/// The answer to a client whose message lacks the tool results for which its task waits.
const REMINDER: &str = "This task waits for the results of the calls below. Send for each a data part with its `id`, its \
                        `name` and the result as `response`, and `\"adk_type\": \"function_response\"` in the metadata \
                        of the part.";

/// A running turn.
pub(super) struct Run<'a> {
    agent: &'a TemplateAgent,
    turn: &'a TurnContext,
    events: &'a EventSender,
    pieces: Pieces<'a>,
}

/// A model's answer, and the state changes for the same event.
#[derive(Default)]
struct AnswerStep {
    answer: ModelAnswer,
    changes: StateDelta,
    /// True if the model only reasoned and gave no text.
    is_silent: bool,
}

impl<'a> Run<'a> {
    pub(super) fn new(agent: &'a TemplateAgent, turn: &'a TurnContext, events: &'a EventSender) -> Self {
        Self { agent, turn, events, pieces: Pieces::new(&agent.artifact, events) }
    }

    pub(super) async fn run(mut self) -> Result<(), AgentError> {
        let conversation = self.conversation().await?;
        let waiting = conversation.waiting(self.turn.task_id.as_str());
        // The task still waits for tool results: the model is called after all of them have arrived.
        if !waiting.is_empty() {
            return self.remind(&waiting).await;
        }
        if says_nothing(&self.turn.message.parts) {
            return Err(failed("The message has nothing that this agent can read. Send a text or a data part."));
        }
        if let Some(answered) = self.before_agent().await? {
            self.events.send(status(TaskState::Working, None)).await?;
            return self.finish(answered).await;
        }
        // Rendered first, so that a missing variable fails the turn before the agent announces `Working`.
        let mut prompt = self.prompt(conversation).await?;
        self.events.send(status(TaskState::Working, None)).await?;
        let mut round = 0;
        let mut calls = 0;
        loop {
            let answered = self.ask(prompt).await?;
            if answered.answer.calls.is_empty() {
                return self.finish(answered).await;
            }
            // Checked before the tools are called, so that no tool is called whose result nobody uses.
            if round == self.agent.max_tool_rounds {
                return Err(failed(&format!(
                    "The agent asked for tools again after {round} rounds of calls, which is the most in one turn. Ask \
                     for less at once."
                )));
            }
            calls += answered.answer.calls.len();
            // A callback may have added calls to the model's own.
            if answered.answer.calls.len() > MAX_CALLS {
                return Err(asks_for_too_many());
            }
            if calls > MAX_CALLS_OF_TURN {
                return Err(failed(&format!(
                    "The agent asked for {calls} calls of tools in one turn; at most {MAX_CALLS_OF_TURN} are made. Ask for \
                     less at once."
                )));
            }
            round += 1;
            let text = answered.answer.text.clone();
            let pending = self.call_tools(answered).await?;
            if !pending.is_empty() {
                return self.wait(text, &pending).await;
            }
            // The text before the calls was preliminary. The next piece replaces it.
            self.pieces.start_again();
            // The log now contains the calls and their results, so the conversation is read again.
            let conversation = self.conversation().await?;
            prompt = self.prompt(conversation).await?;
        }
    }

    async fn conversation(&self) -> Result<Conversation, AgentError> {
        let history = self.turn.conversation.history(HISTORY).await.map_err(AgentError::internal)?;
        Ok(Conversation::of(&history))
    }

    async fn prompt(&self, conversation: Conversation) -> Result<Prompt, AgentError> {
        let kept = &self.turn.conversation;
        let mut artifacts: HashMap<String, String> = HashMap::new();
        for name in artifact_names(&self.agent.instruction) {
            if let Some(parts) = kept.artifact(&name).await.map_err(AgentError::internal)? {
                artifacts.insert(name, readable(&parts));
            }
        }
        let lookup = |key: &str| match key.strip_prefix(ARTIFACT_PREFIX) {
            Some(name) => artifacts.get(name).map(|text| Json::string(text)),
            None => kept.value(key),
        };
        let instruction = render(&self.agent.instruction, lookup)
            .map_err(|error| failed(&format!("{error} The instruction of this agent needs it.")))?;
        let tools = self.agent.tools.declarations();
        Ok(Prompt { instruction, turns: conversation.into_turns(), tools })
    }

    fn callbacks(&self) -> Option<&'a dyn Callbacks> {
        self.agent.callbacks.as_deref()
    }

    /// Calls the callback `before_agent`. Returns the callback's answer if it gives one. Otherwise the callback's changes of
    /// the state are stored at once, so that the instruction can use them.
    async fn before_agent(&self) -> Result<Option<AnswerStep>, AgentError> {
        let Some(callbacks) = self.callbacks() else { return Ok(None) };
        let mut context = callback_context(self.turn);
        let text = callbacks.before_agent(&mut context).await?;
        let changes = context.state.into_changes();
        match text {
            Some(text) => Ok(Some(AnswerStep::of(text, changes))),
            None => {
                self.note(changes).await?;
                Ok(None)
            }
        }
    }

    /// Calls the model once, and sends the pieces of its answer to the client.
    async fn ask(&mut self, mut prompt: Prompt) -> Result<AnswerStep, AgentError> {
        let mut context = callback_context(self.turn);
        let instead = match self.callbacks() {
            Some(callbacks) => callbacks.before_model(&mut context, &mut prompt).await?,
            None => None,
        };
        let mut answered = match instead {
            Some(text) => AnswerStep::of(text, StateDelta::new()),
            None => self.listen(prompt).await?,
        };
        self.after_model(&mut context, &mut answered.answer).await?;
        answered.changes = context.state.into_changes();
        Ok(answered)
    }

    async fn after_model(&self, context: &mut CallbackContext, answer: &mut ModelAnswer) -> Result<(), AgentError> {
        match self.callbacks() {
            Some(callbacks) => callbacks.after_model(context, answer).await,
            None => Ok(()),
        }
    }

    async fn listen(&mut self, prompt: Prompt) -> Result<AnswerStep, AgentError> {
        let step = self.turn.steps.begin(StepKind::Model, self.agent.model.name());
        step.pass(prompt.bytes());
        let not_reached = |error| {
            step.finish();
            gave_up(&step, error)
        };
        let mut stream: ModelStream = self.agent.model.stream(prompt).await.map_err(not_reached)?;
        let mut was_reached = false;
        let mut answer = ModelAnswer::default();
        let mut has_said = false;
        let mut has_thought = false;
        while let Some(event) = stream.next().await {
            let event = event.map_err(|error| if was_reached { gave_up(&step, error) } else { not_reached(error) })?;
            was_reached = true;
            match event {
                ModelEvent::Text(piece) => {
                    // An empty piece counts, because an empty answer is an answer. Reasoning alone is not.
                    has_said = true;
                    step.pass(piece.len());
                    if !piece.is_empty() {
                        answer.text.push_str(&piece);
                        self.pieces.push(piece).await?;
                    }
                }
                // Thoughts are neither shown nor stored.
                ModelEvent::Thought(piece) => {
                    has_thought = true;
                    step.pass(piece.len());
                }
                // The rest of the answer is not read.
                ModelEvent::Call(_) if answer.calls.len() == MAX_CALLS => return Err(asks_for_too_many()),
                ModelEvent::Call(call) => {
                    step.pass(call.arguments.get().len());
                    answer.calls.push(call);
                }
                ModelEvent::Tokens(tokens) => step.count(tokens),
            }
        }
        step.finish();
        Ok(AnswerStep { answer, changes: StateDelta::new(), is_silent: has_thought && !has_said })
    }

    /// Stores the calls, runs the tools, and stores the results. Returns the calls whose results the client sends later.
    async fn call_tools(&self, answered: AnswerStep) -> Result<Vec<Outcome>, AgentError> {
        let calls = self.with_ids_of_their_own(answered.answer.calls).await?;
        let mut parts = Vec::new();
        if !answered.answer.text.is_empty() {
            parts.extend(self.revised(answered.answer.text).await?);
        }
        parts.extend(calls.iter().map(|call| call_part::call(call, self.is_long_running(call))));
        // The calls are stored before they are made, so that a turn that breaks off leaves calls that are known to be
        // broken off.
        self.store(self.event(parts, answered.changes)).await?;
        let toolbox = Toolbox { tools: &self.agent.tools, callbacks: self.callbacks(), turn: self.turn };
        let Outcomes { results, changes, artifacts } = toolbox.call_all(calls).await?;
        let parts: Parts =
            results.iter().map(|outcome| call_part::response(&outcome.result, outcome.is_pending)).collect();
        let artifacts = artifacts.into_iter().map(|(name, parts)| (name, parts.into())).collect();
        // The results and their state changes are stored as one event, so that neither exists without the other.
        self.store(Event { artifacts, ..self.event(parts, changes) }).await?;
        Ok(results.into_iter().filter(|outcome| outcome.is_pending).collect())
    }

    /// The parts of a text that is stored early, as the extensions leave them.
    async fn revised(&self, text: String) -> Result<Parts, AgentError> {
        let parts = Parts::from(vec![Part::text(text)]);
        if self.turn.is_revised { self.events.ask_unsent(parts).await } else { Ok(parts) }
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

    fn is_long_running(&self, call: &ToolCall) -> bool {
        self.agent.tools.get(&call.name).is_some_and(|tool| tool.is_long_running())
    }

    /// Makes the task wait for results from the client.
    async fn wait(&self, text: String, pending: &[Outcome]) -> Result<(), AgentError> {
        let mut parts = Vec::new();
        if !text.is_empty() {
            parts.push(Part::text(text));
        }
        for outcome in pending {
            parts.push(call_part::call(&outcome.call, true));
            parts.push(call_part::response(&outcome.result, true));
        }
        self.require(parts).await
    }

    /// Asks the client for the results once more, because the client's message does not contain them.
    async fn remind(&self, waiting: &[ToolCall]) -> Result<(), AgentError> {
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

    /// Stores the answer and sends its last piece.
    async fn finish(mut self, answered: AnswerStep) -> Result<(), AgentError> {
        let AnswerStep { answer, changes, is_silent } = answered;
        self.pieces.correct(&answer.text);
        // Stored first, so that a client that has the last piece can read the new state.
        let mut kept = self.keep(answer.text, changes, is_silent).await?;
        if let Some(callbacks) = self.callbacks() {
            let mut context = callback_context(self.turn);
            let instead = callbacks.after_agent(&mut context).await?;
            let changes = context.state.into_changes();
            match instead {
                Some(text) => {
                    self.pieces.replace(&text);
                    kept = self.keep(text, changes, false).await?;
                }
                None if changes.is_empty() => {}
                None => self.store_answer(self.event(Vec::new(), changes)).await?,
            }
        }
        self.pieces.finish(kept).await
    }

    /// Stores the answer. Returns its stored parts.
    async fn keep(&self, text: String, mut changes: StateDelta, is_silent: bool) -> Result<Parts, AgentError> {
        // A model that only reasoned has not answered, so the value is unchanged.
        if let Some(key) = self.agent.output_key.as_ref().filter(|_| !is_silent) {
            changes.insert(key.clone(), Json::string(&text));
        }
        let parts = Parts::from(vec![Part::text(text)]);
        let artifacts = BTreeMap::from([(self.agent.artifact.clone(), parts.clone())]);
        self.store_answer(Event { artifacts, ..self.event(parts.clone(), changes) }).await?;
        Ok(parts)
    }

    /// Stores state changes as an event without text.
    async fn note(&self, changes: StateDelta) -> Result<(), AgentError> {
        if changes.is_empty() { Ok(()) } else { self.store(self.event(Vec::new(), changes)).await }
    }

    fn event(&self, parts: impl Into<Parts>, changes: StateDelta) -> Event {
        Event::new(Arc::clone(&self.agent.name), self.turn.task_id.clone(), parts, changes)
    }

    /// Stores an event of the answer. The server changes it if extensions change the answer, so it is staged then.
    async fn store_answer(&self, event: Event) -> Result<(), AgentError> {
        // A callback may store another event afterwards.
        if self.callbacks().is_none() || self.turn.is_revised {
            self.store_last(event).await
        } else {
            self.store(event).await
        }
    }

    /// Stages a last event of the turn. The server stores it together with the end of the turn.
    async fn store_last(&self, event: Event) -> Result<(), AgentError> {
        self.turn.conversation.stage(event).await.map_err(AgentError::unstored)
    }

    async fn store(&self, event: Event) -> Result<(), AgentError> {
        self.turn.conversation.append(vec![event.into()]).await.map(drop).map_err(AgentError::unstored)
    }
}

impl AnswerStep {
    fn of(text: String, changes: StateDelta) -> Self {
        Self { answer: ModelAnswer { text, calls: Vec::new() }, changes, is_silent: false }
    }
}

fn failed(message: &str) -> AgentError {
    AgentError::Failed { message: message.to_owned() }
}

fn asks_for_too_many() -> AgentError {
    failed(&format!("The agent asked for more than {MAX_CALLS} calls of tools at once. Ask for less at once."))
}

/// Creates the error for the user. It does not contain the cause, because the cause may contain addresses and keys.
fn gave_up(step: &OpenStep, error: ModelError) -> AgentError {
    step.fail(&error.to_string());
    if let Some(too_long) = error.source.downcast_ref::<PromptTooLong>() {
        return failed(&too_long.to_string());
    }
    AgentError::internal(error)
}

fn status(state: TaskState, message: Option<Message>) -> AgentEvent {
    AgentEvent::Status { state, message }
}
