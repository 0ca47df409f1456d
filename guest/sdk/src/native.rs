//! The host's functions outside of a component, with the signatures of the generated bindings.
//!
//! The functions use the host that a test has entered on its thread. Without the feature `testing` no host can be
//! entered.

#![cfg_attr(not(feature = "testing"), expect(dead_code, unreachable_pub, reason = "only `testing` makes a host"))]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use self::keys::Buckets;
use crate::{Identity, Json, Scopes, Violation};

#[cfg(feature = "http")]
pub(crate) mod http;
pub(crate) mod keys;

pub(crate) use keys::{atomics, store};

/// The function that answers ListTasks.
pub(crate) type ListTasks = Rc<dyn Fn(&str) -> Result<Json, String>>;
/// The function that checks a schema.
pub(crate) type Compile = Rc<dyn Fn(&str) -> Result<(), String>>;
/// The function that validates an instance against a schema.
pub(crate) type Validate = Rc<dyn Fn(&str, &str) -> Result<Vec<Violation>, String>>;

/// The state of a test's host, including everything that the extension has sent to it.
pub(crate) struct HostState {
    pub(crate) parameters: Json,
    pub(crate) secrets: BTreeMap<String, String>,
    pub(crate) buckets: Buckets,
    /// Milliseconds since 1970-01-01T00:00:00Z.
    pub(crate) now: u64,
    pub(crate) session: Json,
    pub(crate) writable: Scopes,
    pub(crate) task: Option<Json>,
    pub(crate) task_metadata: BTreeMap<String, Json>,
    pub(crate) caller: Identity,
    pub(crate) steps: Json,
    pub(crate) tasks: Option<ListTasks>,
    /// Ids of waiting tasks.
    pub(crate) waiting: Vec<String>,
    pub(crate) compile: Option<Compile>,
    pub(crate) validate: Option<Validate>,
    pub(crate) resumed: Vec<String>,
    pub(crate) log: Vec<String>,
    #[cfg(feature = "http")]
    pub(crate) http: http::Network,
}

thread_local! {
    /// The current host of the thread. The test runner gives each test a thread of its own, so each test has a host of
    /// its own.
    static CURRENT: RefCell<Option<Rc<RefCell<HostState>>>> = const { RefCell::new(None) };
}

/// Restores the previous host on drop, also during a panic.
pub(crate) struct EnteredHost(Option<Rc<RefCell<HostState>>>);

impl Drop for EnteredHost {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// Makes `state` the current host of the thread.
pub(crate) fn enter(state: Rc<RefCell<HostState>>) -> EnteredHost {
    EnteredHost(CURRENT.replace(Some(state)))
}

/// Calls `question` with the current host. `function` is the name of the function that the author called. A panic shows
/// this name.
///
/// The host is borrowed during the call. Callbacks of an author must therefore be cloned out of the host before they
/// run.
fn ask<T>(function: &str, question: impl FnOnce(&mut HostState) -> T) -> T {
    let current = CURRENT.with_borrow(Option::clone);
    let Some(state) = current else { refuse(function) };
    question(&mut state.borrow_mut())
}

#[expect(clippy::panic, reason = "a test that calls the host without one must fail")]
fn refuse(function: &str) -> ! {
    if cfg!(feature = "testing") {
        panic!("annex_sdk::testing: `{function}` was called outside of a Host; wrap the call in `Host::run`");
    }
    panic!(
        "annex_sdk: `{function}` is a function of the host, which only a component has; for tests, enable the feature \
         `testing` and wrap the call in `annex_sdk::testing::Host::run`"
    );
}

/// Panics because the test has set no answer for `function`. `method` is the method of `Host` that sets one.
#[expect(clippy::panic, reason = "a test that is not prepared must fail")]
fn unprepared(function: &str, method: &str) -> ! {
    panic!("annex_sdk::testing: `{function}` was called, but the Host has no answer; set one with `Host::{method}`");
}

pub(crate) mod wall_clock {
    pub(crate) use crate::bindings::capabilities::wasi::clocks::wall_clock::Datetime;

    pub(crate) fn now() -> Datetime {
        let now = super::ask("clock::now", |host| host.now);
        let nanoseconds = u32::try_from(now % 1_000).unwrap_or_default() * 1_000_000;
        Datetime { seconds: now / 1_000, nanoseconds }
    }
}

pub(crate) mod config {
    use crate::members::Members;

