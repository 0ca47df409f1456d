//! Answers the questions of the agent by asking the extensions.

use annex_agent::{MadeCall, ModelParameters, ModelPlan, Pause, Question, ToolDecision, ToolPlan};
use annex_conversation::{Entry, Event};
use annex_protocol::{A2aError, ExtensionUri, Json, Message, Part, StreamResponse, TaskState};
use annex_runtime::{
    Interruption, MadeToolCall, ModelOutcome, ModelParameters as SteeredParameters, PlannedModelCall, PlannedToolCall,
    Remark, Steered, ToolOutcome,
};
use tokio::sync::oneshot;

use super::output::REFUSED;
use super::{Progress, Settled, Turn};
use crate::fault;

impl Turn {
    /// Answers a question of the agent.
    ///
    /// # Errors
    /// An extension refuses the step or the content, or fails. The question stays without an answer, and the turn ends.
    pub(super) async fn answer_question(&mut self, question: Question) -> Result<Progress, A2aError> {
        let settled = match question {
            Question::Unsent { parts, answer } => {
                self.answer_unsent(parts, answer).await?;
                None
            }
            Question::Model { plan, answer } => self.steer_model(plan, answer).await?,
            Question::Tool { plan, answer } => self.steer_tool(plan, answer).await?,
            Question::Result { made, answer } => self.steer_result(made, answer).await?,
        };
        Ok(Progress::from(settled))
    }

    /// Prepares the turn for a question about a step. Returns false if the agent no longer waits for the answer.
    async fn is_asked<T>(&mut self, answer: &oneshot::Sender<T>) -> Result<bool, A2aError> {
        if answer.is_closed() {
            return Ok(false);
        }
        // Readers get what the agent has sent before they wait for an extension.
        self.store().await?;
        Ok(true)
    }

    async fn steer_model(&mut self, plan: ModelPlan, answer: oneshot::Sender<ModelPlan>) -> Result<Settled, A2aError> {
        if !self.is_asked(&answer).await? {
            return Ok(None);
        }
        let mut call = planned(plan);
        let steered = self.chain.run_model_hooks(&mut call).await.map_err(|fault| fault::of_extension(&fault))?;
        let Steered { outcome, remarks } = steered;
        if let Some(state) = self.remark(remarks).await? {
            return Ok(Some(state));
        }
        match outcome {
            ModelOutcome::Refused { by, reason } => {
                Err(A2aError::Extension { uri: by, code: REFUSED, message: reason, data: None })
            }
            ModelOutcome::Made => {
                // An agent that has gone needs no answer.
                let _ = answer.send(to_make(call));
                Ok(None)
            }
        }
    }

    async fn steer_tool(&mut self, plan: ToolPlan, answer: oneshot::Sender<ToolDecision>) -> Result<Settled, A2aError> {
        if !self.is_asked(&answer).await? {
            return Ok(None);
        }
        let ToolPlan { call, origin, held_by, waited_for } = plan;
        // Without an extension that the task has waited for, nobody allows the call.
        if let Some(by) = held_by.iter().find(|by| !self.chain.active().any(|active| active == *by)) {
            let text = format!("the call waited for the extension {by}, which is not active, so it was not made");
            let _ = answer.send(ToolDecision::Deny(text));
            return Ok(None);
        }
        let mut call = PlannedToolCall { id: call.id, name: call.name, origin, arguments: call.arguments, waited_for };
        let steered =
            self.chain.run_tool_hooks(&mut call, &held_by).await.map_err(|fault| fault::of_extension(&fault))?;
        let Steered { outcome, remarks } = steered;
        if let Some(state) = self.remark(remarks).await? {
            return Ok(Some(state));
        }
        let decision = match outcome {
            ToolOutcome::Made => ToolDecision::Make(call.arguments),
            ToolOutcome::Denied(text) => ToolDecision::Deny(text),
            ToolOutcome::Waits(Interruption { by, state, text, metadata }) => {
                ToolDecision::Wait { arguments: call.arguments, pause: Box::new(Pause { by, state, text, metadata }) }
            }
        };
        let _ = answer.send(decision);
        Ok(None)
    }

    async fn steer_result(&mut self, made: MadeCall, answer: oneshot::Sender<Json>) -> Result<Settled, A2aError> {
        if !self.is_asked(&answer).await? {
            return Ok(None);
        }
        let MadeCall { call, output, failed } = made;
        let mut made = MadeToolCall { id: call.id, name: call.name, arguments: call.arguments, output, failed };
        let steered = self.chain.run_result_hooks(&mut made).await.map_err(|fault| fault::of_extension(&fault))?;
        if let Some(state) = self.remark(steered.remarks).await? {
            return Ok(Some(state));
        }
        let _ = answer.send(made.output);
        Ok(None)
    }

    /// Makes the task wait before the agent calls a tool. The extension can resume the task. `note` says that the client knows
    /// of the wait.
    pub(super) async fn pause(&mut self, pause: Pause, parts: Vec<Part>, note: Event) -> Result<Settled, A2aError> {
        let Pause { by, state, text, metadata } = pause;
        let mut update = self.status_update(state, None);
        Interruption { by: by.clone(), state, text, metadata }.place(&mut update);
        if let Some(message) = &mut update.status.message {
            parts.into_iter().for_each(|part| message.parts.push(part));
        }
        let settled = self.change(update, Some(by.clone())).await?;
        // Another extension may have replaced the status. The client then answers another question, so the extension is
        // asked again as if the call had not waited.
        if self.tells_of(&by) {
            // Stored together with the state of the task.
            self.context.conversation.stage(note).await.map_err(fault::of_append)?;
        }
        Ok(settled)
    }

    /// True if the last status that is ready to be stored has a message of the extension. The first extension of a message
    /// has placed the message. Other extensions of the message have only added metadata.
    fn tells_of(&self, by: &ExtensionUri) -> bool {
        let Some(Entry::Update(update)) = self.pending.last() else { return false };
        let StreamResponse::StatusUpdate(update) = update.as_ref() else { return false };
        update.status.message.iter().any(|message| message.extensions.first() == Some(by))
    }

    /// Sends the remarks, each as a status of the working task. Returns the state if an extension settles the task instead.
    /// The agent then takes no further step, so its question stays without an answer.
    async fn remark(&mut self, remarks: Vec<Remark>) -> Result<Settled, A2aError> {
        for Remark { by, parts, metadata } in remarks {
            let message = Message::agent(self.context.context_id.clone(), None, parts);
            let message = Message { metadata, extensions: vec![by], ..message };
            if let Some(state) = self.status(TaskState::Working, Some(message)).await? {
                return Ok(Some(state));
            }
        }
        Ok(None)
    }
}

fn planned(plan: ModelPlan) -> PlannedModelCall {
    let ModelPlan { round, model, lent, instruction, parameters, tools } = plan;
    let ModelParameters { temperature, top_p, max_tokens, stop, seed } = parameters;
    let parameters = SteeredParameters { temperature, top_p, max_tokens, stop, seed };
    PlannedModelCall { round, model, lent, instruction, parameters, tools }
}

fn to_make(call: PlannedModelCall) -> ModelPlan {
    let PlannedModelCall { round, model, lent, instruction, parameters, tools } = call;
    let SteeredParameters { temperature, top_p, max_tokens, stop, seed } = parameters;
    let parameters = ModelParameters { temperature, top_p, max_tokens, stop, seed };
    ModelPlan { round, model, lent, instruction, parameters, tools }
}
