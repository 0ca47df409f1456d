//! The host of a case: what the extension sees of the turn, and the services that the extension calls.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use annex_protocol::{ContextId, ExtensionUri, Json, JsonObject, ListTasksResponse, TaskId, Timestamp};
use annex_runtime::{
    Caller, Clock, HttpClient, KeyValueStore, MemoryKeyValueStore, Octets, Presence, Quota, Random, Scope, ScopeKind,
    ServiceOverrides, Space, TurnIds, TurnView, Unreachable,
};
use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use serde_json::json;

use super::file::{CallerGiven, CaseError, CaseInputs, HttpGiven};
use super::toml_json;

/// The context id of all cases.
pub(super) const CONTEXT: &str = "context-1";
/// The task id of all cases.
pub(super) const TASK: &str = "task-1";
/// The default time of cases.
const TIME: &str = "2026-01-01T00:00:00Z";

/// The buckets for keys, each with the name that a case uses.
pub(super) const BUCKETS: [(&str, ScopeKind); 3] =
    [("lasting", ScopeKind::Lasting), ("context", ScopeKind::Context), ("task", ScopeKind::Task)];

/// The host of one case.
pub(super) struct Scene {
    pub(super) keys: Arc<MemoryKeyValueStore>,
    pub(super) requests: Arc<Requests>,
    overrides: ServiceOverrides,
    session: JsonObject,
    tasks: ListTasksResponse,
    steps: String,
    caller: Caller,
    /// The ids of the tasks that the extension resumed.
    pub(super) resumed: Mutex<Vec<String>>,
}

/// The services for a component that is loaded without a case: the default time, random numbers from the default seed,
/// and no HTTP responses.
pub(super) fn nowhere() -> ServiceOverrides {
    let time = Timestamp::parse(TIME).map_or(0, Timestamp::as_millis);
    ServiceOverrides {
        keyvalue: None,
        clock: Some(Arc::new(Times::of(vec![Duration::from_millis(u64::try_from(time).unwrap_or(0))]))),
        random: Some(Arc::new(Numbers::default())),
        http: Some(Arc::new(Requests { answers: Vec::new(), sent: Mutex::default() })),
        http_listener: None,
    }
}

impl Scene {
    pub(super) async fn of(given: &CaseInputs, extension: &ExtensionUri) -> Result<Self, CaseError> {
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
        let overrides = ServiceOverrides {
            keyvalue: Some(Arc::clone(&keys) as _),
            clock: Some(Arc::new(Times::of(times(given)?))),
            random: Some(Arc::new(numbers(given)?)),
            http: Some(Arc::clone(&requests) as _),
            http_listener: None,
        };
        let session = JsonObject::parse(&toml_json::object(&given.session).to_string());
        let tasks = json!({ "tasks": given.tasks.iter().map(toml_json::object).collect::<Vec<_>>(), "nextPageToken": "",
                            "pageSize": 50, "totalSize": given.tasks.len() });
        Ok(Self {
            keys,
            requests,
            overrides,
            session: session.map_err(|error| CaseError::wrong("session", error))?,
            tasks: serde_json::from_value(tasks).map_err(|error| CaseError::wrong("tasks", error))?,
            steps: serde_json::Value::from_iter(given.steps.iter().map(toml_json::object)).to_string(),
            caller: caller(&given.caller)?,
            resumed: Mutex::default(),
        })
    }
}

fn caller(given: &CallerGiven) -> Result<Caller, CaseError> {
    let CallerGiven { presence, principal, claims, headers } = given;
    let is_known = principal.is_some() || !claims.is_empty();
    let claims = JsonObject::parse(&toml_json::object(claims).to_string());
    let mut fields = HeaderMap::new();
    for (name, given) in headers {
        let wrong = |reason: &str| CaseError::wrong(&format!("caller.headers.{name}"), reason);
        let name: HeaderName = name.parse().map_err(|_| wrong("it is no name of a header field"))?;
        let values = given.as_array().map_or(std::slice::from_ref(given), Vec::as_slice);
        for value in values {
            let value = value.as_str().and_then(|text| HeaderValue::from_str(text).ok());
            let value =
                value.ok_or_else(|| wrong("it must be a text that a header field can have, or a list of such texts"));
            fields.append(name.clone(), value?);
        }
    }
    Ok(Caller {
        presence: presence.unwrap_or(if is_known { Presence::Authenticated } else { Presence::Anonymous }),
        principal: principal.clone(),
        claims: claims.map_err(|error| CaseError::wrong("caller.claims", error))?,
        headers: Some(Arc::new(fields)),
    })
}

