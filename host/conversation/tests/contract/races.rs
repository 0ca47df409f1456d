//! Many tasks that write at once, as with the session stores of google-adk 2.13.0 (`data/concurrency.json`, observed
//! in November 2026), and the scenarios in which a store of Annex does something else.

use std::collections::BTreeMap;

use annex_conversation::{AppendError, ConversationQuery, Event};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cases::name_in_adk;
use crate::concurrency::at_once;
use crate::support::{Backend, Says, Store, add, create, delta, event, events, find, key, make, open};

on_every_store!(tasks_that_write_at_once_end_as_in_adk_but_for_the_deviations);

const ONE_WINS: &str = r#"{"ok": 1, "errors": {"StaleSessionError": 9}, "events": 1, "keys": 1}"#;
const ALL_ARE_THERE: &str = r#"{"ok": 10, "errors": {}, "merged_user_keys": 10, "merged_app_keys": 10}"#;

/// Scenarios in which a store intentionally differs from the store of ADK that is of its kind, each with the
/// difference.
const DEVIATIONS: &[(&str, &str, &str, &str)] = &[
    ("conc/append_distinct_copies", "in_memory", "the position says who has not seen the latest event", ONE_WINS),
    ("conc/append_distinct_copies", "sqlite", "the position says who has not seen the latest event", ONE_WINS),
    ("conc/user_state_many_sessions", "database", "each key of a shared scope is written alone", ALL_ARE_THERE),
];

#[derive(Deserialize)]
struct Case {
    case: String,
    input: Input,
    expected: Expected,
}

#[derive(Deserialize)]
struct Input {
    scenario: String,
}

#[derive(Deserialize)]
struct Expected {
    observed_runs: BTreeMap<String, Vec<Value>>,
}

async fn tasks_that_write_at_once_end_as_in_adk_but_for_the_deviations(backend: Backend) {
    let cases: Vec<Case> = serde_json::from_str(include_str!("../data/concurrency.json")).unwrap();
    assert_eq!(cases.len(), 4);
    for (name, kind, ..) in DEVIATIONS {
        let is_it = |case: &Case| case.case == *name && case.expected.observed_runs.contains_key(*kind);
        assert!(cases.iter().any(is_it), "{name} on {kind} is no case");
    }
    let store = backend.store().await;
    let kind = kind_in_adk(&backend);
    for Case { case, input, expected } in &cases {
        let deviation = DEVIATIONS.iter().find(|(name, other, ..)| name == case && *other == kind);
        for (run, recorded) in expected.observed_runs[kind].iter().enumerate() {
            let seen = Race { store: &store, tenant: &format!("{}-{run}", input.scenario), tasks: tasks(recorded) };
            let seen = seen.run(&input.scenario).await;
            let Some((.., reason, instead)) = deviation else {
                assert_eq!(seen, *recorded, "{case} on {kind}");
                continue;
            };
            assert_ne!(seen, *recorded, "{case} on {kind} is as in ADK, so this is not true: {reason}");
            assert_eq!(seen, serde_json::from_str::<Value>(instead).unwrap(), "{case} on {kind}: {reason}");
        }
    }
}

fn kind_in_adk(backend: &Backend) -> &'static str {
    match backend {
        Backend::Memory(_) => "in_memory",
        Backend::Sqlite(_) => "sqlite",
        Backend::Postgres(_) => "database",
    }
}

/// The number of tasks: each has succeeded or failed.
fn tasks(recorded: &Value) -> usize {
    let errors = recorded["errors"].as_object().unwrap().values();
    let all = errors.chain([&recorded["ok"]]).filter_map(Value::as_u64).sum::<u64>();
    usize::try_from(all).unwrap()
}

/// One run of a scenario, in a tenant of its own.
struct Race<'a> {
    store: &'a Store,
    tenant: &'a str,
    tasks: usize,
}

