//! Keys of extensions.

use std::sync::Arc;
use std::time::Duration;

use annex_protocol::JsonObject;
use annex_runtime::{
    Fault, KeyValueError, KeyValueStore, LimitReached, Limits, MemoryKeyValueStore, Quota, Runtime, RuntimeConfig,
    Scope, Space, TICK,
};
use async_trait::async_trait;

use crate::capabilities::{capable, fault, load, results};
use crate::support::{config, runtime};

#[tokio::test]
async fn keys_outlive_a_turn() {
    let extension = load(&runtime(), capable()).await;
    let commands = r#"{"get": "a"}, {"set": ["a", "1"]}, {"increment": ["n", 2]}"#;
    assert_eq!(results(&extension, commands).await, ["none", "ok", "2"]);
    let commands = r#"{"get": "a"}, {"increment": ["n", 40]}, "list", {"delete": "a"}, {"get": "a"}, "list""#;
    assert_eq!(results(&extension, commands).await, ["1", "42", "a n", "ok", "none", "n"]);
}

#[tokio::test]
async fn another_extensions_keys_are_invisible() {
    let runtime = runtime();
    let mut other = capable();
    other.parameters = JsonObject::parse(r#"{"uri": "https://annex.example/other/v1"}"#).expect("an object");
    let first = load(&runtime, capable()).await;
    let second = load(&runtime, other).await;
    results(&first, r#"{"set": ["a", "mine"]}"#).await;
    let commands = r#"{"get": "a"}, "list", {"set": ["a", "theirs"]}, {"delete": "a"}"#;
    assert_eq!(results(&second, commands).await, ["none", "", "ok", "ok"]);
    assert_eq!(results(&first, r#"{"get": "a"}"#).await, ["mine"]);
}

#[tokio::test]
async fn what_is_beyond_the_quota_is_an_error_and_changes_nothing() {
    let mut installation = capable();
    installation.grants.keyvalue =
        Some(Quota { max_keys: 2, max_value_bytes: 100, max_total_bytes: 150, ..Quota::default() });
    let extension = load(&runtime(), installation).await;
    let commands = r#"{"set-bytes": ["a", 101]}, {"set-bytes": ["a", 100]}, {"set-bytes": ["b", 100]},
        {"set": ["b", ""]}, {"set": ["c", ""]}, {"increment": ["c", 1]}, {"increment": ["a", 1]}, "list""#;
    let expected = [
        "error: the value is larger than 100 bytes",
        "ok",
        "error: keys and values would be larger than 150 bytes together",
        "ok",
        "error: there are 2 keys, and no more are allowed",
        "error: there are 2 keys, and no more are allowed",
        "error: the value is not a decimal number of 64 bits",
        "a b",
    ];
    assert_eq!(results(&extension, commands).await, expected);
}

/// How a store answers a read.
#[derive(Debug)]
enum Answers {
    Never,
    /// The store answers with an error.
    Refusal,
    /// The store answers after more than a tick, like a store on the network.
    Late,
}

#[derive(Debug)]
struct Far {
    answers: Answers,
    inner: MemoryKeyValueStore,
}

#[async_trait]
impl KeyValueStore for Far {
    async fn get(&self, space: &Space, key: &str) -> Result<Option<Vec<u8>>, KeyValueError> {
        match self.answers {
            Answers::Never => std::future::pending().await,
            Answers::Refusal => Err(KeyValueError::Unavailable("disk on fire at /secret/path".into())),
            Answers::Late => {
                tokio::time::sleep(TICK + TICK / 5).await;
                self.inner.get(space, key).await
            }
        }
    }

    async fn set(&self, space: &Space, key: &str, value: Vec<u8>, quota: &Quota) -> Result<(), KeyValueError> {
        self.inner.set(space, key, value, quota).await
    }

    async fn delete(&self, space: &Space, key: &str) -> Result<(), KeyValueError> {
        self.inner.delete(space, key).await
    }

    async fn keys(&self, space: &Space, skip: u64) -> Result<Vec<String>, KeyValueError> {
        self.inner.keys(space, skip).await
    }

    async fn increment(&self, space: &Space, key: &str, delta: u64, quota: &Quota) -> Result<u64, KeyValueError> {
        self.inner.increment(space, key, delta, quota).await
    }

    async fn scopes(&self, after: Option<&Scope>) -> Result<Vec<Scope>, KeyValueError> {
        self.inner.scopes(after).await
    }

    async fn remove(&self, scope: &Scope) -> Result<(), KeyValueError> {
        self.inner.remove(scope).await
    }
}

fn far(answers: Answers) -> Runtime {
    let keyvalue = Arc::new(Far { answers, inner: MemoryKeyValueStore::default() });
    Runtime::new(&RuntimeConfig { instances: 4, keyvalue, ..config() }).expect("the runtime starts")
}

#[tokio::test]
async fn a_store_that_does_not_answer_ends_with_the_outer_limit() {
    let mut installation = capable();
    installation.limits.wall = Duration::from_millis(50);
    let extension = load(&far(Answers::Never), installation).await;
    let fault = fault(&extension, r#"{"get": "a"}"#).await;
    assert!(matches!(fault, Fault::LimitReached { limit: LimitReached::Wall, .. }), "{fault:?}");
}

#[tokio::test]
async fn why_a_store_failed_is_not_the_guests_to_know() {
    let extension = load(&far(Answers::Refusal), capable()).await;
    assert_eq!(results(&extension, r#"{"get": "a"}"#).await, ["error: the store cannot be reached now"]);
}

/// With the standard CPU limits: ten ticks per call, two hundred per turn.
#[tokio::test]
async fn waiting_for_keys_takes_no_cpu_time() {
    let mut installation = capable();
    (installation.limits.cpu, installation.limits.turn_cpu) = (Limits::standard().cpu, Limits::standard().turn_cpu);
    let extension = load(&far(Answers::Late), installation).await;
    let results = results(&extension, &vec![r#"{"get": "a"}"#; 300].join(", ")).await;
    assert_eq!(results, vec!["none"; 300]);
}