/// The times that the extension reads, one after the other. There is at least one.
fn times(given: &CaseInputs) -> Result<Vec<Duration>, CaseError> {
    match &given.clock {
        None => Ok(vec![time(&toml::Value::from(TIME))?]),
        Some(toml::Value::Array(times)) if times.is_empty() => {
            Err(CaseError::wrong("clock", "the list has no time; leave it out"))
        }
        Some(toml::Value::Array(times)) => times.iter().map(time).collect(),
        Some(one) => Ok(vec![time(one)?]),
    }
}

fn time(value: &toml::Value) -> Result<Duration, CaseError> {
    let text = match value {
        toml::Value::Datetime(time) => time.to_string(),
        toml::Value::String(text) => text.clone(),
        _ => {
            return Err(CaseError::wrong(
                "clock",
                "it must be a time such as 2026-01-31T12:00:00Z, or a list of times",
            ));
        }
    };
    let time = Timestamp::parse(&text).map_err(|error| CaseError::wrong("clock", error))?;
    let millis = u64::try_from(time.as_millis()).map_err(|_| CaseError::wrong("clock", "it is before 1970"))?;
    Ok(Duration::from_millis(millis))
}

fn numbers(given: &CaseInputs) -> Result<Numbers, CaseError> {
    let wrong =
        || CaseError::wrong("random", "it is neither a seed from 0 on nor bytes in hexadecimal, two digits each");
    match &given.random {
        None => Ok(Numbers::default()),
        Some(toml::Value::Integer(seed)) => Ok(Numbers::seeded(u64::try_from(*seed).map_err(|_| wrong())?)),
        Some(toml::Value::String(digits)) => {
            let bytes = Octets::Hex(digits.clone()).bytes();
            if bytes.len() * 2 == digits.len() { Ok(Numbers::given(bytes)) } else { Err(wrong()) }
        }
        Some(_) => Err(wrong()),
    }
}

/// The kind of bucket that a case calls `bucket`; `None` for an unknown name.
fn kind(bucket: &str) -> Option<ScopeKind> {
    BUCKETS.into_iter().find(|(name, _)| *name == bucket).map(|(_, kind)| kind)
}

