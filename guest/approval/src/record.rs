//! Stores the requests for an approval.
//!
//! An approver calls a method, which belongs to no task and cannot use a task's keys. So the requests are among the
//! extension's own keys, which all processes share. A request has the key `call/<hash of task and call>`, and the task
//! has a key with the call that it waits for. Counters hold the votes, because only a counter lets one of two processes
//! be the first. A key `until/<seconds>/…` shows when a request can be removed.

use annex_sdk::keyvalue::Keys;
use annex_sdk::{json, log};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::digest;

/// The seconds for which an expired request is kept, so that a late decision gets a clear error.
const KEPT: u64 = 600;
/// The maximum number of requests that are removed in one turn. Each removal is several host calls, and the calls of a
/// turn are limited.
const MAX_REMOVALS: usize = 8;

const CALL: &str = "call/";
const UNTIL: &str = "until/";
const WAITS: &str = "waits/";

/// The subject of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// A call of a tool.
    ToolCall,
    /// The result of a task.
    Acceptance,
}

/// A request for an approval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The task.
    pub task: String,
    /// The id of the call, or of the result.
    pub call: String,
    /// The subject of the approval.
    pub action: Action,
    /// The digest of the content that the client saw.
    pub digest: String,
    /// The time from which the request is expired, in seconds.
    pub until: u64,
    /// The principal that began the task. `None` for an anonymous one.
    pub owner: Option<String>,
    /// The parts of the message with which the task wanted to complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<Value>,
    /// The number of stored requests for the same call that this one has replaced. `None` for a first request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<u64>,
}

impl Record {
    /// Stores the request. From now on the task waits for its approval. Decisions about an earlier request for the same
    /// call do not count for this one.
    ///
    /// # Errors
    /// The store is not available or is full.
    pub fn open(&mut self, now: u64) -> Result<(), String> {
        let keys = Keys::open()?;
        remove_expired(&keys, now)?;
        if let Some(earlier) = read(&keys, &name(&self.task, &self.call))? {
            earlier.remove(&keys, &keys.list()?)?;
            self.replaced = Some(earlier.replaced.unwrap_or_default().saturating_add(1));
        }
        self.store(&keys).inspect_err(|_| {
            // The request has no votes yet. What cannot be removed now is removed once it has expired.
            if let Err(error) = self.remove(&keys, &[]) {
                log::info(&format!("a request for an approval that was not stored is not removed: {error}"));
            }
        })
    }

    fn store(&self, keys: &Keys) -> Result<(), String> {
        // First the key that leads to the others.
        keys.set(&self.expiry(), b"")?;
        keys.set(&format!("{CALL}{}", name(&self.task, &self.call)), json::text(self)?.as_bytes())?;
        keys.set(&waits(&self.task), self.call.as_bytes())
    }

    /// Removes the request with its votes. `all` has all keys.
    fn remove(&self, keys: &Keys, all: &[String]) -> Result<(), String> {
        let votes = format!("{}/", self.key("vote"));
        for vote in all.iter().filter(|key| key.starts_with(&votes)) {
            keys.delete(vote)?;
        }
        for kind in ["approved", "rejected", "released"] {
            keys.delete(&self.key(kind))?;
        }
        self.close()?;
        keys.delete(&format!("{CALL}{}", name(&self.task, &self.call)))?;
        // The key that leads to the others is removed last.
        keys.delete(&self.expiry())
    }

    /// Removes the request that a task waits for, because the task has ended.
    ///
    /// # Errors
    /// The store is not available.
    pub fn remove_waiting(task: &str) -> Result<(), String> {
        let Some(record) = Self::waiting(task)? else { return Ok(()) };
        let keys = Keys::open()?;
        record.remove(&keys, &keys.list()?)
    }

    fn expiry(&self) -> String {
        format!("{UNTIL}{:012}/{}", self.until, name(&self.task, &self.call))
    }

    /// The request for a call of a task. `None` if there is none.
    ///
    /// # Errors
    /// The store is not available, or the request cannot be read.
    pub fn load(task: &str, call: &str) -> Result<Option<Self>, String> {
        read(&Keys::open()?, &name(task, call))
    }

    /// The request that the task waits for. `None` if the task waits for none.
    ///
    /// # Errors
    /// The store is not available, or the request cannot be read.
    pub fn waiting(task: &str) -> Result<Option<Self>, String> {
        let keys = Keys::open()?;
        match keys.get(&waits(task))? {
            Some(call) => read(&keys, &name(task, &String::from_utf8_lossy(&call))),
            None => Ok(None),
        }
    }

    /// Lets the task wait for this stored request again.
    ///
    /// # Errors
    /// The store is not available or is full.
    pub fn wait(&self) -> Result<(), String> {
        Keys::open()?.set(&waits(&self.task), self.call.as_bytes())
    }

