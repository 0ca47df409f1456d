//! A host for native unit tests of hooks. The optional feature `testing` adds it, and changes nothing in a component.
//!
//! ```toml
//! [dev-dependencies]
//! annex-sdk = { path = "ANNEX/guest/sdk", features = ["testing"] }
//! ```
//!
//! A test creates a [`Host`], sets its data, and calls a hook through the host. The hook gets the host's parameters.
//! Afterwards the test reads the effects from the host, such as keys and log lines.
//!
//! ```
//! use annex_sdk::keyvalue::Keys;
//! use annex_sdk::testing::{self, Bucket, Host};
//! use annex_sdk::{Descriptor, Event, EventKind, EventKinds, Extension, Patch, Response, clock, json, log};
//!
//! #[derive(serde::Deserialize)]
//! struct Parameters {
//!     key: String,
//! }
//!
//! /// Adds the time to each tenth message of a conversation.
//! struct Tenth;
//!
//! impl Extension for Tenth {
//!     type Parameters = Parameters;
//!
//!     fn descriptor(parameters: &Parameters) -> Result<Descriptor, String> {
//!         let tenth = Descriptor::new("https://a.example/tenth", "Adds the time to each tenth message.");
//!         Ok(Descriptor { metadata_keys: vec![parameters.key.clone()], events: EventKinds::MESSAGE, ..tenth })
//!     }
//! }
//!
//! impl Response for Tenth {
//!     fn respond(parameters: &Parameters, _: Event) -> Result<Option<Patch>, String> {
//!         let count = Keys::of_context()?.increment("count", 1)?;
//!         if count % 10 != 0 {
//!             return Ok(None);
//!         }
//!         log::info("that was the tenth");
//!         Ok(Some(Patch::entry(parameters.key.clone(), json::string(&clock::now()))))
//!     }
//! }
//!
//! // In a test of your own:
//! let host = Host::new()
//!     .parameters(r#"{"key": "time"}"#)
//!     .key(Bucket::Context, "count", "8")
//!     .clock("2026-11-20T09:41:07Z");
//! let message = testing::event(EventKind::Message);
//! assert_eq!(host.respond::<Tenth>(message.clone()), Ok(None));
//! let patch = Patch::entry("time", r#""2026-11-20T09:41:07.000Z""#);
//! assert_eq!(host.respond::<Tenth>(message.clone()), Ok(Some(patch)));
//! assert_eq!(host.value(Bucket::Context, "count"), Some("10".into()));
//! assert_eq!(host.log(), ["info: that was the tenth"]);
//!
//! let elsewhere = Host::new().parameters(r#"{"key": "time"}"#).without(Bucket::Context);
//! assert_eq!(elsewhere.respond::<Tenth>(message), Err("there is no such store".to_owned()));
//! ```
//!
//! [`Host::run`] calls anything else that needs a host, such as a function of your own.
//!
//! # Differences from a component
//! - Everything is granted, and there are no limits. `annex inspect` shows the grants that a component needs.
//! - The answer of a hook has no effect: no delta changes the session, and no task waits. Apply the answer yourself:
//!   `let host = host.session(…)`.
//! - A component has a new instance in each turn, with new statics. In tests a `static` lives as long as the process; a
//!   `thread_local!` is new in each test, because the test runner gives each test a thread.
//! - Functions of other crates that call the host by bindings of their own, such as those of `wasip2`, do not work.

mod hooks;
mod samples;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use serde::de::{DeserializeOwned, IgnoredAny};

#[cfg(feature = "http")]
use crate::http;
use crate::native::keys::{Buckets, Fault};
use crate::native::{self, HostState};
use crate::{Identity, Json, Presence, Scopes, Violation, clock};

#[cfg(feature = "http")]
pub use native::http::SentRequest;
pub use native::keys::Bucket;
pub use samples::{
    beginning, change, content, event, identity, model_call, outgoing, request, shown_entry, shown_task, tool_call,
    tool_result,
};

type Object = BTreeMap<String, IgnoredAny>;

/// A host for one test.
///
/// A new host has no parameters, secrets, keys, task and steps, an anonymous caller, an empty session, and a clock that
/// stands at 1970-01-01T00:00:00Z. Methods that take `self` by value configure the host; they may be called between hooks too.
#[must_use]
pub struct Host {
    state: Rc<RefCell<HostState>>,
}

