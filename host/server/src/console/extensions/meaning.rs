//! The grants and imports of components in words.

use annex_runtime::{Access, GrantNeeded, Import, StateScope};

/// The abilities that a grant gives to a component.
pub(super) fn of_grant(grant: GrantNeeded) -> &'static str {
    match grant {
        GrantNeeded::Clock => "It reads the time of day and sets timers.",
        GrantNeeded::Random => "It gets random numbers.",
        GrantNeeded::Http => "It sends HTTP requests to the hosts that the settings list.",
        GrantNeeded::KeyValue => "It stores keys and values that outlive a turn.",
        GrantNeeded::SessionState => "It reads the state of sessions.",
        GrantNeeded::Scope(StateScope::Session) => "It writes the state of the session.",
        GrantNeeded::Scope(StateScope::User) => "It writes state that all sessions of a user share.",
        GrantNeeded::Scope(StateScope::App) => "It writes state that all sessions of the agent share.",
        GrantNeeded::Scope(StateScope::Temp) => "It writes state that lasts for one turn.",
        GrantNeeded::Task => "It reads the state of the turn's task.",
        GrantNeeded::Tasks => "It lists the tasks of the caller.",
        GrantNeeded::TaskResumption => "It resumes tasks that it interrupted.",
        GrantNeeded::AgentSteps => "It reads the agent's steps: calls of the model and of tools.",
        GrantNeeded::Steering => "It changes the calls of the model, and decides about the calls of tools.",
        GrantNeeded::Caller => "It reads the identity of the caller.",
        GrantNeeded::TaskMetadata => "It sets metadata of the turn's task.",
        GrantNeeded::ForgetMetadata => "It gets metadata of messages that the server does not store.",
        GrantNeeded::RewriteMessage => "It replaces parts of the client's message.",
        GrantNeeded::RewriteAnswer => "It replaces, holds back and refuses the agent's answers.",
        GrantNeeded::Answer => "It answers in place of the agent.",
        GrantNeeded::Reads => "It changes tasks and the extended card for their readers.",
        GrantNeeded::LiveCard => "It changes its entry on the card while the server runs.",
    }
}

/// The use of an import.
pub(super) fn of_import(import: &Import) -> &'static str {
    match import.access {
        Access::Free => "It affects nothing outside of its own turn, and needs no grant.",
        Access::Needs(grant) => of_grant(grant),
        Access::Unknown => "This server does not offer it, so the component cannot be installed.",
    }
}

/// The lines of `[grants]` that give these grants. Values that only the operator knows are examples.
pub(super) fn lines_of(needed: &[GrantNeeded]) -> Vec<String> {
    let scopes = needed.iter().filter_map(|grant| match grant {
        GrantNeeded::Scope(scope) => Some(scope.name()),
        _ => None,
    });
    let scopes: Vec<&str> = scopes.collect();
    let mut lines = Vec::new();
    for grant in needed {
        match grant {
            // One key gives all grants of the session state, and one key those of the agent's steps.
            GrantNeeded::Scope(_) => {}
            GrantNeeded::SessionState if !scopes.is_empty() => {}
            GrantNeeded::AgentSteps if needed.contains(&GrantNeeded::Steering) => {}
            grant => lines.push(grant.to_string()),
        }
    }
    if !scopes.is_empty() {
        lines.push(format!("session-state = {{ read = true, scopes = {scopes:?} }}"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use annex_runtime::GrantNeeded;

    use super::{lines_of, of_grant};
    use crate::config::GrantsConfig;

    #[test]
    fn each_grant_has_words_and_a_line_that_a_config_takes() {
        for grant in GrantNeeded::ALL {
            assert!(of_grant(grant).ends_with('.'), "{}", grant.name());
            let lines = lines_of(&[grant]).join("\n");
            assert!(
                toml::from_str::<GrantsConfig>(&lines).is_ok_and(|given| given != GrantsConfig::default()),
                "{lines}"
            );
        }
        let all = lines_of(&GrantNeeded::ALL).join("\n");
        assert!(toml::from_str::<GrantsConfig>(&all).is_ok(), "{all}");
    }
}
