//! All stores keep one contract.

#![cfg(test)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use annex_database::PostgresConnections;
use annex_keyvalue::{
    KEYS_PER_PAGE, KeyValueError, KeyValueOpenError, KeyValueStore, MemoryKeyValueStore, PostgresKeyValueStore, Quota,
    SCOPES_PER_PAGE, Scope, Space, SqliteKeyValueStore,
};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection as _, SqliteConnection};

use crate::cluster::Scratch;

#[path = "../../tasks/tests/stores/cluster.rs"]
mod cluster;

fn space(tenant: &str, extension: &str) -> Space {
    Space { extension: extension.into(), scope: Scope::lasting(tenant) }
}

fn own() -> Space {
    space("", "https://annex.example/own/v1")
}

/// A bucket of our own extension.
fn own_in(scope: Scope) -> Space {
    Space { scope, ..own() }
}

fn task(principal: &str, id: &str) -> Scope {
    Scope::task("", principal, &id.into())
}

/// Runs a test against each store, all empty.
async fn check(test: impl AsyncFn(&dyn KeyValueStore)) {
    test(&MemoryKeyValueStore::default()).await;
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteKeyValueStore::open(&folder.path().join("keyvalue.sqlite")).await.expect("the file opens");
    test(&store).await;
    let Some(scratch) = Scratch::create().await else { return };
    test(&*postgres(&scratch).await).await;
    scratch.remove().await;
}

