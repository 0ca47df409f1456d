//! All stores fulfil one contract.

#![cfg(test)]

use std::sync::Arc;
use std::time::Duration;

use annex_database::PostgresConnections;
use annex_keyvalue::{
    KEYS_PER_PAGE, KeyValueError, KeyValueStore, MemoryKeyValueStore, PostgresKeyValueStore, Quota, SCOPES_PER_PAGE,
    Scope, Space, SqliteKeyValueStore,
};

use crate::cluster::Scratch;

mod at_once;
#[path = "../../../leases/tests/leases/cluster.rs"]
mod cluster;
mod files;
mod postgres;

fn space(tenant: &str, extension: &str) -> Space {
    Space { extension: extension.into(), scope: Scope::lasting(tenant) }
}

fn own() -> Space {
    space("", "https://annex.example/own/v1")
}

/// A bucket of the test extension.
fn own_in(scope: Scope) -> Space {
    Space { scope, ..own() }
}

fn task(principal: &str, id: &str) -> Scope {
    Scope::task("", principal, &id.into())
}

/// Runs a test on each kind of store, each empty.
async fn check(test: impl AsyncFn(&dyn KeyValueStore)) {
    test(&MemoryKeyValueStore::default()).await;
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteKeyValueStore::open(&folder.path().join("keyvalue.sqlite")).await.expect("the file opens");
    test(&store).await;
    let Some(scratch) = Scratch::create().await else { return };
    test(&*postgres_in(&scratch).await).await;
    scratch.remove().await;
}

/// A store with its own connections, as another process has.
async fn postgres_in(scratch: &Scratch) -> Arc<PostgresKeyValueStore> {
    let connections = PostgresConnections::new(scratch.url(), 4).expect("a URL");
    Arc::new(PostgresKeyValueStore::open(&connections, Duration::ZERO).await.expect("the database opens"))
}

const ROOMY: Quota = Quota {
    max_keys: 10_000,
    max_value_bytes: 1_000,
    max_total_bytes: 1 << 20,
    max_scoped_keys: 10_000,
    max_scoped_bytes: 1 << 20,
};

#[tokio::test]
async fn a_key_exists_from_set_to_delete() {
    check(async |store| {
        assert_eq!(store.get(&own(), "a").await.expect("a store"), None);
        for value in [b"1".to_vec(), Vec::new(), vec![0, 255, 0]] {
            store.set(&own(), "a", value.clone(), &ROOMY).await.expect("room");
            assert_eq!(store.get(&own(), "a").await.expect("a store"), Some(value));
        }
        store.delete(&own(), "a").await.expect("a store");
        store.delete(&own(), "a").await.expect("deleting nothing is no error");
        assert_eq!(store.get(&own(), "a").await.expect("a store"), None);
    })
    .await;
}

#[tokio::test]
async fn another_extensions_and_another_tenants_keys_are_invisible() {
    check(async |store| {
        store.set(&own(), "a", b"mine".to_vec(), &ROOMY).await.expect("room");
        let others = [space("t", own().extension.as_str()), space("", "https://annex.example/own/v2"), space("t", "")];
        for other in others {
            assert_eq!(store.get(&other, "a").await.expect("a store"), None, "{other:?}");
            assert!(store.keys(&other, 0).await.expect("a store").is_empty(), "{other:?}");
            store.set(&other, "a", b"theirs".to_vec(), &ROOMY).await.expect("room");
            store.delete(&other, "a").await.expect("a store");
            assert_eq!(store.increment(&other, "n", 1, &ROOMY).await.expect("a counter"), 1);
        }
        assert_eq!(store.get(&own(), "a").await.expect("a store"), Some(b"mine".to_vec()));
    })
    .await;
}

