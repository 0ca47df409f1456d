//! Receipts of turns, which are signed with the key of the card. A receipt is in the metadata of its task.
//!
//! A turn has a receipt if it ends in this process with a last append: with a task in a final or interrupted state, or with a
//! message. A refused message has no receipt, because it leaves nothing behind. The turn goes on if its receipt cannot be signed.

use std::sync::Arc;

use annex_auth::receipt::{
    AnswerDigests, ContentDigest, Issuer, Link, Receipt, ReceiptExtension, SignedReceipt, VERSION, metadata_key,
};
use annex_auth::signature::{SignError, Signer};
use annex_conversation::{Conversation, Entry, Note};
use annex_protocol::{ContextId, Json, Message, StreamResponse, Task, TaskId, Timestamp};
use annex_runtime::{Chain, Participation};
use tokio::sync::mpsc;

/// Signs the receipts of one agent.
pub struct Receipts {
    /// The agent in its receipts.
    pub issuer: Issuer,
    /// The key of the card.
    pub signer: Arc<Signer>,
    /// Gets a copy of each receipt once its turn is stored. `None` if receipts are only in their tasks.
    pub copies: Option<mpsc::Sender<StoredReceipt>>,
}

/// A receipt that is stored with the end of its turn.
#[derive(Clone, Debug)]
pub struct StoredReceipt {
    /// The tenant of the agent. `None` for the agent of the config itself.
    pub tenant: Option<String>,
    /// The conversation.
    pub context_id: ContextId,
    /// The task. A turn whose answer is a message had it before the answer.
    pub task_id: TaskId,
    /// The receipt.
    pub signed: SignedReceipt,
}

/// The facts about a turn in its receipt, without the answer.
pub(crate) struct TurnFacts<'a> {
    pub(crate) context_id: &'a ContextId,
    pub(crate) task_id: &'a TaskId,
    pub(crate) message: &'a Message,
    pub(crate) chain: &'a Chain,
}

/// The end of a turn: the state of its task, and the answer. A turn whose answer is a message has no state.
pub(crate) struct TurnEndFacts {
    state: Option<String>,
    answer: AnswerDigests,
}

impl TurnEndFacts {
    /// The end of a turn that leaves `task`.
    pub(crate) fn of_task(task: &Task) -> Self {
        let artifacts = task.artifacts.iter();
        let artifacts = artifacts.map(|artifact| ContentDigest::of(artifact.artifact_id.as_str(), artifact));
        let message = task.status.message.as_ref().map(of_message);
        Self {
            state: Some(task.status.state.name().to_owned()),
            answer: AnswerDigests { artifacts: artifacts.collect(), message },
        }
    }

    /// The end of a turn that answers with `message`.
    pub(crate) fn of_answer(message: &Message) -> Self {
        Self { state: None, answer: AnswerDigests { artifacts: Vec::new(), message: Some(of_message(message)) } }
    }
}

impl Receipts {
    /// Signs the receipt of a turn, as the next one of its conversation.
    pub(crate) fn sign(
        &self,
        turn: &TurnFacts<'_>,
        end: TurnEndFacts,
        conversation: &Conversation,
    ) -> Result<SignedReceipt, SignError> {
        let last = conversation.receipt().as_deref().and_then(Link::read);
        let (number, prev) = Receipt::after(last);
        let receipt = Receipt {
            version: VERSION,
            issuer: self.issuer.clone(),
            context_id: turn.context_id.to_string(),
            task_id: turn.task_id.to_string(),
            number,
            prev,
            time: Timestamp::now().to_string(),
            extensions: turn.chain.participations().map(of_extension).collect(),
            message: of_message(turn.message),
            state: end.state,
            answer: end.answer,
        };
        receipt.sign(&self.signer)
    }
}

/// The entries with the receipt in the metadata of their last status, and with a note about it. `None` if the entries have no
/// status.
pub(crate) fn added_to(entries: &[Entry], signed: &SignedReceipt) -> Option<Vec<Entry>> {
    let mut entries = entries.to_vec();
    let last = entries.iter_mut().rev().find_map(|entry| match entry {
        Entry::Update(update) if matches!(**update, StreamResponse::StatusUpdate(_)) => Some(update),
        Entry::Update(_) | Entry::Message(_) | Entry::Event(_) | Entry::Note(_) => None,
    })?;
    if let StreamResponse::StatusUpdate(update) = Arc::make_mut(last) {
        update.metadata.insert(metadata_key(signed.link.number), Json::string(&signed.jws));
    }
    entries.push(note_of(signed));
    Some(entries)
}

/// The entry by which the conversation keeps its last receipt.
pub(crate) fn note_of(signed: &SignedReceipt) -> Entry {
    Entry::Note(Note::Receipt(signed.link.to_text().into()))
}

fn of_message(message: &Message) -> ContentDigest {
    ContentDigest::of(message.message_id.as_str(), message)
}

fn of_extension(participation: Participation<'_>) -> ReceiptExtension {
    ReceiptExtension {
        uri: participation.uri.to_string(),
        digest: participation.digest.to_string(),
        outcome: participation.part.name().to_owned(),
    }
}
