//! The same operations as in google-adk 2.13.0 (`data/state_scope.json`, observed in November 2026), and the cases in
//! which a session store of Annex does something else.

use std::collections::HashMap;

use annex_conversation::{
    AppendError, ConversationKey, ConversationQuery, ConversationSnapshot, Event, StateDelta, Window,
};
use annex_protocol::{ContextId, Json, JsonObject, Part, Parts, Timestamp};
use serde::Deserialize;

use crate::support::{Backend, Store, append_all, latest, make};

on_every_store!(conversations_do_what_sessions_of_adk_did_but_for_the_deviations);

/// Cases in which Annex does something else on purpose.
const DEVIATIONS: &[(&str, &str)] = &[
    ("state/create_explicit_id_trim", "an id with white space around it is refused, in all stores"),
    ("state/create_generated_id", "the server makes context ids, not the store"),
    ("state/cfg_recent_neg", "a negative number of events cannot be expressed"),
    ("state/stale_equal_ts_two_writers", "a position detects the second writer, whatever the timestamps say"),
    ("state/append_same_id_different_content", "an event is told from others by its position, not by its id"),
    ("state/cfg_after_exact", "the history is read from its end, not by time"),
    ("state/cfg_after_between", "the history is read from its end, not by time"),
    ("state/cfg_after_before_all", "the history is read from its end, not by time"),
    ("state/cfg_both", "the history is read from its end, not by time"),
];

/// The time of an event without a time, in seconds.
const UNTIMED: f64 = 1_500.0;
/// The offset of the times in the cases. Sessions get their time from the clock of the machine, and each event must be
/// later.
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

/// The fields of all kinds of operations. An enum with a tag would be shorter, but `serde` would then lose the text of
/// numbers.
#[derive(Deserialize)]
struct Operation {
    op: String,
    /// The name that the session gets from this operation.
    #[serde(rename = "as", default)]
    name: String,
    /// The name that an earlier operation gave the session.
    #[serde(default)]
    on: String,
    #[serde(default)]
    app: String,
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    session_id: Option<String>,
    state: Option<JsonObject>,
    config: Option<Config>,
    #[serde(default)]
    author: String,
    id: Option<String>,
    ts: Option<f64>,
    text: Option<String>,
    state_delta: Option<JsonObject>,
    #[serde(default)]
    partial: bool,
}

#[derive(Deserialize)]
struct Config {
    num_recent_events: Option<i64>,
}

#[derive(Deserialize)]
struct Expected {
    results: Vec<Outcome>,
}

#[derive(Deserialize)]
struct Outcome {
    ok: bool,
    error_type: Option<String>,
    /// The session that is expected. Absent if the operation expects nothing about a session; `null` if no session is
    /// expected.
    #[serde(default, deserialize_with = "present")]
    session: Option<Option<ExpectedSession>>,
    sessions: Option<Vec<ExpectedSession>>,
    user_state: Option<JsonObject>,
}

#[derive(Deserialize)]
struct ExpectedSession {
    id: String,
    state: JsonObject,
    events: Vec<ExpectedEvent>,
}

#[derive(Deserialize)]
struct ExpectedEvent {
    id: String,
    author: String,
    ts: f64,
    state_delta: JsonObject,
}

fn present<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(value: D) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
}

/// One run of a case: the sessions as their callers last saw them.
struct Run<'a> {
    store: &'a Store,
    case: &'a str,
    seen: HashMap<String, (ConversationKey, u64)>,
    appended: usize,
}

async fn conversations_do_what_sessions_of_adk_did_but_for_the_deviations(backend: Backend) {
    let store = backend.store().await;
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
        let mut run = Run { store: &store, case, seen: HashMap::new(), appended: 0 };
        for (number, (operation, expected)) in input.ops.iter().zip(&expected.results).enumerate() {
            run.step(operation, expected, &format!("{case}, operation {number}")).await;
        }
    }
}