/// A store with connections of its own, as another process has them.
async fn postgres(scratch: &Scratch) -> Arc<PostgresKeyValueStore> {
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
async fn what_was_set_is_there_until_it_is_deleted() {
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
async fn removing_a_scope_takes_the_keys_of_all_extensions_and_leaves_all_others() {
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
        // Room comes back whichever way keys go, and only as much as they took.
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

/// Runs a test against each kind of database, with two stores on it as two processes have them.
async fn check_two(test: impl AsyncFn([Arc<dyn KeyValueStore>; 2])) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keyvalue.sqlite");
    let open = async || Arc::new(SqliteKeyValueStore::open(&path).await.expect("the file opens"));
    test([open().await, open().await]).await;
    let Some(scratch) = Scratch::create().await else { return };
    test([postgres(&scratch).await, postgres(&scratch).await]).await;
    scratch.remove().await;
}

/// Forty calls at once, by turns to both.
async fn forty<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    stores: &[Arc<dyn KeyValueStore>; 2],
    call: impl Fn(Arc<dyn KeyValueStore>, usize) -> F,
) -> Vec<T> {
    let calls: Vec<_> = (0..20)
        .flat_map(|number| stores.iter().zip([2 * number, 2 * number + 1]))
        .map(|(store, number)| tokio::spawn(call(Arc::clone(store), number)))
        .collect();
    let mut outcomes = Vec::new();
    for call in calls {
        outcomes.push(call.await.expect("no panic"));
    }
    outcomes
}

#[tokio::test(flavor = "multi_thread")]
async fn increments_at_once_all_count() {
    check_two(async |stores| {
        let mut counts =
            forty(&stores, |store, _| async move { store.increment(&own(), "n", 1, &ROOMY).await.expect("a counter") })
                .await;
        counts.sort_unstable();
        assert_eq!(counts, (1..=40).collect::<Vec<_>>());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_holds_for_keys_that_are_set_at_once() {
    let of_bucket = Quota { max_keys: 7, ..ROOMY };
    let of_all = Quota { max_scoped_keys: 7, ..ROOMY };
    check_two(async |stores| {
        let set = |space: Space, quota: Quota| {
            move |store: Arc<dyn KeyValueStore>, number: usize| {
                let of_task = own_in(task("ada", &number.to_string()));
                let space = if space.scope.kind.ends() { of_task } else { space.clone() };
                async move { store.set(&space, &number.to_string(), Vec::new(), &quota).await.is_ok() }
            }
        };
        let lasting = forty(&stores, set(own(), of_bucket)).await;
        assert_eq!(lasting.into_iter().filter(|is_set| *is_set).count(), 7);
        let of_tasks = forty(&stores, set(own_in(task("ada", "t")), of_all)).await;
        assert_eq!(of_tasks.into_iter().filter(|is_set| *is_set).count(), 7);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_counted_is_what_is_there_whoever_changed_it_at_once() {
    let quota = Quota { max_scoped_keys: 5, max_scoped_bytes: 5 * 11, ..ROOMY };
    check_two(async |stores| {
        let space = |number: usize| own_in(task("ada", &(number % 3).to_string()));
        forty(&stores, |store, number| async move {
            let key = (number % 2).to_string();
            match number % 5 {
                0 => store.delete(&space(number), &key).await.expect("a store"),
                1 => store.remove(&space(number).scope).await.expect("a store"),
                _ => store.set(&space(number), &key, vec![0; number % 10], &ROOMY).await.expect("room"),
            }
        })
        .await;
        for number in 0..3 {
            stores[0].remove(&space(number).scope).await.expect("a store");
        }
        let set = async |key: &str| stores[1].set(&own_in(task("eve", "t")), key, vec![0; 10], &quota).await;
        for number in 0..5 {
            set(&number.to_string()).await.expect("nothing else is counted");
        }
        assert!(matches!(set("5").await, Err(KeyValueError::TooManyScopedKeys { limit: 5 })));
    })
    .await;
}

#[tokio::test]
async fn a_scope_whose_turn_another_process_may_still_run_is_not_listed() {
    let Some(scratch) = Scratch::create().await else { return };
    let connections = PostgresConnections::new(scratch.url(), 1).expect("a URL");
    let store = PostgresKeyValueStore::open(&connections, Duration::from_secs(60)).await.expect("the database opens");
    for name in ["old", "new"] {
        store.set(&own_in(task("ada", name)), "a", Vec::new(), &ROOMY).await.expect("room");
    }
    let mut connection = sqlx::PgConnection::connect(scratch.url()).await.expect("a database");
    let age = "UPDATE entry SET set_at = set_at - INTERVAL '61 seconds'";
    sqlx::query(age).execute(&mut connection).await.expect("valid SQL");
    connection.close().await.expect("closed");
    store.set(&own_in(task("ada", "new")), "a", b"again".to_vec(), &ROOMY).await.expect("room");
    assert_eq!(store.scopes(None).await.expect("a page"), [task("ada", "old")]);
    drop(store);
    scratch.remove().await;
}

#[tokio::test]
async fn keys_are_there_after_the_database_is_opened_again() {
    let Some(scratch) = Scratch::create().await else { return };
    let store = postgres(&scratch).await;
    store.set(&own(), "a", b"1".to_vec(), &ROOMY).await.expect("room");
    store.close().await;
    assert!(matches!(store.get(&own(), "a").await, Err(KeyValueError::Unavailable(_))));
    let store = postgres(&scratch).await;
    assert_eq!(store.get(&own(), "a").await.expect("a store"), Some(b"1".to_vec()));
    drop(store);
    scratch.remove().await;
}

#[tokio::test]
async fn keys_are_there_after_the_file_is_opened_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keyvalue.sqlite");
    let store = SqliteKeyValueStore::open(&path).await.expect("the file opens");
    store.set(&own(), "a", b"1".to_vec(), &ROOMY).await.expect("room");
    drop(store);
    let store = SqliteKeyValueStore::open(&path).await.expect("the file opens");
    assert_eq!(store.get(&own(), "a").await.expect("a store"), Some(b"1".to_vec()));
}

/// As the first version wrote it.
const FIRST_VERSION: &str = "
    CREATE TABLE entry (
        tenant TEXT NOT NULL,
        extension TEXT NOT NULL,
        key TEXT NOT NULL,
        value BLOB NOT NULL,
        PRIMARY KEY (tenant, extension, key)
    ) WITHOUT ROWID;
    INSERT INTO entry VALUES ('', 'https://annex.example/own/v1', 'a', x'31');
    PRAGMA user_version = 1;
";

/// As the second version wrote it, before the crate kept a table of migrations.
const SECOND_VERSION: &str = "
    CREATE TABLE entry (
        kind TEXT NOT NULL,
        tenant TEXT NOT NULL,
        principal TEXT NOT NULL,
        id TEXT NOT NULL,
        extension TEXT NOT NULL,
        key TEXT NOT NULL,
        value BLOB NOT NULL,
        PRIMARY KEY (kind, tenant, principal, id, extension, key)
    ) WITHOUT ROWID;
    CREATE TABLE scoped_usage (
        tenant TEXT NOT NULL,
        extension TEXT NOT NULL,
        keys INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        PRIMARY KEY (tenant, extension)
    ) WITHOUT ROWID;
    PRAGMA user_version = 2;
    INSERT INTO entry VALUES ('', '', '', '', 'https://annex.example/own/v1', 'a', x'31');
    INSERT INTO entry VALUES ('task', '', 'ada', 't', 'https://annex.example/own/v1', 'b', x'3233');
    INSERT INTO scoped_usage VALUES ('', 'https://annex.example/own/v1', 1, 3);
";

async fn connect(path: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
    SqliteConnection::connect_with(&options).await.expect("a file")
}

/// Runs SQL on a file, which is created if needed.
async fn run(path: &Path, sql: &'static str) {
    let mut connection = connect(path).await;
    sqlx::raw_sql(sql).execute(&mut connection).await.expect("valid SQL");
    connection.close().await.expect("closed");
}

async fn user_version(path: &Path) -> i64 {
    let mut connection = connect(path).await;
    sqlx::query_scalar("PRAGMA user_version").fetch_one(&mut connection).await.expect("a number")
}

#[tokio::test]
async fn keys_of_an_older_file_are_taken_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keyvalue.sqlite");
    run(&path, FIRST_VERSION).await;
    for _ in 0..2 {
        let store = SqliteKeyValueStore::open(&path).await.expect("the file opens");
        assert_eq!(store.get(&own(), "a").await.expect("a store"), Some(b"1".to_vec()));
        assert_eq!(store.keys(&own(), 0).await.expect("a store"), ["a"]);
        store.set(&own_in(task("", "t")), "a", b"2".to_vec(), &ROOMY).await.expect("room");
    }
}

#[tokio::test]
async fn a_file_from_before_the_table_of_migrations_keeps_its_keys() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keyvalue.sqlite");
    run(&path, SECOND_VERSION).await;
    let quota = Quota { max_scoped_bytes: 3, ..ROOMY };
    for _ in 0..2 {
        let store = SqliteKeyValueStore::open(&path).await.expect("the file opens");
        assert_eq!(store.get(&own(), "a").await.expect("a store"), Some(b"1".to_vec()));
        assert_eq!(store.keys(&own_in(task("ada", "t")), 0).await.expect("a store"), ["b"]);
        assert_eq!(store.get(&own_in(task("ada", "t")), "b").await.expect("a store"), Some(b"23".to_vec()));
        assert_eq!(store.scopes(None).await.expect("a page"), [task("ada", "t")]);
        let full = store.set(&own_in(task("ada", "u")), "c", Vec::new(), &quota).await;
        assert!(matches!(full, Err(KeyValueError::ScopedFull { limit: 3 })), "what is there still counts: {full:?}");
    }
}

#[tokio::test]
async fn software_from_before_the_table_of_migrations_finds_the_version_it_knows() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, sql) in [("new", ""), ("first", FIRST_VERSION), ("second", SECOND_VERSION)] {
        let path = folder.path().join(name);
        run(&path, sql).await;
        drop(SqliteKeyValueStore::open(&path).await.expect("the file opens"));
        assert_eq!(user_version(&path).await, 2, "{name}");
    }
}

#[tokio::test]
async fn a_file_is_made_once_when_several_open_it_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keyvalue.sqlite");
    let open = || SqliteKeyValueStore::open(&path);
    let (first, second, third) = tokio::join!(open(), open(), open());
    for store in [first, second, third] {
        store.expect("the file opens").increment(&own(), "n", 1, &ROOMY).await.expect("a counter");
    }
    let store = SqliteKeyValueStore::open(&path).await.expect("the file opens");
    assert_eq!(store.get(&own(), "n").await.expect("a store"), Some(b"3".to_vec()));
}

#[tokio::test]
async fn a_file_of_a_later_version_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keyvalue.sqlite");
    run(&path, "PRAGMA user_version = 3").await;
    let error = SqliteKeyValueStore::open(&path).await.expect_err("a later version");
    assert!(matches!(error, KeyValueOpenError::Version { found: 3, .. }), "{error:?}");
    let text = format!("the database file {} has version 3, and this software knows none after 2", path.display());
    assert_eq!(error.to_string(), text);
    assert_eq!(user_version(&path).await, 3, "the file stays as it is");
}

