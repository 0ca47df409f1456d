//! The interfaces of this version that a component can import: for each interface, the grant that it needs and the host
//! functions that implement it.

use wasmtime::component::{HasSelf, Resource};

use super::generated::annex::extension::{
    agent_steps, caller, json_schema, session_state, task, task_metadata, task_resumption, tasks, types,
};
use super::generated::wasi::clocks::wall_clock;
use super::generated::wasi::config::store as config;
use super::generated::wasi::keyvalue::{atomics, store as keyvalue};
use super::generated::wasi::logging::logging;
use crate::confinement::grants::{GrantNeeded, StateScope};
use crate::confinement::imports::keyvalue::Bucket;
use crate::confinement::imports::offer::{Offer, free, granted};
use crate::confinement::store::HostState;
use crate::contract::BucketError;

/// The interfaces that a component can import: the interfaces of the contract, and the WASI interfaces that Annex
/// implements itself.
pub(crate) const OFFERS: &[Offer] = &[
    free("annex:extension/types", |linker| types::add_to_linker::<_, HasSelf<_>>(linker, |state| state)),
    free("annex:extension/json-schema", |linker| json_schema::add_to_linker::<_, HasSelf<_>>(linker, |state| state)),
    granted(GrantNeeded::SessionState, "annex:extension/session-state", |linker| {
        session_state::add_to_linker::<_, HasSelf<_>>(linker, |state| state)
    }),
    granted(GrantNeeded::Task, "annex:extension/task", |linker| {
        task::add_to_linker::<_, HasSelf<_>>(linker, |state| state)
    }),
    granted(GrantNeeded::Tasks, "annex:extension/tasks", |linker| {
        tasks::add_to_linker::<_, HasSelf<_>>(linker, |state| state)
    }),
    granted(GrantNeeded::TaskResumption, "annex:extension/task-resumption", |linker| {
        task_resumption::add_to_linker::<_, HasSelf<_>>(linker, |state| state)
    }),
    granted(GrantNeeded::AgentSteps, "annex:extension/agent-steps", |linker| {
        agent_steps::add_to_linker::<_, HasSelf<_>>(linker, |state| state)
    }),
    granted(GrantNeeded::Caller, "annex:extension/caller", |linker| {
        caller::add_to_linker::<_, HasSelf<_>>(linker, |state| state)
    }),
    granted(GrantNeeded::TaskMetadata, "annex:extension/task-metadata", |linker| {
        task_metadata::add_to_linker::<_, HasSelf<_>>(linker, |state| state)
    }),
    free("wasi:logging/logging", |linker| logging::add_to_linker::<_, HasSelf<_>>(linker, |state| state)),
    free("wasi:config/store", |linker| config::add_to_linker::<_, HasSelf<_>>(linker, |state| state)),
    granted(GrantNeeded::Clock, "wasi:clocks/wall-clock", |linker| {
        wall_clock::add_to_linker::<_, HasSelf<_>>(linker, |state| state)
    }),
    granted(GrantNeeded::KeyValue, "wasi:keyvalue/store", |linker| {
        keyvalue::add_to_linker::<_, HasSelf<_>>(linker, |state| state)
    }),
    granted(GrantNeeded::KeyValue, "wasi:keyvalue/atomics", |linker| {
        atomics::add_to_linker::<_, HasSelf<_>>(linker, |state| state)
    }),
];

/// The result of an import whose interface defines an error type.
type Answer<T, E> = wasmtime::Result<Result<T, E>>;

impl types::Host for HostState {}

impl json_schema::Host for HostState {
    async fn compile(&mut self, schema: String) -> Answer<(), String> {
        self.compile_schema(&schema).await
    }

    async fn validate(&mut self, schema: String, instance: String) -> Answer<Vec<types::Violation>, String> {
        let violations = self.validate_by_schema(&schema, &instance).await?;
        Ok(violations.map(|violations| violations.into_iter().map(types::Violation::from).collect()))
    }
}

impl session_state::Host for HostState {
    fn get(&mut self, key: String) -> wasmtime::Result<Option<String>> {
        Ok(self.session_value(&key))
    }

    fn snapshot(&mut self) -> wasmtime::Result<String> {
        self.session_snapshot()
    }

