//! The decisions of verifiers, each kept until its task is taken up.
//!
//! A task that is cancelled in between is never taken up, and nobody says so. So only the latest decisions are kept:
//! what is left over cannot use up the extension's keys. A key is the decision's number and the task's id with a space
//! between them, so that keys are in the order of decisions.

use annex_sdk::keyvalue::Keys;

/// Decisions that are kept. Even with the longest reasons they are half of what the grant allows unless it says
/// otherwise, and one listing has all their keys.
pub const MAX_KEPT: usize = 250;

/// The key of the counter that numbers them.
const COUNTER: &str = "decisions";

/// Keeps a decision, in place of the oldest if there are too many, and returns its key.
///
/// # Errors
/// The host's store does not work now, or the grant allows fewer keys.
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
/// The host's store does not work now.
pub fn of_task(task_id: &str) -> Result<Option<String>, String> {
    let keys = Keys::open()?;
    // Keys are in the order of decisions. The latest may be taken back at this moment, by a call that came too late.
    for key in keys_of(task_id, &keys)?.iter().rev() {
        if let Some(decision) = keys.get(key)? {
            return Ok(Some(String::from_utf8_lossy(&decision).into_owned()));
        }
    }
    Ok(None)
}

/// Forgets all decisions on a task.
///
/// # Errors
/// The host's store does not work now.
pub fn forget(task_id: &str) -> Result<(), String> {
    let keys = Keys::open()?;
    keys_of(task_id, &keys)?.iter().try_for_each(|key| keys.delete(key))
}

fn keys_of(task_id: &str, keys: &Keys) -> Result<Vec<String>, String> {
    let mut all = keys.list()?;
    all.retain(|key| task_of(key) == Some(task_id));
    Ok(all)
}

/// `None` for the counter.
fn task_of(key: &str) -> Option<&str> {
    key.split_once(' ').map(|(_, task_id)| task_id)
}
