//! `annex send`

use annex_client::Agent;
use annex_protocol::{AgentCard, ContextId, ExtensionUri, Json, JsonObject, Message, StreamResponse, TaskId};
use anyhow::ensure;
use clap::Args;

use crate::connect::{CallArgs, Location};
use crate::state::{self, Injection};
use crate::turn::{self, Outcome, Transcript};
use crate::with::{Companions, With};
use crate::{output, shell, template};

/// Send a message to an agent and print its answer.
#[derive(Args)]
#[command(
    after_help = "Example:\n  annex send http://127.0.0.1:9999 \"Who am I and what is my email?\" --state \\\n    \
                  '{\"user_info\":{\"name\":\"Ada\",\"role\":\"Engineer\",\"email\":\"ada@example.com\"}}'\n\n  annex \
                  send http://127.0.0.1:9999 --template > state.json\n  annex send http://127.0.0.1:9999 \"Who am I?\" \
                  --state @state.json\n\nThe agent's words go to standard output, remarks about the task to standard \
                  error. A task that fails or is canceled ends the command with exit code 1, one that is rejected with 3."
)]
pub(crate) struct Send {
    #[command(flatten)]
    location: Location,
    /// The text of the message
    #[arg(required_unless_present = "template")]
    text: Option<String>,
    #[command(flatten)]
    calling: CallArgs,
    #[command(flatten)]
    with: With,
    /// Session state to inject: a JSON object, or @FILE to read it from a file
    #[arg(long, value_name = "JSON|@FILE")]
    state: Option<String>,
    /// Put a value into the message's metadata: a key and any JSON; may be repeated
    #[arg(long, value_name = "KEY=JSON", value_parser = metadata)]
    metadata: Vec<(String, Json)>,
    /// Send nothing; print a skeleton of the state that the agent takes, to be filled in
    #[arg(long, conflicts_with_all = ["text", "state", "metadata", "stream", "context", "task", "json"])]
    template: bool,
    /// Stream the answer, and print each part when it arrives
    #[arg(long)]
    stream: bool,
    /// Continue a conversation
    #[arg(long, value_name = "ID")]
    context: Option<ContextId>,
    /// Continue a task that waits for an answer
    #[arg(long, value_name = "ID")]
    task: Option<TaskId>,
    /// Print the result as JSON, one line per event
    #[arg(long)]
    json: bool,
}

impl Send {
    pub(crate) async fn run(mut self) -> anyhow::Result<()> {
        let state = self.state.as_deref().map(state::read).transpose()?;
        let with = self.with.load(state.as_ref()).await?;
        let agent = self.location.agent(&self.calling, with.interceptors()).await?;
        if self.template {
            return template::print(agent.card(), &self.calling.extensions);
        }
        let mut message = Message::user_text(self.text.as_deref().unwrap_or_default());
        message.context_id = self.context.clone();
        message.task_id = self.task.clone();
        if let Some(state) = &state {
            self.inject(state, &with, agent.card(), &mut message)?;
        }
        // This comes after the state, so that a value that is given by its key replaces it.
        message.metadata.extend(self.metadata.drain(..));
        let sent = self.exchange(&agent, message, &with).await;
        sent.map_err(|error| turn::explain(error, agent.card(), &self.calling.extensions))
    }

    /// Adds the state to the message. Leaves the message unchanged if a component of `--with` sends the state itself.
    fn inject(
        &mut self,
        state: &JsonObject,
        with: &Companions,
        card: &AgentCard,
        message: &mut Message,
    ) -> anyhow::Result<()> {
        let injection = Injection::new(state, &self.calling.extensions, card);
        // A component gets the state as its input, so no extension on the card has to take it.
        if !with.is_empty() && injection.is_err() {
            return Ok(());
        }
        let injection = injection?;
        // In a continued conversation the agent already has the rest of the state, and checks the whole state.
        if self.context.is_none() && self.task.is_none() {
            injection.check(card, &self.location.address)?;
        }
        if !with.takes(injection.uri()) {
            injection.put(message, &mut self.calling.extensions);
        }
        Ok(())
    }

    async fn exchange(&self, agent: &Agent, message: Message, with: &Companions) -> anyhow::Result<()> {
        let offers_stream = turn::offers_stream(agent.card());
        ensure!(!self.stream || offers_stream, "the agent's card does not offer streaming; leave out --stream");
        let mut outcome = Outcome::default();
        let mut transcript = Transcript::default();
        let take = |event| self.take(event, &mut outcome, &mut transcript);
        let active = turn::exchange(agent, self.calling.parameters()?, message, self.stream, take).await?;
        if self.stream {
            outcome.check_settled()?;
        }
        transcript.finish()?;
        if !self.json {
            self.summarize(&outcome, &active);
            with.show_notes();
        }
        outcome.verdict()
    }

    fn take(&self, event: StreamResponse, outcome: &mut Outcome, transcript: &mut Transcript) -> anyhow::Result<()> {
        outcome.follow(&event);
        if self.json {
            return output::json(&serde_json::to_string(&event)?);
        }
        transcript.show(event)
    }

    fn summarize(&self, outcome: &Outcome, active: &[ExtensionUri]) {
        outcome.name_ids();
        outcome.summarize(&self.calling.extensions, active);
        if let (Some(task), Some(wanted)) = (outcome.task(), outcome.wanted()) {
            output::note(&format!(
                "The task waits for {wanted}. Continue it with --task {}",
                shell::word(task.as_str())
            ));
        }
    }
}

/// Splits `KEY=JSON`. The key may be a URL with `=`, so the value begins after the first `=` that JSON follows.
fn metadata(text: &str) -> Result<(String, Json), &'static str> {
    let mut places = text.match_indices('=').map(|(place, _)| text.split_at(place));
    let found = places.find_map(|(key, value)| {
        let value = Json::parse(value.get(1..)?.to_owned()).ok()?;
        (!key.is_empty()).then(|| (key.to_owned(), value))
    });
    found.ok_or("not of the form KEY=JSON, such as 'my/budget=5' or 'my/name=\"Ada\"'")
}
