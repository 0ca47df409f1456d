//! `annex chat`

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use annex_client::{Agent, ClientError};
use annex_protocol::{CancelTaskRequest, Message, StreamResponse, TaskId};
use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::connect::{CallArgs, Location};
use crate::state::{self, Injection};
use crate::turn::{self, Outcome, Transcript};
use crate::{output, shell};

mod conversation;
mod lines;

use conversation::Conversation;
use lines::Lines;

const HELP: &str = "/state    the session state that the agent gave back last
/history  the conversation so far
/new      begin a new conversation
/quit     leave, as Ctrl-D does
Ctrl-C cancels the task that runs.
";

/// Talk to an agent, line by line.
#[derive(Args)]
#[command(
    after_help = "Example:\n  annex chat http://127.0.0.1:9999 --state @state.json --session ada.json\n\nEach line is a \
                  message; a task that asks for input is continued by the next one. Lines that begin with / are \
                  commands: /help lists them. Ctrl-C cancels the task that runs, and leaves when none does. Lines may \
                  come from a pipe; then the first turn that fails ends the chat with its exit code."
)]
pub(crate) struct Chat {
    #[command(flatten)]
    location: Location,
    #[command(flatten)]
    calling: CallArgs,
    /// Session state to inject with the first message of a conversation: a JSON object, or @FILE
    #[arg(long, value_name = "JSON|@FILE")]
    state: Option<String>,
    /// Keep the conversation in this file; an existing file continues its conversation
    #[arg(long, value_name = "FILE")]
    session: Option<PathBuf>,
}

/// A running chat.
struct Talk {
    agent: Agent,
    calling: CallArgs,
    state: Option<Injection>,
    conversation: Conversation,
    /// Yields each Ctrl-C, including one that was pressed between two waits.
    interrupts: Signal,
}

/// The input that a line stands for: a command or a message.
enum Input<'a> {
    Nothing,
    State,
    History,
    New,
    Quit,
    Help,
    Unknown(&'a str),
    Message(&'a str),
}

impl Chat {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let state = self.state.as_deref().map(state::read).transpose()?;
        let conversation = Conversation::restore(self.session)?;
        let agent = self.location.agent(&self.calling, Vec::new()).await?;
        let requested = &self.calling.extensions;
        let state = state.map(|state| Injection::new(&state, requested, agent.card())).transpose()?;
        // In a continued conversation the agent already has the rest of the state, and checks the whole state.
        if let Some(state) = state.as_ref().filter(|_| conversation.session.context_id().is_none()) {
            state.check(agent.card(), &self.location.address)?;
        }
        // Created once, so that no Ctrl-C is missed between two waits.
        let interrupts = signal(SignalKind::interrupt())?;
        Talk { agent, calling: self.calling, state, conversation, interrupts }.run().await
    }
}

impl Talk {
    async fn run(mut self) -> anyhow::Result<()> {
        let is_interactive = io::stdin().is_terminal();
        if is_interactive {
            output::note(&format!("{}; /help lists the commands", self.agent.card().name));
        }
        let mut lines = Lines::start();
        loop {
            let prompt = if self.conversation.session.awaits_input() { "answer> " } else { "> " };
            let Some(line) = lines.next(is_interactive.then_some(prompt), &mut self.interrupts).await? else {
                return Ok(());
            };
            match Input::of(&line) {
                Input::Quit => return Ok(()),
                Input::Message(text) => match self.say(text).await {
                    // Only a person goes on after an error. Over a pipe the first failed turn ends the chat, so that a
                    // script notices it.
                    Err(error) if is_interactive && !error.is::<output::OutputClosed>() => {
                        output::error(&format!("{error:#}"));
                    }
                    said => said?,
                },
                command => self.obey(&command)?,
            }
        }
    }

    fn obey(&mut self, command: &Input<'_>) -> anyhow::Result<()> {
        match command {
            Input::State => output::show(&self.conversation.shown_state()),
            Input::History => output::show(&self.conversation.shown_history()),
            Input::New => self.conversation.restart(),
            Input::Help => output::show(HELP),
            Input::Unknown(command) => {
                output::note(&format!("{command} is no command; /help lists them"));
                Ok(())
            }
            Input::Nothing | Input::Quit | Input::Message(_) => Ok(()),
        }
    }