/// The scope of keys in a bucket of this kind.
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

    fn overrides(&self) -> Option<&ServiceOverrides> {
        Some(&self.overrides)
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

    fn caller(&self) -> Option<&Caller> {
        Some(&self.caller)
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

    async fn resume_task(&self, task_id: &str, _: &ExtensionUri) -> Result<(), String> {
        self.resumed.lock().unwrap_or_else(PoisonError::into_inner).push(task_id.to_owned());
        Ok(())
    }
}

/// A clock that returns the next time of a list each time it is read. After the end of the list it returns the last
/// time.
struct Times {
    times: Vec<Duration>,
    /// The number of times read so far.
    read: Mutex<usize>,
}

impl Times {
    fn of(times: Vec<Duration>) -> Self {
        Self { times, read: Mutex::new(0) }
    }

    fn at(&self, place: usize) -> Duration {
        self.times.get(place).or(self.times.last()).copied().unwrap_or_default()
    }
}

impl Clock for Times {
    fn now(&self) -> Duration {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let time = self.at(*read);
        *read += 1;
        time
    }

    fn monotonic(&self) -> Duration {
        let read = *self.read.lock().unwrap_or_else(PoisonError::into_inner);
        // The latest of the times that were read: a case may let the time go back, and this clock never does.
        (0..read.clamp(1, self.times.len().max(1))).map(|place| self.at(place)).max().unwrap_or_default()
    }
}

/// Random numbers that are the same in each run: first the random bytes of the case, then numbers from its seed
/// (`SplitMix64`).
#[derive(Default)]
struct Numbers(Mutex<RandomState>);

#[derive(Default)]
struct RandomState {
    given: VecDeque<u8>,
    seed: u64,
}

impl Numbers {
    fn seeded(seed: u64) -> Self {
        Self(Mutex::new(RandomState { seed, ..RandomState::default() }))
    }

    fn given(bytes: Vec<u8>) -> Self {
        Self(Mutex::new(RandomState { given: bytes.into(), ..RandomState::default() }))
    }
}

impl Random for Numbers {
    fn fill(&self, bytes: &mut [u8]) {
        let RandomState { given, seed } = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = given.len().min(bytes.len());
        let (first, rest) = bytes.split_at_mut(count);
        first.iter_mut().zip(given.drain(..count)).for_each(|(byte, given)| *byte = given);
        for chunk in rest.chunks_mut(8) {
            *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = *seed;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^= mixed >> 31;
            chunk.iter_mut().zip(mixed.to_le_bytes()).for_each(|(byte, random)| *byte = random);
        }
    }
}

/// The HTTP requests of the extension, with the case's responses.
pub(super) struct Requests {
    answers: Vec<HttpGiven>,
    pub(super) sent: Mutex<Vec<String>>,
}

#[async_trait]
impl HttpClient for Requests {
    /// Returns the next response that the case has for this request. After the last response, that response is returned
    /// again.
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

    fn of(numbers: &Numbers) -> [u8; 20] {
        let mut bytes = [0; 20];
        numbers.fill(&mut bytes);
        bytes
    }

    #[test]
    fn random_numbers_follow_from_the_seed_alone() {
        assert_eq!(of(&Numbers::seeded(7)), of(&Numbers::seeded(7)));
        assert_ne!(of(&Numbers::seeded(7)), of(&Numbers::seeded(8)));
        // The first number that SplitMix64 makes of 0, as its authors give it.
        assert!(of(&Numbers::default()).starts_with(&0xe220_a839_7b1d_cdaf_u64.to_le_bytes()));
    }

    #[test]
    fn the_bytes_of_the_case_come_before_those_of_the_seed() {
        let numbers = Numbers::given(vec![1, 2, 3]);
        let mut one = [0];
        numbers.fill(&mut one);
        let more = of(&numbers);
        assert_eq!((one, &more[..2]), ([1], &[2, 3][..]));
        assert_eq!(more[2..], of(&Numbers::default())[..18]);
    }

    #[test]
    fn the_last_time_is_shown_again_and_the_monotonic_clock_never_goes_back() {
        let clock = Times::of([5, 3, 9].map(Duration::from_secs).to_vec());
        let read: Vec<u64> = (0..4).flat_map(|_| [clock.monotonic(), clock.now()]).map(|time| time.as_secs()).collect();
        assert_eq!(read, [5, 5, 5, 3, 5, 9, 9, 9]);
    }

    #[test]
    fn a_caller_is_known_by_its_principal_or_its_claims_and_wrong_header_fields_are_named() {
        let of = |text: &str| caller(&toml::from_str(text).unwrap());
        assert_eq!(of("").unwrap().presence, Presence::Anonymous);
        assert_eq!(of("principal = \"ada\"").unwrap().presence, Presence::Authenticated);
        assert_eq!(of("claims.org = \"acme\"").unwrap().presence, Presence::Authenticated);
        assert_eq!(of("presence = \"earlier\"\nprincipal = \"ada\"").unwrap().presence, Presence::Earlier);
        for (text, key) in [
            ("headers.\"a b\" = \"x\"", "given.caller.headers.a b: "),
            ("headers.a = 1", "given.caller.headers.a: "),
            ("headers.a = [\"x\", \"\\n\"]", "given.caller.headers.a: "),
        ] {
            let error = of(text).err().unwrap().to_string();
            assert!(error.starts_with(key), "{error}");
        }
    }

    #[test]
    fn what_is_no_time_and_no_random_bytes_is_named() {
        for (given, key) in [
            ("clock = 7", "given.clock: "),
            ("clock = []", "given.clock: "),
            ("clock = [2026-01-01T00:00:00Z, \"later\"]", "given.clock: "),
            ("random = -1", "given.random: "),
            ("random = \"abc\"", "given.random: "),
            ("random = \"zz\"", "given.random: "),
            ("random = true", "given.random: "),
        ] {
            let given: CaseInputs = toml::from_str(given).unwrap();
            let error = times(&given).err().or(numbers(&given).err()).unwrap().to_string();
            assert!(error.starts_with(key), "{error}");
        }
    }
}
