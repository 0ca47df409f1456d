//! Methods that an extension adds to those of A2A.

use std::sync::Arc;

use annex_schema::Schema;

/// A method of an extension.
pub struct Method {
    /// JSON-RPC method name, such as `tasks/search`.
    pub name: String,
    /// The purpose of the method in one sentence.
    pub description: String,
    /// True if the method returns a stream of results.
    pub streams: bool,
    pub(crate) params: Option<Arc<Schema>>,
    pub(crate) result: Option<Arc<Schema>>,
}

impl std::fmt::Debug for Method {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Method").field("name", &self.name).finish_non_exhaustive()
    }
}
