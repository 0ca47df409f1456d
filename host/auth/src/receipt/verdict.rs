//! Compares receipts with the tasks that have them, and with each other.

use std::collections::BTreeMap;

use serde_json::Value;

use super::content::sha256;
use super::seen::{self, Content, InputError, InputPart, SeenAnswer, SeenTask};
use super::{ContentDigest, Receipt, metadata_key, verify};
use crate::Jwks;

/// The result of a check.
#[derive(Debug, Default)]
pub struct Verdict {
    /// The receipts whose signature is valid, in the order of the input.
    pub receipts: Vec<Receipt>,
    /// The differences between the input and its receipts. Empty if all comparable content agrees with the receipts.
    pub differences: Vec<String>,
    /// The content that could not be compared, each with the reason.
    pub notes: Vec<String>,
    /// The digests of the receipts by conversation and number.
    chains: BTreeMap<String, BTreeMap<u64, ChainedReceipt>>,
}

#[derive(Debug)]
struct ChainedReceipt {
    digest: String,
    prev: Option<String>,
}

/// Checks the receipts in `inputs`: their signatures by `keys`, the messages and answers that are in the same input, and the
/// chains of receipts over all inputs. An input is the JSON of a task, of several tasks, of the answer of an agent, or of a
/// response with one of these, or a receipt in compact form.
///
/// # Errors
/// An input has nothing to check.
pub fn check(inputs: &[String], keys: &Jwks) -> Result<Verdict, InputError> {
    let mut verdict = Verdict::default();
    for input in inputs {
        for seen in seen::read(input)? {
            match seen {
                InputPart::Task(task) => verdict.check_task(&task, keys),
                InputPart::Answer(answer) => verdict.check_answer(&answer, keys),
                InputPart::Receipt(jws) => {
                    verdict.signed("the receipt", &jws, keys);
                }
            }
        }
    }
    verdict.check_chains();
    Ok(verdict)
}

impl Verdict {
    fn differs(&mut self, text: String) {
        self.differences.push(text);
    }

    /// Verifies the signature of a receipt, and takes it into the chain of its conversation.
    fn signed(&mut self, place: &str, jws: &str, keys: &Jwks) -> Option<Receipt> {
        let receipt = match verify(jws, keys) {
            Ok(receipt) => receipt,
            Err(error) => {
                self.differs(format!("{place}: {error}"));
                return None;
            }
        };
        let link = ChainedReceipt { digest: sha256(jws.as_bytes()), prev: receipt.prev.clone() };
        let number = receipt.number;
        let chain = self.chains.entry(receipt.context_id.clone()).or_default();
        let is_other = chain.get(&number).is_some_and(|known| known.digest != link.digest);
        chain.entry(number).or_insert(link);
        if is_other {
            let context = &receipt.context_id;
            self.differs(format!("{place}: context {context} has another receipt with the number {number}"));
        }
        self.receipts.push(receipt.clone());
        Some(receipt)
    }

