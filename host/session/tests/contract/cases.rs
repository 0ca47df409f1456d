//! The same operations as in google-adk 2.13.0 (`data/state_scope.json`, observed in November 2026), and the cases in
//! which a session service of Annex does something else.

use std::collections::HashMap;

use annex_protocol::{ContextId, Json, Part, Parts, Timestamp};
use annex_session::{Event, EventFilter, Session, SessionError, SessionKey, SessionQuery, State, StateDelta};
use serde::Deserialize;

use crate::support::{Backend, Store};

on_every_store!(sessions_do_what_adks_did_but_for_the_deviations);

/// Cases in which Annex does something else on purpose.
const DEVIATIONS: &[(&str, &str)] = &[
    ("state/create_explicit_id_trim", "an id with white space around it is refused, in all stores"),
    ("state/create_generated_id", "the server makes context ids, not the store"),
    ("state/cfg_recent_neg", "a negative number of events cannot be expressed"),
    ("state/stale_equal_ts_two_writers", "a revision detects the second writer, whatever the timestamps say"),
];

/// The time of an event that names none, in seconds.
const UNTIMED: f64 = 1_500.0;
/// The cases count from their own clock, and sessions are created by that of the machine: a time after all those.
const EPOCH: i64 = 4_000_000_000_000;

#[derive(Deserialize)]
struct Case {
    case: String,
    input: Input,
    expected: Expected,
}

#[derive(Deserialize)]
struct Input {
    ops: Vec<Operation>,
}

/// The fields of all kinds of operations. `serde` cannot keep the text of numbers in a tagged enum, so this is a
/// struct.
#[derive(Deserialize)]
struct Operation {
    op: String,
    /// The name of the session from now on.
    #[serde(rename = "as", default)]
    name: String,
    /// The name that the session was given before.
    #[serde(default)]
    on: String,
    #[serde(default)]
    app: String,
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    session_id: Option<String>,
    state: Option<State>,
    config: Option<Config>,
    #[serde(default)]
    author: String,
    id: Option<String>,
    ts: Option<f64>,
    text: Option<String>,
    state_delta: Option<StateDelta>,
    #[serde(default)]
    partial: bool,
}

#[derive(Deserialize)]
struct Config {
    num_recent_events: Option<i64>,
    after_timestamp: Option<f64>,
}

#[derive(Deserialize)]
struct Expected {
    results: Vec<Outcome>,
}

#[derive(Deserialize)]
struct Outcome {
    ok: bool,
    error_type: Option<String>,
    /// Absent: not about a session. `null`: there is none.
    #[serde(default, deserialize_with = "present")]
    session: Option<Option<ExpectedSession>>,
    sessions: Option<Vec<ExpectedSession>>,
    user_state: Option<State>,
}

#[derive(Deserialize)]
struct ExpectedSession {
    id: String,
    state: State,
    events: Vec<ExpectedEvent>,
}

#[derive(Deserialize)]
struct ExpectedEvent {
    id: String,
    author: String,
    ts: f64,
    state_delta: State,
}

fn present<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(value: D) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
}

/// One run of a case: the sessions as their callers last saw them.
struct Run<'a> {
    service: &'a Store,
    case: &'a str,
    seen: HashMap<String, (SessionKey, u64)>,
    appended: usize,
}

async fn sessions_do_what_adks_did_but_for_the_deviations(backend: Backend) {
    let service = backend.service().await;
    let cases: Vec<Case> = serde_json::from_str(include_str!("../data/state_scope.json")).unwrap();
    assert_eq!(cases.len(), 54);
    for (name, _) in DEVIATIONS {
        assert!(cases.iter().any(|case| case.case == *name), "{name} is no case");
    }
    for Case { case, input, expected } in &cases {
        if DEVIATIONS.iter().any(|(name, _)| name == case) {
            continue;
        }
        assert_eq!(input.ops.len(), expected.results.len());
        let mut run = Run { service: &service, case, seen: HashMap::new(), appended: 0 };
        for (number, (operation, expected)) in input.ops.iter().zip(&expected.results).enumerate() {
            run.step(operation, expected, &format!("{case}, operation {number}")).await;
        }
    }
}

