//! Tests that a linker provides an import only with the grant that the import needs.

use std::collections::BTreeMap;
use std::time::Duration;

use annex_keyvalue::Quota;
use annex_protocol::Secret;
use wasmtime::Engine;

use super::offers;
use crate::config::RuntimeConfig;
use crate::confinement::grants::{
    CallerGrant, GrantNeeded, Grants, HttpGrant, LiveCardGrant, SessionStateGrant, StateScope,
};
use crate::confinement::limits::Limits;
use crate::confinement::linker::linker;
use crate::digest::Digest;
use crate::error::LoadError;
use crate::load::Runtime;
use crate::load::inspect::{Import, Inspection, split_version};
use crate::load::installation::Installation;

/// All offered interfaces in their linked versions, with one function or resource of each. An interface with an empty
/// name has types only.
const PROBES: [(&str, &str); 42] = [
    ("annex:extension/types@0.1.0", ""),
    ("annex:extension/json-schema@0.1.0", "compile"),
    ("annex:extension/session-state@0.1.0", "get"),
    ("annex:extension/task@0.1.0", "current"),
    ("annex:extension/tasks@0.1.0", "list"),
    ("annex:extension/task-resumption@0.1.0", "resume"),
    ("annex:extension/agent-steps@0.1.0", "recorded"),
    ("annex:extension/caller@0.1.0", "current"),
    ("annex:extension/task-metadata@0.1.0", "set"),
    ("wasi:logging/logging@0.1.0-draft", "log"),
    ("wasi:config/store@0.2.0-rc.1", "get"),
    ("wasi:clocks/wall-clock@0.2.12", "now"),
    ("wasi:clocks/monotonic-clock@0.2.12", "now"),
    ("wasi:keyvalue/store@0.2.0-draft", "open"),
    ("wasi:keyvalue/atomics@0.2.0-draft", "increment"),
    ("wasi:io/error@0.2.12", "error"),
    ("wasi:io/poll@0.2.12", "poll"),
    ("wasi:io/streams@0.2.12", "input-stream"),
    ("wasi:cli/environment@0.2.12", "get-environment"),
    ("wasi:cli/exit@0.2.12", "exit"),
    ("wasi:cli/stdin@0.2.12", "get-stdin"),
    ("wasi:cli/stdout@0.2.12", "get-stdout"),
    ("wasi:cli/stderr@0.2.12", "get-stderr"),
    ("wasi:cli/terminal-input@0.2.12", "terminal-input"),
    ("wasi:cli/terminal-output@0.2.12", "terminal-output"),
    ("wasi:cli/terminal-stdin@0.2.12", "get-terminal-stdin"),
    ("wasi:cli/terminal-stdout@0.2.12", "get-terminal-stdout"),
    ("wasi:cli/terminal-stderr@0.2.12", "get-terminal-stderr"),
    ("wasi:filesystem/types@0.2.12", "descriptor"),
    ("wasi:filesystem/preopens@0.2.12", "get-directories"),
    ("wasi:sockets/network@0.2.12", "network"),
    ("wasi:sockets/instance-network@0.2.12", "instance-network"),
    ("wasi:sockets/ip-name-lookup@0.2.12", "resolve-addresses"),
    ("wasi:sockets/tcp@0.2.12", "tcp-socket"),
    ("wasi:sockets/tcp-create-socket@0.2.12", "create-tcp-socket"),
    ("wasi:sockets/udp@0.2.12", "udp-socket"),
    ("wasi:sockets/udp-create-socket@0.2.12", "create-udp-socket"),
    ("wasi:random/random@0.2.12", "get-random-bytes"),
    ("wasi:random/insecure@0.2.12", "get-insecure-random-bytes"),
    ("wasi:random/insecure-seed@0.2.12", "insecure-seed"),
    ("wasi:http/types@0.2.12", "fields"),
    ("wasi:http/outgoing-handler@0.2.12", "handle"),
];

fn everything_granted() -> Grants {
    Grants {
        clock: true,
        random: true,
        http: Some(HttpGrant {
            allow: Vec::new(),
            max_response_bytes: 1,
            timeout: Duration::from_secs(1),
            allow_private: Vec::new(),
        }),
        keyvalue: Some(Quota::default()),
        secrets: BTreeMap::from([("SECRET".to_owned(), Secret::new("value"))]),
        session_state: Some(SessionStateGrant {
            scopes: vec![StateScope::User, StateScope::App, StateScope::Temp],
            ..SessionStateGrant::default()
        }),
        task: true,
        tasks: true,
        task_resumption: true,
        agent_steps: true,
        steering: true,
        caller: Some(CallerGrant::default()),
        task_metadata: true,
        forget_metadata: true,
        rewrite_message: true,
        rewrite_answer: true,
        answer: true,
        reads: true,
        live_card: Some(LiveCardGrant::default()),
    }
}

fn without(grant: GrantNeeded) -> Grants {
    let mut grants = everything_granted();
    match grant {
        GrantNeeded::Clock => grants.clock = false,
        GrantNeeded::Random => grants.random = false,
        GrantNeeded::Http => grants.http = None,
        GrantNeeded::KeyValue => grants.keyvalue = None,
        GrantNeeded::SessionState | GrantNeeded::Scope(_) => grants.session_state = None,
        GrantNeeded::Task => grants.task = false,
        GrantNeeded::Tasks => grants.tasks = false,
        GrantNeeded::TaskResumption => grants.task_resumption = false,
        GrantNeeded::AgentSteps => grants.agent_steps = false,
        GrantNeeded::Steering => grants.steering = false,
        GrantNeeded::Caller => grants.caller = None,
        GrantNeeded::TaskMetadata => grants.task_metadata = false,
        GrantNeeded::ForgetMetadata => grants.forget_metadata = false,
        GrantNeeded::RewriteMessage => grants.rewrite_message = false,
        GrantNeeded::RewriteAnswer => grants.rewrite_answer = false,
        GrantNeeded::Answer => grants.answer = false,
        GrantNeeded::Reads => grants.reads = false,
        GrantNeeded::LiveCard => grants.live_card = None,
    }
    grants
}

