//! The hook `steering`.

use std::sync::Arc;

use annex_protocol::Json;
use annex_text::cut;

use super::Member;
use super::way_out::noted;
use crate::chain::steering::{
    MAX_REMARKS, MadeToolCall, PlannedModelCall, PlannedToolCall, Remark, SteeringVerdict, StepVerdict,
};
use crate::contract::{LogLevel, ModelVerdict, RemarkDraft, ToolVerdict, Wait};
use crate::error::Fault;
use crate::hook::Hook;
use crate::recording::recorder::TurnRecorder;
use crate::recording::step::{StepInput, StepResult};

/// Maximum length of the text that the model gets for a denied call, in bytes. A longer text is cut.
const MAX_DENIAL: usize = 4 << 10;
/// The text that the model gets for a call whose arguments exceed the extension's limit.
const UNCHECKED_CALL: &str = "its arguments are too large to be checked";
/// The result that the model gets in place of a result that exceeds the extension's limit.
const UNCHECKED_RESULT: &str = r#"{"error":"its result is too large to be checked"}"#;

impl Member {
    /// True if the extension steers the steps of the agent, or if a recording needs them.
    pub(in crate::chain) fn notices_steps(&self) -> bool {
        let is_recorded = || self.recorder.as_ref().is_some_and(|recorder| recorder.notes(|asked| asked.steering));
        self.extension.hook_set.has(Hook::Steering) || is_recorded()
    }

    /// Asks the extension about a call of the model.
    pub(in crate::chain) async fn before_model(&mut self, call: &PlannedModelCall) -> Result<StepVerdict, Fault> {
        let step = self.noting_step(|| StepInput::Model(call.clone()));
        let steered = self.ask_before_model(call).await;
        self.steered(step, steered)
    }

    async fn ask_before_model(&mut self, call: &PlannedModelCall) -> Result<StepVerdict, Fault> {
        if !self.steers()? {
            return Ok(StepVerdict::passes());
        }
        let extension = Arc::clone(&self.extension);
        let hooks = &extension.program.hooks;
        self.check_size(call.bytes())?;
        let seen = call.seen();
        let answered = self
            .call(Hook::Steering, async |store, component| hooks.before_model(store, component, seen).await)
            .await?;
        let (verdict, remark) = answered.map_err(|message| self.failed(Hook::Steering, &message))?;
        let verdict = match verdict {
            ModelVerdict::Pass => SteeringVerdict::Passes,
            ModelVerdict::Change(change) => {
                call.checked(change).map_err(|reason| self.broke(Hook::Steering, &reason))?
            }
            // The client sees the reason, so it becomes one line without secrets.
            ModelVerdict::Refuse(reason) => SteeringVerdict::Refuses { reason: extension.profile.words(&reason) },
        };
        self.with_remark(verdict, remark)
    }

    /// Asks the extension about a call of a tool.
    pub(in crate::chain) async fn before_tool(&mut self, call: &PlannedToolCall) -> Result<StepVerdict, Fault> {
        let step = self.noting_step(|| StepInput::Tool(call.clone()));
        let steered = self.ask_before_tool(call).await;
        self.steered(step, steered)
    }

    async fn ask_before_tool(&mut self, call: &PlannedToolCall) -> Result<StepVerdict, Fault> {
        if !self.steers()? {
            return Ok(StepVerdict::passes());
        }
        if self.is_too_large(call.arguments.get().len()) {
            return Ok(self.unchecked(SteeringVerdict::Denies { text: UNCHECKED_CALL.to_owned() }));
        }
        let extension = Arc::clone(&self.extension);
        let hooks = &extension.program.hooks;
        let seen = call.seen(extension.uri());
        let answered =
            self.call(Hook::Steering, async |store, component| hooks.before_tool(store, component, seen).await).await?;
        let (verdict, remark) = answered.map_err(|message| self.failed(Hook::Steering, &message))?;
        let verdict = match verdict {
            ToolVerdict::Pass => SteeringVerdict::Passes,
            ToolVerdict::Change(arguments) => {
                let checked = call.checked(arguments, extension.uri());
                checked.map_err(|reason| self.broke(Hook::Steering, &reason))?
            }
            ToolVerdict::Deny(text) => {
                SteeringVerdict::Denies { text: cut(extension.profile.without_secrets(&text).into_owned(), MAX_DENIAL) }
            }
            ToolVerdict::Wait(asked) => {
                let plain = Wait { state: asked.state, text: asked.text.clone(), metadata: Vec::new() };
                let wait = match self.interruption(Hook::Steering, asked) {
                    Err(wrong) => {
                        self.tolerate(wrong)?;
                        self.interruption(Hook::Steering, plain)?
                    }
                    Ok(wait) => wait,
                };
                SteeringVerdict::Waits { state: wait.state, text: wait.text, metadata: wait.metadata }
            }
        };
        self.with_remark(verdict, remark)
    }

