//! Runs cases.

use std::sync::Arc;

use annex_protocol::{ContextId, ExtensionUri, Json, Message, Metadata, StreamResponse, TaskId, TaskState};
use annex_runtime::{
    BeginOutcome, Chain, ClientCall, ClientCallRequest, Extension, Fault, Hook, MethodAnswer, MethodCall,
    OutputOutcome, RequestOutcome, TurnRequest,
};

use super::events::{agent_events, events_of, message, metadata, state, status};
use super::file::{CaseError, CaseInputs, ClientGiven, MethodGiven};
use super::outcome::Outcome;
use super::reads;
use super::scene::{CONTEXT, Scene, TASK};
use super::steering::{Steps, Went, has_steps};
use super::toml_json;

/// Runs the extension on the inputs of a case.
pub(super) async fn play(
    given: &CaseInputs,
    extension: &Arc<Extension>,
    scene: &Arc<Scene>,
) -> Result<Outcome, CaseError> {
    let mut outcome = Outcome::of(extension);
    let run = Run { given, extension, scene, outcome: &mut outcome };
    match (&given.method, &given.client) {
        (None, None) => run.turn().await?,
        (Some(method), None) => run.method(method).await?,
        (None, Some(client)) => run.client(client).await?,
        (Some(_), Some(_)) => return Err(CaseError::wrong("method", "a case cannot have both a method and a client")),
    }
    Ok(outcome)
}

/// The state of a running case.
struct Run<'a> {
    given: &'a CaseInputs,
    extension: &'a Arc<Extension>,
    scene: &'a Arc<Scene>,
    outcome: &'a mut Outcome,
}

/// The maximum number of results of a streaming method that a case records. A server has no such limit, because it does
/// not store results.
const MAX_RESULTS: usize = 1_000;
/// The request hooks.
const WAY_IN: [Hook; 3] = [Hook::Activation, Hook::Message, Hook::State];

