//! The decisions of verifiers, stored until their tasks resume.
//!
//! A waiting task that is cancelled never resumes, and the extension is not notified of the cancellation. Therefore
//! only the latest decisions are kept, so that old ones cannot use up the extension's keys. A key consists of the
//! decision's number and the task's id, with a space between them, so that keys sort by age.

use annex_sdk::keyvalue::Keys;

/// The maximum number of stored decisions. This many decisions with the longest reasons take half of the bytes that the
/// grant allows by default. One listing returns the keys of all decisions.
pub const MAX_KEPT: usize = 250;

/// The key of the counter from which each decision gets its number.
const COUNTER: &str = "decisions";

/// Stores a decision and returns the key of the decision. If too many decisions are stored, removes the oldest one.
///
/// # Errors
/// The host's store is not available, or the grant allows fewer keys.
pub fn keep(task_id: &str, decision: &str) -> Result<String, String> {
    let keys = Keys::open()?;
    // With leading zeros the order of the keys' bytes is that of their numbers.
    let key = format!("{:020} {task_id}", keys.increment(COUNTER, 1)?);
    let all = keys.list()?;
    let kept: Vec<&String> = all.iter().filter(|key| task_of(key).is_some()).collect();
    let too_many = (kept.len() + 1).saturating_sub(MAX_KEPT);
    // Room is made before the new key is set, because the grant may allow no further one.
    for oldest in kept.into_iter().take(too_many) {
        keys.delete(oldest)?;
    }
    keys.set(&key, decision.as_bytes())?;
    Ok(key)
}

/// The latest decision on a task.
///
/// # Errors
/// The host's store is not available.
pub fn of_task(task_id: &str) -> Result<Option<String>, String> {
    let keys = Keys::open()?;
    // Keys sort by age. The latest decision may be removed at this moment, by a call that came too late.
    for key in keys_of(task_id, &keys)?.iter().rev() {
        if let Some(decision) = keys.get(key)? {
            return Ok(Some(String::from_utf8_lossy(&decision).into_owned()));
        }
    }
    Ok(None)
}

/// Removes all decisions on a task.
///
/// # Errors
/// The host's store is not available.
pub fn forget(task_id: &str) -> Result<(), String> {
    let keys = Keys::open()?;
    keys_of(task_id, &keys)?.iter().try_for_each(|key| keys.delete(key))
}

fn keys_of(task_id: &str, keys: &Keys) -> Result<Vec<String>, String> {
    let mut all = keys.list()?;
    all.retain(|key| task_of(key) == Some(task_id));
    Ok(all)
}

/// The task id in a decision's key; `None` for the counter's key.
fn task_of(key: &str) -> Option<&str> {
    key.split_once(' ').map(|(_, task_id)| task_id)
}