#[tokio::test]
async fn keys_are_counted_by_tenant_without_host_keys() {
    check(async |store| {
        for (tenant, key) in [("t", "a"), ("t", "b"), ("u", "a")] {
            store.set(&space(tenant, "urn:x"), key, Vec::new(), &ROOMY).await.expect("room");
        }
        store.set(&space("t", "urn:y"), "a", Vec::new(), &ROOMY).await.expect("room");
        let of_task = Space { extension: "urn:x".into(), scope: Scope::task("t", "ada", &"t-1".into()) };
        store.set(&of_task, "a", Vec::new(), &ROOMY).await.expect("room");
        store.increment(&space("t", "tokens"), "1", 5, &ROOMY).await.expect("room");
        let count = async |tenant: &str| store.count(tenant).await.expect("a store");
        assert_eq!((count("t").await, count("u").await, count("").await), (4, 1, 0));
        store.delete(&space("t", "urn:x"), "a").await.expect("a store");
        store.remove(&of_task.scope).await.expect("a store");
        assert_eq!(count("t").await, 2);
    })
    .await;
}

#[tokio::test]
async fn a_quota_holds_for_keys_values_and_their_sum() {
    let quota = Quota { max_keys: 2, max_value_bytes: 4, max_total_bytes: 8, ..ROOMY };
    check(async |store| {
        let set = async |key: &str, value: &[u8]| store.set(&own(), key, value.to_vec(), &quota).await;
        assert!(matches!(set("a", b"12345").await, Err(KeyValueError::ValueTooLarge { limit: 4 })));
        set("a", b"1234").await.expect("room");
        assert!(matches!(set("bc", b"12").await, Err(KeyValueError::Full { limit: 8 })));
        set("\u{e9}", b"1").await.expect("exactly full");
        assert!(matches!(set("c", b"").await, Err(KeyValueError::TooManyKeys { limit: 2 })));
        set("a", b"4321").await.expect("replacing takes no room");
        assert!(matches!(set(&"k".repeat(513), b"").await, Err(KeyValueError::KeyTooLong { limit: 512 })));
        store.delete(&own(), "a").await.expect("a store");
        set("c", b"1234").await.expect("deleting makes room");
        assert_eq!(store.keys(&own(), 0).await.expect("a store"), ["c", "\u{e9}"]);
    })
    .await;
}

#[tokio::test]
async fn keys_are_listed_in_pages() {
    check(async |store| {
        for number in 0..KEYS_PER_PAGE + 10 {
            store.set(&own(), &format!("{number:04}"), Vec::new(), &ROOMY).await.expect("room");
        }
        assert_eq!(store.keys(&own(), 0).await.expect("a page").len(), KEYS_PER_PAGE);
        let rest = store.keys(&own(), KEYS_PER_PAGE as u64).await.expect("a page");
        assert_eq!((rest.len(), rest[0].as_str()), (10, "0256"));
        assert!(store.keys(&own(), u64::MAX).await.expect("a page").is_empty());
    })
    .await;
}

#[tokio::test]
async fn counters_are_decimal_text_within_64_bits() {
    check(async |store| {
        let add = async |delta| store.increment(&own(), "n", delta, &ROOMY).await;
        assert_eq!((add(2).await.expect("2"), add(0).await.expect("2"), add(40).await.expect("42")), (2, 2, 42));
        assert_eq!(store.get(&own(), "n").await.expect("a store"), Some(b"42".to_vec()));
        assert!(matches!(add(u64::MAX).await, Err(KeyValueError::CounterOverflow)));
        store.set(&own(), "n", b"many".to_vec(), &ROOMY).await.expect("room");
        assert!(matches!(add(1).await, Err(KeyValueError::NotACounter)));
        let none = Quota { max_keys: 1, ..ROOMY };
        assert!(matches!(store.increment(&own(), "m", 1, &none).await, Err(KeyValueError::TooManyKeys { .. })));
    })
    .await;
}

