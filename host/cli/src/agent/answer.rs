//! The answer to one JSON-RPC call: a single result, or a stream of them.

use std::collections::VecDeque;
use std::fmt;

use annex_protocol::service::{A2A_EXTENSIONS, parse_extensions};
use annex_protocol::{ExtensionUri, Json};
use anyhow::{Context, anyhow, ensure};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Response, Url};
use serde::Deserialize;

use super::EVENT_STREAM;
use super::sse::Decoder;

/// No answer of an agent, and no event of a stream, is read beyond this many bytes.
const MAX_BYTES: usize = 16 << 20;
/// How much of a body that is not A2A an error quotes.
const QUOTED_CHARS: usize = 200;

/// An answer whose head has arrived.
pub(crate) struct Answer {
    url: Url,
    response: Response,
    decoder: Decoder,
    events: VecDeque<String>,
}

/// The error of a JSON-RPC response.
#[derive(Debug, Deserialize)]
pub(crate) struct RpcError {
    pub(crate) code: i64,
    #[serde(default)]
    message: String,
    data: Option<Json>,
}

#[derive(Deserialize)]
struct Envelope {
    result: Option<Json>,
    error: Option<RpcError>,
}

/// What is read of an error's `google.rpc` details.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Detail {
    #[serde(default)]
    field_violations: Vec<Violation>,
}

#[derive(Deserialize)]
struct Violation {
    #[serde(default)]
    field: String,
    #[serde(default)]
    description: String,
}

impl Answer {
    pub(super) fn new(url: Url, response: Response) -> Self {
        Self { url, response, decoder: Decoder::default(), events: VecDeque::new() }
    }

    /// The extensions that the agent says were active.
    pub(crate) fn active(&self) -> Vec<ExtensionUri> {
        let values = self.response.headers().get_all(A2A_EXTENSIONS).iter();
        parse_extensions(values.filter_map(|value| value.to_str().ok()))
    }

    /// Whether the results come as an event stream. An agent that refuses to stream answers with plain JSON.
    pub(crate) fn is_stream(&self) -> bool {
        let content_type = self.response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        self.response.status().is_success() && content_type.is_some_and(|text| text.starts_with(EVENT_STREAM))
    }

    /// The one result.
    ///
    /// # Errors
    /// The agent's [`RpcError`], or what the body is instead of JSON-RPC.
    pub(crate) async fn single(self) -> anyhow::Result<Json> {
        let (status, url) = (self.response.status(), self.url);
        let body = text(self.response).await.with_context(|| format!("{url} answered {status}"))?;
        match result(&body) {
            Ok(result) if status.is_success() => Ok(result),
            Err(error) if error.is::<RpcError>() => Err(error),
            _ if !status.is_success() => Err(anyhow!("{url} answered {status}: {}", quoted(&body))),
            other => other.with_context(|| format!("{url} answered something else than JSON-RPC: {}", quoted(&body))),
        }
    }

    /// The next result of a stream; `None` when it has ended.
    ///
    /// # Errors
    /// The agent's [`RpcError`], a broken connection, or an event that is not JSON-RPC.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Option<Json>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return result(&event).map(Some).with_context(|| format!("an event of the stream {}", self.url));
            }
            let chunk = self.response.chunk().await.map_err(reqwest::Error::without_url);
            let Some(chunk) = chunk.with_context(|| format!("the stream {} broke off", self.url))? else {
                return Ok(None);
            };
            self.events.extend(self.decoder.push(&chunk));
            ensure!(
                self.decoder.pending() <= MAX_BYTES,
                "an event of the stream {} exceeds {MAX_BYTES} bytes",
                self.url
            );
        }
    }
}

/// A body as text.
pub(super) async fn text(mut response: Response) -> anyhow::Result<String> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(reqwest::Error::without_url)? {
        body.extend_from_slice(&chunk);
        ensure!(body.len() <= MAX_BYTES, "the body exceeds {MAX_BYTES} bytes");
    }
    String::from_utf8(body).context("the body is not UTF-8")
}

fn result(envelope: &str) -> anyhow::Result<Json> {
    let envelope: Envelope = serde_json::from_str(envelope)?;
    match envelope.error {
        Some(error) => Err(error.into()),
        None => envelope.result.context("it has neither `result` nor `error`"),
    }
}

fn quoted(body: &str) -> String {
    let body = body.trim();
    let start: String = body.chars().take(QUOTED_CHARS).collect();
    match start.len() {
        0 => "(no body)".to_owned(),
        length if length < body.len() => format!("{start}..."),
        _ => start,
    }
}

impl RpcError {
    /// The violations that the message does not spell out already.
    fn violations(&self) -> Vec<Violation> {
        let details = self.data.as_ref().and_then(|data| data.to::<Vec<Json>>().ok()).unwrap_or_default();
        let details = details.iter().filter_map(|detail| detail.to::<Detail>().ok());
        let violations = details.flat_map(|detail| detail.field_violations);
        violations.filter(|violation| !self.message.contains(&violation.description)).collect()
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the agent answered with error {}: {}", self.code, self.message)?;
        for Violation { field, description } in self.violations() {
            let field = if field.is_empty() { "the request" } else { &field };
            write!(formatter, "\n  {field}: {description}")?;
        }
        Ok(())
    }
}

impl std::error::Error for RpcError {}

#[cfg(test)]
mod tests {
    use super::{quoted, result};

    #[test]
    fn an_error_names_its_code_its_message_and_each_violation_once() {
        let envelope = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"invalid: is required","data":[
            {"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"INVALID_PARAMS"},
            {"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[
                {"field":"message.role","description":"is required"},
                {"field":"message.parts","description":"must have an element"},
                {"description":"too much"}]}]}}"#;
        let error = result(envelope).unwrap_err().to_string();
        assert_eq!(
            error,
            "the agent answered with error -32602: invalid: is required\n  message.parts: must have an element\n  \
             the request: too much"
        );
    }

    #[test]
    fn details_of_another_shape_do_not_hide_the_error() {
        for data in ["null", "7", r#"{"x":1}"#, "[null,3,{\"fieldViolations\":\"?\"}]"] {
            let envelope = format!(r#"{{"error":{{"code":-32603,"message":"m","data":{data}}}}}"#);
            assert_eq!(result(&envelope).unwrap_err().to_string(), "the agent answered with error -32603: m");
        }
    }

    #[test]
    fn a_result_keeps_its_numbers() {
        assert_eq!(result(r#"{"id":"x","result":{"n":1.0}}"#).unwrap().get(), r#"{"n":1.0}"#);
    }

    #[test]
    fn a_long_body_is_quoted_by_its_beginning() {
        assert_eq!(quoted("  \n"), "(no body)");
        assert_eq!(quoted(" short\n"), "short");
        assert_eq!(quoted(&"é".repeat(300)), format!("{}...", "é".repeat(200)));
    }
}