    fn writable(&mut self) -> wasmtime::Result<session_state::Scopes> {
        // Session scope needs no grant (`Grants::may_write`).
        let mut scopes = session_state::Scopes::SESSION;
        let granted = [
            (StateScope::User, session_state::Scopes::USER),
            (StateScope::App, session_state::Scopes::APP),
            (StateScope::Temp, session_state::Scopes::TEMP),
        ];
        for (scope, flag) in granted {
            if self.profile.grants.may_write(scope) {
                scopes |= flag;
            }
        }
        Ok(scopes)
    }
}

impl task::Host for HostState {
    fn current(&mut self) -> wasmtime::Result<Option<String>> {
        Ok(self.current_task())
    }
}

impl tasks::Host for HostState {
    async fn list(&mut self, request: String) -> Answer<String, String> {
        self.list_tasks(&request).await
    }
}

impl task_resumption::Host for HostState {
    async fn resume(&mut self, task_id: String) -> Answer<(), String> {
        Ok(self.resume_task(&task_id).await)
    }
}

impl agent_steps::Host for HostState {
    fn recorded(&mut self) -> wasmtime::Result<String> {
        Ok(self.recorded_steps())
    }
}

impl caller::Host for HostState {
    fn current(&mut self) -> Answer<caller::Identity, String> {
        Ok(self.current_caller().map(caller::Identity::from))
    }
}

impl task_metadata::Host for HostState {
    fn set(&mut self, key: String, value: String) -> Answer<(), String> {
        Ok(self.set_task_metadata(&key, &value))
    }
}

impl logging::Host for HostState {
    fn log(&mut self, level: logging::Level, context: String, message: String) -> wasmtime::Result<()> {
        self.log.write(level.into(), &context, &message);
        Ok(())
    }
}

impl config::Host for HostState {
    fn get(&mut self, key: String) -> Answer<Option<String>, config::Error> {
        Ok(Ok(self.parameter(&key)))
    }

    fn get_all(&mut self) -> Answer<Vec<(String, String)>, config::Error> {
        Ok(Ok(self.parameters()))
    }
}

impl wall_clock::Host for HostState {
    fn now(&mut self) -> wasmtime::Result<wall_clock::Datetime> {
        let now = self.wall_time();
        Ok(wall_clock::Datetime { seconds: now.as_secs(), nanoseconds: now.subsec_nanos() })
    }

    fn resolution(&mut self) -> wasmtime::Result<wall_clock::Datetime> {
        Ok(wall_clock::Datetime { seconds: 0, nanoseconds: 1 })
    }
}

impl keyvalue::Host for HostState {
    fn open(&mut self, identifier: String) -> Answer<Resource<Bucket>, keyvalue::Error> {
        Ok(told(self.open_bucket(&identifier)))
    }
}

impl keyvalue::HostBucket for HostState {
    async fn get(&mut self, bucket: Resource<Bucket>, key: String) -> Answer<Option<Vec<u8>>, keyvalue::Error> {
        Ok(told(self.value_in(&bucket, &key).await?))
    }

    async fn set(&mut self, bucket: Resource<Bucket>, key: String, value: Vec<u8>) -> Answer<(), keyvalue::Error> {
        Ok(told(self.set_in(&bucket, &key, value).await?))
    }

    async fn delete(&mut self, bucket: Resource<Bucket>, key: String) -> Answer<(), keyvalue::Error> {
        Ok(told(self.delete_in(&bucket, &key).await?))
    }

    async fn exists(&mut self, bucket: Resource<Bucket>, key: String) -> Answer<bool, keyvalue::Error> {
        let value = self.value_in(&bucket, &key).await?;
        Ok(told(value.map(|value| value.is_some())))
    }

    async fn list_keys(
        &mut self,
        bucket: Resource<Bucket>,
        cursor: Option<u64>,
    ) -> Answer<keyvalue::KeyResponse, keyvalue::Error> {
        Ok(told(self.keys_in(&bucket, cursor).await?.map(keyvalue::KeyResponse::from)))
    }

    fn drop(&mut self, _bucket: Resource<Bucket>) -> wasmtime::Result<()> {
        // A bucket has no resources. Its handle is a number that identifies the kind of bucket.
        Ok(())
    }
}

impl atomics::Host for HostState {
    async fn increment(&mut self, bucket: Resource<Bucket>, key: String, delta: u64) -> Answer<u64, keyvalue::Error> {
        Ok(told(self.increment_in(&bucket, &key, delta).await?))
    }
}

fn told<T>(outcome: Result<T, BucketError>) -> Result<T, keyvalue::Error> {
    outcome.map_err(keyvalue::Error::from)
}
