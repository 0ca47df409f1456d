//! The operator's grants to an installed extension. Without a grant, access is denied.
//!
//! An import needs no grant if it can neither observe nor affect anything outside of its own turn. Every other import
//! needs one. The tables in `imports.rs` define the grant of each import. Other code asks [`GrantNeeded::of_import`].

use std::collections::BTreeMap;
use std::fmt;

use annex_keyvalue::Quota;
use annex_protocol::Secret;

mod caller;
mod http;
mod live_card;
mod session_state;

pub use caller::CallerGrant;
pub use http::{HostPattern, HttpGrant, HttpRule, HttpScheme, InvalidHost};
pub use live_card::LiveCardGrant;
pub use session_state::{SessionStateGrant, StateScope};

/// The grants of an installed extension.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// Access to the clocks of `wasi:clocks`.
    pub clock: bool,
    /// Access to the random numbers of `wasi:random`.
    pub random: bool,
    /// Outgoing requests by `wasi:http`. `None` denies them.
    pub http: Option<HttpGrant>,
    /// Keys in `wasi:keyvalue`, which outlive a turn. `None` denies them.
    pub keyvalue: Option<Quota>,
    /// Secrets by name. The extension reads them from `wasi:config/store`. Logs and recordings do not show them.
    pub secrets: BTreeMap<String, Secret>,
    /// Reading session state. `None` denies it.
    pub session_state: Option<SessionStateGrant>,
    /// Reading the state of the task.
    pub task: bool,
    /// Listing the caller's tasks.
    pub tasks: bool,
    /// Resuming tasks that the extension interrupted.
    pub task_resumption: bool,
    /// Reading the agent's steps in the turn.
    pub agent_steps: bool,
    /// Steering the calls of the model and of tools in the hook `steering`. This grant has no import.
    pub steering: bool,
    /// Reading who calls. `None` denies it.
    pub caller: Option<CallerGrant>,
    /// Setting metadata of the turn's task.
    pub task_metadata: bool,
    /// Getting metadata of messages that the host forgets: it neither stores this metadata nor shows it to others. This
    /// grant has no import.
    pub forget_metadata: bool,
    /// Rewriting parts of messages in the hook `message`. This grant has no import.
    pub rewrite_message: bool,
    /// Revising the agent's answers in the hook `output`. This grant has no import.
    pub rewrite_answer: bool,
    /// Answering in place of the agent in the hook `reply`. This grant has no import.
    pub answer: bool,
    /// Deciding in the hook `reads` what readers of tasks are shown, and in the hook `extended-card` what readers of the
    /// extended card are shown of the extension's entry. This grant has no import.
    pub reads: bool,
    /// Changing the entry on the card in the hook `live-card`. `None` denies it. This grant has no import.
    pub live_card: Option<LiveCardGrant>,
}

impl Grants {
    /// True if a delta may write keys of `scope`. Keys of session scope need no grant, because checking the session
    /// state of a client is the purpose of the hook `state`.
    #[must_use]
    pub fn may_write(&self, scope: StateScope) -> bool {
        scope == StateScope::Session || self.session_state.as_ref().is_some_and(|grant| grant.scopes.contains(&scope))
    }

    /// True if a delta may write this key.
    #[must_use]
    pub fn may_write_key(&self, key: &str) -> bool {
        self.may_write(StateScope::of(key)) && self.session_state.as_ref().is_none_or(|grant| grant.lets_write(key))
    }

    /// True if the extension may read this key. Only keys of session scope can be read.
    #[must_use]
    pub fn may_read(&self, key: &str) -> bool {
        StateScope::of(key) == StateScope::Session && self.session_state.as_ref().is_some_and(|grant| grant.shows(key))
    }

    /// True if the extension can have effects outside of the turn, which remain if the turn fails.
    #[must_use]
    pub fn reach_out(&self) -> bool {
        // If such an extension is active, the user's message is stored before its answer.
        self.http.is_some() || self.keyvalue.is_some() || self.task_resumption
    }