impl Run<'_> {
    /// Runs a turn: the request hooks, the hook that is called when the turn begins, and the hooks for each event of
    /// the agent.
    async fn turn(mut self) -> Result<(), CaseError> {
        let only = self.only()?;
        if only == Some(Hook::LiveCard) {
            self.outcome.card = reads::live_card(self.extension);
            return Ok(());
        }
        let mut message = message(self.given)?;
        // When a task is resumed, `activation` is the only request hook that runs.
        let resumed = only.is_some_and(|hook| !WAY_IN.contains(&hook));
        let requested = self.requested();
        if !requested.contains(self.extension.uri()) {
            self.outcome.stays_out();
            return Ok(());
        }
        if only == Some(Hook::Reads) {
            return reads::show(self.given, self.extension, self.scene, &requested, self.outcome).await;
        }
        if only == Some(Hook::ExtendedCard) {
            return reads::show_entry(self.given, self.extension, self.scene, &requested, self.outcome).await;
        }
        let metadata = metadata(self.given)?;
        let request = TurnRequest {
            operation: self.given.operation.as_deref().unwrap_or("SendMessage"),
            context_id: Some(&ContextId::from(CONTEXT)),
            task_id: Some(&TaskId::from(TASK)),
            requested: &requested,
            message: &message,
            request: &metadata,
            view: Arc::clone(self.scene) as _,
            resumed,
        };
        let entered = Chain::run_request_hooks(std::slice::from_ref(self.extension), &request).await;
        let RequestOutcome { mut chain, parts, .. } = match entered {
            Err(error) => {
                self.outcome.stopped(&error);
                return Ok(());
            }
            Ok(entered) => {
                self.outcome.entered(&entered);
                entered
            }
        };
        if !only.is_some_and(|hook| WAY_IN.contains(&hook)) && chain.active().next().is_some() {
            message.parts = parts.map_or(message.parts, Into::into);
            self.begin_and_answer(&mut chain, &message, only).await?;
        }
        self.outcome.set_task_metadata(chain.take_task_metadata());
        Ok(())
    }

    /// Runs the hooks for the beginning of the turn, and those for the answer of the agent or of the extension.
    async fn begin_and_answer(
        &mut self,
        chain: &mut Chain,
        message: &Message,
        only: Option<Hook>,
    ) -> Result<(), CaseError> {
        if runs(Hook::Transition, only) && !self.begins(chain, only.is_some()).await? {
            return Ok(());
        }
        let answer = if runs(Hook::Reply, only) { chain.run_reply_hooks(message).await } else { Ok(None) };
        let events = match answer {
            Ok(Some(answer)) => events_of(answer),
            // There is nothing else to look at.
            Ok(None) if only == Some(Hook::Reply) => Vec::new(),
            Ok(None) => {
                if !self.takes_steps(chain, only).await? {
                    return Ok(());
                }
                agent_events(self.given)?
            }
            Err(error) => {
                self.outcome.stopped(&error);
                return Ok(());
            }
        };
        if let Err(fault) = self.go_out(chain, events, only).await {
            self.outcome.failed(&fault);
        }
        Ok(())
    }

    /// Runs the hook `steering` for the steps of the case. Returns true if the agent answers afterwards.
    async fn takes_steps(&mut self, chain: &mut Chain, only: Option<Hook>) -> Result<bool, CaseError> {
        let is_alone = only == Some(Hook::Steering);
        let has_hook = self.extension.hooks().contains(&Hook::Steering);
        // A recorded turn may have steps that the component has no hook for.
        if !is_alone && (only.is_some() || !has_hook || !has_steps(self.given)) {
            return Ok(true);
        }
        let steps = Steps::of(self.given, self.extension.uri())?;
        match steps.take(chain, self.outcome).await {
            Ok(Went::On) => return Ok(!is_alone),
            Ok(Went::Waiting) => {}
            Ok(Went::Refused(reason)) => {
                // The text is the host's own, and runs no hooks.
                let failed = status(TaskState::Failed, Some(&reason));
                self.outcome.add_event(&StreamResponse::StatusUpdate(failed));
            }
            Err(fault) => self.outcome.failed(&fault),
        }
        Ok(false)
    }

    /// The only hook that the case runs; `None` if the whole turn runs.
    fn only(&self) -> Result<Option<Hook>, CaseError> {
        let only = self.given.hook.as_deref().map(crate::choice::parse_hook).transpose();
        match only.map_err(|reason| CaseError::wrong("hook", reason))? {
            Some(hook @ (Hook::Card | Hook::Method | Hook::Client)) => {
                let reason = format!("{hook} is no hook of a turn; given.method and given.client are for the last two");
                Err(CaseError::wrong("hook", reason))
            }
            Some(hook) if !self.extension.hooks().contains(&hook) => {
                Err(CaseError::wrong("hook", format!("the component has no hook {hook}")))
            }
            only => Ok(only),
        }
    }

    fn requested(&self) -> Vec<ExtensionUri> {
        match &self.given.requested {
            Some(requested) => requested.iter().map(|uri| ExtensionUri::from(uri.as_str())).collect(),
            None => vec![self.extension.uri().clone()],
        }
    }

    /// Runs the hook that is called when a turn begins. Returns true if the hook lets the agent run.
    async fn begins(&mut self, chain: &mut Chain, resumed: bool) -> Result<bool, CaseError> {
        let waits_in = self.given.waits_in.as_deref().map(|name| state(name, "waits_in")).transpose()?;
        let (task, context) = (TaskId::from(TASK), ContextId::from(CONTEXT));
        match chain.run_beginning_hooks(&task, &context, waits_in, resumed).await {
            // These hooks give no answer: the hook `reply` runs next.
            Ok(BeginOutcome::Proceed | BeginOutcome::Answered(_)) => return Ok(true),
            Ok(BeginOutcome::Vetoed(reason)) => self.outcome.rejected = Some(reason),
            Ok(BeginOutcome::Interrupted(interruption)) => {
                let mut update = status(TaskState::Working, None);
                interruption.place(&mut update);
                self.outcome.add_event(&StreamResponse::StatusUpdate(update));
            }
            Err(fault) => self.outcome.failed(&fault),
        }
        Ok(false)
    }

    /// Runs the hooks of the way out for the events of an answer.
    async fn go_out(
        &mut self,
        chain: &mut Chain,
        events: Vec<StreamResponse>,
        only: Option<Hook>,
    ) -> Result<(), Fault> {
        let mut current = TaskState::Working;
        for mut event in events {
            if let StreamResponse::StatusUpdate(update) = &mut event {
                if runs(Hook::Transition, only) {
                    chain.run_transition_hooks(current, update).await?;
                }
                current = update.status.state;
                // Held content goes out before the task settles.
                if (current.is_terminal() || current.is_interrupted()) && !self.release(chain, only).await? {
                    return Ok(());
                }
            }
            let outcome = if runs(Hook::Output, only) {
                chain.run_output_hooks(event).await?
            } else {
                OutputOutcome::GoesOut(event)
            };
            if !self.send(chain, outcome, only).await? {
                return Ok(());
            }
        }
        self.release(chain, only).await.map(drop)
    }

    /// Sends everything that the extension holds back. Returns false if the extension refuses it.
    async fn release(&mut self, chain: &mut Chain, only: Option<Hook>) -> Result<bool, Fault> {
        while let Some(outcome) = chain.run_output_hooks_on_held().await? {
            if !self.send(chain, outcome, only).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Runs the hook `response` for an event that goes out. Returns false if the task fails instead.
    async fn send(&mut self, chain: &mut Chain, outcome: OutputOutcome, only: Option<Hook>) -> Result<bool, Fault> {
        let mut event = match outcome {
            OutputOutcome::GoesOut(event) => event,
            OutputOutcome::Withheld => return Ok(true),
            OutputOutcome::Refused { reason, .. } => {
                // The text is the host's own, and runs no hooks.
                let failed = status(TaskState::Failed, Some(&reason));
                self.outcome.add_event(&StreamResponse::StatusUpdate(failed));
                return Ok(false);
            }
        };
        if runs(Hook::Response, only) {
            chain.run_response_hooks(&mut event).await?;
        }
        self.outcome.add_event(&event);
        if matches!(event, StreamResponse::StatusUpdate(_)) {
            self.outcome.set_task_metadata(chain.take_task_metadata());
        }
        Ok(true)
    }

    async fn method(self, method: &MethodGiven) -> Result<(), CaseError> {
        let params = params(method)?;
        let requested = self.requested();
        let request = TurnRequest {
            operation: &method.name,
            context_id: None,
            task_id: None,
            requested: &requested,
            message: &Message::default(),
            request: &Metadata::new(),
            view: Arc::clone(self.scene) as _,
            resumed: false,
        };
        match MethodCall::start(self.extension, &request, &params).await {
            Err(error) => self.outcome.stopped(&error),
            Ok(MethodAnswer::Value(value)) => self.outcome.result = Some(value),
            Ok(MethodAnswer::Results(mut call)) => loop {
                match call.next().await {
                    Ok(Some(value)) if self.outcome.results.len() < MAX_RESULTS => self.outcome.results.push(value),
                    Ok(Some(_)) => return Err(CaseError::Case(format!("there are more than {MAX_RESULTS} results"))),
                    Ok(None) => break,
                    Err(error) => {
                        self.outcome.stopped(&error);
                        break;
                    }
                }
            },
        }
        Ok(())
    }

    async fn client(self, client: &ClientGiven) -> Result<(), CaseError> {
        let input = client.input.as_ref().map(|input| Json::parse(toml_json::json(input).to_string())).transpose();
        let input = input.map_err(|error| CaseError::wrong("client.input", error))?;
        let message = message(self.given)?;
        let card = self.extension.card();
        let call = ClientCallRequest {
            operation: self.given.operation.as_deref().unwrap_or("SendMessage"),
            agent: &client.agent,
            declaration: client.declared.then_some(&*card),
            input: input.as_ref(),
            message: Some(&message),
        };
        let view = Arc::clone(self.scene) as _;
        let mut started = match ClientCall::start_in(self.extension, &call, view).await {
            Err(error) => {
                self.outcome.stopped(&error);
                return Ok(());
            }
            Ok((started, addition)) => {
                self.outcome.added(&addition);
                started
            }
        };
        for event in &client.events {
            let event = serde_json::from_value(toml_json::object(event));
            let event: StreamResponse = event.map_err(|error| CaseError::wrong("client.events", error))?;
            match started.after(&event, true).await {
                Ok(told) => self.outcome.told.extend(told),
                Err(fault) => self.outcome.failed(&fault),
            }
        }
        Ok(())
    }
}

/// True if the case runs the hook.
fn runs(hook: Hook, only: Option<Hook>) -> bool {
    only.is_none_or(|only| only == hook)
}

/// Reads the parameters of a method, which must be an object.
fn params(method: &MethodGiven) -> Result<Json, CaseError> {
    let wrong = |error: serde_json::Error| CaseError::wrong("method.params", error);
    let params = method.params.as_ref().map_or_else(|| Ok(serde_json::json!({})), toml_json::of_case).map_err(wrong)?;
    if !params.is_object() {
        let reason = "is neither a table nor a string with an object of JSON, such as '{\"limit\": null}'";
        return Err(CaseError::wrong("method.params", reason));
    }
    Json::parse(params.to_string()).map_err(wrong)
}