#[tokio::test]
async fn a_file_of_something_else_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keyvalue.sqlite");
    std::fs::write(&path, "no database, but long enough to be looked at, at least so it seems").expect("a file");
    let error = SqliteKeyValueStore::open(&path).await.expect_err("no database");
    assert!(matches!(error, KeyValueOpenError::Database { .. }), "{error:?}");
    let error = SqliteKeyValueStore::open(&folder.path().join("missing/keyvalue.sqlite")).await.expect_err("no folder");
    assert!(matches!(error, KeyValueOpenError::File { .. }), "{error:?}");
}

#[tokio::test]
async fn a_store_that_was_closed_leaves_one_file_with_all_keys() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keyvalue.sqlite");
    let store = SqliteKeyValueStore::open(&path).await.expect("the file opens");
    store.set(&own(), "n", b"1".to_vec(), &ROOMY).await.expect("a store");
    store.close().await;
    let files: Vec<_> =
        std::fs::read_dir(folder.path()).expect("a folder").map(|file| file.expect("a file").path()).collect();
    assert_eq!(files, std::slice::from_ref(&path));
    let store = SqliteKeyValueStore::open(&path).await.expect("the file opens");
    assert_eq!(store.get(&own(), "n").await.expect("a store"), Some(b"1".to_vec()));
}
