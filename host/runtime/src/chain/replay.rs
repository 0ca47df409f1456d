//! Replays a recorded turn with an extension.

use std::sync::{Arc, Mutex, PoisonError};

use annex_keyvalue::KeyValueStore;
use annex_protocol::{Message, Metadata};

use crate::bindings::SeenRequest;
use crate::chain::transition::TurnBeginning;
use crate::chain::{Member, MethodAnswer, MethodCall, TurnRequest};
use crate::error::{Fault, HookError};
use crate::extension::Extension;
use crate::recording::answers::Answers;
use crate::recording::step::{RecordedStep, StepInput};
use crate::recording::{RecordedTurn, TurnObserver};
use crate::turn_view::TurnView;

/// The result of replaying a turn.
#[derive(Debug)]
pub struct ReplayResult {
    /// The replayed turn, as it was recorded during the replay.
    pub turn: RecordedTurn,
    /// The first calls of the extension that the recording cannot answer.
    pub unanswered: Vec<String>,
}

/// Replays a recorded turn with an extension, without side effects: the host answers calls of the extension from the
/// recording, and discards the extension's changes with the turn. `keys` answers reads of keys that the recorded turn
/// did not read. If `keys` is `None`, such keys do not exist.
///
/// # Errors
/// The extension cannot run, because it is quarantined or revoked, serves too many turns, or no instance is free. A
/// failure within the turn is part of [`ReplayResult::turn`].
pub async fn replay(
    extension: &Arc<Extension>,
    turn: &RecordedTurn,
    keys: Option<Arc<dyn KeyValueStore>>,
) -> Result<ReplayResult, Fault> {
    let taken = Arc::new(TurnCapture::default());
    let answers = Arc::new(Answers::new(turn, extension, Arc::clone(&taken) as _, keys));
    let mut player = Player { extension, turn, answers: &answers, seen: None, playing: ReplayedWork::Nothing };
    for step in &turn.steps {
        answers.enter(step);
        if !player.play(step).await? {
            break;
        }
    }
    // Dropping the member completes the recording.
    drop(player);
    let played = taken.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    // A turn that was too large to record has no steps, which differs from every recorded turn.
    let turn = played.unwrap_or_else(|| RecordedTurn::at(turn.at, turn.ids.clone()));
    Ok(ReplayResult { turn, unanswered: answers.unanswered() })
}

/// Keeps the recording that is made of the replayed turn.
#[derive(Default)]
struct TurnCapture(Mutex<Option<RecordedTurn>>);

impl TurnObserver for TurnCapture {
    fn wants(&self) -> bool {
        true
    }

    fn wants_all_steps(&self) -> bool {
        true
    }

    fn ended(&self, turn: RecordedTurn) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(turn);
    }
}

struct Player<'a> {
    extension: &'a Arc<Extension>,
    turn: &'a RecordedTurn,
    answers: &'a Arc<Answers>,
    seen: Option<SeenRequest>,
    playing: ReplayedWork,
}

/// The turn or the method call that the next step of the replay continues.
enum ReplayedWork {
    Nothing,
    Turn(Box<Member>),
    Method(Box<MethodCall>),
}

