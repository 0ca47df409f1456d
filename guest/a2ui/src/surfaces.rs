//! The surfaces of a conversation, and the catalogue of each. Surfaces outlive the turn.

use std::collections::BTreeMap;

use annex_sdk::keyvalue::Keys;

const PREFIX: &str = "surface:";

/// The surfaces of a conversation, with the changes by the content at hand.
#[derive(Debug, Default)]
pub struct Surfaces {
    /// Per surface the catalogue, or `None` for a surface that is deleted.
    changes: BTreeMap<String, Option<String>>,
    /// True in a client, which sees a part of the conversation and may see events twice.
    is_partial: bool,
}

impl Surfaces {
    /// The surfaces that a client has seen in a call.
    pub fn seen() -> Self {
        Self { is_partial: true, ..Self::default() }
    }

    /// True if all surfaces are known.
    pub fn are_certain(&self) -> bool {
        !self.is_partial
    }

    /// The catalogue of a surface that exists. It is empty if the surface has none of its own.
    ///
    /// # Errors
    /// The host's store is not available.
    pub fn catalogue_of(&self, surface: &str) -> Result<Option<String>, String> {
        if let Some(changed) = self.changes.get(surface) {
            return Ok(changed.clone());
        }
        if self.is_partial {
            return Ok(None);
        }
        let value = Keys::of_context()?.get(&format!("{PREFIX}{surface}"))?;
        Ok(value.map(|value| String::from_utf8_lossy(&value).into_owned()))
    }

    /// Notes a surface.
    pub fn create(&mut self, surface: &str, catalogue: &str) {
        self.changes.insert(surface.to_owned(), Some(catalogue.to_owned()));
    }

    /// Notes that a surface is deleted.
    pub fn delete(&mut self, surface: &str) {
        self.changes.insert(surface.to_owned(), None);
    }

    /// Stores the changes.
    ///
    /// # Errors
    /// The grant has no room for a surface, or the host's store is not available.
    pub fn commit(&mut self) -> Result<(), String> {
        if self.changes.is_empty() || self.is_partial {
            return Ok(());
        }
        let keys = Keys::of_context()?;
        for (surface, catalogue) in std::mem::take(&mut self.changes) {
            let key = format!("{PREFIX}{surface}");
            match catalogue {
                Some(catalogue) => keys.set(&key, catalogue.as_bytes())?,
                None => keys.delete(&key)?,
            }
        }
        Ok(())
    }

    /// Forgets the changes.
    pub fn forget(&mut self) {
        self.changes.clear();
    }
}
