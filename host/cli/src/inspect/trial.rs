//! Loads a component on trial, to read the description that the component gives of itself.

use annex_protocol::{JsonObject, Secret};
use annex_runtime::{
    CallerGrant, Extension, GrantNeeded, Grants, HttpGrant, Installation, LiveCardGrant, LoadError, Quota, Runtime,
    StateScope,
};

use super::sample;

/// The outcome of a trial.
pub(crate) struct Trial {
    /// The grants that the component needs to load.
    pub(crate) grants: Grants,
    pub(crate) loaded: Result<Extension, LoadError>,
    /// Sample parameters with which the component loads, if the component refused to load without parameters.
    pub(super) sample: Option<toml::Table>,
}

impl Trial {
    /// True if the component loaded, or if other parameters might let it load.
    pub(super) fn fits_a_config(&self) -> bool {
        matches!(self.loaded, Ok(_) | Err(LoadError::Parameters { .. } | LoadError::Description { .. }))
    }
}

/// Loads a component. If the component is refused for missing parameters, loads it again with sample parameters.
pub(crate) async fn load(runtime: &Runtime, component: &[u8], settings: Installation) -> Trial {
    let mut settings = without_trust(settings);
    let trial = load_with_grants(runtime, component, settings.clone()).await;
    let Err(LoadError::Parameters { schema, .. }) = &trial.loaded else { return trial };
    let made_up = || sample::of(&serde_json::from_str(schema).ok()?);
    let Some(made_up) = made_up().filter(|_| settings.parameters.is_empty()) else { return trial };
    let Ok(parameters) = JsonObject::parse(&made_up.to_string()) else { return trial };
    settings.parameters = parameters;
    // The grants that a component needs may depend on its parameters.
    let again = load_with_grants(runtime, component, settings).await;
    let sample = toml::Table::try_from(&made_up).ok().filter(|_| again.loaded.is_ok());
    let grants = if sample.is_some() { again.grants } else { trial.grants };
    Trial { grants, loaded: trial.loaded, sample }
}

/// Loads a component with the grants of the settings. As long as the refusal names a missing grant, adds that grant and
/// tries again.
async fn load_with_grants(runtime: &Runtime, component: &[u8], settings: Installation) -> Trial {
    let mut granted = Vec::new();
    loop {
        let grants = grants(settings.grants.clone(), &granted);
        let installation = Installation { grants: grants.clone(), ..settings.clone() };
        match runtime.load(component.to_vec(), installation).await {
            // A grant that was given and does not help ends the trial.
            Err(LoadError::NotGranted { grant, .. }) if !granted.contains(&grant) => granted.push(grant),
            loaded => return Trial { grants, loaded, sample: None },
        }
    }
}

fn grants(mut grants: Grants, granted: &[GrantNeeded]) -> Grants {
    for grant in granted {
        match grant {
            GrantNeeded::Clock => grants.clock = true,
            GrantNeeded::Random => grants.random = true,
            GrantNeeded::Http => grants.http = Some(no_requests()),
            GrantNeeded::KeyValue => grants.keyvalue = Some(Quota::default()),
            GrantNeeded::SessionState => drop(grants.session_state.get_or_insert_default()),
            GrantNeeded::Scope(scope) => grants.session_state.get_or_insert_default().scopes.push(*scope),
            GrantNeeded::Task => grants.task = true,
            GrantNeeded::Tasks => grants.tasks = true,
            GrantNeeded::TaskResumption => grants.task_resumption = true,
            GrantNeeded::AgentSteps => grants.agent_steps = true,
            GrantNeeded::Steering => (grants.agent_steps, grants.steering) = (true, true),
            GrantNeeded::Caller => grants.caller = Some(CallerGrant { principal: true, ..CallerGrant::default() }),
            GrantNeeded::TaskMetadata => grants.task_metadata = true,
            GrantNeeded::ForgetMetadata => grants.forget_metadata = true,
            GrantNeeded::RewriteMessage => grants.rewrite_message = true,
            GrantNeeded::RewriteAnswer => grants.rewrite_answer = true,
            GrantNeeded::Answer => grants.answer = true,
            GrantNeeded::Reads => grants.reads = true,
            GrantNeeded::LiveCard => grants.live_card = Some(LiveCardGrant::default()),
        }
    }
    grants
}

/// A copy of the settings in which every secret is replaced and no HTTP request is allowed. People inspect a component
/// before they trust it.
fn without_trust(mut settings: Installation) -> Installation {
    if let Some(http) = &mut settings.grants.http {
        // The import is still linked, and no rule lets a request through.
        http.allow.clear();
    }
    for secret in settings.grants.secrets.values_mut() {
        *secret = Secret::new("a stand-in, because a component on trial gets no secrets");
    }
    settings
}

