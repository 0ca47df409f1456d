//! Merchants, as checkouts, payments and constraints name them.

use serde::{Deserialize, Serialize};

/// A merchant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Merchant {
    pub(super) id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) website: Option<String>,
}

impl Merchant {
    /// True if both are the same merchant: by their ids, or without two ids by name and website.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let is_set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        if is_set(&self.id) && is_set(&other.id) {
            return self.id == other.id;
        }
        let names = is_set(&self.name) && self.name == other.name;
        names && is_set(&self.website) && self.website == other.website
    }
}
