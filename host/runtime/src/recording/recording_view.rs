//! Services of a recorded turn: they forward each call and record it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use annex_keyvalue::{KeyValueError, KeyValueStore, Quota, Scope, ScopeKind, Space};
use annex_protocol::{ExtensionUri, Json, JsonObject, ListTasksResponse};
use async_trait::async_trait;
use bytes::Bytes;
use http::Response;
use ring::rand::SecureRandom;
use tokio::time::timeout;

use super::TurnObserver;
use super::host_call::{HostCall, HttpAnswer, Octets};
use super::recorder::TurnRecorder;
use crate::caller::Caller;
use crate::chain::owned_metadata;
use crate::extension::Extension;
use crate::overrides::{Clock, HttpListener, Random, ServiceOverrides};
use crate::turn_view::{TurnIds, TurnView};

/// Size of a recorded call that contains only numbers, in bytes.
const SMALL: usize = 32;
/// Maximum time for reading the old value of a key before the key is changed.
const LOOKUP_TIMEOUT: Duration = Duration::from_millis(50);
/// Header fields of an answer that are recorded.
const KEPT_FIELDS: [&str; 4] = ["content-type", "content-language", "etag", "last-modified"];

/// The view of a recorded turn.
pub(crate) struct RecordingView {
    view: Arc<dyn TurnView>,
    recorder: Arc<TurnRecorder>,
    overrides: ServiceOverrides,
}

impl RecordingView {
    /// Wraps the view of a turn, so that its calls are recorded.
    pub(crate) fn new(view: Arc<dyn TurnView>, recorder: Arc<TurnRecorder>, extension: &Extension) -> Self {
        let services = &extension.profile.services;
        let given = view.overrides().unwrap_or(&services.overrides).clone();
        let store = given.keyvalue.unwrap_or_else(|| Arc::clone(&services.keyvalue));
        let overrides = ServiceOverrides {
            keyvalue: Some(Arc::new(RecordingKeys { store, recorder: Arc::clone(&recorder) })),
            clock: Some(Arc::new(RecordingClock {
                clock: given.clock.unwrap_or_else(|| Arc::new(SystemClock(Instant::now()))),
                recorder: Arc::clone(&recorder),
            })),
            random: Some(Arc::new(RecordingRandom {
                random: given.random.unwrap_or_else(|| Arc::new(SystemRandom)),
                recorder: Arc::clone(&recorder),
            })),
            http: given.http,
            http_listener: Some(Arc::new(RecordingHttp(Arc::clone(&recorder)))),
        };
        Self { view, recorder, overrides }
    }
}

#[async_trait]
impl TurnView for RecordingView {
    fn ids(&self) -> TurnIds {
        self.view.ids()
    }

    fn overrides(&self) -> Option<&ServiceOverrides> {
        Some(&self.overrides)
    }

    fn observer(&self) -> Option<Arc<dyn TurnObserver>> {
        self.view.observer()
    }

    fn session_value(&self, key: &str) -> Option<String> {
        self.view.session_value(key)
    }

    fn session(&self) -> JsonObject {
        self.view.session()
    }

    fn task(&self) -> Option<String> {
        self.view.task()
    }

    fn caller(&self) -> Option<&Caller> {
        self.view.caller()
    }

    fn key_scope(&self, kind: ScopeKind) -> Option<Scope> {
        self.view.key_scope(kind)
    }

    async fn list_tasks(&self, request: &str) -> Result<ListTasksResponse, String> {
        let listed = self.view.list_tasks(request).await;
        if self.recorder.is_dropped() {
            return listed;
        }
        let (answer, error) = match &listed {
            Ok(listed) => {
                // Metadata of other owners is removed, as for the guest.
                let mut shown = listed.clone();
                let keys = self.recorder.keys();
                shown.tasks.iter_mut().for_each(|task| owned_metadata::retain_in_task(task, keys));
                (Json::from_serialize(&shown).ok(), None)
            }
            Err(error) => (None, Some(error.clone())),
        };
        let bytes = request.len() + answer.as_ref().map_or(0, |answer| answer.get().len());
        self.recorder.called(bytes, || HostCall::Tasks { request: request.to_owned(), answer, error });
        listed
    }

    fn agent_steps(&self) -> String {
        self.view.agent_steps()
    }

    fn task_metadata_set(&self, key: &str, value: &str, error: Option<&str>) {
        self.view.task_metadata_set(key, value, error);
        self.recorder.called(key.len() + value.len(), || HostCall::TaskMetadata {
            key: key.to_owned(),
            value: value.to_owned(),
            error: error.map(str::to_owned),
        });
    }

    async fn resume_task(&self, task_id: &str, extension: &ExtensionUri) -> Result<(), String> {
        let resumed = self.view.resume_task(task_id, extension).await;
        self.recorder
            .called(task_id.len(), || HostCall::Resume { task_id: task_id.to_owned(), error: resumed.clone().err() });
        resumed
    }
}

struct RecordingClock {
    clock: Arc<dyn Clock>,
    recorder: Arc<TurnRecorder>,
}

impl Clock for RecordingClock {
    fn now(&self) -> Duration {
        let now = self.clock.now();
        self.recorder.called(SMALL, || HostCall::Time { seconds: now.as_secs(), nanoseconds: now.subsec_nanos() });
        now
    }

