//! JSON-RPC requests of a client, and their answers.

use anyhow::Context;
use serde_json::{Value, json};

/// A request under construction.
pub struct Request {
    client: reqwest::Client,
    url: String,
    header_lines: Vec<String>,
    headers: Vec<(String, String)>,
    method: String,
    params: String,
    message: Option<Value>,
    /// Metadata entries of the message. Their values are JSON text, so that they are sent byte for byte.
    state: Vec<(String, String)>,
    id: String,
    version: Option<&'static str>,
}

/// An answer that is not a stream, with its JSON body.
#[derive(Debug)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The response header `A2A-Extensions`.
    pub extensions: Option<String>,
    /// The media type of the body.
    pub content_type: String,
    /// The body as text.
    pub text: String,
    /// The body as JSON.
    pub body: Value,
}

/// A stream of server-sent events.
pub struct Events {
    /// The response header `A2A-Extensions`.
    pub extensions: Option<String>,
    response: reqwest::Response,
    buffer: String,
}

impl Request {
    pub(crate) fn new(client: reqwest::Client, url: &str, method: &str, params: String) -> Self {
        Self {
            client,
            url: format!("{url}/a2a/jsonrpc"),
            header_lines: Vec::new(),
            headers: Vec::new(),
            method: method.to_owned(),
            params,
            message: None,
            state: Vec::new(),
            id: "1".to_owned(),
            version: Some("1.0"),
        }
    }

    pub(crate) fn message(mut self, text: &str) -> Self {
        self.message = Some(
            json!({"messageId": uuid::Uuid::new_v4().to_string(), "role": "ROLE_USER", "parts": [{"text": text}]}),
        );
        self
    }

    /// Uses SendStreamingMessage instead of SendMessage.
    #[must_use]
    pub fn streaming(mut self) -> Self {
        self.method = "SendStreamingMessage".to_owned();
        self
    }

    /// Adds a header line `A2A-Extensions`.
    #[must_use]
    pub fn extensions(mut self, line: &str) -> Self {
        self.header_lines.push(line.to_owned());
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds an entry to the message's metadata. `value` is JSON text.
    #[must_use]
    pub fn metadata(mut self, key: &str, value: &str) -> Self {
        self.state.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Activates state injection, and adds a state to the message.
    #[must_use]
    pub fn state(self, state: &str) -> Self {
        self.extensions(crate::STATE_INJECTION).metadata(crate::STATE_KEY, state)
    }

    /// Sets a field of the message.
    #[must_use]
    pub fn field(mut self, name: &str, value: &str) -> Self {
        if let Some(message) = self.message.as_mut().and_then(Value::as_object_mut) {
            message.insert(name.to_owned(), value.into());
        }
        self
    }

    /// Sets the context id of the message.
    #[must_use]
    pub fn context(self, context: &str) -> Self {
        self.field("contextId", context)
    }

    /// Sets the JSON-RPC id, given as JSON text.
    #[must_use]
    pub fn id(mut self, id: &str) -> Self {
        self.id = id.to_owned();
        self
    }

    /// Sets the header `A2A-Version`; `None` omits the header.
    #[must_use]
    pub fn version(mut self, version: Option<&'static str>) -> Self {
        self.version = version;
        self
    }

    /// Adds a query to the URL.
    #[must_use]
    pub fn query(mut self, query: &str) -> Self {
        self.url = format!("{}?{query}", self.url);
        self
    }

    /// The text of the body that the request will have.
    #[must_use]
    pub fn body(&self) -> String {
        let params = match &self.message {
            None => self.params.clone(),
            Some(message) => {
                // The metadata is joined as text, because a `Value` would not keep the digits of numbers as written
                // in the test.
                let entries = self.state.iter().map(|(key, value)| format!("{}:{value}", Value::from(key.as_str())));
                let metadata = entries.collect::<Vec<_>>().join(",");
                let message = message.to_string();
                let fields = message.strip_suffix('}').unwrap_or(&message);
                format!("{{\"message\":{fields},\"metadata\":{{{metadata}}}}}}}")
            }
        };
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":{:?},\"params\":{params}}}", self.id, self.method)
    }

    /// Sends the request and reads a JSON answer.
    ///
    /// # Errors
    /// There is no answer, or the answer is not JSON.
    pub async fn send(self) -> anyhow::Result<Reply> {
        let response = self.start().await?;
        let status = response.status().as_u16();
        let extensions = header(&response, "a2a-extensions");
        let content_type = header(&response, "content-type").unwrap_or_default();
        let text = response.text().await?;
        let body = serde_json::from_str(&text).with_context(|| format!("not JSON: {text}"))?;
        Ok(Reply { status, extensions, content_type, text, body })
    }

    /// Sends the request and opens the stream.
    ///
    /// # Errors
    /// The answer is not a stream.
    pub async fn open(self) -> anyhow::Result<Events> {
        let response = self.start().await?;
        let content_type = header(&response, "content-type").unwrap_or_default();
        anyhow::ensure!(content_type == "text/event-stream", "{content_type}: {}", response.text().await?);
        let extensions = header(&response, "a2a-extensions");
        Ok(Events { extensions, response, buffer: String::new() })
    }

    async fn start(self) -> anyhow::Result<reqwest::Response> {
        let mut http = self.client.post(&self.url).header("content-type", "application/json");
        // Each value gets its own line, because clients may send the header several times.
        for line in &self.header_lines {
            http = http.header("A2A-Extensions", line);
        }
        for (name, value) in &self.headers {
            http = http.header(name, value);
        }
        if let Some(version) = self.version {
            http = http.header("A2A-Version", version);
        }
        Ok(http.body(self.body()).send().await?)
    }
}

fn header(response: &reqwest::Response, name: &str) -> Option<String> {
    response.headers().get(name).and_then(|value| value.to_str().ok()).map(ToOwned::to_owned)
}

#[expect(clippy::indexing_slicing, reason = "indexing a serde_json::Value gives null for what is missing")]
impl Reply {
    /// The JSON-RPC error code; 0 on success.
    #[must_use]
    pub fn code(&self) -> i64 {
        self.body["error"]["code"].as_i64().unwrap_or_default()
    }