#[tokio::test]
async fn names_may_have_any_character_and_uris_any_length() {
    let long = format!("https://annex.example/{}", "own/".repeat(500));
    let names = ["", "\0", "\0\0", "\0\u{1}", "\u{1}", "\u{1}\0", "\u{1}\u{1}", "\u{2}", "a\0b", "\u{10ffff}"];
    check(async |store| {
        for (number, name) in names.into_iter().enumerate() {
            for uri in ["https://annex.example/own/v1\0", &long] {
                let space = Space { extension: uri.into(), scope: Scope::context("\0", name, &name.into()) };
                store.set(&space, name, vec![u8::try_from(number).expect("a byte")], &ROOMY).await.expect("room");
                assert_eq!(store.keys(&space, 0).await.expect("a page"), [name]);
            }
            let lasting = Space { extension: long.as_str().into(), scope: Scope::lasting("") };
            store.set(&lasting, name, Vec::new(), &ROOMY).await.expect("room");
        }
        let lasting = Space { extension: long.as_str().into(), scope: Scope::lasting("") };
        assert_eq!(store.keys(&lasting, 0).await.expect("a page"), names, "in the order of their bytes");
        let scopes = store.scopes(None).await.expect("a page");
        assert_eq!(scopes.len(), names.len());
        for (number, name) in names.into_iter().enumerate() {
            let scope = Scope::context("\0", name, &name.into());
            assert!(scopes.contains(&scope), "{scope:?}");
            let space = Space { extension: long.as_str().into(), scope };
            let value = store.get(&space, name).await.expect("a store").expect("a value");
            assert_eq!(value, [u8::try_from(number).expect("a byte")]);
            store.delete(&space, name).await.expect("a store");
            assert_eq!(store.get(&space, name).await.expect("a store"), None);
        }
    })
    .await;
}

#[tokio::test]
async fn a_task_and_a_conversation_have_keys_of_their_own() {
    check(async |store| {
        let scopes = [
            Scope::lasting(""),
            Scope::context("", "", &"x".into()),
            Scope::context("", "ada", &"x".into()),
            Scope::context("t", "", &"x".into()),
            task("", "x"),
            task("ada", "x"),
            task("", "y"),
        ];
        for scope in &scopes {
            let space = own_in(scope.clone());
            assert_eq!(store.get(&space, "a").await.expect("a store"), None, "{scope:?}");
            store.set(&space, "a", format!("{scope:?}").into_bytes(), &ROOMY).await.expect("room");
        }
        for scope in &scopes {
            let value = store.get(&own_in(scope.clone()), "a").await.expect("a store");
            assert_eq!(value, Some(format!("{scope:?}").into_bytes()));
        }
    })
    .await;
}

