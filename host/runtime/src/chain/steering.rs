//! The hook `steering`: the steps of the agent as the hook gets them, the verdicts of extensions, and the outcomes.

use annex_protocol::{ExtensionUri, Json, Metadata, Part, TaskState};
use serde::{Deserialize, Serialize};

use crate::chain::interruption::Interruption;
use crate::chain::model_parameters::ModelParameters;
use crate::chain::{outgoing, rewriting};
use crate::contract::{ModelCall, ModelChange, RemarkDraft, ToolCall, ToolResult};
use crate::load::descriptor::Descriptor;

/// Maximum number of parts of a changed instruction.
const MAX_INSTRUCTION_PARTS: usize = 16;
/// Maximum size of the parts that a change adds to an instruction, in bytes.
const MAX_NEW_INSTRUCTION: usize = 64 << 10;
/// Maximum size of the parts and metadata of a remark, in bytes of JSON.
const MAX_REMARK: usize = 16 << 10;
/// Maximum number of remarks of one extension in one turn. Further remarks are not sent.
pub(crate) const MAX_REMARKS: u32 = 64;

/// A call of the model that is about to be made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedModelCall {
    /// How many rounds of tools there were in the turn.
    pub round: u32,
    /// The name of the model under which the operator lends it.
    pub model: String,
    /// The names of the models that may be called instead.
    pub lent: Vec<String>,
    /// The parts of the instruction: first the operator's, then those of extensions.
    pub instruction: Vec<String>,
    /// The parameters of the call.
    pub parameters: ModelParameters,
    /// The names of the tools.
    pub tools: Vec<String>,
}

/// A call of a tool that the model asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedToolCall {
    /// Id of the call.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Name of the server that offers the tool.
    pub origin: String,
    /// The arguments: a JSON object.
    pub arguments: Json,
    /// The extensions that have made the call wait.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waited_for: Vec<ExtensionUri>,
}

/// A call of a tool that was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MadeToolCall {
    /// Id of the call.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// The arguments: a JSON object.
    pub arguments: Json,
    /// The result.
    pub output: Json,
    /// True if the tool reported an error.
    pub failed: bool,
}

/// The verdict of an extension on a step of the agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", rename_all_fields = "snake_case")]
pub enum SteeringVerdict {
    /// The step is taken unchanged.
    Passes,
    /// The model is called with these changes. A field without a value stays as it is.
    ChangesCall {
        /// Another model that is lent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// All parts of the new instruction.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instruction: Option<Vec<String>>,
        /// All parameters.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parameters: Option<ModelParameters>,
    },
    /// The model is not called, and the task fails.
    Refuses {
        /// The reason for the client.
        reason: String,
    },
    /// The tool is called with these arguments.
    ChangesArguments(Json),
    /// The tool is not called.
    Denies {
        /// The text that the model gets as the result.
        text: String,
    },
    /// The task waits before the tool is called.
    Waits {
        /// The state in which the task waits.
        state: TaskState,
        /// The text for the client.
        text: String,
        /// Metadata of the status message.
        #[serde(default)]
        metadata: Metadata,
    },
    /// The model gets this value as the result of the tool.
    ReplacesResult(Json),
}

/// A remark of an extension about a step. The client gets it as the message of a status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Remark {
    /// The extension.
    pub by: ExtensionUri,
    /// The parts, at least one.
    pub parts: Vec<Part>,
    /// Metadata of the message.
    #[serde(default)]
    pub metadata: Metadata,
}

/// The verdict of one extension, with its remark.
pub(crate) struct StepVerdict {
    pub(crate) verdict: SteeringVerdict,
    pub(crate) remark: Option<Remark>,
    /// True if the extension has decided. False for the verdict of the host on an extension that was not asked.
    pub(crate) is_own: bool,
}

/// The outcome of the hook `steering` for a step, with the remarks of the extensions.
#[derive(Debug)]
pub struct Steered<T> {
    /// The outcome.
    pub outcome: T,
    /// The remarks in the order of the extensions.
    pub remarks: Vec<Remark>,
}

/// The outcome for a call of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelOutcome {
    /// The call is made.
    Made,
    /// The task fails.
    Refused {
        /// The extension that refuses.
        by: ExtensionUri,
        /// The reason for the client.
        reason: String,
    },
}

/// The outcome for a call of a tool.
#[derive(Clone, Debug)]
pub enum ToolOutcome {
    /// The call is made.
    Made,
    /// The call is not made. The model gets this text as the result.
    Denied(String),
    /// The task waits before the call is made.
    Waits(Interruption),
}

impl PlannedModelCall {
    /// Converts the call for the guest.
    pub(crate) fn seen(&self) -> ModelCall {
        ModelCall {
            round: self.round,
            model: self.model.clone(),
            lent: self.lent.clone(),
            instruction: self.instruction.clone(),
            parameters: serde_json::to_string(&self.parameters).unwrap_or_default(),
            tools: self.tools.clone(),
        }
    }

