//! Keys in memory, for tests.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use crate::boundaries::ClientKeys;
use crate::server::ContextKeys;

/// Keys of a conversation, or of a client.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    values: RefCell<BTreeMap<String, Vec<u8>>>,
    /// True if the store is not available.
    pub(crate) is_broken: Cell<bool>,
}

impl Keys {
    fn reach(&self) -> Result<(), String> {
        if self.is_broken.get() { Err("out of reach".to_owned()) } else { Ok(()) }
    }
}

impl ClientKeys for Keys {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, String> {
        self.reach()?;
        Ok(self.values.borrow().get(key).cloned())
    }

    fn set(&self, key: &str, value: &[u8]) -> Result<(), String> {
        self.reach()?;
        self.values.borrow_mut().insert(key.to_owned(), value.to_vec());
        Ok(())
    }
}

impl ContextKeys for Keys {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, String> {
        ClientKeys::get(self, key)
    }

    fn set(&self, key: &str, value: &[u8]) -> Result<(), String> {
        ClientKeys::set(self, key, value)
    }

    fn count(&self) -> Result<usize, String> {
        self.reach()?;
        Ok(self.values.borrow().len())
    }
}
