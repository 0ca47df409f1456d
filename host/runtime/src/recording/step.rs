//! One step of a recorded turn: the request of the host, and the answer of the extension.

use annex_protocol::{
    AgentExtension, ContextId, Json, JsonObject, Message, Metadata, Part, StreamResponse, TaskId, TaskState,
    TaskStatusUpdateEvent,
};
use serde::{Deserialize, Serialize};

use super::host_call::HostCall;
use crate::chain::entry_decision::EntryDecision;
use crate::chain::steering::{MadeToolCall, PlannedModelCall, PlannedToolCall, Remark, SteeringVerdict};
use crate::chain::task_to_show::{ShowDecision, TaskToShow};

/// One step of a turn.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RecordedStep {
    /// The host's request.
    pub input: StepInput,
    /// Session state that the extension may read. Absent if unchanged since the previous step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<JsonObject>,
    /// The task, if the extension may read it. Absent if unchanged since the previous step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Json>,
    /// The agent's steps, if the extension may read them. Absent if unchanged since the previous step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_steps: Option<Json>,
    /// The calls of the guest that only the recording can answer in a replay, such as reads of the clock. They are in
    /// the order of the calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<HostCall>,
    /// The result after the host's checks.
    pub result: StepResult,
    /// Thread time of each hook that ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub times: Vec<HookTime>,
}

/// The host's request to an extension in one step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", rename_all_fields = "snake_case")]
pub enum StepInput {
    /// The hooks of the way in: `activation`, `message`, `state`.
    Request {
        /// The message, without parts if the extension does not see them.
        message: Message,
        /// `metadata` of the request.
        metadata: Metadata,
    },
    /// A call of `transition.begin`.
    Begin {
        /// The task of the turn.
        task_id: TaskId,
        /// The conversation.
        context_id: ContextId,
        /// The state in which the task waited. `None` if the task did not wait.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        waits_in: Option<TaskState>,
    },
    /// A call of `transition.change`.
    Change {
        /// The present state of the task.
        current: TaskState,
        /// The change.
        update: TaskStatusUpdateEvent,
    },
    /// A call of `reply.before-agent`.
    Reply {
        /// The message as it is stored.
        message: Message,
    },
    /// A call of `steering.before-model`.
    Model(PlannedModelCall),
    /// A call of `steering.before-tool`.
    Tool(PlannedToolCall),
    /// A call of `steering.after-tool`.
    ToolResult(MadeToolCall),
    /// A call of `output.revise`: the event with the parts that the extensions before this one have left. Parts that
    /// this extension has held back are in the earlier steps.
    Output(StreamResponse),
    /// A call of `response.respond`. The event has no parts if the extension does not see them.
    Event(StreamResponse),
    /// A call of `reads.show`.
    Read {
        /// The tasks that are not left out by the extensions before this one.
        tasks: Vec<TaskToShow>,
    },
    /// A call of `extended-card.show-entry`, with the entry on the extended card.
    ExtendedCard(AgentExtension),
    /// A call of `method.call`.
    Call {
        /// The parameters.
        params: Json,
    },
    /// A call of `method.next`.
    #[default]
    Next,
}

/// The extension's answer in one step, or its failure.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", rename_all_fields = "snake_case")]
pub enum StepResult {
    /// The extension is inactive for the request.
    Inactive,
    /// The extension accepts the request.
    Active {
        /// The keys of session state that the extension sets, with their new values.
        #[serde(default)]
        delta: JsonObject,
        /// The parts of the message, if the extension rewrote them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parts: Option<Vec<Part>>,
    },
    /// The extension refuses the request.
    Refused {
        /// Error code for the client.
        code: i32,
        /// Error message for the client.
        message: String,
        /// Data for the client: the violations, or data that the extension chose.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data: Option<Json>,
    },
    /// The extension failed or exceeded a limit.
    Failed {
        /// The name of the outcome in the metrics, such as `trap` or `cpu_limit`.
        kind: String,
        /// The text of the failure.
        reason: String,
    },
    /// The extension agrees with the beginning or the change, lets the agent answer, or leaves the content unchanged.
    Agrees {
        /// Metadata that the extension added to the change.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<Metadata>,
    },
    /// The extension makes the task wait.
    Interrupts {
        /// The state in which the task waits.
        state: TaskState,
        /// Text for the client.
        text: String,
        /// Metadata of the status message.
        #[serde(default)]
        metadata: Metadata,
    },
    /// The extension vetoes the beginning of the turn, or the change of state.
    Vetoes {
        /// The reason that the client is told.
        reason: String,
    },
    /// The extension answers in place of the agent.
    Answers {
        /// The state of the task after the answer.
        state: TaskState,
        /// The parts of the answer.
        parts: Vec<Part>,
        /// The name of the artifact. Absent if the parts are the message of the status.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        artifact: Option<String>,
        /// Metadata of the artifact or the message.
        #[serde(default)]
        metadata: Metadata,
    },
    /// The extension decides about a step of the agent.
    Steers {
        /// The verdict.
        verdict: SteeringVerdict,
        /// The remark about the step.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remark: Option<Remark>,
    },
    /// The extension revises the content of an event.
    Revises {
        /// The parts that it leaves. Parts that it has held back before are among them.
        parts: Vec<Part>,
    },
    /// The extension holds the chunk back.
    Holds,
    /// The extension refuses the content, and the task fails.
    RefusesContent {
        /// The reason for the client.
        reason: String,
    },
    /// Metadata that the extension added to the event.
    Adds(Metadata),
    /// The decisions of the extension about the tasks of a read, one per task.
    Shows(Vec<ShowDecision>),
    /// The decision of the extension about its entry on the extended card.
    ShowsEntry(EntryDecision),
    /// The result of a method, or one result of a stream.
    Value(Json),
    /// The method streams its results.
    Streams,
    /// The stream has ended.
    #[default]
    Ends,
}

/// The thread time of one hook.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HookTime {
    /// The name of the hook.
    pub hook: String,
    /// Thread time in microseconds.
    pub micros: u64,
}