    /// Size of the texts, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let texts = self.lent.iter().chain(&self.instruction).chain(&self.tools);
        texts.map(String::len).fold(self.model.len(), usize::saturating_add)
    }

    /// Checks the changes that an extension asks for.
    ///
    /// # Errors
    /// The model is not lent, or the instruction or the parameters are beyond the limits.
    pub(crate) fn checked(&self, change: ModelChange) -> Result<SteeringVerdict, String> {
        let ModelChange { model, instruction, parameters } = change;
        if let Some(model) = model.as_ref().filter(|model| !self.lent.contains(model)) {
            return Err(format!("it chooses the model {model:?}, which is not lent"));
        }
        if let Some(parts) = &instruction {
            if parts.len() > MAX_INSTRUCTION_PARTS {
                let found = parts.len();
                return Err(format!("its instruction has {found} parts; at most {MAX_INSTRUCTION_PARTS} are allowed"));
            }
            // Each present part is free once.
            let mut present: Vec<&String> = self.instruction.iter().collect();
            let new = parts.iter().filter(|part| {
                let place = present.iter().position(|known| known == part);
                place.map(|place| present.swap_remove(place)).is_none()
            });
            let bytes = new.map(String::len).fold(0, usize::saturating_add);
            if bytes > MAX_NEW_INSTRUCTION {
                return Err(format!(
                    "it adds {bytes} bytes to the instruction; at most {MAX_NEW_INSTRUCTION} are allowed"
                ));
            }
        }
        let parameters = parameters.as_deref().map(ModelParameters::parse).transpose()?;
        Ok(SteeringVerdict::ChangesCall { model, instruction, parameters })
    }

    /// Carries out the verdict of an extension.
    pub(crate) fn follow(&mut self, verdict: SteeringVerdict) {
        if let SteeringVerdict::ChangesCall { model, instruction, parameters } = verdict {
            self.model = model.unwrap_or_else(|| self.model.clone());
            self.instruction = instruction.unwrap_or_else(|| self.instruction.clone());
            self.parameters = parameters.unwrap_or_else(|| self.parameters.clone());
        }
    }
}

impl PlannedToolCall {
    /// Converts the call for the guest of this extension.
    pub(crate) fn seen(&self, by: &ExtensionUri) -> ToolCall {
        ToolCall {
            id: self.id.clone(),
            name: self.name.clone(),
            origin: self.origin.clone(),
            arguments: self.arguments.get().to_owned(),
            has_waited: self.waited_for.contains(by),
        }
    }

    /// Checks the arguments that an extension sets.
    ///
    /// # Errors
    /// The arguments are not a JSON object, or the extension has made the call wait.
    pub(crate) fn checked(&self, arguments: String, by: &ExtensionUri) -> Result<SteeringVerdict, String> {
        if self.waited_for.contains(by) {
            return Err("it changes the arguments of a call that it has made wait".to_owned());
        }
        let arguments =
            Json::parse(arguments).map_err(|error| format!("its arguments for the tool are not JSON: {error}"))?;
        if !arguments.get().starts_with('{') {
            return Err("its arguments for the tool are not a JSON object".to_owned());
        }
        // Whoever was asked about the call has seen the arguments.
        if !self.waited_for.is_empty() {
            let text = "an extension changes the arguments of a call that has waited, which is not allowed".to_owned();
            return Ok(SteeringVerdict::Denies { text });
        }
        Ok(SteeringVerdict::ChangesArguments(arguments))
    }
}

impl MadeToolCall {
    /// Converts the call for the guest.
    pub(crate) fn seen(&self) -> ToolResult {
        ToolResult {
            id: self.id.clone(),
            name: self.name.clone(),
            arguments: self.arguments.get().to_owned(),
            output: self.output.get().to_owned(),
            failed: self.failed,
        }
    }
}

impl Remark {
    /// Checks the remark of an extension.
    ///
    /// # Errors
    /// The remark is too large, has no part or an unreadable part, or has metadata of others.
    pub(crate) fn checked(draft: RemarkDraft, descriptor: &Descriptor) -> Result<Self, String> {
        let RemarkDraft { parts, metadata } = draft;
        if parts.is_empty() {
            return Err("its remark has no part".to_owned());
        }
        let sizes = parts.iter().map(String::len).chain(metadata.iter().map(|(key, value)| key.len() + value.len()));
        let bytes = sizes.fold(0, usize::saturating_add);
        if bytes > MAX_REMARK {
            return Err(format!("its remark has {bytes} bytes; at most {MAX_REMARK} are allowed"));
        }
        let parts = rewriting::new_parts(&parts, &descriptor.metadata_keys);
        Ok(Self {
            by: descriptor.uri.clone(),
            parts: parts.map_err(|reason| format!("its remark is invalid: {reason}"))?,
            metadata: outgoing::checked_entries("remark", descriptor, metadata, None)?.into_iter().collect(),
        })
    }
}

impl StepVerdict {
    /// The verdict of an extension that is not asked.
    pub(crate) const fn passes() -> Self {
        Self { verdict: SteeringVerdict::Passes, remark: None, is_own: false }
    }
}

#[cfg(test)]
mod tests {
    use super::{ModelChange, ModelParameters, PlannedModelCall, SteeringVerdict};

    #[test]
    fn an_instruction_may_grow_and_not_without_bound() {
        let call = PlannedModelCall {
            round: 0,
            model: "default".to_owned(),
            lent: vec!["default".to_owned()],
            instruction: vec!["x".repeat(100 << 10)],
            parameters: ModelParameters::default(),
            tools: Vec::new(),
        };
        let change = |instruction: Vec<String>| {
            call.checked(ModelChange { model: None, instruction: Some(instruction), parameters: None })
        };
        let own = call.instruction.first().expect("a part").clone();
        assert!(matches!(change(vec![own.clone(), "more".to_owned()]), Ok(SteeringVerdict::ChangesCall { .. })));
        assert!(change(vec![own.clone(), "y".repeat(65 << 10)]).is_err_and(|reason| reason.contains("66560 bytes")));
        assert!(change(vec![own.clone(); 2]).is_err_and(|reason| reason.contains("102400 bytes")));
        assert!(change(vec!["z".to_owned(); 17]).is_err_and(|reason| reason.contains("17 parts")));
        let unlent = ModelChange { model: Some("other".to_owned()), instruction: None, parameters: None };
        assert!(call.checked(unlent).is_err_and(|reason| reason.contains("not lent")));
    }
}
