//! `annex send`

use annex_protocol::{
    A2aError, AgentCard, ContextId, ExtensionUri, Json, JsonObject, Message, SendMessageRequest, StreamResponse, TaskId,
};
use anyhow::{Context, ensure};
use clap::Args;
use reqwest::header::{HeaderName, HeaderValue};

use crate::agent::{Agent, Answer, Method, RpcError};
use crate::output;

mod outcome;
mod state;
mod transcript;

use outcome::Outcome;
use transcript::Transcript;

/// Send a message to an agent and print its answer.
#[derive(Args)]
#[command(
    after_help = "Example:\n  annex send http://127.0.0.1:9999 \"Who am I and what is my email?\" \\\n    --state \
                        '{\"user_info\":{\"name\":\"Ada\",\"role\":\"Engineer\",\"email\":\"ada@example.com\"}}'\n\nThe \
                        agent's words go to standard output, remarks about the task to standard error. A task that \
                        fails, is rejected or is canceled ends the command with exit code 1."
)]
pub(crate) struct Send {
    /// The agent's base URL, or the URL of its card, which ends in .json
    #[arg(value_name = "URL")]
    address: String,
    /// What to say
    text: String,
    /// Activate an extension; may be repeated
    #[arg(long = "extension", value_name = "URI", value_parser = extension_uri)]
    extensions: Vec<ExtensionUri>,
    /// Session state to inject: a JSON object, or @FILE to read it from a file
    #[arg(long, value_name = "JSON|@FILE")]
    state: Option<String>,
    /// Print the answer as it comes
    #[arg(long)]
    stream: bool,
    /// Continue a conversation
    #[arg(long, value_name = "ID")]
    context: Option<ContextId>,
    /// Continue a task that waits for an answer
    #[arg(long, value_name = "ID")]
    task: Option<TaskId>,
    /// Send a header field with the message, such as credentials; may be repeated
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = header_field)]
    fields: Vec<(HeaderName, HeaderValue)>,
    /// Print the result as JSON, one line per event
    #[arg(long)]
    json: bool,
}

impl Send {
    pub(crate) async fn run(mut self) -> anyhow::Result<()> {
        let state = self.state.as_deref().map(state::read).transpose()?;
        let agent = Agent::discover(&self.address).await?;
        let message = self.message(state, agent.card())?;
        let request = SendMessageRequest { message, ..SendMessageRequest::default() };
        self.exchange(&agent, request).await.map_err(|error| self.explain(error, agent.card()))
    }

    /// Makes the message, and adds the extension that takes the state to those asked for.
    fn message(&mut self, state: Option<JsonObject>, card: &AgentCard) -> anyhow::Result<Message> {
        let mut message = Message::user_text(&self.text);
        message.context_id = self.context.clone();
        message.task_id = self.task.clone();
        if let Some(state) = state {
            let uri = state::extension(&self.extensions, card)?;
            message.metadata.insert(state::key(&uri), Json::from_serialize(&state)?);
            if !self.extensions.contains(&uri) {
                self.extensions.push(uri);
            }
        }
        Ok(message)
    }

    async fn exchange(&self, agent: &Agent, request: SendMessageRequest) -> anyhow::Result<()> {
        let offers_stream = agent.card().capabilities.streaming == Some(true);
        ensure!(!self.stream || offers_stream, "the agent's card does not offer streaming; leave out --stream");
        let method = if self.stream { Method::SendStreamingMessage } else { Method::SendMessage };
        let fields = self.fields.iter().cloned().collect();
        let answer = agent.call(method, request, &self.extensions, &fields).await?;
        let active = answer.active();
        let outcome = self.receive(answer).await?;
        if !self.json {
            outcome.summarize(&self.extensions, &active);
        }
        outcome.verdict()
    }

    async fn receive(&self, mut answer: Answer) -> anyhow::Result<Outcome> {
        let mut outcome = Outcome::default();
        let mut transcript = Transcript::default();
        if answer.is_stream() {
            while let Some(result) = answer.next().await? {
                self.take(&result, &mut outcome, &mut transcript)?;
            }
            outcome.check_settled()?;
        } else {
            self.take(&answer.single().await?, &mut outcome, &mut transcript)?;
        }
        transcript.end_line()?;
        Ok(outcome)
    }

    fn take(&self, result: &Json, outcome: &mut Outcome, transcript: &mut Transcript) -> anyhow::Result<()> {
        if self.json {
            output::write(&format!("{}\n", result.get()))?;
        }
        // The answer to SendMessage is a task or a message, which both can be events of a stream as well.
        let event: StreamResponse = result.to().context("the agent's answer is not one that A2A defines")?;
        outcome.follow(&event);
        if self.json { Ok(()) } else { transcript.show(&event) }
    }

    /// Says in this command's terms what to do about missing extensions.
    fn explain(&self, error: anyhow::Error, card: &AgentCard) -> anyhow::Error {
        let code = A2aError::ExtensionSupportRequired { missing: Vec::new() }.code();
        if error.downcast_ref::<RpcError>().is_none_or(|error| error.code != i64::from(code)) {
            return error;
        }
        let declared = card.capabilities.extensions.iter().filter(|extension| extension.required);
        let missing = declared.map(|extension| &extension.uri).filter(|uri| !self.extensions.contains(uri));
        let options: String = missing.map(|uri| format!("\n  --extension {uri}")).collect();
        if options.is_empty() { error } else { anyhow::anyhow!("{error:#}\nadd to this command:{options}") }
    }
}

/// The value may be a credential, so debug output leaves it out.
fn header_field(text: &str) -> Result<(HeaderName, HeaderValue), &'static str> {
    let (name, value) = text.split_once(':').ok_or("not of the form NAME: VALUE")?;
    let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| "the name is no name of a header field")?;
    let mut value = HeaderValue::from_str(value.trim()).map_err(|_| "the value is no value of a header field")?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// A URI travels in a comma-separated header, so it must be one plain word.
fn extension_uri(text: &str) -> Result<ExtensionUri, String> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
    if is_plain && text.contains(':') {
        return Ok(ExtensionUri::from(text));
    }
    Err("not an absolute URI without spaces and commas".to_owned())
}
