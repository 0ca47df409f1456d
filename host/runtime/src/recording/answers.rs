//! Answers the calls of a guest in a replayed turn from the recording, without side effects.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annex_keyvalue::{
    KEYS_PER_PAGE, KeyValueError, KeyValueStore, MemoryKeyValueStore, Quota, Scope, ScopeKind, Space,
};
use annex_protocol::{ContextId, ExtensionUri, JsonObject, ListTasksResponse, TaskId};
use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};

use super::host_call::HostCall;
use super::step::RecordedStep;
use super::{RecordedTurn, TurnObserver};
use crate::caller::Caller;
use crate::confinement::http_sender::request_line;
use crate::extension::Extension;
use crate::overrides::{Clock, HttpClient, Random, ServiceOverrides, Unreachable};
use crate::turn_view::{TurnIds, TurnView};

/// Maximum number of calls per turn that are reported because the recording has no answer to them.
const MAX_UNANSWERED: usize = 10;

/// The view of a replayed turn.
pub(crate) struct Answers {
    ids: TurnIds,
    caller: Option<Caller>,
    scopes: Vec<Scope>,
    overrides: ServiceOverrides,
    calls: Arc<Calls>,
    observer: Arc<dyn TurnObserver>,
    seen: Mutex<VisibleState>,
}

/// The state that the extension can see in the current step.
#[derive(Default)]
struct VisibleState {
    session: JsonObject,
    task: Option<String>,
    agent_steps: Option<String>,
}

impl Answers {
    /// Creates the view. `under` is the store that answers reads of keys that the recorded turn did not use.
    pub(crate) fn new(
        turn: &RecordedTurn,
        extension: &Extension,
        observer: Arc<dyn TurnObserver>,
        under: Option<Arc<dyn KeyValueStore>>,
    ) -> Self {
        let calls = Arc::new(Calls::of(turn));
        let known = turn.keys.iter().filter_map(|known| {
            let kind = ScopeKind::ALL.into_iter().find(|kind| kind.name() == known.bucket)?;
            Some(((kind, known.key.clone()), known.value.as_ref().map(super::Octets::bytes)))
        });
        let keys = Keys {
            known: known.collect(),
            memory: MemoryKeyValueStore::default(),
            touched: Mutex::default(),
            removed: Mutex::default(),
            under,
            calls: Arc::clone(&calls),
        };
        let overrides = ServiceOverrides {
            keyvalue: Some(Arc::new(keys)),
            clock: Some(Arc::clone(&calls) as _),
            random: Some(Arc::clone(&calls) as _),
            http: Some(Arc::new(RecordedHttp { calls: Arc::clone(&calls), extension: extension.profile.clone() })),
            http_listener: None,
        };
        Self {
            ids: turn.ids.clone(),
            caller: turn.caller.as_ref().map(Caller::from),
            scopes: turn.scopes.clone(),
            overrides,
            calls,
            observer,
            seen: Mutex::default(),
        }
    }

    /// Sets the visible state to that of this step.
    pub(crate) fn enter(&self, step: &RecordedStep) {
        let mut seen = lock(&self.seen);
        // An absent part is unchanged since the previous step.
        if let Some(session) = &step.session {
            seen.session.clone_from(session);
        }
        if let Some(task) = &step.task {
            seen.task = Some(task.get().to_owned());
        }
        if let Some(steps) = &step.agent_steps {
            seen.agent_steps = Some(steps.get().to_owned());
        }
    }

    /// The first calls of the extension that the recording cannot answer.
    pub(crate) fn unanswered(&self) -> Vec<String> {
        lock(&self.calls.unanswered).clone()
    }
}

#[async_trait]
impl TurnView for Answers {
    fn ids(&self) -> TurnIds {
        self.ids.clone()
    }

    fn overrides(&self) -> Option<&ServiceOverrides> {
        Some(&self.overrides)
    }

    fn observer(&self) -> Option<Arc<dyn TurnObserver>> {
        Some(Arc::clone(&self.observer))
    }

    fn session_value(&self, key: &str) -> Option<String> {
        lock(&self.seen).session.get(key).map(|value| value.get().to_owned())
    }

    fn session(&self) -> JsonObject {
        lock(&self.seen).session.clone()
    }

    fn task(&self) -> Option<String> {
        lock(&self.seen).task.clone()
    }

    fn caller(&self) -> Option<&Caller> {
        self.caller.as_ref()
    }