    /// Sends one message and prints the answer.
    async fn say(&mut self, text: &str) -> anyhow::Result<()> {
        let mut message = Message::user_text(text);
        self.conversation.session.place(&mut message);
        // The file of a conversation does not tell whether the agent has this state, so the first message of each run
        // brings it.
        if let Some(state) = self.state.as_ref().filter(|_| !self.conversation.has_state) {
            state.put(&mut message, &mut self.calling.extensions);
        }
        let mut outcome = Outcome::default();
        let mut transcript = Transcript::default();
        let said = self.exchange(message, &mut outcome, &mut transcript).await;
        if let Some(error) = said.as_ref().err().and_then(|error| error.downcast_ref()) {
            self.note_failure(error);
        }
        // The answer so far and the conversation are kept even if the request failed, because the task may continue.
        transcript.finish()?;
        self.conversation.take_note(text, transcript.into_words());
        self.conversation.returned(outcome.returned_states(&self.calling.extensions));
        self.conversation.save()?;
        said.map_err(|error| turn::explain(error, self.agent.card(), &self.calling.extensions))?;
        if let Some(wanted) = outcome.wanted() {
            output::note(&format!("The task waits for {wanted}."));
        }
        outcome.verdict()
    }

    /// Records a failed request in the session. The next message then no longer continues a task that waits for input.
    /// If there was such a task, prints how to answer it.
    fn note_failure(&mut self, error: &ClientError) {
        let session = &mut self.conversation.session;
        let waited = session.awaits_input();
        session.note_failure(error);
        if let Some(task) = session.task_id().filter(|_| waited && !session.awaits_input()) {
            let how = format!("annex send URL TEXT --task {}", shell::word(task.as_str()));
            output::note(&format!("The next message begins a new task; `{how}` answers the one that waited."));
        }
    }

    /// Sends the message and follows the answer, or cancels the task at Ctrl-C.
    async fn exchange(
        &mut self,
        message: Message,
        outcome: &mut Outcome,
        transcript: &mut Transcript,
    ) -> anyhow::Result<()> {
        let continued = message.task_id.clone();
        let streams = turn::offers_stream(self.agent.card());
        let session = &mut self.conversation.session;
        let take = |event: StreamResponse| {
            // The session looks first: an answer that belongs to another conversation is an error and is not shown.
            session.follow(&event)?;
            outcome.follow(&event);
            transcript.show(event)
        };
        let exchange = turn::exchange(&self.agent, self.calling.parameters()?, message, streams, take);
        // Dropping the request does not end the task, because a task does not depend on streams. So the task is
        // cancelled by its id below.
        let ended = tokio::select! {
            ended = exchange => Some(ended),
            _ = self.interrupts.recv() => None,
        };
        let Some(active) = ended.transpose()? else {
            // Before the first event only a task that is continued has an id.
            return self.cancel(outcome.task().cloned().or(continued)).await;
        };
        // Set only now: after a failed request the next message brings the state again.
        self.conversation.has_state = true;
        turn::note_inactive(&self.calling.extensions, &active);
        // One answer may leave the task running. A stream must not end before the task does, or waits.
        if streams { outcome.check_settled() } else { Ok(()) }
    }

    async fn cancel(&mut self, task: Option<TaskId>) -> anyhow::Result<()> {
        let Some(id) = task else {
            output::note("Stopped waiting. The agent has not named its task, so that goes on.");
            return Ok(());
        };
        let request = CancelTaskRequest { id, ..CancelTaskRequest::default() };
        let canceled = tokio::select! {
            canceled = self.agent.cancel_task(self.calling.parameters()?, request) => canceled?.value,
            // A second Ctrl-C does not wait for the agent's answer.
            _ = self.interrupts.recv() => return Ok(()),
        };
        output::note(&format!("task     {}  {}", canceled.id, canceled.status.state));
        self.conversation.session.follow(&StreamResponse::Task(canceled))?;
        Ok(())
    }
}

impl<'a> Input<'a> {
    fn of(line: &'a str) -> Self {
        match line.trim() {
            "" => Self::Nothing,
            "/state" => Self::State,
            "/history" => Self::History,
            "/new" => Self::New,
            "/quit" => Self::Quit,
            "/help" => Self::Help,
            text if text.starts_with('/') => Self::Unknown(text),
            text => Self::Message(text),
        }
    }
}