#[tokio::test]
async fn removing_a_scope_removes_its_keys_of_all_extensions_only() {
    check(async |store| {
        let other = Space { extension: "https://annex.example/other/v1".into(), scope: task("ada", "t") };
        let gone = [own_in(task("ada", "t")), other];
        let kept =
            [own(), own_in(task("", "t")), own_in(task("ada", "u")), own_in(Scope::context("", "ada", &"t".into()))];
        for space in gone.iter().chain(&kept) {
            store.set(space, "a", b"1".to_vec(), &ROOMY).await.expect("room");
        }
        store.remove(&task("ada", "t")).await.expect("a store");
        store.remove(&task("ada", "t")).await.expect("removing nothing is no error");
        for space in &gone {
            assert_eq!(store.get(space, "a").await.expect("a store"), None, "{space:?}");
        }
        for space in &kept {
            assert_eq!(store.get(space, "a").await.expect("a store"), Some(b"1".to_vec()), "{space:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn scopes_with_keys_are_listed_in_pages() {
    check(async |store| {
        store.set(&own(), "a", Vec::new(), &ROOMY).await.expect("room");
        for number in 0..SCOPES_PER_PAGE {
            let space = own_in(task("ada", &format!("{number:04}")));
            store.set(&space, "a", Vec::new(), &ROOMY).await.expect("room");
            store.set(&space, "b", Vec::new(), &ROOMY).await.expect("room");
        }
        let context = Scope::context("", "ada", &"c".into());
        store.set(&own_in(context.clone()), "a", Vec::new(), &ROOMY).await.expect("room");
        let first = store.scopes(None).await.expect("a page");
        assert_eq!(first.len(), SCOPES_PER_PAGE);
        let rest = store.scopes(first.last()).await.expect("a page");
        let mut listed = [first, rest].concat();
        listed.sort();
        let tasks = (0..SCOPES_PER_PAGE).map(|index| task("ada", &format!("{index:04}")));
        assert_eq!(listed, [context.clone()].into_iter().chain(tasks).collect::<Vec<_>>(), "each once");
        store.remove(&context).await.expect("a store");
        store.delete(&own_in(task("ada", "0000")), "a").await.expect("a store");
        store.delete(&own_in(task("ada", "0000")), "b").await.expect("a store");
        let listed = store.scopes(None).await.expect("a page");
        assert_eq!(listed.len(), SCOPES_PER_PAGE - 1);
        assert!(!listed.contains(&context) && !listed.contains(&task("ada", "0000")), "what is empty is not there");
    })
    .await;
}

#[tokio::test]
async fn all_tasks_and_conversations_of_an_extension_share_a_quota() {
    let quota = Quota { max_scoped_keys: 3, max_scoped_bytes: 10, ..ROOMY };
    check(async |store| {
        let set =
            async |scope: Scope, key: &str, value: &[u8]| store.set(&own_in(scope), key, value.to_vec(), &quota).await;
        let context = Scope::context("", "", &"c".into());
        set(task("", "t"), "a", b"1234").await.expect("room");
        set(context.clone(), "a", b"").await.expect("room");
        assert!(matches!(set(task("", "u"), "a", b"1234").await, Err(KeyValueError::ScopedFull { limit: 10 })));
        set(task("", "u"), "a", b"123").await.expect("exactly full");
        set(task("", "t"), "a", b"4321").await.expect("replacing takes no room");
        assert!(matches!(set(task("", "v"), "", b"").await, Err(KeyValueError::TooManyScopedKeys { limit: 3 })));
        let count = store.increment(&own_in(task("", "v")), "n", 1, &quota).await;
        assert!(matches!(count, Err(KeyValueError::TooManyScopedKeys { limit: 3 })), "{count:?}");
        set(Scope::lasting(""), "a", b"1234567890").await.expect("what lasts has a quota of its own");
        let other = Space { extension: "https://annex.example/other/v1".into(), scope: task("", "t") };
        store.set(&other, "a", b"1234".to_vec(), &quota).await.expect("another's quota");
        // Deleting or replacing a key frees exactly the bytes that it used.
        store.delete(&own(), "a").await.expect("a store");
        store.delete(&own_in(context), "a").await.expect("a store");
        store.delete(&own_in(task("", "t")), "b").await.expect("a store");
        set(task("", "v"), "a", b"").await.expect("a key was deleted");
        store.remove(&task("", "t")).await.expect("a store");
        set(task("", "w"), "a", b"1234").await.expect("a scope was removed");
        assert!(matches!(set(task("", "w"), "a", b"12345").await, Err(KeyValueError::ScopedFull { limit: 10 })));
    })
    .await;
}

#[tokio::test]
async fn ten_thousand_tasks_take_no_more_than_the_quota() {
    let quota = Quota { max_scoped_keys: 100, ..ROOMY };
    check(async |store| {
        let mut refused = 0;
        for number in 0..10_000 {
            let space = own_in(task("mallory", &number.to_string()));
            match store.set(&space, "a", Vec::new(), &quota).await {
                Ok(()) => {}
                Err(KeyValueError::TooManyScopedKeys { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(refused, 10_000 - 100);
        let scopes = store.scopes(None).await.expect("a page");
        assert_eq!(scopes.len(), 100, "what was refused leaves nothing behind");
        for scope in &scopes {
            store.remove(scope).await.expect("a store");
        }
        store.set(&own_in(task("ada", "t")), "a", Vec::new(), &quota).await.expect("room again");
    })
    .await;
}
