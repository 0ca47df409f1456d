//! The hooks of the contract.

use std::fmt;

use crate::confinement::grants::GrantNeeded;

/// An interface of `annex:extension` that a component may export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hook {
    /// Describes the extension.
    Descriptor,
    /// Extends the Agent Card.
    Card,
    /// Extends the Agent Card, and changes its entry while the extension runs.
    LiveCard,
    /// Decides whether the extension is active for a request.
    Activation,
    /// Checks and rewrites messages.
    Message,
    /// Validates session state that the client sent.
    State,
    /// Steers the states of the task.
    Transition,
    /// Answers in place of the agent.
    Reply,
    /// Steers the calls of the model and of tools.
    Steering,
    /// Revises the content of outgoing events.
    Output,
    /// Adds metadata to outgoing events.
    Response,
    /// Decides what readers of tasks are shown.
    Reads,
    /// Changes its entry for one reader of the extended Agent Card.
    ExtendedCard,
    /// Adds methods to the methods of A2A.
    Method,
    /// Extends the calls of clients.
    Client,
}

impl Hook {
    /// All hooks, in the order in which a request meets them.
    pub const ALL: [Self; 15] = [
        Self::Descriptor,
        Self::Card,
        Self::LiveCard,
        Self::Activation,
        Self::Message,
        Self::State,
        Self::Transition,
        Self::Reply,
        Self::Steering,
        Self::Output,
        Self::Response,
        Self::Reads,
        Self::ExtendedCard,
        Self::Method,
        Self::Client,
    ];

    /// Name of the interface in the WIT.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Descriptor => "descriptor",
            Self::Card => "card",
            Self::LiveCard => "live-card",
            Self::Activation => "activation",
            Self::Message => "message",
            Self::State => "state",
            Self::Transition => "transition",
            Self::Reply => "reply",
            Self::Steering => "steering",
            Self::Output => "output",
            Self::Response => "response",
            Self::Reads => "reads",
            Self::ExtendedCard => "extended-card",
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
            Self::LiveCard => &["declare-live"],
            Self::Activation => &["activate"],
            Self::Message => &["check"],
            Self::State => &["validate"],
            Self::Transition => &["begin", "change"],
            Self::Reply => &["before-agent"],
            Self::Steering => &["before-model", "before-tool", "after-tool"],
            Self::Output => &["revise"],
            Self::Response => &["respond"],
            Self::Reads => &["show"],
            Self::ExtendedCard => &["show-entry"],
            Self::Method => &["declare-methods", "call", "next"],
            Self::Client => &["before", "after"],
        }
    }

    /// The grant that a component with this hook needs. `None` if the hook needs no grant.
    #[must_use]
    pub const fn grant(self) -> Option<GrantNeeded> {
        match self {
            Self::LiveCard => Some(GrantNeeded::LiveCard),
            Self::Reply => Some(GrantNeeded::Answer),
            Self::Steering => Some(GrantNeeded::Steering),
            Self::Output => Some(GrantNeeded::RewriteAnswer),
            Self::Reads | Self::ExtendedCard => Some(GrantNeeded::Reads),
            Self::Descriptor
            | Self::Card
            | Self::Activation
            | Self::Message
            | Self::State
            | Self::Transition
            | Self::Response
            | Self::Method
            | Self::Client => None,
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

/// A set of hooks. It costs a turn one bit test to find out that no extension has a hook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HookSet(u16);

impl HookSet {
    pub(crate) fn of(hooks: &[Hook]) -> Self {
        Self(hooks.iter().fold(0, |set, hook| set | Self::bit(*hook)))
    }

    /// Adds all hooks of `other`.
    pub(crate) fn extend(&mut self, other: Self) {
        self.0 |= other.0;
    }

    pub(crate) fn remove(&mut self, hook: Hook) {
        self.0 &= !Self::bit(hook);
    }

    pub(crate) fn has(self, hook: Hook) -> bool {
        self.0 & Self::bit(hook) != 0
    }

    fn bit(hook: Hook) -> u16 {
        1 << hook as u16
    }
}

#[cfg(test)]
mod tests {
    use super::{Hook, HookSet};

    #[test]
    fn a_set_has_the_hooks_that_were_added_and_no_others() {
        for hook in Hook::ALL {
            let mut set = HookSet::of(&[hook]);
            assert_eq!(Hook::ALL.into_iter().filter(|other| set.has(*other)).collect::<Vec<_>>(), [hook]);
            set.extend(HookSet::of(&Hook::ALL));
            assert!(Hook::ALL.into_iter().all(|other| set.has(other)));
            set.remove(hook);
            assert!(Hook::ALL.into_iter().all(|other| set.has(other) == (other != hook)));
        }
    }
}
