//! The host as a case describes it: what the extension can see of the turn, and the services that it reaches.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use annex_protocol::{ContextId, ExtensionUri, Json, JsonObject, ListTasksResponse, TaskId, Timestamp};
use annex_runtime::{
    Clock, HttpClient, KeyValueStore, MemoryKeyValueStore, Outside, Quota, Random, Scope, ScopeKind, Space, TurnIds,
    TurnView, Unreachable,
};
use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use serde_json::json;

use super::file::{CaseError, Given, HttpGiven};
use super::toml_json;

/// The conversation of all cases.
pub(super) const CONTEXT: &str = "context-1";
/// The task of all cases.
pub(super) const TASK: &str = "task-1";
/// The time of cases that name none.
const TIME: &str = "2026-01-01T00:00:00Z";

/// The buckets for keys, each with its name in a case.
pub(super) const BUCKETS: [(&str, ScopeKind); 3] =
    [("lasting", ScopeKind::Lasting), ("context", ScopeKind::Context), ("task", ScopeKind::Task)];

/// The host of one case.
pub(super) struct Scene {
    pub(super) keys: Arc<MemoryKeyValueStore>,
    pub(super) requests: Arc<Requests>,
    outside: Outside,
    session: JsonObject,
    tasks: ListTasksResponse,
    steps: String,
    /// The tasks that the extension wants to go on.
    pub(super) resumed: Mutex<Vec<String>>,
}

/// The services where there is no case: the default time, numbers of the default seed, and nobody to reach.
pub(super) fn nowhere() -> Outside {
    let time = Timestamp::parse(TIME).map_or(0, Timestamp::as_millis);
    Outside {
        keyvalue: None,
        clock: Some(Arc::new(Standing(Duration::from_millis(u64::try_from(time).unwrap_or(0))))),
        random: Some(Arc::new(Seeded(Mutex::new(0)))),
        http: Some(Arc::new(Requests { answers: Vec::new(), sent: Mutex::default() })),
        http_listener: None,
    }
}

impl Scene {
    pub(super) async fn of(given: &Given, extension: &ExtensionUri) -> Result<Self, CaseError> {
        let keys = Arc::new(MemoryKeyValueStore::default());
        for (bucket, values) in &given.keys {
            let kind = kind(bucket).ok_or_else(|| {
                CaseError::wrong("keys", format!("there is no bucket {bucket:?}; there are lasting, context, task"))
            })?;
            let space = Space { extension: extension.clone(), scope: scope(kind) };
            for (key, value) in values {
                let set = keys.set(&space, key, value.clone().into_bytes(), &Quota::default()).await;
                set.map_err(|error| CaseError::wrong("keys", error))?;
            }
        }
        let requests = Arc::new(Requests { answers: given.http.clone(), sent: Mutex::default() });
        let outside = Outside {
            keyvalue: Some(Arc::clone(&keys) as _),
            clock: Some(Arc::new(Standing(time(given)?))),
            random: Some(Arc::new(Seeded(Mutex::new(given.random)))),
            http: Some(Arc::clone(&requests) as _),
            http_listener: None,
        };
        let session = JsonObject::parse(&toml_json::object(&given.session).to_string());
        let tasks = json!({ "tasks": given.tasks.iter().map(toml_json::object).collect::<Vec<_>>(), "nextPageToken": "",
                            "pageSize": 50, "totalSize": given.tasks.len() });
        Ok(Self {
            keys,
            requests,
            outside,
            session: session.map_err(|error| CaseError::wrong("session", error))?,
            tasks: serde_json::from_value(tasks).map_err(|error| CaseError::wrong("tasks", error))?,
            steps: serde_json::Value::from_iter(given.steps.iter().map(toml_json::object)).to_string(),
            resumed: Mutex::default(),
        })
    }
}

fn time(given: &Given) -> Result<Duration, CaseError> {
    let text = match &given.clock {
        None => TIME.to_owned(),
        Some(toml::Value::Datetime(time)) => time.to_string(),
        Some(toml::Value::String(text)) => text.clone(),
        Some(_) => return Err(CaseError::wrong("clock", "it is no time such as 2026-01-31T12:00:00Z")),
    };
    let time = Timestamp::parse(&text).map_err(|error| CaseError::wrong("clock", error))?;
    let millis = u64::try_from(time.as_millis()).map_err(|_| CaseError::wrong("clock", "it is before 1970"))?;
    Ok(Duration::from_millis(millis))
}

