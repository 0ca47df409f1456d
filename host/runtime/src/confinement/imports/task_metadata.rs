//! Entries that the extension sets in the metadata of the turn's task.

use std::collections::BTreeMap;
use std::mem;

use annex_protocol::Json;

use crate::confinement::store::HostState;

/// Maximum size of the values that an extension sets in a turn, in bytes. Of the values of one key, only the last one
/// counts.
const MAX_BYTES: usize = 16 << 10;

/// The entries of the task's metadata that an extension has set in a turn.
#[derive(Default)]
pub(crate) struct TaskEntries {
    /// The size of the last value of each key, in bytes.
    sizes: BTreeMap<String, usize>,
    /// The entries that no status of the task has contained yet.
    pending: Vec<(String, Json)>,
}

impl TaskEntries {
    fn set(&mut self, key: &str, value: Json) -> Result<(), String> {
        let others: usize = self.sizes.iter().filter(|(other, _)| *other != key).map(|(_, size)| size).sum();
        check_size(others + value.get().len())?;
        self.sizes.insert(key.to_owned(), value.get().len());
        self.pending.retain(|(other, _)| other != key);
        self.pending.push((key.to_owned(), value));
        Ok(())
    }

    /// Takes the entries for the next status of the task.
    pub(crate) fn take(&mut self) -> Vec<(String, Json)> {
        mem::take(&mut self.pending)
    }
}

impl HostState {
    /// Sets an entry of the task's metadata. Returns the reason for an error.
    pub(crate) fn set_task_metadata(&mut self, key: &str, value: &str) -> Result<(), String> {
        let set = self.task_entry(key, value).and_then(|entry| self.task_entries.set(key, entry));
        if let Some(turn) = &self.turn {
            turn.task_metadata_set(key, value, set.as_ref().err().map(String::as_str));
        }
        set
    }

    /// Checks the entry and parses its value.
    fn task_entry(&self, key: &str, value: &str) -> Result<Json, String> {
        // The view of a method call has no task.
        if self.turn.as_ref().is_none_or(|turn| turn.ids().task_id.is_none()) {
            return Err("there is no task here, as in a method and at load".to_owned());
        }
        if !self.profile.metadata_keys.iter().any(|own| own == key) {
            return Err(format!("the descriptor does not own the key {key:?}"));
        }
        // A value that is too large is not parsed.
        check_size(value.len())?;
        Json::parse(value.to_owned()).map_err(|error| format!("the value is not JSON: {error}"))
    }
}

fn check_size(bytes: usize) -> Result<(), String> {
    if bytes > MAX_BYTES {
        Err(format!("the values would have {bytes} bytes; at most {MAX_BYTES} can be set in a turn"))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use annex_protocol::Json;

    use super::TaskEntries;

    fn text(bytes: usize) -> Json {
        Json::string(&"a".repeat(bytes - 2))
    }

    #[test]
    fn the_last_values_of_all_keys_together_are_bounded_over_the_turn() {
        let mut entries = TaskEntries::default();
        assert_eq!(entries.set("a", text(10_000)), Ok(()));
        assert_eq!(entries.take().len(), 1);
        assert_eq!(entries.set("a", text(12_000)), Ok(()), "replaces the first value");
        let refused = entries.set("b", text(5_000));
        assert_eq!(refused, Err("the values would have 17000 bytes; at most 16384 can be set in a turn".to_owned()));
        assert_eq!(entries.set("b", text(4_000)), Ok(()));
        assert_eq!(entries.set("a", text(10)), Ok(()));
        let keys: Vec<String> = entries.take().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["b", "a"]);
        assert!(entries.take().is_empty());
    }
}
