//! Turns of the extension that uses all its grants.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use annex_protocol::{JsonObject, Secret};
use annex_runtime::{
    Extension, Fault, Grants, HookError, HttpGrant, HttpRule, HttpScheme, Installation, Quota, Runtime,
    SessionStateGrant, TurnView,
};

use crate::support::{Turn, component, installation, runtime};

/// All grants that the component needs to load, without any allowed HTTP request.
pub(crate) fn grants() -> Grants {
    Grants {
        clock: true,
        random: true,
        http: Some(http(Vec::new())),
        keyvalue: Some(Quota::default()),
        secrets: BTreeMap::from([("API_KEY".to_owned(), Secret::new("hunter2-hunter2"))]),
        session_state: Some(SessionStateGrant::default()),
        task: true,
        tasks: true,
        task_resumption: true,
        agent_steps: true,
        rewrite_message: true,
        ..Grants::default()
    }
}

pub(crate) fn http(allow: Vec<HttpRule>) -> HttpGrant {
    HttpGrant { allow, max_response_bytes: 1_000, timeout: Duration::from_secs(10), allow_private: Vec::new() }
}

/// Allows GET and POST over plain HTTP to a host and port.
pub(crate) fn rule(host: &str, port: u16, path: &str) -> HttpRule {
    HttpRule {
        methods: vec!["GET".parse().expect("a method"), "POST".parse().expect("a method")],
        scheme: HttpScheme::Http,
        host: host.parse().expect("a host"),
        port,
        path: path.to_owned(),
    }
}

/// All grants, and ample time limits.
pub(crate) fn capable() -> Installation {
    let mut installation = installation();
    installation.grants = grants();
    installation.limits.wall = Duration::from_secs(30);
    installation.limits.cpu = Duration::from_secs(10);
    installation
}

pub(crate) async fn load(runtime: &Runtime, installation: Installation) -> Arc<Extension> {
    let loaded = runtime.load(component(annex_components::TEST_CAPABILITIES), installation).await;
    Arc::new(loaded.expect("the component loads"))
}

fn turn(commands: &str) -> Turn {
    Turn::with(&format!(r#"{{"test/capability": [{commands}]}}"#))
}

/// Results of the commands as JSON. `commands` is a JSON array without its brackets.
pub(crate) async fn results(extension: &Arc<Extension>, commands: &str) -> Vec<String> {
    let (_, delta) = turn(commands).start(std::slice::from_ref(extension)).await.expect("the turn starts");
    results_of(&delta)
}

/// Like `results`, in a turn with this view.
pub(crate) async fn served(
    extension: &Arc<Extension>,
    view: &Arc<dyn TurnView>,
    commands: &str,
) -> Result<Vec<String>, Fault> {
    match turn(commands).seen_as(view).start(std::slice::from_ref(extension)).await {
        Ok((_, delta)) => Ok(results_of(&delta)),
        Err(HookError::Fault(fault)) => Err(fault),
        Err(HookError::Refused(error)) => unreachable!("the client is blamed: {error}"),
    }
}

pub(crate) fn results_of(delta: &JsonObject) -> Vec<String> {
    delta.get("results").expect("results").to().expect("a list of texts")
}

/// Result of one command, with all grants.
pub(crate) async fn result(command: &str) -> String {
    let extension = load(&runtime(), capable()).await;
    results(&extension, command).await.remove(0)
}

/// The fault that ends the commands.
pub(crate) async fn fault(extension: &Arc<Extension>, commands: &str) -> Fault {
    turn(commands).fault(std::slice::from_ref(extension)).await
}