    fn key_scope(&self, kind: ScopeKind) -> Option<Scope> {
        let recorded = self.scopes.iter().find(|scope| scope.kind == kind).cloned();
        // A recording from a file has no scopes. These substitutes contain no keys of others.
        recorded.or_else(|| match kind {
            ScopeKind::Lasting => Some(Scope::lasting("")),
            ScopeKind::Context => Some(Scope::context("", "", &ContextId::from(self.ids.context_id.as_deref()?))),
            ScopeKind::Task => Some(Scope::task("", "", &TaskId::from(self.ids.task_id.as_deref()?))),
        })
    }

    async fn list_tasks(&self, request: &str) -> Result<ListTasksResponse, String> {
        let listed = self.calls.next(|call| match call {
            HostCall::Tasks { request: recorded, answer, error } if recorded == request => Some((answer, error)),
            _ => None,
        });
        match listed {
            Some((Some(answer), _)) => answer.to().map_err(|error| error.to_string()),
            Some((None, error)) => Err(error.clone().unwrap_or_default()),
            None => {
                self.calls.lacks("a list of tasks");
                Err("the recording has no list for this request".to_owned())
            }
        }
    }

    fn agent_steps(&self) -> String {
        lock(&self.seen).agent_steps.clone().unwrap_or_else(|| "[]".to_owned())
    }

    async fn resume_task(&self, task_id: &str, _: &ExtensionUri) -> Result<(), String> {
        let resumed = self.calls.next(|call| match call {
            HostCall::Resume { task_id: recorded, error } if recorded == task_id => Some(error.as_ref()),
            _ => None,
        });
        // Resuming another task than the recorded one shows in the comparison.
        resumed.flatten().map_or(Ok(()), |error| Err(error.clone()))
    }
}

/// The recorded calls of the guest. Each recorded call answers one call of the replayed guest.
struct Calls {
    calls: Vec<HostCall>,
    used: Mutex<HashSet<usize>>,
    random: Mutex<(Vec<u8>, fastrand::Rng)>,
    unanswered: Mutex<Vec<String>>,
}

impl Calls {
    fn of(turn: &RecordedTurn) -> Self {
        let calls: Vec<HostCall> = turn.calls().cloned().collect();
        let random = calls.iter().filter_map(|call| match call {
            HostCall::Random(bytes) => Some(bytes.bytes()),
            _ => None,
        });
        let mut random: Vec<u8> = random.flatten().collect();
        // Reversed, because bytes are taken from the end.
        random.reverse();
        Self {
            random: Mutex::new((random, fastrand::Rng::with_seed(0))),
            calls,
            used: Mutex::default(),
            unanswered: Mutex::default(),
        }
    }

    /// Returns the first unused recorded answer. If all recorded answers are used, returns the last one again. `None`
    /// if no such answer was recorded.
    fn next<'a, T>(&'a self, answer: impl Fn(&'a HostCall) -> Option<T>) -> Option<T> {
        let mut used = lock(&self.used);
        let mut last = None;
        for (place, call) in self.calls.iter().enumerate() {
            let Some(found) = answer(call) else { continue };
            if used.insert(place) {
                return Some(found);
            }
            last = Some(found);
        }
        last
    }

    fn lacks(&self, question: &str) {
        let mut unanswered = lock(&self.unanswered);
        if unanswered.len() < MAX_UNANSWERED {
            unanswered.push(annex_text::line_within(question, 256));
        }
    }
}

impl Clock for Calls {
    fn now(&self) -> Duration {
        let time = self.next(|call| match call {
            HostCall::Time { seconds, nanoseconds } => Some(Duration::new(*seconds, *nanoseconds)),
            _ => None,
        });
        time.unwrap_or_else(|| {
            self.lacks("the time");
            Duration::ZERO
        })
    }

    fn monotonic(&self) -> Duration {
        let time = self.next(|call| match call {
            HostCall::Monotonic { nanoseconds } => Some(Duration::from_nanos(*nanoseconds)),
            _ => None,
        });
        time.unwrap_or_default()
    }
}

impl Random for Calls {
    /// Returns the recorded bytes in order, regardless of how many are read at once, and then pseudo-random bytes
    /// with a fixed seed.
    fn fill(&self, bytes: &mut [u8]) {
        let (recorded, seeded) = &mut *lock(&self.random);
        bytes.iter_mut().for_each(|byte| *byte = recorded.pop().unwrap_or_else(|| seeded.u8(..)));
    }
}

/// Answers HTTP requests from the recording. Sends nothing.
struct RecordedHttp {
    calls: Arc<Calls>,
    extension: Arc<crate::confinement::profile::Profile>,
}