impl Run<'_> {
    /// The key of the session of an operation. Each case has a tenant of its own.
    fn key(&self, operation: &Operation) -> ConversationKey {
        let context = ContextId::from(operation.session_id.as_deref().unwrap_or("none"));
        ConversationKey::new(self.case, operation.app.as_str(), operation.user.as_deref().unwrap_or_default(), context)
    }

    async fn step(&mut self, operation: &Operation, expected: &Outcome, at: &str) {
        let key = self.key(operation);
        match operation.op.as_str() {
            "create" => {
                let initial = StateDelta::from(operation.state.clone().unwrap_or_default());
                let created = make(self.store, &key, initial).await;
                check_error(created.as_ref().err(), expected, at);
                if let Ok(session) = created {
                    self.saw(&operation.name, Some(&session), expected, at);
                }
            }
            "get" => {
                let found = self.store.conversation(&key, Window::NONE).await.unwrap();
                let history = latest(self.store, &key, window(operation.config.as_ref())).await;
                let found = Some(ConversationSnapshot { history, ..found }).filter(ConversationSnapshot::exists);
                self.saw(&operation.name, found.as_ref(), expected, at);
            }
            "append" => self.append(operation, expected, at).await,
            "delete" => drop(self.store.delete(&key).await.unwrap()),
            "list" => self.list(key, operation.user.clone(), expected, at).await,
            "user_state" => {
                let read = self.store.conversation(&key, Window::NONE).await.unwrap();
                let mut own = JsonObject::new();
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

    async fn list(&self, key: ConversationKey, user: Option<String>, expected: &Outcome, at: &str) {
        let tenant = key.tenant.to_string();
        let app = key.app.to_string();
        let listed = self.store.list(&ConversationQuery { tenant, app, user, after: None, limit: 100 }).await.unwrap();
        let expected = expected.sessions.as_ref().expect("sessions");
        let ids: Vec<&str> = listed.iter().map(|session| session.key.context.as_str()).collect();
        assert_eq!(ids, expected.iter().map(|session| session.id.as_str()).collect::<Vec<_>>(), "{at}");
        listed.iter().zip(expected).for_each(|(session, expected)| check(session, expected, at));
    }

    async fn append(&mut self, operation: &Operation, expected: &Outcome, at: &str) {
        self.appended += 1;
        let parts: Parts = operation.text.iter().map(|text| Part::text(text.clone())).collect();
        let delta = StateDelta::from(operation.state_delta.clone().unwrap_or_default());
        let event = Event {
            id: operation.id.clone().unwrap_or_else(|| format!("gen-{}", self.appended)),
            timestamp: Timestamp::from_millis(millis(operation.ts.unwrap_or(UNTIMED))),
            ..Event::new(operation.author.as_str(), "inv", parts, delta)
        };
        let (key, number) = self.seen.get_mut(&operation.on).expect("a conversation");
        // A piece of an event is never given to a store.
        let whole = if operation.partial { Vec::new() } else { vec![event] };
        let appended = append_all(self.store, key, *number, whole).await;
        check_error(appended.as_ref().err(), expected, at);
        if let Ok(appended) = appended {
            *number = appended;
        }
    }

    fn saw(&mut self, name: &str, session: Option<&ConversationSnapshot>, expected: &Outcome, at: &str) {
        assert!(expected.ok, "{at}: it succeeds");
        let expected = expected.session.as_ref().expect("about a session");
        assert_eq!(session.is_some(), expected.is_some(), "{at}");
        if let (Some(session), Some(expected)) = (session, expected) {
            check(session, expected, at);
            self.seen.insert(name.to_owned(), (session.key.clone(), session.number));
        }
    }
}

/// The window of a read. A case that limits the read by time is listed as a deviation.
fn window(config: Option<&Config>) -> Window {
    let recent = config.and_then(|config| config.num_recent_events);
    recent.map_or(Window::ALL, |count| Window::latest(usize::try_from(count).expect("a count")))
}

#[expect(clippy::cast_possible_truncation, reason = "the cases have whole milliseconds")]
fn millis(seconds: f64) -> i64 {
    EPOCH + (seconds * 1e3).round() as i64
}

fn check(session: &ConversationSnapshot, expected: &ExpectedSession, at: &str) {
    assert_eq!(session.key.context.as_str(), expected.id, "{at}");
    same(&session.state.merged(), &expected.state, at);
    assert_eq!(session.history.len(), expected.events.len(), "{at}");
    for (event, expected) in session.history.iter().zip(&expected.events) {
        let is_generated = expected.id.starts_with("gen-");
        assert!(event.id == expected.id || (is_generated && event.id.starts_with("gen-")), "{at}: {}", event.id);
        assert_eq!((&*event.author, event.timestamp.as_millis()), (&*expected.author, millis(expected.ts)), "{at}");
        same(&JsonObject::from(event.state_delta.clone()), &expected.state_delta, at);
    }
}

/// Checks that two states have the same keys and the same texts of values, apart from white space.
fn same(state: &JsonObject, expected: &JsonObject, at: &str) {
    let texts = |state: &JsonObject| {
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

fn check_error(error: Option<&AppendError>, expected: &Outcome, at: &str) {
    assert_eq!(error.map(name_in_adk), expected.error_type.as_deref(), "{at}: {error:?}");
    assert_eq!(error.is_none(), expected.ok, "{at}");
}

/// The name of the error in ADK.
pub(crate) fn name_in_adk(error: &AppendError) -> &'static str {
    match error {
        AppendError::Stale { expected: 0, .. } => "AlreadyExistsError",
        AppendError::Missing => "SessionNotFoundError",
        AppendError::Stale { .. } => "StaleSessionError",
        _ => "another error",
    }
}
