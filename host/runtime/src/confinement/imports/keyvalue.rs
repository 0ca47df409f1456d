//! `wasi:keyvalue`: the three buckets of an extension. One is lasting, one belongs to the task of the turn, and one
//! belongs to the conversation of the turn.

use std::sync::Arc;

use annex_keyvalue::{KEYS_PER_PAGE, KeyValueError, KeyValueStore, ScopeKind, Space};
use wasmtime::component::Resource;

use crate::confinement::profile::Profile;
use crate::confinement::store::HostState;
use crate::contract::{BucketError, KeyPage};

/// The second name of the lasting bucket. Its other name is the empty string.
const DEFAULT: &str = "default";

/// The resource type of a bucket. It has no data: the number of a handle says which bucket the handle belongs to.
#[expect(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct Bucket;

type Answer<T> = wasmtime::Result<Result<T, BucketError>>;

fn kind_of(name: &str) -> Option<ScopeKind> {
    let name = if name == DEFAULT { ScopeKind::Lasting.name() } else { name };
    ScopeKind::ALL.into_iter().find(|kind| kind.name() == name)
}

impl HostState {
    /// The key-value store of the turn. If the turn replaces no store, this is the store of the runtime.
    fn keyvalue(&self) -> &dyn KeyValueStore {
        self.overrides().keyvalue.as_ref().unwrap_or(&self.profile.services.keyvalue).as_ref()
    }

    /// The space that holds the keys of a bucket in this turn. `None` if the bucket belongs to a task or a
    /// conversation, and the turn has none.
    fn space_of(&self, kind: ScopeKind) -> Option<Space> {
        if kind == ScopeKind::Lasting {
            return Some(self.profile.space.clone());
        }
        let scope = self.turn.as_ref()?.key_scope(kind)?;
        Some(Space { extension: self.profile.uri.clone(), scope })
    }

    /// The space of an open bucket.
    fn space(&self, bucket: &Resource<Bucket>) -> wasmtime::Result<Space> {
        let kind = ScopeKind::ALL.into_iter().find(|kind| *kind as u32 == bucket.rep());
        kind.and_then(|kind| self.space_of(kind)).ok_or_else(|| wasmtime::format_err!("there is no such bucket"))
    }
}

impl HostState {
    /// Opens a bucket. Denied while a component is loaded, because its URI is not verified yet. The hook `live-card` has a
    /// view at load, which decides about the keys.
    pub(crate) fn open_bucket(&self, name: &str) -> Result<Resource<Bucket>, BucketError> {
        if self.turn.is_none() {
            return Err(BucketError::AccessDenied);
        }
        let kind = kind_of(name).filter(|kind| self.space_of(*kind).is_some());
        kind.map(|kind| Resource::new_own(kind as u32)).ok_or(BucketError::NoSuchStore)
    }

    /// The value of a key.
    pub(crate) async fn value_in(&mut self, bucket: &Resource<Bucket>, key: &str) -> Answer<Option<Vec<u8>>> {
        let profile = Arc::clone(&self.profile);
        let space = self.space(bucket)?;
        Ok(told(&profile, self.keyvalue().get(&space, key).await))
    }

    /// Sets a key.
    pub(crate) async fn set_in(&mut self, bucket: &Resource<Bucket>, key: &str, value: Vec<u8>) -> Answer<()> {
        let profile = Arc::clone(&self.profile);
        let space = self.space(bucket)?;
        // The interface is only linked with the grant, so there is a quota. This does not rely on it.
        let Some(quota) = &profile.grants.keyvalue else { return Ok(Err(BucketError::AccessDenied)) };
        Ok(told(&profile, self.keyvalue().set(&space, key, value, quota).await))
    }

    /// Deletes a key.
    pub(crate) async fn delete_in(&mut self, bucket: &Resource<Bucket>, key: &str) -> Answer<()> {
        let profile = Arc::clone(&self.profile);
        let space = self.space(bucket)?;
        Ok(told(&profile, self.keyvalue().delete(&space, key).await))
    }

    /// A page of keys.
    pub(crate) async fn keys_in(&mut self, bucket: &Resource<Bucket>, cursor: Option<u64>) -> Answer<KeyPage> {
        let profile = Arc::clone(&self.profile);
        let skip = cursor.unwrap_or(0);
        let space = self.space(bucket)?;
        let keys = self.keyvalue().keys(&space, skip).await;
        let page = |keys: Vec<String>| {
            // A full page may be the last one. The page after it is empty then.
            let is_full = keys.len() == KEYS_PER_PAGE;
            let cursor = is_full.then(|| skip.saturating_add(KEYS_PER_PAGE as u64));
            KeyPage { keys, cursor }
        };
        Ok(told(&profile, keys.map(page)))
    }

    /// Adds to a counter.
    pub(crate) async fn increment_in(&mut self, bucket: &Resource<Bucket>, key: &str, delta: u64) -> Answer<u64> {
        let profile = Arc::clone(&self.profile);
        let space = self.space(bucket)?;
        let Some(quota) = &profile.grants.keyvalue else { return Ok(Err(BucketError::AccessDenied)) };
        Ok(told(&profile, self.keyvalue().increment(&space, key, delta, quota).await))
    }
}

/// Converts the outcome for the guest. The cause of an outage goes to the log.
fn told<T>(profile: &Profile, outcome: Result<T, KeyValueError>) -> Result<T, BucketError> {
    outcome.map_err(|error| {
        if let KeyValueError::Unavailable(cause) = &error {
            let ids = annex_telemetry::ids();
            let (tenant, context, task) = ids.all();
            tracing::warn!(extension = %profile.uri, tenant, context, task, %cause, "the key-value store failed");
        }
        BucketError::Other(error.to_string())
    })
}
