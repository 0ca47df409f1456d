//! The requests of the load: one SendMessage in the form of each binding.

use annex_grpc::pb;
use annex_test_support::{STATE_INJECTION, STATE_KEY, TEST_EXTENSION};
use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

use crate::answer::ExpectedAnswer;

/// The text of every request. The echo agent answers with this text.
pub(crate) const TEXT: &str = "Who am I and what is my email?";

/// A request that is sent many times.
pub(crate) struct Request {
    pub(crate) binding: Binding,
    pub(crate) is_streamed: bool,
    /// The URIs of the extensions to activate, separated by commas; empty for none.
    extensions: String,
    /// The JSON of those members of the message that come after `parts`.
    metadata: String,
    expected: ExpectedAnswer,
    /// The tenant that the request names; empty for the config's own agent.
    tenant: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binding {
    JsonRpc,
    HttpJson,
    Grpc,
}

impl Request {
    fn new(binding: Binding) -> Self {
        let expected = ExpectedAnswer::Completed;
        Self { binding, is_streamed: false, extensions: String::new(), metadata: String::new(), expected, tenant: "" }
    }

    pub(crate) fn json_rpc() -> Self {
        Self::new(Binding::JsonRpc)
    }

    /// Activates extensions, separated by commas. The answer must name all of them.
    pub(crate) fn activating(self, extensions: String) -> Self {
        Self { extensions, expected: ExpectedAnswer::EchoAndHeader, ..self }
    }

    /// Sends the request to a tenant. Only the JSON bindings support this.
    pub(crate) fn of_tenant(self, tenant: &'static str) -> Self {
        Self { tenant, ..self }
    }

    /// Sets another expected answer.
    pub(crate) fn expecting(self, expected: ExpectedAnswer) -> Self {
        Self { expected, ..self }
    }

    /// Checks an HTTP/1.1 response.
    pub(crate) fn check(&self, answer: &[u8]) -> anyhow::Result<()> {
        self.expected.check(answer, &self.extensions)
    }

    pub(crate) fn http_json() -> Self {
        Self::new(Binding::HttpJson)
    }

    pub(crate) fn grpc() -> Self {
        Self::new(Binding::Grpc)
    }

    /// Requests a stream as the answer.
    pub(crate) fn streamed(self) -> Self {
        Self { is_streamed: true, ..self }
    }

    /// A request that injects a state of about `bytes` bytes, at least 100.
    pub(crate) fn injecting(bytes: usize) -> Self {
        let padding = "x".repeat(bytes.saturating_sub(100));
        let state = format!(
            r#"{{"user_info":{{"name":"Ada Lovelace","role":"Engineer","email":"ada@example.com"}},"notes":"{padding}"}}"#
        );
        let metadata = format!(r#","metadata":{{"{STATE_KEY}":{state}}}"#);
        Self {
            extensions: STATE_INJECTION.to_owned(),
            metadata,
            expected: ExpectedAnswer::StateAndHeader,
            ..Self::json_rpc()
        }
    }

    /// A request that makes the test extension loop `rounds` times.
    pub(crate) fn looping(rounds: u64) -> Self {
        let metadata = format!(r#","metadata":{{"test/command":"loop {rounds}"}}"#);
        Self { extensions: TEST_EXTENSION.to_owned(), metadata, ..Self::json_rpc() }
    }

    /// The text of the whole HTTP/1.1 request, for a JSON binding.
    pub(crate) fn http1(&self) -> String {
        let metadata = &self.metadata;
        let message = format!(r#"{{"messageId":"b0a1","role":"ROLE_USER","parts":[{{"text":"{TEXT}"}}]{metadata}}}"#);
        let tenant = match self.tenant {
            "" => String::new(),
            tenant => format!(r#""tenant":"{tenant}","#),
        };
        let params = format!(r#"{{{tenant}"message":{message},"configuration":{{}}}}"#);
        let (path, body) = match (self.binding, self.is_streamed) {
            (Binding::HttpJson, false) => ("/a2a/rest/message:send", params),
            (Binding::HttpJson, true) => ("/a2a/rest/message:stream", params),
            (_, false) => ("/a2a/jsonrpc", call("SendMessage", &params)),
            (_, true) => ("/a2a/jsonrpc", call("SendStreamingMessage", &params)),
        };
        let header = match self.extensions.as_str() {
            "" => String::new(),
            extensions => format!("a2a-extensions: {extensions}\r\n"),
        };
        post(path, &header, &body)
    }

    /// The path of the gRPC method, and the framed message.
    pub(crate) fn grpc_call(&self) -> (&'static str, Bytes) {
        let method = match self.is_streamed {
            false => "/lf.a2a.v1.A2AService/SendMessage",
            true => "/lf.a2a.v1.A2AService/SendStreamingMessage",
        };
        let part = pb::Part { content: Some(pb::part::Content::Text(TEXT.to_owned())), ..pb::Part::default() };
        let message = pb::Message {
            message_id: "b0a1".to_owned(),
            role: pb::Role::User.into(),
            parts: vec![part],
            ..pb::Message::default()
        };
        let request = pb::SendMessageRequest { message: Some(message), ..pb::SendMessageRequest::default() };
        let encoded = request.encode_to_vec();
        let mut framed = BytesMut::new();
        // Not compressed, and its length.
        framed.put_u8(0);
        framed.put_u32(u32::try_from(encoded.len()).unwrap_or(u32::MAX));
        framed.put_slice(&encoded);
        (method, framed.freeze())
    }
}

/// The text of a JSON-RPC request.
pub(crate) fn call(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#)
}

/// The text of a whole HTTP/1.1 POST request. `headers` are additional header fields, each ending with a line break.
pub(crate) fn post(path: &str, headers: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\na2a-version: 1.0\r\n{headers}content-length: \
         {}\r\n\r\n{body}",
        body.len(),
    )
}