/// Methods that configure the host.
impl Host {
    /// A host without any data.
    pub fn new() -> Self {
        let state = HostState {
            parameters: "{}".to_owned(),
            secrets: BTreeMap::new(),
            buckets: Buckets::default(),
            now: 0,
            session: "{}".to_owned(),
            writable: Scopes::SESSION,
            task: None,
            task_metadata: BTreeMap::new(),
            caller: Identity { presence: Presence::Anonymous, principal: None, ..samples::identity("") },
            steps: "[]".to_owned(),
            tasks: None,
            waiting: Vec::new(),
            compile: None,
            validate: None,
            resumed: Vec::new(),
            log: Vec::new(),
            #[cfg(feature = "http")]
            http: native::http::Network::default(),
        };
        Self { state: Rc::new(RefCell::new(state)) }
    }

    /// Sets the operator's parameters, a JSON object. Hooks read them as from a real host.
    ///
    /// # Panics
    /// When the text is not a JSON object.
    #[track_caller]
    pub fn parameters(self, parameters: impl Into<Json>) -> Self {
        let parameters = checked::<Object>("the parameters", parameters.into());
        self.with(|state| state.parameters = parameters)
    }

    /// Adds a secret for [`secrets::get`](crate::secrets::get).
    pub fn secret(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(|state| _ = state.secrets.insert(name.into(), value.into()))
    }

    /// Sets one of the extension's keys.
    pub fn key(self, bucket: Bucket, key: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.with(|state| _ = state.buckets.of(bucket).values.insert(key.into(), value.into()))
    }

    /// Removes a bucket, so that opening it fails. For example, a turn without a task has no task bucket.
    pub fn without(self, bucket: Bucket) -> Self {
        self.with(|state| state.buckets.of(bucket).fault = Some(Fault::Missing))
    }

    /// Makes a bucket fail: it can be opened, but each operation fails with `reason`. Its keys can be used again after
    /// [`Host::working`].
    pub fn failing(self, bucket: Bucket, reason: impl Into<String>) -> Self {
        self.with(|state| state.buckets.of(bucket).fault = Some(Fault::Failing(reason.into())))
    }

    /// Makes a bucket work again after [`Host::failing`] or [`Host::without`].
    pub fn working(self, bucket: Bucket) -> Self {
        self.with(|state| state.buckets.of(bucket).fault = None)
    }

    /// Sets the time, in RFC 3339. The clock stands still until it is set again or [advances](Host::advance).
    /// [`clock::text`] converts milliseconds to RFC 3339.
    ///
    /// # Panics
    /// When the text is not such a time, or the time is before 1970.
    #[track_caller]
    #[expect(clippy::panic, reason = "a test that is written wrong must fail")]
    pub fn clock(self, time: &str) -> Self {
        let Some(now) = clock::parse(time) else {
            panic!("annex_sdk::testing: {time:?} is not an RFC 3339 time from 1970 on")
        };
        self.with(|state| state.now = now)
    }

    /// Sets the session's state, a JSON object of session-scope keys.
    ///
    /// # Panics
    /// When the text is not a JSON object.
    #[track_caller]
    pub fn session(self, state: impl Into<Json>) -> Self {
        let session = checked::<Object>("the session", state.into());
        self.with(|state| state.session = session)
    }

    /// Sets the scopes that a delta may change. Default: the session scope.
    pub fn writable(self, scopes: Scopes) -> Self {
        self.with(|state| state.writable = scopes)
    }

    /// Sets the turn's task, a JSON object with `id`, `contextId` and `status`.
    ///
    /// # Panics
    /// When the text is not a JSON object.
    #[track_caller]
    pub fn task(self, task: impl Into<Json>) -> Self {
        let task = checked::<Object>("the task", task.into());
        self.with(|state| state.task = Some(task))
    }

    /// Sets the caller. [`identity`] makes an authenticated one. Default: an anonymous caller.
    ///
    /// # Panics
    /// When the claims are not a JSON object.
    #[track_caller]
    pub fn caller(self, caller: Identity) -> Self {
        let claims = checked::<Object>("the claims", caller.claims);
        self.with(|state| state.caller = Identity { claims, ..caller })
    }

