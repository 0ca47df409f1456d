//! The grants that components need, that a config gives, and that a person accepts.

use std::collections::BTreeSet;

use annex_runtime::{GrantNeeded, StateScope};
use annex_server::{AgentStepsGrantConfig, GrantsConfig, StateScopeConfig};

/// The word of `--accept` for a component that needs no grant.
const NONE: &str = "none";

/// The grants in `--accept`, by their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AcceptedGrants(BTreeSet<&'static str>);

impl AcceptedGrants {
    /// Parses names with commas between them, or `none`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text == NONE {
            return Ok(Self(BTreeSet::new()));
        }
        let known = |name: &str| {
            let grant = GrantNeeded::from_name(name).map(GrantNeeded::name);
            grant.ok_or_else(|| {
                let all = GrantNeeded::ALL.map(GrantNeeded::name).join(", ");
                format!("{name:?} is no grant; write {NONE}, or some of these with commas between them: {all}")
            })
        };
        text.split(',').map(|name| known(name.trim())).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().copied()
    }

    pub(super) fn has(&self, grant: GrantNeeded) -> bool {
        self.0.contains(grant.name())
    }

    /// True if these are the needed grants and no others.
    pub(super) fn is_exactly(&self, needed: &[GrantNeeded]) -> bool {
        let needed: BTreeSet<&str> = needed.iter().map(|grant| grant.name()).collect();
        self.0 == needed
    }
}

/// The grants as `--accept` takes them.
pub(super) fn argument(grants: &[GrantNeeded]) -> String {
    if grants.is_empty() { NONE.to_owned() } else { names(grants).join(",") }
}

pub(super) fn names(grants: &[GrantNeeded]) -> Vec<&'static str> {
    grants.iter().map(|grant| grant.name()).collect()
}

/// True if the grants of an `[[extension]]` give this grant.
pub(super) fn gives(config: &GrantsConfig, needed: GrantNeeded) -> bool {
    match needed {
        GrantNeeded::Clock => config.clock,
        GrantNeeded::Random => config.random,
        GrantNeeded::Http => config.http.is_some(),
        GrantNeeded::KeyValue => config.keyvalue.is_some(),
        GrantNeeded::SessionState => config.session_state.is_some(),
        GrantNeeded::Scope(scope) => gives_scope(config, scope),
        GrantNeeded::Task => config.task,
        GrantNeeded::Tasks => config.tasks,
        GrantNeeded::TaskResumption => config.task_resumption,
        GrantNeeded::AgentSteps => config.agent_steps != AgentStepsGrantConfig::Denied,
        GrantNeeded::Steering => config.agent_steps == AgentStepsGrantConfig::Steer,
        GrantNeeded::Caller => config.caller.is_some(),
        GrantNeeded::TaskMetadata => config.task_metadata,
        GrantNeeded::ForgetMetadata => config.forget_metadata,
        GrantNeeded::RewriteMessage => config.rewrite_message,
        GrantNeeded::RewriteAnswer => config.rewrite_answer,
        GrantNeeded::Answer => config.answer,
        GrantNeeded::Reads => config.reads,
        GrantNeeded::LiveCard => config.live_card.is_some(),
    }
}

fn gives_scope(config: &GrantsConfig, scope: StateScope) -> bool {
    let key = match scope {
        StateScope::Session => return true,
        StateScope::User => StateScopeConfig::User,
        StateScope::App => StateScopeConfig::App,
        StateScope::Temp => StateScopeConfig::Temp,
    };
    config.session_state.as_ref().is_some_and(|grant| grant.scopes.contains(&key))
}

#[cfg(test)]
mod tests {
    use annex_runtime::GrantNeeded;
    use annex_server::GrantsConfig;

    use super::{AcceptedGrants, argument, gives};
    use crate::inspect::trial;

    #[test]
    fn accepted_grants_are_named_as_components_name_them() {
        let accepted = AcceptedGrants::parse("keyvalue, clock").expect("two grants");
        assert!(accepted.is_exactly(&[GrantNeeded::Clock, GrantNeeded::KeyValue]));
        assert!(accepted.has(GrantNeeded::Clock) && !accepted.has(GrantNeeded::Http));
        assert!(!accepted.is_exactly(&[GrantNeeded::Clock]));
        assert!(AcceptedGrants::parse("none").expect("no grant").is_exactly(&[]));
        let refused = AcceptedGrants::parse("clock,key-value").expect_err("a typo");
        assert!(refused.contains("\"key-value\"") && refused.contains("keyvalue"), "{refused}");
        assert!(AcceptedGrants::parse("").is_err());
        assert_eq!(argument(&[GrantNeeded::Clock, GrantNeeded::Steering]), "clock,agent-steps.steer");
        assert_eq!(argument(&[]), "none");
    }

    #[test]
    fn the_line_of_each_grant_gives_this_grant() {
        let none = GrantsConfig::default();
        for grant in GrantNeeded::ALL {
            assert!(!gives(&none, grant), "{}", grant.name());
            let lines = trial::lines_of(&[grant]).join("\n");
            let given: GrantsConfig = toml::from_str(&lines).expect("a table");
            assert!(gives(&given, grant), "{lines}");
        }
    }
}
