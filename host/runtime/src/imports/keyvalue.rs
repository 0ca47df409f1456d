//! `wasi:keyvalue`: one bucket per extension and tenant.

use std::sync::Arc;

use wasmtime::component::Resource;

use crate::bindings::v0_1::wasi::keyvalue::{atomics, store};
use crate::extension::Profile;
use crate::keyvalue::{KEYS_PER_PAGE, KeyValueError};
use crate::store::HostState;

/// The names of the one bucket that there is.
const NAMES: [&str; 2] = ["", "default"];

/// The bucket of the instance's extension. The host knows it without being told, so the resource holds nothing.
#[expect(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct Bucket;

/// The only bucket's number.
const BUCKET: u32 = 0;

type Answer<T> = wasmtime::Result<Result<T, store::Error>>;

impl store::Host for HostState {
    /// While a component is loaded its URI is a claim that nobody has checked, so there are no keys then.
    fn open(&mut self, identifier: String) -> Answer<Resource<Bucket>> {
        if self.turn.is_none() {
            return Ok(Err(store::Error::AccessDenied));
        }
        Ok(if NAMES.contains(&identifier.as_str()) {
            Ok(Resource::new_own(BUCKET))
        } else {
            Err(store::Error::NoSuchStore)
        })
    }
}

impl store::HostBucket for HostState {
    async fn get(&mut self, _bucket: Resource<Bucket>, key: String) -> Answer<Option<Vec<u8>>> {
        let profile = Arc::clone(&self.profile);
        Ok(told(&profile, profile.services.keyvalue.get(&profile.space, &key).await))
    }

    async fn set(&mut self, _bucket: Resource<Bucket>, key: String, value: Vec<u8>) -> Answer<()> {
        let profile = Arc::clone(&self.profile);
        let Some(quota) = &profile.grants.keyvalue else { return Ok(Err(store::Error::AccessDenied)) };
        Ok(told(&profile, profile.services.keyvalue.set(&profile.space, &key, value, quota).await))
    }

    async fn delete(&mut self, _bucket: Resource<Bucket>, key: String) -> Answer<()> {
        let profile = Arc::clone(&self.profile);
        Ok(told(&profile, profile.services.keyvalue.delete(&profile.space, &key).await))
    }

    async fn exists(&mut self, bucket: Resource<Bucket>, key: String) -> Answer<bool> {
        let value = store::HostBucket::get(self, bucket, key).await?;
        Ok(value.map(|value| value.is_some()))
    }

    async fn list_keys(&mut self, _bucket: Resource<Bucket>, cursor: Option<u64>) -> Answer<store::KeyResponse> {
        let (profile, skip) = (Arc::clone(&self.profile), cursor.unwrap_or(0));
        let keys = profile.services.keyvalue.keys(&profile.space, skip).await;
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
    async fn increment(&mut self, _bucket: Resource<Bucket>, key: String, delta: u64) -> Answer<u64> {
        let profile = Arc::clone(&self.profile);
        let Some(quota) = &profile.grants.keyvalue else { return Ok(Err(store::Error::AccessDenied)) };
        Ok(told(&profile, profile.services.keyvalue.increment(&profile.space, &key, delta, quota).await))
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