impl Player<'_> {
    /// Replays one step. Returns false if the turn has ended for the extension.
    async fn play(&mut self, step: &RecordedStep) -> Result<bool, Fault> {
        let turn = self.turn;
        match (&step.input, &mut self.playing) {
            (StepInput::Request { message, metadata }, ReplayedWork::Nothing) => {
                let request = self.request(message, metadata);
                let seen = request.seen();
                let entered = Member::enter(self.extension, &request, &seen, &message.parts).await;
                let Some((member, _)) = unless_it_cannot_run(entered)?.flatten() else { return Ok(false) };
                self.seen = Some(seen);
                self.playing = ReplayedWork::Turn(Box::new(member));
                Ok(true)
            }
            (StepInput::Begin { task_id, context_id, waits_in }, ReplayedWork::Turn(member)) => {
                let Some(seen) = &self.seen else { return Ok(false) };
                let begun = TurnBeginning { task_id, context_id, waits_in: *waits_in, resumed: turn.resumed };
                Ok(unless_overloaded(member.begin(seen, &begun.seen(), &begun).await)? && !member.is_out())
            }
            (StepInput::Change { current, update }, ReplayedWork::Turn(member)) => {
                let changed = member.change(*current, &mut update.clone()).await;
                Ok(unless_overloaded(changed)? && !member.is_out())
            }
            (StepInput::Reply { message }, ReplayedWork::Turn(member)) => {
                let Some(seen) = &self.seen else { return Ok(false) };
                let replied = unless_it_cannot_run(member.reply(seen, message).await)?;
                Ok(replied.is_some() && !member.is_out())
            }
            (
                input @ (StepInput::Model(_)
                | StepInput::Tool(_)
                | StepInput::ToolResult(_)
                | StepInput::Output(_)
                | StepInput::Event(_)),
                ReplayedWork::Turn(member),
            ) => Ok(play_of_agent(member, input).await? && !member.is_out()),
            (input @ (StepInput::Read { .. } | StepInput::ExtendedCard(_)), ReplayedWork::Nothing) => {
                // A read has one step.
                self.play_read(input).await.map(|()| false)
            }
            (StepInput::Call { params }, ReplayedWork::Nothing) => {
                let (message, metadata) = (Message::default(), Metadata::new());
                let request = self.request(&message, &metadata);
                match unless_it_cannot_run(MethodCall::start(self.extension, &request, params).await)? {
                    Some(MethodAnswer::Results(call)) => {
                        self.playing = ReplayedWork::Method(call);
                        Ok(true)
                    }
                    Some(MethodAnswer::Value(_)) | None => Ok(false),
                }
            }
            (StepInput::Next, ReplayedWork::Method(call)) => {
                Ok(unless_it_cannot_run(call.next().await)?.flatten().is_some())
            }
            // This host records no such turn, but a file can contain one.
            _ => Ok(false),
        }
    }

    /// Replays a read of tasks or of the extended card.
    async fn play_read(&mut self, input: &StepInput) -> Result<(), Fault> {
        let (message, metadata) = (Message::default(), Metadata::new());
        let request = self.request(&message, &metadata);
        let seen = request.seen();
        match input {
            StepInput::Read { tasks } => {
                unless_it_cannot_run(Member::show(self.extension, &request, &seen, tasks).await).map(drop)
            }
            StepInput::ExtendedCard(entry) => {
                unless_it_cannot_run(Member::show_entry(self.extension, &request, &seen, entry).await).map(drop)
            }
            _ => Ok(()),
        }
    }

    fn request<'a>(&'a self, message: &'a Message, metadata: &'a Metadata) -> TurnRequest<'a> {
        TurnRequest {
            operation: &self.turn.operation,
            context_id: self.turn.context_id.as_ref(),
            task_id: self.turn.task_id.as_ref(),
            requested: &self.turn.requested,
            message,
            request: metadata,
            view: Arc::clone(self.answers) as Arc<dyn TurnView>,
            resumed: self.turn.resumed,
        }
    }
}

/// Replays a hook on what the agent does or sends. Returns false if the extension could not run, and for other steps.
async fn play_of_agent(member: &mut Member, input: &StepInput) -> Result<bool, Fault> {
    match input {
        StepInput::Model(call) => unless_overloaded(member.before_model(call).await),
        StepInput::Tool(call) => unless_overloaded(member.before_tool(call).await),
        StepInput::ToolResult(made) => unless_overloaded(member.after_tool(made).await),
        StepInput::Output(event) => unless_overloaded(member.revise(&mut event.clone()).await),
        StepInput::Event(event) => unless_overloaded(member.respond(&mut event.clone()).await),
        _ => Ok(false),
    }
}

/// Returns the value, or `None` if the extension ended the turn by a refusal or a failure. Fails if the extension could
/// not run, because it was quarantined or revoked, or had no free place.
fn unless_it_cannot_run<T>(result: Result<T, HookError>) -> Result<Option<T>, Fault> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(HookError::Fault(
            fault @ (Fault::Overloaded { .. } | Fault::Busy { .. } | Fault::Quarantined { .. } | Fault::Revoked { .. }),
        )) => Err(fault),
        Err(_) => Ok(None),
    }
}

/// Returns true on success, and false if the extension failed. Fails if the extension could not run, because it was
/// quarantined or revoked, or had no free place.
fn unless_overloaded<T>(result: Result<T, Fault>) -> Result<bool, Fault> {
    Ok(unless_it_cannot_run(result.map_err(HookError::Fault))?.is_some())
}