    /// The task of a SendMessage answer.
    #[must_use]
    pub fn task(&self) -> &Value {
        &self.body["result"]["task"]
    }

    /// The context id of the task.
    #[must_use]
    pub fn context(&self) -> &str {
        self.task()["contextId"].as_str().unwrap_or_default()
    }

    /// The text of the first artifact.
    #[must_use]
    pub fn answer(&self) -> &str {
        self.task()["artifacts"][0]["parts"][0]["text"].as_str().unwrap_or_default()
    }

    /// The session state in the metadata of the first artifact.
    #[must_use]
    pub fn returned_state(&self) -> &Value {
        &self.task()["artifacts"][0]["metadata"][crate::STATE_KEY]
    }

    /// The field names in the `fieldViolations` of the error's `BadRequest`.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let details = self.body["error"]["data"].as_array().cloned().unwrap_or_default();
        let violations = details.iter().filter_map(|detail| detail["fieldViolations"].as_array()).flatten();
        violations.map(|violation| violation["field"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

impl Events {
    /// The next event's JSON; `None` at the end of the stream.
    ///
    /// # Errors
    /// When the connection breaks or an event is not JSON.
    pub async fn next(&mut self) -> anyhow::Result<Option<Value>> {
        loop {
            if let Some((event, rest)) = self.buffer.split_once("\n\n") {
                let data = event.lines().find_map(|line| line.strip_prefix("data: "));
                let data = data.map(serde_json::from_str).transpose()?;
                self.buffer = rest.to_owned();
                if data.is_some() {
                    return Ok(data);
                }
                // A comment keeps the connection open and has no data.
                continue;
            }
            match self.response.chunk().await? {
                Some(chunk) => self.buffer.push_str(std::str::from_utf8(&chunk)?),
                None => return Ok(None),
            }
        }
    }

    /// All events until the end of the stream.
    ///
    /// # Errors
    /// As [`Events::next`].
    pub async fn rest(mut self) -> anyhow::Result<Vec<Value>> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await? {
            events.push(event);
        }
        Ok(events)
    }
}