    /// Ends the wait of the task for this request. A wait for another request stays.
    ///
    /// # Errors
    /// The store is not available.
    pub fn close(&self) -> Result<(), String> {
        let keys = Keys::open()?;
        let waits = waits(&self.task);
        if keys.get(&waits)?.is_some_and(|call| call == self.call.as_bytes()) {
            keys.delete(&waits)?;
        }
        Ok(())
    }

    /// True if the request has expired.
    pub fn is_expired(&self, now: u64) -> bool {
        now >= self.until
    }

    /// The number of approvals.
    ///
    /// # Errors
    /// The store is not available.
    pub fn approvals(&self) -> Result<u64, String> {
        counter(&Keys::open()?, &self.key("approved"))
    }

    /// True if an approver has rejected the request.
    ///
    /// # Errors
    /// The store is not available.
    pub fn is_rejected(&self) -> Result<bool, String> {
        Ok(counter(&Keys::open()?, &self.key("rejected"))? > 0)
    }

    /// True if the approval was used.
    ///
    /// # Errors
    /// The store is not available.
    pub fn is_released(&self) -> Result<bool, String> {
        Ok(counter(&Keys::open()?, &self.key("released"))? > 0)
    }

    /// True if the caller has decided.
    ///
    /// # Errors
    /// The store is not available.
    pub fn has_vote(&self, principal: Option<&str>) -> Result<bool, String> {
        Ok(counter(&Keys::open()?, &self.vote(principal))? > 0)
    }

    /// Counts the caller's decision. Returns the number of approvals with it, or `None` if the caller has decided before.
    ///
    /// # Errors
    /// The store is not available or is full. Then the decision does not count.
    pub fn cast(&self, principal: Option<&str>, approves: bool) -> Result<Option<u64>, String> {
        let keys = Keys::open()?;
        // A failure between the two counters loses the approval, and never counts it twice.
        if keys.increment(&self.vote(principal), 1)? != 1 {
            return Ok(None);
        }
        if approves {
            return keys.increment(&self.key("approved"), 1).map(Some);
        }
        keys.increment(&self.key("rejected"), 1)?;
        counter(&keys, &self.key("approved")).map(Some)
    }

    /// Uses the approval. Returns false if it was used before, here or in another process.
    ///
    /// # Errors
    /// The store is not available or is full. Then the call must not be made.
    pub fn release(&self) -> Result<bool, String> {
        Ok(Keys::open()?.increment(&self.key("released"), 1)? == 1)
    }

    /// A key for this request alone. A request with another digest or time has other keys, so no vote counts for it.
    fn key(&self, kind: &str) -> String {
        let until = match self.replaced {
            None => self.until.to_string(),
            // A request may be made again within the same second.
            Some(replaced) => format!("{}-{replaced}", self.until),
        };
        format!("{kind}/{}", digest::of_texts(&[&self.task, &self.call, &self.digest, &until]))
    }

    fn vote(&self, principal: Option<&str>) -> String {
        let voter = principal.map_or_else(|| "anonymous".to_owned(), |principal| digest::of_texts(&[principal]));
        format!("{}/{voter}", self.key("vote"))
    }
}

/// True if an error of the store says that the extension has used its keys or its bytes up.
pub fn is_full(error: &str) -> bool {
    ["no more are allowed", "would be larger than"].iter().any(|words| error.contains(words))
}

fn name(task: &str, call: &str) -> String {
    digest::of_texts(&[task, call])
}

fn waits(task: &str) -> String {
    format!("{WAITS}{}", digest::of_texts(&[task]))
}

fn read(keys: &Keys, name: &str) -> Result<Option<Record>, String> {
    let Some(bytes) = keys.get(&format!("{CALL}{name}"))? else { return Ok(None) };
    let read = serde_json::from_slice(&bytes);
    read.map(Some).map_err(|error| format!("a stored request for an approval cannot be read: {error}"))
}

fn counter(keys: &Keys, key: &str) -> Result<u64, String> {
    let Some(bytes) = keys.get(key)? else { return Ok(0) };
    let text = String::from_utf8_lossy(&bytes);
    text.parse().map_err(|_| format!("the stored counter {key} is no number"))
}

fn remove_expired(keys: &Keys, now: u64) -> Result<(), String> {
    let all = keys.list()?;
    // Keys sort by their bytes, so the first to expire comes first.
    let expiries = all.iter().filter_map(|key| key.strip_prefix(UNTIL)?.split_once('/').map(|rest| (key, rest)));
    let is_over = |until: &str| until.parse::<u64>().is_ok_and(|until| until.saturating_add(KEPT) < now);
    for (key, (until, name)) in expiries.filter(|(_, (until, _))| is_over(until)).take(MAX_REMOVALS) {
        // A request that was made again has another time, and another key with it.
        if let Some(record) = read(keys, name)?.filter(|record| until.parse() == Ok(record.until)) {
            record.remove(keys, &all)?;
        }
        keys.delete(key)?;
    }
    Ok(())
}