    /// Sets the agent's steps in this turn, a JSON array.
    ///
    /// # Panics
    /// When the text is not a JSON array.
    #[track_caller]
    pub fn steps(self, steps: impl Into<Json>) -> Self {
        let steps = checked::<Vec<IgnoredAny>>("the steps", steps.into());
        self.with(|state| state.steps = steps)
    }

    /// Sets the function that answers [`tasks::list`](crate::tasks::list).
    pub fn tasks(self, list: impl Fn(&str) -> Result<Json, String> + 'static) -> Self {
        self.with(|state| state.tasks = Some(Rc::new(list)))
    }

    /// Sets the ids of waiting tasks. [`tasks::resume`](crate::tasks::resume) succeeds once for each of them, and fails
    /// for others.
    pub fn waiting<I: Into<String>>(self, task_ids: impl IntoIterator<Item = I>) -> Self {
        let waiting = task_ids.into_iter().map(Into::into).collect();
        self.with(|state| state.waiting = waiting)
    }

    /// Sets the function that answers [`schema::validate`](crate::schema::validate) with violations. A test has no
    /// validator, so this function decides.
    pub fn schema(self, validate: impl Fn(&str, &str) -> Result<Vec<Violation>, String> + 'static) -> Self {
        self.with(|state| state.validate = Some(Rc::new(validate)))
    }

    /// Sets the function that answers [`schema::compile`](crate::schema::compile). Default: all JSON is a usable
    /// schema.
    pub fn compile(self, compile: impl Fn(&str) -> Result<(), String> + 'static) -> Self {
        self.with(|state| state.compile = Some(Rc::new(compile)))
    }

    /// Sets the function that answers [`http::Request::send`]. No request is really sent.
    #[cfg(feature = "http")]
    pub fn http(self, answer: impl Fn(&SentRequest) -> Result<http::Response, http::Error> + 'static) -> Self {
        self.with(|state| state.http.answer = Some(Rc::new(answer)))
    }

    fn with(self, change: impl FnOnce(&mut HostState)) -> Self {
        change(&mut self.state.borrow_mut());
        self
    }
}

/// Methods that run hooks or functions, and methods that return what the extension did.
impl Host {
    /// Runs `calls` on this thread with this host. Within another host's `run`, this host replaces the outer one until
    /// `calls` returns.
    pub fn run<T>(&self, calls: impl FnOnce() -> T) -> T {
        let _entered = native::enter(Rc::clone(&self.state));
        calls()
    }

    /// Advances the clock, in whole milliseconds.
    pub fn advance(&self, by: Duration) {
        let millis = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        let mut state = self.state.borrow_mut();
        state.now = state.now.saturating_add(millis);
    }

    /// The value of a key.
    pub fn value(&self, bucket: Bucket, key: &str) -> Option<Vec<u8>> {
        self.state.borrow_mut().buckets.of(bucket).values.get(key).cloned()
    }

    /// All keys of a bucket, in the order of their bytes.
    pub fn keys(&self, bucket: Bucket) -> Vec<String> {
        self.state.borrow_mut().buckets.of(bucket).values.keys().cloned().collect()
    }

    /// The entries that were set in the metadata of the task, with their keys. A real host refuses keys that the
    /// descriptor does not own.
    pub fn task_metadata(&self) -> Vec<(String, Json)> {
        let state = self.state.borrow();
        state.task_metadata.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// The logged lines, each with its level: `warn: the store is full`.
    pub fn log(&self) -> Vec<String> {
        self.state.borrow().log.clone()
    }

    /// The ids of the tasks that the extension resumed. A real host resumes them after the hook has returned without an
    /// error.
    pub fn resumed(&self) -> Vec<String> {
        self.state.borrow().resumed.clone()
    }

    /// The sent requests.
    #[cfg(feature = "http")]
    pub fn sent(&self) -> Vec<SentRequest> {
        self.state.borrow().http.sent.clone()
    }
}

impl Default for Host {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Host").finish_non_exhaustive()
    }
}

/// Returns the text unchanged. Panics if the text is not JSON of the type `T`.
#[track_caller]
#[expect(clippy::panic, reason = "a test that is written wrong must fail")]
fn checked<T: DeserializeOwned>(what: &str, json: Json) -> Json {
    match serde_json::from_str::<T>(&json) {
        Ok(_) => json,
        Err(error) => panic!("annex_sdk::testing: {what} cannot be read: {error}"),
    }
}