    pub(crate) fn allow(&self, grant: GrantNeeded) -> bool {
        match grant {
            GrantNeeded::Clock => self.clock,
            GrantNeeded::Random => self.random,
            GrantNeeded::Http => self.http.is_some(),
            GrantNeeded::KeyValue => self.keyvalue.is_some(),
            GrantNeeded::SessionState => self.session_state.is_some(),
            GrantNeeded::Scope(scope) => self.may_write(scope),
            GrantNeeded::Task => self.task,
            GrantNeeded::Tasks => self.tasks,
            GrantNeeded::TaskResumption => self.task_resumption,
            GrantNeeded::AgentSteps => self.agent_steps,
            GrantNeeded::Steering => self.steering,
            GrantNeeded::Caller => self.caller.is_some(),
            GrantNeeded::TaskMetadata => self.task_metadata,
            GrantNeeded::ForgetMetadata => self.forget_metadata,
            GrantNeeded::RewriteMessage => self.rewrite_message,
            GrantNeeded::RewriteAnswer => self.rewrite_answer,
            GrantNeeded::Answer => self.answer,
            GrantNeeded::Reads => self.reads,
            GrantNeeded::LiveCard => self.live_card.is_some(),
        }
    }
}

/// A grant that a component requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GrantNeeded {
    /// Time of day and timers.
    Clock,
    /// Random numbers.
    Random,
    /// Outgoing requests.
    Http,
    /// A key-value store.
    KeyValue,
    /// Reading session state.
    SessionState,
    /// Writing a scope of session state other than `session`.
    Scope(StateScope),
    /// Reading the state of the task.
    Task,
    /// Listing the caller's tasks.
    Tasks,
    /// Resuming tasks that the extension interrupted.
    TaskResumption,
    /// Reading the agent's steps.
    AgentSteps,
    /// Steering the calls of the model and of tools.
    Steering,
    /// Reading who calls.
    Caller,
    /// Setting metadata of the turn's task.
    TaskMetadata,
    /// Getting metadata of messages that the host forgets.
    ForgetMetadata,
    /// Rewriting parts of messages.
    RewriteMessage,
    /// Revising the agent's answers.
    RewriteAnswer,
    /// Answering in place of the agent.
    Answer,
    /// Deciding what readers of tasks and of the extended card are shown.
    Reads,
    /// Changing the entry on the card.
    LiveCard,
}

impl GrantNeeded {
    /// All grants.
    pub const ALL: [Self; 21] = [
        Self::Clock,
        Self::Random,
        Self::Http,
        Self::KeyValue,
        Self::SessionState,
        Self::Scope(StateScope::User),
        Self::Scope(StateScope::App),
        Self::Scope(StateScope::Temp),
        Self::Task,
        Self::Tasks,
        Self::TaskResumption,
        Self::AgentSteps,
        Self::Steering,
        Self::Caller,
        Self::TaskMetadata,
        Self::ForgetMetadata,
        Self::RewriteMessage,
        Self::RewriteAnswer,
        Self::Answer,
        Self::Reads,
        Self::LiveCard,
    ];

    /// Name in a descriptor, such as `agent-steps`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clock => "clock",
            Self::Random => "random",
            Self::Http => "http",
            Self::KeyValue => "keyvalue",
            Self::SessionState => "session-state",
            Self::Scope(StateScope::Session) => "session-state.scopes.session",
            Self::Scope(StateScope::User) => "session-state.scopes.user",
            Self::Scope(StateScope::App) => "session-state.scopes.app",
            Self::Scope(StateScope::Temp) => "session-state.scopes.temp",
            Self::Task => "task",
            Self::Tasks => "tasks",
            Self::TaskResumption => "task-resumption",
            Self::AgentSteps => "agent-steps",
            Self::Steering => "agent-steps.steer",
            Self::Caller => "caller",
            Self::TaskMetadata => "task-metadata",
            Self::ForgetMetadata => "forget-metadata",
            Self::RewriteMessage => "rewrite-message",
            Self::RewriteAnswer => "rewrite-answer",
            Self::Answer => "answer",
            Self::Reads => "reads",
            Self::LiveCard => "live-card",
        }
    }

    /// Parses the name in a descriptor.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|grant| grant.name() == name)
    }
}