    fn monotonic(&self) -> Duration {
        let now = self.clock.monotonic();
        let nanoseconds = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        self.recorder.called(SMALL, || HostCall::Monotonic { nanoseconds });
        now
    }
}

/// The clocks of the operating system.
struct SystemClock(Instant);

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

struct RecordingRandom {
    random: Arc<dyn Random>,
    recorder: Arc<TurnRecorder>,
}

impl Random for RecordingRandom {
    fn fill(&self, bytes: &mut [u8]) {
        self.random.fill(bytes);
        self.recorder.called(2 * bytes.len(), || HostCall::Random(Octets::from(&*bytes)));
    }
}

/// The source of random bytes of the operating system. The bytes must stay unpredictable in recorded turns, because
/// extensions may derive secrets from them.
struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&self, bytes: &mut [u8]) {
        let system = ring::rand::SystemRandom::new();
        // The operating system blocks until it has random numbers, so an error is temporary.
        while system.fill(bytes).is_err() {
            std::thread::yield_now();
        }
    }
}

struct RecordingHttp(Arc<TurnRecorder>);

impl HttpListener for RecordingHttp {
    fn exchanged(&self, request: &str, body: &Bytes, answer: Option<&Response<Bytes>>) {
        let answered = answer.map_or(0, |answer| answer.body().len());
        self.0.called(request.len() + body.len() + answered, || {
            let answer = answer.map(|answer| {
                // Other fields may contain cookies, tokens and other confidential data.
                let fields = KEPT_FIELDS.iter().filter_map(|name| {
                    let value = answer.headers().get(*name)?.to_str().ok()?;
                    Some(((*name).to_owned(), value.to_owned()))
                });
                let body = Octets::from(answer.body().as_ref());
                HttpAnswer { status: answer.status().as_u16(), headers: fields.collect(), body }
            });
            HostCall::Http { request: request.to_owned(), body: Octets::from(body.as_ref()), answer }
        });
    }
}

struct RecordingKeys {
    store: Arc<dyn KeyValueStore>,
    recorder: Arc<TurnRecorder>,
}

impl fmt::Debug for RecordingKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(formatter)
    }
}

impl RecordingKeys {
    /// Records the key's value before its first change.
    async fn look(&self, space: &Space, key: &str) {
        if !self.recorder.is_unknown(space.scope.kind, key) {
            return;
        }
        // A slow or failing store must not affect a change that would succeed without recording.
        if let Ok(Ok(value)) = timeout(LOOKUP_TIMEOUT, self.store.get(space, key)).await {
            self.recorder.knows(&space.scope, key, value.as_deref());
        }
    }
}

#[async_trait]
impl KeyValueStore for RecordingKeys {
    async fn get(&self, space: &Space, key: &str) -> Result<Option<Vec<u8>>, KeyValueError> {
        let value = self.store.get(space, key).await?;
        self.recorder.knows(&space.scope, key, value.as_deref());
        self.recorder.called(key.len() + value.as_ref().map_or(0, Vec::len), || HostCall::Get {
            bucket: bucket(space),
            key: key.to_owned(),
            value: value.as_deref().map(Octets::from),
        });
        Ok(value)
    }

    async fn set(&self, space: &Space, key: &str, value: Vec<u8>, quota: &Quota) -> Result<(), KeyValueError> {
        self.look(space, key).await;
        let bytes = key.len() + value.len();
        let noted = (!self.recorder.is_dropped()).then(|| Octets::from(value.as_slice()));
        self.store.set(space, key, value, quota).await?;
        if let Some(value) = noted {
            self.recorder.called(bytes, || HostCall::Set { bucket: bucket(space), key: key.to_owned(), value });
        }
        Ok(())
    }

    async fn delete(&self, space: &Space, key: &str) -> Result<(), KeyValueError> {
        self.look(space, key).await;
        self.store.delete(space, key).await?;
        self.recorder.called(key.len(), || HostCall::Delete { bucket: bucket(space), key: key.to_owned() });
        Ok(())
    }

    async fn keys(&self, space: &Space, skip: u64) -> Result<Vec<String>, KeyValueError> {
        let keys = self.store.keys(space, skip).await?;
        let bytes = keys.iter().map(String::len).sum();
        self.recorder.called(bytes, || HostCall::Keys { bucket: bucket(space), skip, keys: keys.clone() });
        Ok(keys)
    }

    async fn increment(&self, space: &Space, key: &str, delta: u64, quota: &Quota) -> Result<u64, KeyValueError> {
        let value = self.store.increment(space, key, delta, quota).await?;
        // The old value follows from the new one. Reading it would race with other turns.
        let before = value.checked_sub(delta).filter(|before| *before > 0).map(|before| before.to_string());
        self.recorder.knows(&space.scope, key, before.as_deref().map(str::as_bytes));
        let key = key.to_owned();
        self.recorder.called(key.len(), || HostCall::Increment { bucket: bucket(space), key, by: delta, value });
        Ok(value)
    }

    async fn scopes(&self, after: Option<&Scope>) -> Result<Vec<Scope>, KeyValueError> {
        self.store.scopes(after).await
    }

    async fn remove(&self, scope: &Scope) -> Result<(), KeyValueError> {
        self.store.remove(scope).await
    }
}

fn bucket(space: &Space) -> String {
    space.scope.kind.name().to_owned()
}
