//! `wasi:keyvalue`: buckets of an extension's own, one that lasts, one of the turn's task and one of its conversation.

use std::sync::Arc;

use wasmtime::component::Resource;

use crate::bindings::v0_1::wasi::keyvalue::{atomics, store};
use crate::extension::Profile;
use crate::keyvalue::{KEYS_PER_PAGE, KeyValueError, ScopeKind, Space};
use crate::store::HostState;

/// Another name of the bucket that lasts.
const DEFAULT: &str = "default";

/// A bucket of the instance's extension. Its number says of which kind; the host knows the rest without being told.
#[expect(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct Bucket;

type Answer<T> = wasmtime::Result<Result<T, store::Error>>;

fn kind_of(name: &str) -> Option<ScopeKind> {
    let name = if name == DEFAULT { ScopeKind::Lasting.name() } else { name };
    ScopeKind::ALL.into_iter().find(|kind| kind.name() == name)
}

impl HostState {
    /// Where the keys of a kind are in this turn; `None` where there is no such bucket.
    fn space_of(&self, kind: ScopeKind) -> Option<Space> {
        if kind == ScopeKind::Lasting {
            return Some(self.profile.space.clone());
        }
        let scope = self.turn.as_ref()?.services.scopes.as_ref()?.scope(kind)?;
        Some(Space { extension: self.profile.uri.clone(), scope })
    }

    /// Of a bucket that was opened, so that there is one.
    fn space(&self, bucket: &Resource<Bucket>) -> wasmtime::Result<Space> {
        let kind = ScopeKind::ALL.into_iter().find(|kind| *kind as u32 == bucket.rep());
        kind.and_then(|kind| self.space_of(kind)).ok_or_else(|| wasmtime::format_err!("there is no such bucket"))
    }
}

impl store::Host for HostState {
    /// While a component is loaded its URI is a claim that nobody has checked, so there are no keys then.
    fn open(&mut self, identifier: String) -> Answer<Resource<Bucket>> {
        if self.turn.is_none() {
            return Ok(Err(store::Error::AccessDenied));
        }
        let kind = kind_of(&identifier).filter(|kind| self.space_of(*kind).is_some());
        Ok(kind.map(|kind| Resource::new_own(kind as u32)).ok_or(store::Error::NoSuchStore))
    }
}

impl store::HostBucket for HostState {
    async fn get(&mut self, bucket: Resource<Bucket>, key: String) -> Answer<Option<Vec<u8>>> {
        let (profile, space) = (Arc::clone(&self.profile), self.space(&bucket)?);
        Ok(told(&profile, profile.services.keyvalue.get(&space, &key).await))
    }

    async fn set(&mut self, bucket: Resource<Bucket>, key: String, value: Vec<u8>) -> Answer<()> {
        let (profile, space) = (Arc::clone(&self.profile), self.space(&bucket)?);
        let Some(quota) = &profile.grants.keyvalue else { return Ok(Err(store::Error::AccessDenied)) };
        Ok(told(&profile, profile.services.keyvalue.set(&space, &key, value, quota).await))
    }

    async fn delete(&mut self, bucket: Resource<Bucket>, key: String) -> Answer<()> {
        let (profile, space) = (Arc::clone(&self.profile), self.space(&bucket)?);
        Ok(told(&profile, profile.services.keyvalue.delete(&space, &key).await))
    }

    async fn exists(&mut self, bucket: Resource<Bucket>, key: String) -> Answer<bool> {
        let value = store::HostBucket::get(self, bucket, key).await?;
        Ok(value.map(|value| value.is_some()))
    }

    async fn list_keys(&mut self, bucket: Resource<Bucket>, cursor: Option<u64>) -> Answer<store::KeyResponse> {
        let (profile, skip) = (Arc::clone(&self.profile), cursor.unwrap_or(0));
        let space = self.space(&bucket)?;
        let keys = profile.services.keyvalue.keys(&space, skip).await;
        let page = |keys: Vec<String>| {
            let is_full = keys.len() == KEYS_PER_PAGE;
            let cursor = is_full.then(|| skip.saturating_add(KEYS_PER_PAGE as u64));
            store::KeyResponse { keys, cursor }
        };
        Ok(told(&profile, keys.map(page)))
    }

    fn drop(&mut self, _bucket: Resource<Bucket>) -> wasmtime::Result<()> {
        Ok(())
    }
}

impl atomics::Host for HostState {
    async fn increment(&mut self, bucket: Resource<Bucket>, key: String, delta: u64) -> Answer<u64> {
        let (profile, space) = (Arc::clone(&self.profile), self.space(&bucket)?);
        let Some(quota) = &profile.grants.keyvalue else { return Ok(Err(store::Error::AccessDenied)) };
        Ok(told(&profile, profile.services.keyvalue.increment(&space, &key, delta, quota).await))
    }
}

/// What the guest learns of an outcome. A cause that is the operator's goes to the log.
fn told<T>(profile: &Profile, outcome: Result<T, KeyValueError>) -> Result<T, store::Error> {
    outcome.map_err(|error| {
        if let KeyValueError::Unavailable(cause) = &error {
            tracing::warn!(extension = %profile.uri, %cause, "the key-value store failed");
        }
        store::Error::Other(error.to_string())
    })
}