    /// Lets the extension replace the result of a tool.
    pub(in crate::chain) async fn after_tool(&mut self, made: &MadeToolCall) -> Result<StepVerdict, Fault> {
        let step = self.noting_step(|| StepInput::ToolResult(made.clone()));
        let steered = self.ask_after_tool(made).await;
        self.steered(step, steered)
    }

    async fn ask_after_tool(&mut self, made: &MadeToolCall) -> Result<StepVerdict, Fault> {
        if !self.steers()? {
            return Ok(StepVerdict::passes());
        }
        let size = made.arguments.get().len().saturating_add(made.output.get().len());
        if self.is_too_large(size) {
            let output = Json::parse(UNCHECKED_RESULT.to_owned()).unwrap_or_else(|_| Json::string(UNCHECKED_RESULT));
            return Ok(self.unchecked(SteeringVerdict::ReplacesResult(output)));
        }
        let extension = Arc::clone(&self.extension);
        let hooks = &extension.program.hooks;
        let seen = made.seen();
        let answered =
            self.call(Hook::Steering, async |store, component| hooks.after_tool(store, component, seen).await).await?;
        let (output, remark) = answered.map_err(|message| self.failed(Hook::Steering, &message))?;
        let verdict = match output.map(Json::parse).transpose() {
            Ok(None) => SteeringVerdict::Passes,
            Ok(Some(output)) => SteeringVerdict::ReplacesResult(output),
            Err(error) => {
                return Err(self.broke(Hook::Steering, &format!("its result of the tool is not JSON: {error}")));
            }
        };
        self.with_remark(verdict, remark)
    }

    /// True if the extension has the hook and is to be asked.
    ///
    /// # Errors
    /// The extension takes no further part in the turn, and requests must not skip it.
    fn steers(&self) -> Result<bool, Fault> {
        if !self.extension.program.hooks.has(Hook::Steering) {
            return Ok(false);
        }
        if !self.is_out() {
            return Ok(true);
        }
        if self.extension.may_be_skipped() {
            return Ok(false);
        }
        Err(self.broke(Hook::Steering, "it failed earlier in the turn, and no step may be taken without it"))
    }

    /// True if the extension does not get data of `size` bytes.
    fn is_too_large(&self, size: usize) -> bool {
        size > self.extension.profile.limits.input
    }

    /// The verdict on data that the extension does not get: `otherwise`, unless requests may skip the extension.
    fn unchecked(&self, otherwise: SteeringVerdict) -> StepVerdict {
        if self.extension.may_be_skipped() {
            return StepVerdict::passes();
        }
        StepVerdict { verdict: otherwise, remark: None, is_own: false }
    }

    fn noting_step(&self, input: impl FnOnce() -> StepInput) -> Option<Arc<TurnRecorder>> {
        self.noting(|asked| asked.steering, |recorder| recorder.step(input))
    }

    /// Ends the step of the recording. After a failure the member takes no further part in the turn.
    fn steered(
        &mut self,
        step: Option<Arc<TurnRecorder>>,
        steered: Result<StepVerdict, Fault>,
    ) -> Result<StepVerdict, Fault> {
        noted(step, &steered, |StepVerdict { verdict, remark, .. }, _| StepResult::Steers {
            verdict: verdict.clone(),
            remark: remark.clone(),
        });
        self.settled(Hook::Steering, steered)
    }

    /// Counts a wrong remark or wrong metadata of an extension that requests may skip. Its verdict holds, because the step
    /// would pass otherwise.
    ///
    /// # Errors
    /// The fault, if requests must not skip the extension.
    fn tolerate(&mut self, wrong: Fault) -> Result<(), Fault> {
        if !self.extension.may_be_skipped() {
            return Err(wrong);
        }
        self.log.write(LogLevel::Warn, "steering", &format!("the verdict holds without it: {}", wrong.text()));
        let _ = self.counted(Hook::Steering, Err::<(), Fault>(wrong));
        Ok(())
    }

    fn with_remark(&mut self, verdict: SteeringVerdict, draft: Option<RemarkDraft>) -> Result<StepVerdict, Fault> {
        let Some(draft) = draft else { return Ok(StepVerdict { verdict, remark: None, is_own: true }) };
        let remark = match Remark::checked(draft, &self.extension.descriptor) {
            Ok(remark) => remark,
            Err(reason) => {
                let wrong = self.broke(Hook::Steering, &reason);
                self.tolerate(wrong)?;
                return Ok(StepVerdict { verdict, remark: None, is_own: true });
            }
        };
        self.remarks = self.remarks.saturating_add(1);
        if self.remarks == MAX_REMARKS + 1 {
            let line = format!("the turn has {MAX_REMARKS} remarks of the extension; further remarks are not sent");
            self.log.write(LogLevel::Warn, "steering", &line);
        }
        let remark = Some(remark).filter(|_| self.remarks <= MAX_REMARKS);
        Ok(StepVerdict { verdict, remark, is_own: true })
    }
}