    /// The receipts of a task or an answer with valid signatures, the oldest first.
    fn all_signed<'a>(
        &mut self,
        owner: &str,
        found: impl Iterator<Item = (&'a str, &'a Value)>,
        keys: &Jwks,
    ) -> Vec<Receipt> {
        let mut receipts = Vec::new();
        let mut is_empty = true;
        for (key, value) in found {
            is_empty = false;
            let place = format!("{owner}, {key}");
            let Some(jws) = value.as_str() else {
                self.differs(format!("{place}: it is not a receipt"));
                continue;
            };
            let Some(receipt) = self.signed(&place, jws, keys) else { continue };
            if metadata_key(receipt.number) != key {
                self.differs(format!("{place}: the receipt has the number {}", receipt.number));
            }
            receipts.push(receipt);
        }
        if is_empty {
            self.differs(format!("{owner}: it has no receipt"));
        }
        receipts.sort_by_key(|receipt| receipt.number);
        receipts
    }

    fn check_task(&mut self, task: &SeenTask, keys: &Jwks) {
        let owner = format!("task {}", task.id);
        let receipts = self.all_signed(&owner, task.receipts(), keys);
        for receipt in &receipts {
            if receipt.task_id != task.id || receipt.context_id != task.context_id {
                self.differs(format!("{owner}: receipt {} is of another task or context", receipt.number));
            }
        }
        if task.is_of_0_3() {
            self.notes
                .push(format!("{owner}: it is in the form of 0.3, so its message and its answer are not compared"));
            return;
        }
        for receipt in &receipts {
            self.check_message(&owner, (receipt.number, "the message"), task, &receipt.message);
        }
        let Some((last, earlier)) = receipts.split_last() else { return };
        for receipt in earlier {
            // Later turns may have changed the artifacts, so only the status is compared.
            if let Some(message) = &receipt.answer.message {
                self.check_message(&owner, (receipt.number, "the answer"), task, message);
            }
        }
        self.check_end(&owner, task, last);
    }

    /// Compares a message of the task with its digest, if the task has the message.
    fn check_message(&mut self, owner: &str, (number, what): (u64, &str), task: &SeenTask, expected: &ContentDigest) {
        match task.message(&expected.id) {
            Some(found) => self.compare(owner, (number, what), found.sha256().as_ref(), expected),
            None => self.notes.push(format!(
                "{owner}: {what} {} of receipt {number} is not in the history, so it is not compared",
                expected.id
            )),
        }
    }

    fn compare(&mut self, owner: &str, (number, what): (u64, &str), found: Option<&String>, expected: &ContentDigest) {
        let id = &expected.id;
        match &expected.sha256 {
            None => self.notes.push(format!("{owner}: receipt {number} has no digest of {what} {id}")),
            Some(expected) if found == Some(expected) => {}
            Some(_) => self.differs(format!("{owner}: {what} {id} is not that of receipt {number}")),
        }
    }

    /// Compares the state, the message and the artifacts of the task with its last receipt.
    fn check_end(&mut self, owner: &str, task: &SeenTask, last: &Receipt) {
        let number = last.number;
        let state = last.state.as_deref().unwrap_or_default();
        if task.status.state != state {
            let now = &task.status.state;
            self.differs(format!("{owner}: its state is {now}, and receipt {number} says {state}"));
        }
        match (&last.answer.message, &task.status.message) {
            (None, None) => {}
            (Some(expected), Some(found)) => {
                if found.id().as_deref() != Some(expected.id.as_str()) {
                    self.differs(format!("{owner}: the message of its status is not that of receipt {number}"));
                } else {
                    self.compare(owner, (number, "the answer"), found.sha256().as_ref(), expected);
                }
            }
            (Some(_), None) => self.differs(format!("{owner}: the message of its status is missing")),
            (None, Some(_)) => self.differs(format!("{owner}: receipt {number} has no message of the status")),
        }
        for expected in &last.answer.artifacts {
            match task.artifacts.iter().find(|artifact| artifact.id().as_ref() == Some(&expected.id)) {
                Some(found) => self.compare(owner, (number, "the artifact"), found.sha256().as_ref(), expected),
                None => self.differs(format!("{owner}: the artifact {} of receipt {number} is missing", expected.id)),
            }
        }
        let ids: Vec<Option<String>> = task.artifacts.iter().map(Content::id).collect();
        let known =
            |id: &Option<String>| last.answer.artifacts.iter().any(|artifact| Some(&artifact.id) == id.as_ref());
        if ids.len() > last.answer.artifacts.len() || !ids.iter().all(known) {
            self.differs(format!("{owner}: it has artifacts that receipt {number} does not have"));
        }
    }

    fn check_answer(&mut self, answer: &SeenAnswer, keys: &Jwks) {
        let owner = format!("message {}", answer.id);
        for receipt in self.all_signed(&owner, answer.receipts(), keys) {
            let number = receipt.number;
            if answer.context_id.as_ref() != Some(&receipt.context_id) {
                self.differs(format!("{owner}: receipt {number} is of another context"));
            }
            match receipt.answer.message.as_ref().filter(|message| message.id == answer.id) {
                Some(expected) => self.compare(&owner, (number, "the answer"), answer.sha256.as_ref(), expected),
                None => self.differs(format!("{owner}: receipt {number} is of another answer")),
            }
        }
    }

    /// Checks that each receipt names the one before it, and that no number between two receipts is missing.
    fn check_chains(&mut self) {
        let chains = std::mem::take(&mut self.chains);
        for (context, chain) in &chains {
            let mut before: Option<(u64, &ChainedReceipt)> = None;
            for (number, link) in chain {
                match before {
                    Some((last, _)) if last.checked_add(1) != Some(*number) => {
                        self.differs(format!(
                            "context {context}: the receipts between {last} and {number} are missing"
                        ));
                    }
                    Some((last, known)) if link.prev.as_ref() != Some(&known.digest) => {
                        self.differs(format!("context {context}: receipt {number} does not follow receipt {last}"));
                    }
                    None if *number > 1 => {
                        self.notes.push(format!("context {context}: the receipts before {number} are not given"));
                    }
                    _ => {}
                }
                before = Some((*number, link));
            }
        }
    }
}