#[async_trait]
impl HttpClient for RecordedHttp {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Unreachable> {
        // A stored recording has secrets replaced, one in memory has not.
        let plain = request_line(request.method(), &request.uri().to_string());
        let hidden = self.extension.without_secrets(&plain).into_owned();
        let answer = self.calls.next(|call| match call {
            HostCall::Http { request, answer, .. } if *request == plain || *request == hidden => Some(answer.as_ref()),
            _ => None,
        });
        let Some(answer) = answer else {
            self.calls.lacks(&hidden);
            return Err(Unreachable);
        };
        let answer = answer.ok_or(Unreachable)?;
        let mut response = Response::builder().status(answer.status);
        for (name, value) in &answer.headers {
            response = response.header(name, value);
        }
        response.body(Bytes::from(answer.body.bytes())).map_err(|_| Unreachable)
    }
}

/// A key-value store with the values from before the recorded turn. Changes stay in memory and end with the replayed
/// turn.
struct Keys {
    known: HashMap<(ScopeKind, String), Option<Vec<u8>>>,
    memory: MemoryKeyValueStore,
    /// The keys that have been looked up.
    touched: Mutex<HashSet<(Space, String)>>,
    removed: Mutex<HashSet<(Space, String)>>,
    under: Option<Arc<dyn KeyValueStore>>,
    calls: Arc<Calls>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.memory.fmt(formatter)
    }
}

impl Keys {
    /// Copies the key with its value into memory, at the first access to the key.
    async fn touch(&self, space: &Space, key: &str) -> Result<(), KeyValueError> {
        if lock(&self.touched).contains(&(space.clone(), key.to_owned())) {
            return Ok(());
        }
        let value = match (self.known.get(&(space.scope.kind, key.to_owned())), &self.under) {
            (Some(value), _) => value.clone(),
            (None, Some(under)) => under.get(space, key).await?,
            (None, None) => {
                self.calls.lacks(&format!("the key {key:?}"));
                None
            }
        };
        if let Some(value) = value {
            // The value was within the quota where it was stored.
            self.memory.set(space, key, value, &NO_QUOTA).await?;
        }
        lock(&self.touched).insert((space.clone(), key.to_owned()));
        Ok(())
    }
}

/// A quota without limits. Copied values met their quota when they were first written.
const NO_QUOTA: Quota = Quota {
    max_keys: usize::MAX,
    max_value_bytes: usize::MAX,
    max_total_bytes: usize::MAX,
    max_scoped_keys: usize::MAX,
    max_scoped_bytes: usize::MAX,
};

#[async_trait]
impl KeyValueStore for Keys {
    async fn get(&self, space: &Space, key: &str) -> Result<Option<Vec<u8>>, KeyValueError> {
        self.touch(space, key).await?;
        self.memory.get(space, key).await
    }

    async fn set(&self, space: &Space, key: &str, value: Vec<u8>, quota: &Quota) -> Result<(), KeyValueError> {
        self.touch(space, key).await?;
        lock(&self.removed).remove(&(space.clone(), key.to_owned()));
        self.memory.set(space, key, value, quota).await
    }

    async fn delete(&self, space: &Space, key: &str) -> Result<(), KeyValueError> {
        self.touch(space, key).await?;
        lock(&self.removed).insert((space.clone(), key.to_owned()));
        self.memory.delete(space, key).await
    }

    async fn keys(&self, space: &Space, skip: u64) -> Result<Vec<String>, KeyValueError> {
        let name = space.scope.kind.name();
        let recorded = self.calls.next(|call| match call {
            HostCall::Keys { bucket, skip: recorded, keys } if bucket == name && *recorded == skip => Some(keys),
            _ => None,
        });
        let mut keys = match (recorded, &self.under) {
            (Some(keys), _) => keys.clone(),
            (None, Some(under)) => under.keys(space, skip).await?,
            (None, None) => {
                self.calls.lacks("a list of keys");
                Vec::new()
            }
        };
        let is_full = keys.len() == KEYS_PER_PAGE;
        if skip == 0 {
            keys.extend(self.memory.keys(space, 0).await?);
        }
        let removed = lock(&self.removed);
        keys.retain(|key| !removed.contains(&(space.clone(), key.clone())));
        keys.sort();
        keys.dedup();
        // The guest takes a page that is not full for the last one.
        keys.truncate(if is_full { KEYS_PER_PAGE } else { KEYS_PER_PAGE - 1 });
        Ok(keys)
    }

    async fn increment(&self, space: &Space, key: &str, delta: u64, quota: &Quota) -> Result<u64, KeyValueError> {
        self.touch(space, key).await?;
        lock(&self.removed).remove(&(space.clone(), key.to_owned()));
        self.memory.increment(space, key, delta, quota).await
    }

    async fn scopes(&self, _: Option<&Scope>) -> Result<Vec<Scope>, KeyValueError> {
        Ok(Vec::new())
    }

    async fn remove(&self, scope: &Scope) -> Result<(), KeyValueError> {
        self.memory.remove(scope).await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