/// A grant that links the HTTP import but allows no request.
fn no_requests() -> HttpGrant {
    HttpGrant {
        allow: Vec::new(),
        max_response_bytes: HttpGrant::MAX_RESPONSE_BYTES,
        timeout: HttpGrant::TIMEOUT,
        allow_private: Vec::new(),
    }
}

/// Writes needed grants as the lines of a config's `[extension.grants]` table.
pub(crate) fn lines_of(needed: &[GrantNeeded]) -> Vec<String> {
    in_config(&grants(Grants::default(), needed))
}

/// Writes the grants as the lines of a config's `[extension.grants]` table.
pub(crate) fn in_config(grants: &Grants) -> Vec<String> {
    let line = |grant: GrantNeeded, is_granted: bool| is_granted.then(|| grant.to_string());
    let session_state = grants.session_state.as_ref().map(|grant| match grant.scopes.as_slice() {
        [] => GrantNeeded::SessionState.to_string(),
        [scope] => GrantNeeded::Scope(*scope).to_string(),
        scopes => {
            let scopes: Vec<&str> = scopes.iter().map(|scope| StateScope::name(*scope)).collect();
            format!("session-state = {{ read = true, scopes = {scopes:?} }}")
        }
    });
    let lines = [
        line(GrantNeeded::Clock, grants.clock),
        line(GrantNeeded::Random, grants.random),
        line(GrantNeeded::Http, grants.http.is_some()),
        line(GrantNeeded::KeyValue, grants.keyvalue.is_some()),
        session_state,
        line(GrantNeeded::Task, grants.task),
        line(GrantNeeded::Tasks, grants.tasks),
        line(GrantNeeded::TaskResumption, grants.task_resumption),
        line(GrantNeeded::AgentSteps, grants.agent_steps && !grants.steering),
        line(GrantNeeded::Steering, grants.steering),
        line(GrantNeeded::Caller, grants.caller.is_some()),
        line(GrantNeeded::TaskMetadata, grants.task_metadata),
        line(GrantNeeded::ForgetMetadata, grants.forget_metadata),
        line(GrantNeeded::RewriteMessage, grants.rewrite_message),
        line(GrantNeeded::RewriteAnswer, grants.rewrite_answer),
        line(GrantNeeded::Answer, grants.answer),
        line(GrantNeeded::Reads, grants.reads),
        line(GrantNeeded::LiveCard, grants.live_card.is_some()),
    ];
    lines.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use annex_runtime::{GrantNeeded, Grants, StateScope};

    use super::{grants, in_config};

    fn check(granted: &[GrantNeeded], expected: &[&str]) {
        assert_eq!(in_config(&grants(Grants::default(), granted)), expected);
    }

    #[test]
    fn grants_are_written_as_a_config_takes_them() {
        let user = GrantNeeded::Scope(StateScope::User);
        let app = GrantNeeded::Scope(StateScope::App);
        check(&[], &[]);
        check(&[GrantNeeded::Random, GrantNeeded::Clock], &["clock = true", "random = true"]);
        check(&[GrantNeeded::SessionState], &["session-state = { read = true }"]);
        check(&[GrantNeeded::SessionState, user], &[r#"session-state = { read = true, scopes = ["user"] }"#]);
        check(
            &[GrantNeeded::Task, GrantNeeded::KeyValue, GrantNeeded::Http],
            &[
                r#"http = { allow = [{ methods = ["GET"], host = "api.example.com", path = "/" }] }"#,
                "keyvalue = {}",
                "task = true",
            ],
        );
        check(
            &[GrantNeeded::RewriteMessage, GrantNeeded::AgentSteps, GrantNeeded::TaskResumption, GrantNeeded::Tasks],
            &["tasks = true", "task-resumption = true", "agent-steps = true", "rewrite-message = true"],
        );
        check(
            &[GrantNeeded::Answer, GrantNeeded::RewriteAnswer, GrantNeeded::TaskMetadata, GrantNeeded::Caller],
            &["caller = { principal = true }", "task-metadata = true", "rewrite-answer = true", "answer = true"],
        );
        check(
            &[GrantNeeded::LiveCard, GrantNeeded::Reads, GrantNeeded::AgentSteps, GrantNeeded::Steering],
            &["agent-steps = { steer = true }", "reads = true", "live-card = {}"],
        );
        check(
            &[GrantNeeded::ForgetMetadata, GrantNeeded::Scope(StateScope::Temp)],
            &[r#"session-state = { read = true, scopes = ["temp"] }"#, "forget-metadata = true"],
        );
        check(&[user, app], &[r#"session-state = { read = true, scopes = ["user", "app"] }"#]);
    }
}