/// Formats the grant as a line for the config's `[extension.grants]` table, with placeholders for values that only
/// the operator knows.
impl fmt::Display for GrantNeeded {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http => formatter
                .write_str(r#"http = { allow = [{ methods = ["GET"], host = "api.example.com", path = "/" }] }"#),
            Self::KeyValue => formatter.write_str("keyvalue = {}"),
            Self::SessionState => formatter.write_str("session-state = { read = true }"),
            Self::Steering => formatter.write_str("agent-steps = { steer = true }"),
            Self::Caller => formatter.write_str("caller = { principal = true }"),
            Self::LiveCard => formatter.write_str("live-card = {}"),
            Self::Scope(scope) => {
                write!(formatter, "session-state = {{ read = true, scopes = [\"{}\"] }}", scope.name())
            }
            Self::Clock
            | Self::Random
            | Self::Task
            | Self::Tasks
            | Self::TaskResumption
            | Self::AgentSteps
            | Self::TaskMetadata
            | Self::ForgetMetadata
            | Self::RewriteMessage
            | Self::RewriteAnswer
            | Self::Answer
            | Self::Reads => write!(formatter, "{} = true", self.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use annex_protocol::Secret;

    use super::{GrantNeeded, Grants, SessionStateGrant, StateScope};

    #[test]
    fn scopes_follow_the_first_prefix_and_its_case() {
        let expected = [
            ("name", StateScope::Session),
            ("user:name", StateScope::User),
            ("app:", StateScope::App),
            ("temp:a:b", StateScope::Temp),
            ("User:name", StateScope::Session),
            ("foo:bar", StateScope::Session),
            ("app:app:z", StateScope::App),
        ];
        for (key, scope) in expected {
            assert_eq!(StateScope::of(key), scope, "{key}");
        }
    }

    #[test]
    fn nothing_is_granted_unless_the_operator_says_so() {
        let none = Grants::default();
        assert!(!none.may_read("name"));
        assert!(none.may_write(StateScope::Session));
        assert!(!none.may_write(StateScope::App));
        assert!(GrantNeeded::ALL.into_iter().all(|grant| !none.allow(grant)));
    }

    #[test]
    fn a_list_of_readable_keys_restricts_session_scope_and_opens_no_other() {
        let grant = SessionStateGrant { keys: Some(vec!["name".into(), "app:secret".into()]), ..Default::default() };
        let grants = Grants { session_state: Some(grant), ..Grants::default() };
        assert!(grants.may_read("name"));
        assert!(!grants.may_read("email"));
        assert!(!grants.may_read("app:secret"));
    }

    #[test]
    fn a_list_of_writable_keys_restricts_the_scopes_and_opens_no_other() {
        let write_keys = Some(vec!["name".into(), "user:name".into(), "app:name".into()]);
        let grant = SessionStateGrant { scopes: vec![StateScope::User], write_keys, ..Default::default() };
        let grants = Grants { session_state: Some(grant), ..Grants::default() };
        assert!(grants.may_write_key("name") && grants.may_write_key("user:name"));
        assert!(!grants.may_write_key("email") && !grants.may_write_key("user:email"));
        assert!(!grants.may_write_key("app:name"));
    }

    #[test]
    fn grants_keep_their_secrets_when_they_are_shown() {
        let secrets = [("KEY".to_owned(), Secret::new("s3cret"))].into();
        let shown = format!("{:?}", Grants { secrets, ..Grants::default() });
        assert!(shown.contains("KEY") && !shown.contains("s3cret"), "{shown}");
    }

    #[test]
    fn names_of_grants_are_read_back() {
        for grant in GrantNeeded::ALL {
            assert_eq!(GrantNeeded::from_name(grant.name()), Some(grant));
        }
        assert_eq!(GrantNeeded::from_name("session-state.scopes.session"), None);
    }
}