/// An inspection result for a component that imports `names`.
fn inspection<'a>(names: impl IntoIterator<Item = &'a str>) -> Inspection {
    Inspection {
        digest: Digest::of(b""),
        size: 0,
        contract: "0.1.0".to_owned(),
        hooks: Vec::new(),
        imports: names.into_iter().map(|name| Import::of(name.to_owned())).collect(),
        manifest: None,
    }
}

/// The probes that a linker with these imports and grants provides. To find out, the test defines each item, which
/// fails if the linker already has the item.
fn satisfied(inspection: &Inspection, grants: &Grants) -> Vec<&'static str> {
    let mut linker = linker(&Engine::default(), inspection, grants).expect("a linker");
    let is_defined = |interface: &str, item: &str| {
        let mut instance = linker.instance(interface).expect("an instance, old or new");
        instance.func_wrap(item, |_, (): ()| Ok(())).is_err()
    };
    PROBES.into_iter().filter_map(probed(is_defined)).collect()
}

fn probed(
    mut is_defined: impl FnMut(&str, &str) -> bool,
) -> impl FnMut((&'static str, &'static str)) -> Option<&'static str> {
    move |(interface, item)| (!item.is_empty() && is_defined(interface, item)).then_some(interface)
}

fn names() -> impl Iterator<Item = &'static str> {
    PROBES.into_iter().map(|(interface, _)| interface)
}

fn needs(interface: &str) -> Option<GrantNeeded> {
    GrantNeeded::of_import(split_version(interface).0).expect("an offer")
}

#[test]
fn every_offer_is_probed_once() {
    let mut offered: Vec<&str> = offers().map(|offer| offer.name).collect();
    let mut probed: Vec<&str> = names().map(|name| split_version(name).0).collect();
    offered.sort_unstable();
    probed.sort_unstable();
    assert_eq!(offered, probed);
}

#[test]
fn without_grants_a_linker_has_only_what_is_free() {
    let free: Vec<&str> = names().filter(|name| needs(name).is_none() && !name.contains("/types@0.1.0")).collect();
    assert_eq!(satisfied(&inspection(names()), &Grants::default()), free);
}

#[test]
fn each_grant_opens_its_own_imports_and_no_other() {
    let all: Vec<&str> = names().filter(|name| !name.contains("/types@0.1.0")).collect();
    assert_eq!(satisfied(&inspection(names()), &everything_granted()), all);
    for grant in GrantNeeded::ALL {
        let open: Vec<&str> = all.iter().copied().filter(|name| without(grant).allow_all(needs(name))).collect();
        assert_eq!(satisfied(&inspection(names()), &without(grant)), open, "{grant}");
    }
}

impl Grants {
    fn allow_all(&self, needed: Option<GrantNeeded>) -> bool {
        needed.is_none_or(|grant| self.allow(grant))
    }
}

#[test]
fn interfaces_that_a_component_does_not_import_are_not_linked() {
    assert!(satisfied(&inspection([]), &everything_granted()).is_empty());
    let one = inspection(["wasi:random/random@0.2.12"]);
    assert_eq!(satisfied(&one, &everything_granted()), ["wasi:random/random@0.2.12"]);
}

#[tokio::test]
async fn a_component_that_imports_what_is_not_granted_is_not_compiled() {
    let runtime = Runtime::new(&RuntimeConfig { instances: 1, ..RuntimeConfig::default() }).expect("a runtime");
    let load = async |import: &str, grants: Grants| {
        let text = format!(
            r#"(component (import "{import}" (instance))
                (instance $nothing) (export "annex:extension/descriptor@0.1.0" (instance $nothing)))"#
        );
        let limits = Limits::standard();
        let installation = Installation { grants, ..Installation::with_limits(limits) };
        runtime.load(wat::parse_str(&text).expect("a component"), installation).await.expect_err("no descriptor")
    };
    for name in names() {
        // The component violates the contract in any case, but not because of a grant.
        let error = load(name, everything_granted()).await;
        assert!(matches!(error, LoadError::Link(_)), "{name}: {error:?}");
        let Some(needed) = needs(name) else { continue };
        for grants in [Grants::default(), without(needed)] {
            let error = load(name, grants).await;
            assert!(matches!(&error, LoadError::NotGranted { grant, .. } if *grant == needed), "{name}: {error:?}");
            let told = error.to_string();
            assert!(told.contains(name) && told.contains(&needed.to_string()), "{told}");
        }
    }
}

#[tokio::test]
async fn what_is_not_offered_is_refused_whatever_is_granted() {
    for name in [
        "wasi:http/incoming-handler@0.2.12",
        "wasi:keyvalue/batch@0.2.0-draft",
        "wasi:clocks/timezone@0.2.12",
        "wasi:clocks/wall-clockx@0.2.12",
        "wasi:blobstore/container@0.2.0-draft",
        "annex:extension/admin@0.1.0",
    ] {
        assert_eq!(GrantNeeded::of_import(split_version(name).0), None, "{name}");
    }
}
