//! The hooks of the contract, by name.

use std::fmt;

/// An interface of `annex:extension` that a component may export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hook {
    /// The extension's description of itself.
    Descriptor,
    /// Its entry on the Agent Card.
    Card,
    /// Its decision to take part in a request.
    Activation,
    /// The content that a message may have.
    Message,
    /// Session state sent by the client.
    State,
    /// The states of the task.
    Transition,
    /// Metadata on outgoing events.
    Response,
    /// Operations of its own.
    Method,
    /// Its half on the calling side.
    Client,
}

impl Hook {
    /// Every hook, in the order in which a request meets them.
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

    /// The interface's name in the WIT.
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

    /// The functions of the interface, in its order.
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
