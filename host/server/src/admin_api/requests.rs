//! Answers about the last requests. The texts of a request are those of its client and of authors of extensions.

use serde::{Deserialize, Serialize};

/// The last requests, the newest first.
#[derive(Debug, Deserialize, Serialize)]
pub struct List<Text = String> {
    /// The requests.
    pub requests: Vec<Request<Text>>,
}

/// One finished request.
#[derive(Debug, Deserialize, Serialize)]
pub struct Request<Text = String> {
    /// The number of the request in the process that served it. Later requests have higher numbers.
    pub number: u64,
    /// The time at which the request ended.
    pub ended: Text,
    /// The operation, such as `SendMessage`.
    pub operation: Text,
    /// The outcome: `ok`, `refused`, `failed` or `gone`.
    pub outcome: Text,
    /// The reason of the outcome in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Text>,
    /// The tenant that the request names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Text>,
    /// The principal of the caller. Absent for an anonymous caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<Text>,
    /// The IP address of the client.
    pub address: Text,
    /// The protocol binding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding: Option<Text>,
    /// The version of A2A.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<Text>,
    /// The method of an extension.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<Text>,
    /// The id of the conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Text>,
    /// The id of the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<Text>,
    /// The active extensions, separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extensions: Option<Text>,
    /// The extensions that refused the request, failed in it or were missing, separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extension: Option<Text>,
    /// The quota that the request exceeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<Text>,
    /// The error id in the client's answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_id: Option<Text>,
    /// The id of the recorded trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<Text>,
    /// The HTTP status of the answer. Absent if there was no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The size of the request's body, in bytes.
    pub bytes_in: u64,
    /// The size of the answer's body, in bytes.
    pub bytes_out: u64,
    /// The duration of the request, in milliseconds.
    pub ms: f64,
    /// The time in hooks, in milliseconds.
    pub hooks_ms: f64,
    /// The time in the agent, in milliseconds.
    pub agent_ms: f64,
    /// The time in which the request waited for the database, in milliseconds.
    pub store_ms: f64,
}

/// One request with its work.
#[derive(Debug, Deserialize, Serialize)]
pub struct Details<Text = String> {
    /// The request.
    #[serde(flatten)]
    pub request: Request<Text>,
    /// The cause of the fault in one line, as the log has it under the error id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Text>,
    /// The pieces of work, by the time of their beginning. Work that continues after the answer is added to the list.
    pub work: Vec<Work<Text>>,
    /// The number of pieces of work that had no place in the list.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub work_left_out: u64,
}

/// One piece of work.
#[derive(Debug, Deserialize, Serialize)]
pub struct Work<Text = String> {
    /// The kind: `authentication`, `activation`, `hook`, `store`, `agent`, `model`, `tool`, `other_agent` or `event`.
    pub kind: Text,
    /// The name of the work itself, such as the hook `state`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what: Option<Text>,
    /// The worker: the URI of an extension, or the name of a model, a tool or an agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Text>,
    /// The verdict on the work, in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Text>,
    /// Microseconds from the arrival of the request to the beginning of the work.
    pub start_us: u64,
    /// The duration in microseconds.
    pub us: u64,
    /// The thread time of an extension in microseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cpu_us: u64,
    /// The tokens of a model's prompt.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub input_tokens: u64,
    /// The tokens of a model's answer.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub output_tokens: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}
