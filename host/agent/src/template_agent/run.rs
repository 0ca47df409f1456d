//! One turn of the template agent: calls the model and the tools that the model requests, until the model answers or a
//! tool's result must come from the client.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::Arc;

use annex_conversation::{Event, StateDelta};
use annex_protocol::{Json, Message, Part, Parts, TaskState};
use futures::StreamExt;

use super::calls::Called;
use super::pieces::Pieces;
use super::{DEFAULT_MODEL, HISTORY, MAX_CALLS, MAX_CALLS_OF_TURN, TemplateAgent};
use crate::callbacks::{CallbackContext, Callbacks, ModelAnswer};
use crate::conversation::{Conversation, readable, says_nothing};
use crate::executor::{AgentError, AgentEvent, EventSender, Question, TurnContext};
use crate::model::{Model, ModelError, ModelEvent, ModelStream, Prompt, PromptTooLong};
use crate::steering::{ModelParameters, ModelPlan};
use crate::steps::{OpenStep, StepKind};
use crate::template::{ARTIFACT_PREFIX, artifact_names, render};
use crate::toolbox::callback_context;

/// A running turn.
pub(super) struct Run<'a> {
    pub(super) agent: &'a TemplateAgent,
    pub(super) turn: &'a TurnContext,
    pub(super) events: &'a EventSender,
    pieces: Pieces<'a>,
}

/// A model's answer, and the state changes for the same event.
#[derive(Default)]
pub(super) struct AnswerStep {
    pub(super) answer: ModelAnswer,
    pub(super) changes: StateDelta,
    /// True if the model only reasoned and gave no text.
    is_silent: bool,
}

impl<'a> Run<'a> {
    pub(super) fn new(agent: &'a TemplateAgent, turn: &'a TurnContext, events: &'a EventSender) -> Self {
        Self { agent, turn, events, pieces: Pieces::new(&agent.artifact, events) }
    }

    pub(super) async fn run(mut self) -> Result<(), AgentError> {
        let mut conversation = self.conversation().await?;
        let held = conversation.held(self.turn.task_id.as_str());
        let was_held = !held.is_empty();
        if was_held {
            self.events.send(status(TaskState::Working, None)).await?;
            if let Some(pause) = self.call_held(held).await? {
                return self.pause(pause, String::new(), &[]).await;
            }
            conversation = self.conversation().await?;
        }
        let sent = conversation.sent(self.turn.task_id.as_str());
        if self.turn.is_steered && !sent.is_empty() {
            self.take_results(sent).await?;
            conversation = self.conversation().await?;
        }
        let waiting = conversation.waiting(self.turn.task_id.as_str());
        // The task still waits for tool results: the model is called after all of them have arrived.
        if !waiting.is_empty() {
            return self.remind(&waiting).await;
        }
        // The message may say nothing but that a call is allowed.
        if !was_held && says_nothing(&self.turn.message.parts) {
            return Err(failed("The message has nothing that this agent can read. Send a text or a data part."));
        }
        if let Some(answered) = self.before_agent().await? {
            self.announce(was_held).await?;
            return self.finish(answered).await;
        }
        // Rendered first, so that a missing variable fails the turn before the agent announces `Working`.
        let mut prompt = self.prompt(conversation).await?;
        self.announce(was_held).await?;
        let mut round = 0;
        let mut calls = 0;
        loop {
            let answered = self.ask(prompt, round).await?;
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
            check_number(answered.answer.calls.len(), calls)?;
            round += 1;
            let text = answered.answer.text.clone();
            let Called { pending, pause } = self.call_tools(answered).await?;
            if let Some(pause) = pause {
                return self.pause(pause, text, &pending).await;
            }
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

    /// Tells the client that the agent works, unless it knows already.
    async fn announce(&self, is_known: bool) -> Result<(), AgentError> {
        if is_known { Ok(()) } else { self.events.send(status(TaskState::Working, None)).await }
    }

    pub(super) async fn conversation(&self) -> Result<Conversation, AgentError> {
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
        let parameters = ModelParameters::default();
        Ok(Prompt { instruction, turns: conversation.into_turns(), tools, parameters })
    }

    pub(super) fn callbacks(&self) -> Option<&'a dyn Callbacks> {
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
    async fn ask(&mut self, mut prompt: Prompt, round: u32) -> Result<AnswerStep, AgentError> {
        let mut context = callback_context(self.turn);
        let instead = match self.callbacks() {
            Some(callbacks) => callbacks.before_model(&mut context, &mut prompt).await?,
            None => None,
        };
        let mut answered = match instead {
            Some(text) => AnswerStep::of(text, StateDelta::new()),
            None => {
                let model = self.steered(&mut prompt, round).await?;
                self.listen(model, prompt).await?
            }
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

    /// Lets the extensions change the call of the model. Returns the model to call.
    async fn steered(&self, prompt: &mut Prompt, round: u32) -> Result<&'a dyn Model, AgentError> {
        if !self.turn.is_steered {
            return Ok(&*self.agent.model);
        }
        let plan = ModelPlan {
            round,
            model: DEFAULT_MODEL.to_owned(),
            lent: std::iter::once(DEFAULT_MODEL)
                .chain(self.agent.lent.keys().map(String::as_str))
                .map(str::to_owned)
                .collect(),
            instruction: vec![mem::take(&mut prompt.instruction)],
            parameters: prompt.parameters.clone(),
            tools: prompt.tools.iter().map(|tool| tool.name.clone()).collect(),
        };
        let ModelPlan { model, mut instruction, parameters, .. } =
            self.events.ask(|answer| Question::Model { plan, answer }).await?;
        instruction.retain(|part| !part.is_empty());
        (prompt.instruction, prompt.parameters) = (instruction.join("\n\n"), parameters);
        // Only names of `lent` are chosen, and the default model is no entry.
        Ok(&**self.agent.lent.get(&model).unwrap_or(&self.agent.model))
    }

    async fn listen(&mut self, model: &dyn Model, prompt: Prompt) -> Result<AnswerStep, AgentError> {
        let mut step = self.turn.steps.begin(StepKind::Model, model.name());
        if let Some(provider) = model.provider() {
            step.provide(provider);
        }
        step.pass(prompt.bytes());
        let not_reached = |error| {
            step.finish();
            gave_up(&step, error)
        };
        let mut stream: ModelStream = step.within(model.stream(prompt)).await.map_err(not_reached)?;
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

    pub(super) fn event(&self, parts: impl Into<Parts>, changes: StateDelta) -> Event {
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
    pub(super) async fn store_last(&self, event: Event) -> Result<(), AgentError> {
        self.turn.conversation.stage(event).await.map_err(AgentError::unstored)
    }

    pub(super) async fn store(&self, event: Event) -> Result<(), AgentError> {
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

/// Checks the number of calls of an answer and of the turn.
fn check_number(of_answer: usize, of_turn: usize) -> Result<(), AgentError> {
    // A callback may have added calls to the model's own.
    if of_answer > MAX_CALLS {
        return Err(asks_for_too_many());
    }
    if of_turn > MAX_CALLS_OF_TURN {
        return Err(failed(&format!(
            "The agent asked for {of_turn} calls of tools in one turn; at most {MAX_CALLS_OF_TURN} are made. Ask for less at \
             once."
        )));
    }
    Ok(())
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

pub(super) fn status(state: TaskState, message: Option<Message>) -> AgentEvent {
    AgentEvent::Status { state, message }
}