impl Race<'_> {
    async fn run(&self, scenario: &str) -> Value {
        match scenario {
            "append_same_object" => self.through_one_handle().await,
            "append_distinct_copies" => self.with_a_copy_each().await,
            "user_state_many_sessions" => self.in_sessions_of_one_user().await,
            "distinct_sessions" => self.in_new_sessions().await,
            other => unreachable!("{other}"),
        }
    }

    /// The path of a session of the user `u`.
    fn path(&self, session: impl std::fmt::Display) -> String {
        format!("{}/app/u/{session}", self.tenant)
    }

    async fn through_one_handle(&self) -> Value {
        let session = open(self.store, &self.path("s")).await;
        let results = at_once(self.tasks, |task| {
            let session = session.clone();
            async move { session.say(change(task, &format!(r#"{{"k{task}":1}}"#))).await.map(drop) }
        });
        let results = results.await;
        session.close().await;
        self.of_one_session(&results).await
    }

    async fn with_a_copy_each(&self) -> Value {
        let path = self.path("s");
        create(self.store, &path, "{}").await;
        let number = find(self.store, &path).await.unwrap().number;
        let results = at_once(self.tasks, |task| {
            let store = self.store.clone();
            let path = path.clone();
            async move {
                let event = change(task, &format!(r#"{{"k{task}":1}}"#));
                add(&store, &path, number, event).await.map(drop)
            }
        });
        self.of_one_session(&results.await).await
    }

    async fn of_one_session(&self, results: &[Result<(), AppendError>]) -> Value {
        let path = self.path("s");
        let events = events(self.store, &path).await.len();
        let keys = find(self.store, &path).await.unwrap().state.merged().len();
        json!({"ok": succeeded(results), "errors": errors(results), "events": events, "keys": keys})
    }

    async fn in_sessions_of_one_user(&self) -> Value {
        for task in 0..self.tasks {
            create(self.store, &self.path(task), "{}").await;
        }
        let results = at_once(self.tasks, |task| {
            let store = self.store.clone();
            let path = self.path(task);
            async move {
                let event = change(task, &format!(r#"{{"user:k{task}":1,"app:k{task}":1}}"#));
                add(&store, &path, 1, event).await.map(drop)
            }
        });
        let results = results.await;
        let state = find(self.store, &self.path(0)).await.unwrap().state.merged();
        let count = |prefix: &str| state.keys().filter(|key| key.starts_with(prefix)).count();
        let user = count("user:");
        let app = count("app:");
        json!({"ok": succeeded(&results), "errors": errors(&results), "merged_user_keys": user, "merged_app_keys": app})
    }

    async fn in_new_sessions(&self) -> Value {
        let results = at_once(self.tasks, |task| {
            let store = self.store.clone();
            let key = key(&self.path(task));
            let state = delta(&format!(r#"{{"own":{task}}}"#));
            async move { make(&store, &key, state).await.map(drop) }
        });
        let results = results.await;
        let tenant = self.tenant.to_owned();
        let app = "app".to_owned();
        let query = ConversationQuery { tenant, app, user: Some("u".to_owned()), after: None, limit: 1_000 };
        let sessions = self.store.list(&query).await.unwrap();
        let is_isolated = sessions.iter().all(|session| {
            session.state.merged().to_json_string() == format!(r#"{{"own":{}}}"#, session.key.context.as_str())
        });
        let ok = succeeded(&results);
        let errors = errors(&results);
        json!({"ok": ok, "errors": errors, "sessions": sessions.len(), "isolated": is_isolated})
    }
}

fn change(task: usize, delta: &str) -> Event {
    event(&task.to_string(), delta)
}

fn succeeded(results: &[Result<(), AppendError>]) -> usize {
    results.iter().filter(|result| result.is_ok()).count()
}

/// The number of errors of each kind, by the name of the error in ADK.
fn errors(results: &[Result<(), AppendError>]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for error in results.iter().filter_map(|result| result.as_ref().err()) {
        *counts.entry(name_in_adk(error)).or_insert(0) += 1;
    }
    counts
}
