//! A tool that an MCP server offers.

use std::borrow::Cow;
use std::time::Duration;

use annex_conversation::Scope;
use annex_protocol::Json;
use annex_telemetry::traces::TraceFields;
use async_trait::async_trait;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotificationParam, ClientRequest, RequestId,
    RequestMetaObject, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RoleClient, ServiceError};
use tokio::runtime::Handle;

use super::config::McpConfig;
use super::connection::CurrentPeer;
use super::content::Content;
use crate::model::ToolDeclaration;
use crate::tool::{Tool, ToolContext, ToolError, ToolOutput};

/// The maximum length of a server's error text for the model, in characters. Longer texts are cut.
const MAX_ERROR: usize = 4 << 10;

pub(super) struct OfferedTool {
    declaration: ToolDeclaration,
    origin: String,
    server: String,
    peer: CurrentPeer,
    is_long_running: bool,
    timeout: Duration,
    /// The scopes that results may change.
    scopes: Vec<Scope>,
}

impl OfferedTool {
    pub(super) fn new(config: &McpConfig, tool: &rmcp::model::Tool, peer: CurrentPeer) -> Self {
        let description = tool.description.as_deref().or(tool.title.as_deref()).unwrap_or_default();
        Self {
            declaration: ToolDeclaration {
                name: tool.name.to_string(),
                description: description.to_owned(),
                // A schema that nests too deeply is dropped: the model then calls the tool without one.
                parameters: Json::from_serialize(&*tool.input_schema).unwrap_or_else(|_| Json::string("")),
            },
            origin: format!("MCP server `{}`", config.name),
            server: config.name.clone(),
            peer,
            is_long_running: config.is_long_running(&tool.name),
            timeout: config.timeout,
            scopes: config.scopes(),
        }
    }

    async fn ask(&self, arguments: &Json) -> Result<CallToolResult, ToolError> {
        // Cloned, because a borrowed watch keeps the keeper from replacing the peer for as long as the call takes.
        let Some(peer) = self.peer.borrow().clone() else {
            return Err(refused(format!("the tool is not available: {} is being started again", self.origin)));
        };
        let arguments = arguments.to().map_err(|error| refused(format!("the arguments cannot be sent: {error}")))?;
        let name = Cow::Owned(self.declaration.name.clone());
        let request = CallToolRequest::new(CallToolRequestParams::new(name).with_arguments(arguments));
        let mut options = PeerRequestOptions::with_timeout(self.timeout);
        if let Some(TraceFields { parent, state }) = annex_telemetry::trace_fields() {
            let mut meta = RequestMetaObject::new();
            meta.set_traceparent(parent);
            if let Some(state) = state {
                meta.set_tracestate(state);
            }
            options = options.with_meta(meta);
        }
        let sent = peer.send_cancellable_request(ClientRequest::CallToolRequest(request), options);
        let handle = sent.await.map_err(|error| self.failed(error))?;
        let mut call = OpenCall { peer: handle.peer.clone(), id: Some(handle.id.clone()) };
        let answered = handle.await_response().await;
        // The server has answered, or rmcp has reported the timeout to the server, so dropping the call must not cancel
        // it.
        call.id = None;
        match answered.map_err(|error| self.failed(error))? {
            ServerResult::CallToolResult(result) => Ok(result),
            // Kinds of result that this client has not said it can handle.
            _ => Err(refused("the tool answered with something else than a result".to_owned())),
        }
    }

    /// Converts the error of a call. An error text by the server goes to the model. The text of a transport error only
    /// goes to the log.
    fn failed(&self, error: ServiceError) -> ToolError {
        match error {
            // Cut, because the session stores the text, and each later prompt contains it.
            ServiceError::McpError(error) => refused(error.message.chars().take(MAX_ERROR).collect()),
            ServiceError::Timeout { .. } => refused(format!("the tool gave no result within {:?}", self.timeout)),
            other => {
                let tool = &self.declaration.name;
                // The server may have written a part of the text.
                let error = annex_text::line_within(&annex_text::with_causes(&other), MAX_ERROR);
                tracing::warn!(tool, origin = self.origin, error, "a tool could not be called");
                refused("the tool could not be reached".to_owned())
            }
        }
    }
}

/// A call without an answer yet. If this value is dropped, because the task was cancelled, the server gets a
/// cancellation.
struct OpenCall {
    peer: Peer<RoleClient>,
    /// The id of the request; `None` after the answer.
    id: Option<RequestId>,
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), Handle::try_current()) else { return };
        let peer = self.peer.clone();
        runtime.spawn(async move {
            let reason = Some("the task was cancelled".to_owned());
            // A server that has ended needs no cancellation.
            let _ = peer.notify_cancelled(CancelledNotificationParam::new(Some(id), reason)).await;
        });
    }
}

#[async_trait]
impl Tool for OfferedTool {
    fn declaration(&self) -> ToolDeclaration {
        self.declaration.clone()
    }

    fn origin(&self) -> &str {
        &self.origin
    }

    fn server(&self) -> Option<&str> {
        Some(&self.server)
    }

    fn is_long_running(&self) -> bool {
        self.is_long_running
    }

    async fn call(&self, context: &mut ToolContext, arguments: &Json) -> Result<ToolOutput, ToolError> {
        let result = self.ask(arguments).await?;
        let is_error = result.is_error == Some(true);
        // The limits apply to errors too, because the model gets them.
        let content = Content::of(&self.declaration.name, result).map_err(refused)?;
        if is_error {
            return Err(refused(content.text));
        }
        let changes = content.state(&self.scopes);
        let set = changes.and_then(|changes| context.state.set_all(changes).map_err(|error| error.to_string()));
        if let Err(reason) = set {
            let tool = &self.declaration.name;
            // The result itself is valid and is kept. The log shows the operator the scope or key that the server tried
            // to change.
            tracing::warn!(tool, origin = self.origin, reason, "the state in a tool's result is not written");
        }
        let response = content.response().map_err(refused)?;
        context.artifacts.extend(content.artifacts);
        Ok(if self.is_long_running { ToolOutput::Pending(response) } else { ToolOutput::Done(response) })
    }
}

fn refused(message: String) -> ToolError {
    ToolError { message }
}
