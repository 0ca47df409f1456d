//! The hooks of the contract.

use std::fmt;

/// An interface of `annex:extension` that a component may export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hook {
    /// Describes the extension.
    Descriptor,
    /// Extends the Agent Card.
    Card,
    /// Decides whether the extension is active for a request.
    Activation,
    /// Checks and rewrites messages.
    Message,
    /// Validates session state that the client sent.
    State,
    /// Steers the states of the task.
    Transition,
    /// Adds metadata to outgoing events.
    Response,
    /// Adds methods to the methods of A2A.
    Method,
    /// Extends the calls of clients.
    Client,
}

impl Hook {
    /// All hooks, in the order in which a request meets them.
    pub const ALL: [Self; 9] = [
        Self::Descriptor,
        Self::Card,
        Self::Activation,
        Self::Message,
        Self::State,
        Self::Transition,
        Self::Response,
        Self::Method,
        Self::Client,
    ];

    /// Name of the interface in the WIT.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Descriptor => "descriptor",
            Self::Card => "card",
            Self::Activation => "activation",
            Self::Message => "message",
            Self::State => "state",
            Self::Transition => "transition",
            Self::Response => "response",
            Self::Method => "method",
            Self::Client => "client",
        }
    }

    /// Functions of the interface, in WIT order.
    #[must_use]
    pub const fn functions(self) -> &'static [&'static str] {
        match self {
            Self::Descriptor => &["describe"],
            Self::Card => &["declare"],
            Self::Activation => &["activate"],
            Self::Message => &["check"],
            Self::State => &["validate"],
            Self::Transition => &["begin", "change"],
            Self::Response => &["respond"],
            Self::Method => &["declare-methods", "call", "next"],
            Self::Client => &["before", "after"],
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|hook| hook.name() == name)
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
