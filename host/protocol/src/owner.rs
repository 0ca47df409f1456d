//! The owner of tasks and conversations.

/// The tenant and the principal of a caller. Both names may be empty.
///
/// A task belongs to the owner whose request made it. For any other owner it does not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The tenant that the request was authorised for; empty for the agent of the config itself.
    pub tenant: String,
    /// The authenticated principal; empty without authentication. A client cannot choose it.
    pub principal: String,
}
