//! The requests that a reader sees, and the filter that selects some of them.

use std::sync::Arc;

use annex_telemetry::Outcome;

use super::record::RequestRecord;

/// The requests that the holder of an admin token may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum VisibleRequests {
    /// The requests of all tenants, of the config's own agent, and those that were refused before a tenant was known.
    All,
    /// The requests that name this tenant.
    Tenant(Arc<str>),
}

impl VisibleRequests {
    /// True if the reader may see the request.
    pub(crate) fn shows(&self, record: &RequestRecord) -> bool {
        match self {
            Self::All => true,
            Self::Tenant(name) => record.tenant.as_deref() == Some(&**name),
        }
    }
}

/// The conditions on requests in a list. A condition that is `None` matches every request.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestFilter {
    /// The operation, such as `SendMessage`.
    pub(crate) operation: Option<String>,
    /// The outcome.
    pub(crate) outcome: Option<Outcome>,
    /// The URI of an extension that was active, or that refused the request, failed in it or was missing.
    pub(crate) extension: Option<String>,
    /// The id of the conversation.
    pub(crate) context: Option<String>,
}

impl RequestFilter {
    /// True if the request meets all conditions.
    pub(crate) fn matches(&self, record: &RequestRecord) -> bool {
        let is = |wanted: &Option<String>, text: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| text.unwrap_or_default() == wanted)
        };
        is(&self.operation, Some(record.operation))
            && self.outcome.is_none_or(|outcome| outcome == record.outcome)
            && self.extension.as_deref().is_none_or(|uri| record.names_extension(uri))
            && is(&self.context, record.context.as_deref())
    }
}