/// The kind of bucket of a name in a case.
fn kind(bucket: &str) -> Option<ScopeKind> {
    BUCKETS.into_iter().find(|(name, _)| *name == bucket).map(|(_, kind)| kind)
}

/// The place of the case's keys of a kind.
pub(super) fn scope(kind: ScopeKind) -> Scope {
    match kind {
        ScopeKind::Lasting => Scope::lasting(""),
        ScopeKind::Context => Scope::context("", "", &ContextId::from(CONTEXT)),
        ScopeKind::Task => Scope::task("", "", &TaskId::from(TASK)),
    }
}

#[async_trait]
impl TurnView for Scene {
    fn ids(&self) -> TurnIds {
        TurnIds { task_id: Some(TASK.to_owned()), context_id: Some(CONTEXT.to_owned()) }
    }

    fn outside(&self) -> Option<&Outside> {
        Some(&self.outside)
    }

    fn session_value(&self, key: &str) -> Option<String> {
        self.session.get(key).map(|value| value.get().to_owned())
    }

    fn session(&self) -> JsonObject {
        self.session.clone()
    }

    fn task(&self) -> Option<String> {
        let task = json!({ "id": TASK, "contextId": CONTEXT, "status": { "state": "TASK_STATE_WORKING" } });
        Some(task.to_string())
    }

    fn key_scope(&self, kind: ScopeKind) -> Option<Scope> {
        Some(scope(kind))
    }

    async fn list_tasks(&self, request: &str) -> Result<ListTasksResponse, String> {
        Json::parse(request.to_owned()).map_err(|error| format!("the request is not JSON: {error}"))?;
        Ok(self.tasks.clone())
    }

    fn agent_steps(&self) -> String {
        self.steps.clone()
    }

    fn resume_task(&self, task_id: &str, _: &ExtensionUri) -> Result<(), String> {
        self.resumed.lock().unwrap_or_else(PoisonError::into_inner).push(task_id.to_owned());
        Ok(())
    }
}

/// A clock that stands.
struct Standing(Duration);

impl Clock for Standing {
    fn now(&self) -> Duration {
        self.0
    }

    fn monotonic(&self) -> Duration {
        self.0
    }
}

/// Numbers that are the same in each run: `SplitMix64`.
struct Seeded(Mutex<u64>);

impl Random for Seeded {
    fn fill(&self, bytes: &mut [u8]) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for chunk in bytes.chunks_mut(8) {
            *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = *state;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^= mixed >> 31;
            chunk.iter_mut().zip(mixed.to_le_bytes()).for_each(|(byte, random)| *byte = random);
        }
    }
}

/// The requests of the extension, and the case's answers to them.
pub(super) struct Requests {
    answers: Vec<HttpGiven>,
    pub(super) sent: Mutex<Vec<String>>,
}

#[async_trait]
impl HttpClient for Requests {
    /// Of several answers to one request the first comes first, and the last one again and again.
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Unreachable> {
        let line = format!("{} {}", request.method(), request.uri());
        let before = {
            let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
            sent.push(line.clone());
            sent.iter().filter(|other| **other == line).count() - 1
        };
        let mut answers = self.answers.iter().filter(|answer| answer.request == line);
        let last = answers.clone().next_back();
        let answer = answers.nth(before).or(last).ok_or(Unreachable)?;
        let mut response = Response::builder().status(answer.status);
        for (name, value) in &answer.headers {
            response = response.header(name, value);
        }
        response.body(Bytes::from(answer.body.clone())).map_err(|_| Unreachable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(seed: u64) -> [u8; 20] {
        let mut bytes = [0; 20];
        Seeded(Mutex::new(seed)).fill(&mut bytes);
        bytes
    }

    #[test]
    fn random_numbers_follow_from_the_seed_alone() {
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
        // The first number that SplitMix64 makes of 0, as its authors give it.
        assert!(numbers(0).starts_with(&0xe220_a839_7b1d_cdaf_u64.to_le_bytes()));
    }
}