    pub(crate) use crate::bindings::capabilities::wasi::config::store::Error;

    pub(crate) fn get(key: &str) -> Result<Option<String>, Error> {
        Ok(super::ask("secrets::get", |host| {
            if key == crate::parameters::ALL_PARAMETERS {
                return Some(host.parameters.clone());
            }
            let parameters = Members::of(&host.parameters).unwrap_or_default();
            // A string as it is, anything else as its JSON text.
            let plain = |json: &str| serde_json::from_str(json).unwrap_or_else(|_| json.to_owned());
            parameters.get(key).map(plain).or_else(|| host.secrets.get(key).cloned())
        }))
    }
}

pub(crate) mod logging {
    pub(crate) use crate::bindings::capabilities::wasi::logging::logging::Level;

    pub(crate) fn log(level: Level, _context: &str, message: &str) {
        let level = match level {
            Level::Trace => "trace",
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error | Level::Critical => "error",
        };
        super::ask(&format!("log::{level}"), |host| host.log.push(format!("{level}: {message}")));
    }
}

pub(crate) mod json_schema {
    use serde::de::IgnoredAny;

    use crate::Violation;

    pub(crate) fn compile(schema: &str) -> Result<(), String> {
        let compile = super::ask("schema::compile", |host| host.compile.clone());
        match compile {
            Some(compile) => compile(schema),
            // A test cannot compile a schema, but it refuses text that is not JSON.
            None => serde_json::from_str::<IgnoredAny>(schema).map(drop).map_err(|error| error.to_string()),
        }
    }

    pub(crate) fn validate(schema: &str, instance: &str) -> Result<Vec<Violation>, String> {
        let Some(validate) = super::ask("schema::validate", |host| host.validate.clone()) else {
            super::unprepared("schema::validate", "schema")
        };
        validate(schema, instance)
    }
}

pub(crate) mod session_state {
    use crate::members::Members;
    use crate::{Json, Scopes};

    pub(crate) fn get(key: &str) -> Option<Json> {
        super::ask("session::get", |host| Members::of(&host.session)?.get(key).map(str::to_owned))
    }

    pub(crate) fn snapshot() -> Json {
        super::ask("session::snapshot", |host| host.session.clone())
    }

    pub(crate) fn writable() -> Scopes {
        super::ask("session::writable", |host| host.writable)
    }
}

pub(crate) mod task {
    pub(crate) fn current() -> Option<crate::Json> {
        super::ask("task::current", |host| host.task.clone())
    }
}

pub(crate) mod task_metadata {
    use serde::de::IgnoredAny;

    pub(crate) fn set(key: &str, value: &str) -> Result<(), String> {
        serde_json::from_str::<IgnoredAny>(value).map_err(|error| format!("the value is no JSON: {error}"))?;
        super::ask("task_metadata::set", |host| _ = host.task_metadata.insert(key.to_owned(), value.to_owned()));
        Ok(())
    }
}

pub(crate) mod caller {
    use crate::Identity;

    pub(crate) fn current() -> Result<Identity, String> {
        super::ask("caller::current", |host| Ok(host.caller.clone()))
    }
}

pub(crate) mod tasks {
    use crate::Json;

    pub(crate) fn list(request: &str) -> Result<Json, String> {
        let Some(list) = super::ask("tasks::list", |host| host.tasks.clone()) else {
            super::unprepared("tasks::list", "tasks")
        };
        list(request)
    }
}

pub(crate) mod task_resumption {
    pub(crate) fn resume(task_id: &str) -> Result<(), String> {
        super::ask("tasks::resume", |host| {
            let index = host.waiting.iter().position(|waiting| waiting == task_id);
            // Once: a resumed task no longer waits.
            let task = index.map(|index| host.waiting.remove(index)).ok_or("no such task waits")?;
            host.resumed.push(task);
            Ok(())
        })
    }
}

pub(crate) mod agent_steps {
    pub(crate) fn recorded() -> crate::Json {
        super::ask("steps::recorded", |host| host.steps.clone())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    #[should_panic(expected = "`clock::now`")]
    fn a_call_without_a_host_names_the_function() {
        crate::clock::now_millis();
    }

    #[test]
    #[should_panic(expected = "feature `testing`")]
    #[cfg(not(feature = "testing"))]
    fn a_call_without_the_feature_names_the_feature() {
        crate::log::info("hello");
    }
}
