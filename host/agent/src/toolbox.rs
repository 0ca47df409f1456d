//! Runs the tool calls that a model requests.

use annex_conversation::StateDelta;
use annex_protocol::{ExtensionUri, Json, Part};
use futures::future::join_all;

use crate::call_part;
use crate::callbacks::{CallbackContext, Callbacks};
use crate::executor::{AgentError, EventSender, Question, TurnContext};
use crate::model::{ToolCall, ToolResult};
use crate::state_access::StateAccess;
use crate::steering::MadeCall;
use crate::steps::StepKind;
use crate::tool::{ToolContext, ToolError, ToolOutput, Tools};

/// The results of calls that ran at the same time. They are stored as one event.
#[derive(Default)]
pub(crate) struct Outcomes {
    pub(crate) results: Vec<Outcome>,
    /// The state changes, merged in the order of the calls, so that the last value stays.
    pub(crate) changes: StateDelta,
    pub(crate) artifacts: Vec<(String, Vec<Part>)>,
}

/// A call, and what happens to it.
pub(crate) struct DecidedCall {
    pub(crate) call: ToolCall,
    pub(crate) fate: CallFate,
}

/// What happens to a call.
pub(crate) enum CallFate {
    /// The call is made.
    Made,
    /// The call is not made. The model gets the text as the result.
    Denied(String),
    /// The task waits for this extension before the call is made.
    Held(ExtensionUri),
}

pub(crate) struct Outcome {
    pub(crate) call: ToolCall,
    pub(crate) result: ToolResult,
    pub(crate) is_pending: bool,
}

/// The outcome of one call, and the changes that the tool made.
struct CallOutcome {
    outcome: Outcome,
    changes: StateDelta,
    artifacts: Vec<(String, Vec<Part>)>,
}

/// The tools and the turn that calls them.
pub(crate) struct Toolbox<'a> {
    pub(crate) tools: &'a Tools,
    pub(crate) callbacks: Option<&'a dyn Callbacks>,
    pub(crate) turn: &'a TurnContext,
    pub(crate) events: &'a EventSender,
}

impl Toolbox<'_> {
    /// Makes all calls at the same time, except denied ones. None of the calls is held.
    ///
    /// # Errors
    /// When a callback fails. If a tool fails, its result says so.
    pub(crate) async fn call_all(&self, calls: Vec<DecidedCall>) -> Result<Outcomes, AgentError> {
        let mut outcomes = Outcomes::default();
        for called in join_all(calls.into_iter().map(|call| self.call_one(call))).await {
            let CallOutcome { outcome, changes, artifacts } = called?;
            outcomes.results.push(outcome);
            // In the order of the calls and not of their completion, so that the outcome does not depend on timing.
            outcomes.changes.merge(changes);
            outcomes.artifacts.extend(artifacts);
        }
        Ok(outcomes)
    }

    async fn call_one(&self, DecidedCall { mut call, fate }: DecidedCall) -> Result<CallOutcome, AgentError> {
        if let CallFate::Denied(text) = fate {
            return Ok(self.denied(call, &text));
        }
        let mut context = callback_context(self.turn);
        let instead = match self.callbacks {
            Some(callbacks) => callbacks.before_tool(&mut context, &mut call).await?,
            None => None,
        };
        let mut tool = ToolContext {
            task_id: self.turn.task_id.clone(),
            context_id: self.turn.context_id.clone(),
            call_id: call.id.clone(),
            // A copy, so that what a tool sets before it fails can be dropped.
            state: context.state.clone(),
            artifacts: Vec::new(),
        };
        let output = match instead {
            Some(result) => Ok(ToolOutput::Done(result)),
            None => self.run(&mut tool, &call).await,
        };
        let failed = output.is_err();
        let mut artifacts = Vec::new();
        // The changes of a tool that failed are dropped. Those of `before_tool` stay.
        if output.is_ok() {
            (context.state, artifacts) = (tool.state, tool.artifacts);
        }
        let (mut response, is_pending) = match output {
            Ok(ToolOutput::Done(response)) => (response, false),
            Ok(ToolOutput::Pending(response)) => (response, true),
            Err(error) => (call_part::error(&error.message), false),
        };
        if let Some(callbacks) = self.callbacks {
            response = callbacks.after_tool(&mut context, &call, &response).await?.unwrap_or(response);
        }
        // Arguments in another form are an error for the model, and no tool was called.
        if self.turn.is_steered && is_object(&call.arguments) {
            let made = MadeCall { call: call.clone(), output: response, failed };
            response = self.events.ask(|answer| Question::Result { made, answer }).await?;
        }
        let result = ToolResult { id: call.id.clone(), name: call.name.clone(), response };
        let outcome = Outcome { call, result, is_pending };
        Ok(CallOutcome { outcome, changes: context.state.into_changes(), artifacts })
    }

    /// The outcome of a call that is not made. The step says why.
    fn denied(&self, call: ToolCall, text: &str) -> CallOutcome {
        self.turn.steps.begin(StepKind::Tool, &call.name).fail(text);
        let result = ToolResult { id: call.id.clone(), name: call.name.clone(), response: call_part::error(text) };
        let outcome = Outcome { call, result, is_pending: false };
        CallOutcome { outcome, changes: StateDelta::new(), artifacts: Vec::new() }
    }

    async fn run(&self, context: &mut ToolContext, call: &ToolCall) -> Result<ToolOutput, ToolError> {
        let step = self.turn.steps.begin(StepKind::Tool, &call.name);
        let called = step.within(self.run_checked(context, call)).await;
        match &called {
            Ok(_) => step.finish(),
            Err(error) => step.fail(&error.message),
        }
        called
    }

    async fn run_checked(&self, context: &mut ToolContext, call: &ToolCall) -> Result<ToolOutput, ToolError> {
        let refused = |message| Err(ToolError { message });
        let Some(tool) = self.tools.get(&call.name) else {
            return refused(format!("there is no tool `{}`", call.name));
        };
        // Models sometimes ignore the declaration. They get an error and may try again.
        if !is_object(&call.arguments) {
            return refused("the arguments are not a JSON object".to_owned());
        }
        tool.call(context, &call.arguments).await
    }
}

pub(crate) fn callback_context(turn: &TurnContext) -> CallbackContext {
    CallbackContext {
        task_id: turn.task_id.clone(),
        context_id: turn.context_id.clone(),
        state: StateAccess::new(turn.conversation.clone()),
    }
}

/// True for arguments that a tool can be called with.
pub(crate) fn is_object(json: &Json) -> bool {
    json.get().starts_with('{')
}