impl Run<'_> {
    /// Each case is a tenant of its own.
    fn key(&self, operation: &Operation) -> SessionKey {
        let context = ContextId::from(operation.session_id.as_deref().unwrap_or("none"));
        SessionKey::new(self.case, operation.app.as_str(), operation.user.as_deref().unwrap_or_default(), context)
    }

    async fn step(&mut self, operation: &Operation, expected: &Outcome, at: &str) {
        let key = self.key(operation);
        match operation.op.as_str() {
            "create" => {
                let initial = StateDelta::from(operation.state.clone().unwrap_or_default());
                let created = self.service.create(&key, initial).await;
                check_error(created.as_ref().err(), expected, at);
                if let Ok(session) = created {
                    self.saw(&operation.name, Some(&session), expected, at);
                }
            }
            "get" => {
                let found = self.service.get(&key, filter(operation.config.as_ref())).await.unwrap();
                self.saw(&operation.name, found.as_ref(), expected, at);
            }
            "append" => self.append(operation, expected, at).await,
            "delete" => drop(self.service.delete(&key).await.unwrap()),
            "list" => self.list(key, operation.user.clone(), expected, at).await,
            "user_state" => {
                let read = self.service.read(&key, EventFilter::NONE).await.unwrap();
                let mut own = State::new();
                for (key, value) in read.state.merged().iter() {
                    if let Some(name) = key.strip_prefix("user:") {
                        own.insert(name.to_owned(), value.clone());
                    }
                }
                same(&own, expected.user_state.as_ref().expect("a state"), at);
            }
            // A session that the caller made by hand has seen nothing of what is stored.
            "manual_session" => drop(self.seen.insert(operation.name.clone(), (key, 1))),
            // About the object that ADK hands out. What is that here is the turn's: `turns.rs`.
            "show" | "set_local" => {}
            other => unreachable!("{at}: {other}"),
        }
    }

    async fn list(&self, key: SessionKey, user: Option<String>, expected: &Outcome, at: &str) {
        let tenant = key.tenant.to_string();
        let app = key.app.to_string();
        let listed = self.service.list(&SessionQuery { tenant, app, user, after: None, limit: 100 }).await.unwrap();
        let expected = expected.sessions.as_ref().expect("sessions");
        let ids: Vec<&str> = listed.iter().map(|session| session.key.context.as_str()).collect();
        assert_eq!(ids, expected.iter().map(|session| session.id.as_str()).collect::<Vec<_>>(), "{at}");
        listed.iter().zip(expected).for_each(|(session, expected)| check(session, expected, at));
    }

    async fn append(&mut self, operation: &Operation, expected: &Outcome, at: &str) {
        self.appended += 1;
        let parts: Parts = operation.text.iter().map(|text| Part::text(text.clone())).collect();
        let delta = operation.state_delta.clone().unwrap_or_default();
        let event = Event {
            id: operation.id.clone().unwrap_or_else(|| format!("gen-{}", self.appended)),
            timestamp: Timestamp::from_millis(millis(operation.ts.unwrap_or(UNTIMED))),
            partial: operation.partial,
            ..Event::new(operation.author.as_str(), "inv", parts, delta)
        };
        let (key, revision) = self.seen.get_mut(&operation.on).expect("a session");
        let appended = self.service.append(key, *revision, vec![event]).await;
        check_error(appended.as_ref().err(), expected, at);
        if let Ok(appended) = appended {
            *revision = appended.revision;
        }
    }

    fn saw(&mut self, name: &str, session: Option<&Session>, expected: &Outcome, at: &str) {
        assert!(expected.ok, "{at}: it succeeds");
        let expected = expected.session.as_ref().expect("about a session");
        assert_eq!(session.is_some(), expected.is_some(), "{at}");
        if let (Some(session), Some(expected)) = (session, expected) {
            check(session, expected, at);
            self.seen.insert(name.to_owned(), (session.key.clone(), session.revision));
        }
    }
}

fn filter(config: Option<&Config>) -> EventFilter {
    let recent = config.and_then(|config| config.num_recent_events);
    let after = config.and_then(|config| config.after_timestamp);
    EventFilter {
        num_recent: recent.map(|count| usize::try_from(count).expect("a count")),
        after_timestamp: after.map(|seconds| Timestamp::from_millis(millis(seconds))),
        ..EventFilter::ALL
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the cases have whole milliseconds")]
fn millis(seconds: f64) -> i64 {
    EPOCH + (seconds * 1e3).round() as i64
}

fn check(session: &Session, expected: &ExpectedSession, at: &str) {
    assert_eq!(session.key.context.as_str(), expected.id, "{at}");
    same(&session.state.merged(), &expected.state, at);
    assert_eq!(session.events.len(), expected.events.len(), "{at}");
    for (event, expected) in session.events.iter().zip(&expected.events) {
        let is_generated = expected.id.starts_with("gen-");
        assert!(event.id == expected.id || (is_generated && event.id.starts_with("gen-")), "{at}: {}", event.id);
        assert_eq!((&*event.author, event.timestamp.as_millis()), (&*expected.author, millis(expected.ts)), "{at}");
        same(&State::from(event.state_delta.clone()), &expected.state_delta, at);
    }
}

/// The same keys with the same values, written the same way but for white space.
fn same(state: &State, expected: &State, at: &str) {
    let texts = |state: &State| {
        let mut texts: Vec<(String, String)> =
            state.iter().map(|(key, value)| (key.to_owned(), compact(value))).collect();
        texts.sort();
        texts
    };
    assert_eq!(texts(state), texts(expected), "{at}");
}

fn compact(value: &Json) -> String {
    let mut in_string = false;
    let mut escaped = false;
    let is_kept = |character: &char| {
        let kept = in_string || !character.is_ascii_whitespace();
        in_string ^= *character == '"' && !escaped;
        escaped = in_string && *character == '\\' && !escaped;
        kept
    };
    value.get().chars().filter(is_kept).collect()
}

fn check_error(error: Option<&SessionError>, expected: &Outcome, at: &str) {
    assert_eq!(error.map(name_in_adk), expected.error_type.as_deref(), "{at}: {error:?}");
    assert_eq!(error.is_none(), expected.ok, "{at}");
}

/// The name of the error in ADK.
pub(crate) fn name_in_adk(error: &SessionError) -> &'static str {
    match error {
        SessionError::AlreadyExists { .. } => "AlreadyExistsError",
        SessionError::NotFound { .. } => "SessionNotFoundError",
        SessionError::Stale { .. } => "StaleSessionError",
        SessionError::EventConflict { .. } => "IntegrityError",
        _ => "another error",
    }
}
