//! The compile cache saves compilations and cannot do harm.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use annex_runtime::{Digest, Extension, LoadError, Runtime, RuntimeConfig};
use tempfile::TempDir;

use crate::support::{component, installation, log_of};

/// A cache folder that does not exist yet, and its parent, which is deleted after the test.
fn missing_folder() -> (TempDir, PathBuf) {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let folder = parent.path().join("cache");
    (parent, folder)
}

fn open(folder: &Path) -> Runtime {
    let config = RuntimeConfig { instances: 4, cache: Some(folder.to_owned()), ..RuntimeConfig::default() };
    Runtime::new(&config).expect("the runtime starts whatever its cache")
}

/// Loads the component with a new runtime, as the next start of a host would.
async fn load(folder: &Path) -> Extension {
    let runtime = open(folder);
    let loaded = runtime.load(component(annex_components::HELLO_EXTENSION), installation()).await;
    loaded.expect("the component loads")
}

/// The compiled files.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "cwasm")).collect()
}

fn only_file(folder: &Path) -> PathBuf {
    let files = files(folder);
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

/// The log line about a folder that is not used; empty for a folder that is used.
async fn refusal(folder: &Path) -> String {
    log_of(async { drop(open(folder)) }).await
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("one's own");
}

/// Sets the modification time to `age` ago.
fn set_age(path: &Path, age: Duration) {
    let file = File::options().append(true).open(path).expect("the file");
    file.set_modified(SystemTime::now() - age).expect("own file");
}

fn age(path: &Path) -> Duration {
    let modified = fs::metadata(path).expect("the file").modified().expect("a time");
    modified.elapsed().unwrap_or_default()
}

/// Checks that a file changed by `damage` is ignored and replaced by a new compilation.
async fn check_replaced(damage: impl FnOnce(Vec<u8>) -> Vec<u8>) {
    check_mended(|file| {
        let intact = fs::read(file).expect("the file");
        fs::write(file, damage(intact)).expect("the file can be written");
    })
    .await;
}

/// Checks that a file is replaced after `damage` has changed the file itself, such as its permissions.
async fn check_mended(damage: impl FnOnce(&Path)) {
    let (_parent, folder) = missing_folder();
    assert!(load(&folder).await.was_compiled());
    let file = only_file(&folder);
    damage(&file);
    assert!(load(&folder).await.was_compiled());
    assert_eq!(only_file(&folder), file);
    let metadata = fs::symlink_metadata(&file).expect("the file");
    assert!(metadata.is_file() && metadata.permissions().mode() & 0o7777 == 0o600, "{metadata:?}");
    assert!(!load(&folder).await.was_compiled());
}

#[tokio::test]
async fn the_second_load_is_not_compiled() {
    let (_parent, folder) = missing_folder();
    assert!(load(&folder).await.was_compiled());
    assert!(!load(&folder).await.was_compiled());
}

#[tokio::test]
async fn hosts_with_and_without_debug_information_share_code_without_it() {
    let (_parent, folder) = missing_folder();
    let reading =
        RuntimeConfig { instances: 4, cache: Some(folder.clone()), debug_info: true, ..RuntimeConfig::default() };
    let load_reading = async |component: Vec<u8>| {
        let runtime = Runtime::new(&reading).expect("the runtime starts");
        runtime.load(component, installation()).await.expect("the component loads").was_compiled()
    };
    assert!(load_reading(component(annex_components::HELLO_EXTENSION)).await);
    assert!(!load(&folder).await.was_compiled(), "a server compiles what an author's tools have compiled");

    let mut parser = wat::Parser::new();
    parser.generate_dwarf(wat::GenerateDwarf::Lines);
    let text = include_str!("hand_made.wat");
    let with_lines = parser.parse_str(Some("quota.wat".as_ref()), text).expect("a component");
    assert!(load_reading(with_lines.clone()).await);
    assert!(!load_reading(with_lines.clone()).await);
    let without = open(&folder).load(with_lines, installation()).await.expect("the component loads");
    assert!(without.was_compiled(), "code with debug information reaches a host that reads none");
}

#[tokio::test]
async fn compiling_is_logged_with_its_name_and_its_end() {
    let (_parent, folder) = missing_folder();
    let bytes = component(annex_components::HELLO_EXTENSION);
    let log = log_of(async {
        open(&folder).load_named("my-rule", bytes, installation()).await.expect("the component loads");
    });
    let log = log.await;
    assert!(log.contains("compiling my-rule") && log.contains("compiled my-rule in "), "{log}");
    assert!(annex_runtime::compilations().iter().all(|compilation| *compilation.name != *"my-rule"));
}

#[tokio::test]
async fn a_component_without_its_grant_is_logged_as_refused_and_not_as_compiled() {
    let (_parent, folder) = missing_folder();
    let log = log_of(async {
        let loaded = open(&folder).load_named("my-rule", component(annex_components::TIMESTAMP), installation()).await;
        assert!(matches!(loaded, Err(LoadError::NotGranted { .. })));
    });
    let log = log.await;
    assert!(log.contains("my-rule was refused before it was compiled"), "{log}");
    assert!(!log.contains("compiled my-rule in") && !log.contains("could not be compiled"), "{log}");
}

#[tokio::test]
async fn files_are_named_by_the_components_digest() {
    let (_parent, folder) = missing_folder();
    let extension = load(&folder).await;
    assert_eq!(extension.digest(), Digest::of(&component(annex_components::HELLO_EXTENSION)));
    let name = only_file(&folder).file_name().expect("a name").to_string_lossy().into_owned();
    assert!(name.starts_with(&extension.digest().hex()) && name.ends_with(".cwasm"), "{name}");
}

#[tokio::test]
async fn a_damaged_file_is_ignored_and_replaced() {
    check_replaced(|mut file| {
        let middle = file.len() / 2;
        file[middle] ^= 1;
        file
    })
    .await;
}

#[tokio::test]
async fn half_a_file_and_an_empty_one_are_ignored_and_replaced() {
    check_replaced(|mut file| file.drain(..file.len() / 2).collect()).await;
    check_replaced(|_| Vec::new()).await;
}

#[test]
fn a_missing_folder_is_made_for_this_user_alone() {
    let (_parent, folder) = missing_folder();
    open(&folder);
    assert_eq!(mode(&folder), 0o700);
}

#[tokio::test]
async fn a_folder_that_others_can_write_is_not_used() {
    let (_parent, folder) = missing_folder();
    fs::create_dir(&folder).expect("a folder");
    for mode in [0o777, 0o770, 0o702, 0o1777, 0o1770] {
        set_mode(&folder, mode);
        let reason = refusal(&folder).await;
        assert!(reason.contains("written by others") && reason.contains("chmod go-w"), "{mode:o}: {reason}");
    }
    set_mode(&folder, 0o777);
    load(&folder).await;
    assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 0);
    set_mode(&folder, 0o755);
    assert!(!refusal(&folder).await.contains("no compile cache"), "others may read");
}

#[tokio::test]
async fn an_unusable_cache_is_logged_and_is_not_an_error() {
    let (parent, folder) = missing_folder();
    fs::write(&folder, "").expect("a file");
    let dangling = parent.path().join("dangling");
    symlink(parent.path().join("nowhere"), &dangling).expect("a link");
    // No user can create a folder below the last two.
    let others = ["/proc/.cache/annex/components", "/dev/null/components"].map(PathBuf::from);
    for folder in [folder, dangling].into_iter().chain(others) {
        let log = log_of(async {
            assert!(load(&folder).await.was_compiled());
        })
        .await;
        let says = |text: &str| log.contains(text);
        assert!(says("WARN") && says(&folder.display().to_string()) && says("runtime.cache_dir"), "{log}");
    }
}

#[tokio::test]
async fn a_link_to_a_folder_is_checked_by_its_target() {
    let (parent, folder) = missing_folder();
    fs::create_dir(&folder).expect("a folder");
    set_mode(&folder, 0o700);
    let link = parent.path().join("link");
    symlink(&folder, &link).expect("a link");
    assert!(load(&link).await.was_compiled());
    assert!(!load(&folder).await.was_compiled());
    set_mode(&folder, 0o777);
    assert!(refusal(&link).await.contains("written by others"));
}

#[tokio::test]
async fn a_folder_that_is_removed_while_the_host_runs_is_made_again() {
    let (_parent, folder) = missing_folder();
    let runtime = open(&folder);
    fs::remove_dir_all(&folder).expect("one's own");
    let loaded = runtime.load(component(annex_components::HELLO_EXTENSION), installation()).await;
    assert!(loaded.expect("the component loads").was_compiled());
    assert_eq!((mode(&folder), mode(&only_file(&folder))), (0o700, 0o600));
    assert!(!load(&folder).await.was_compiled(), "the next start finds it");
}

#[tokio::test]
async fn cached_files_are_accessible_to_this_user_only() {
    let (_parent, folder) = missing_folder();
    load(&folder).await;
    assert_eq!((mode(&only_file(&folder)), mode(&folder.join("key"))), (0o600, 0o600));
}

#[tokio::test]
async fn a_file_that_others_could_read_or_write_is_not_run() {
    for mode in [0o666, 0o660, 0o644, 0o604] {
        check_mended(|file| set_mode(file, mode)).await;
    }
}

#[tokio::test]
async fn a_file_of_another_user_is_not_run() {
    let (_parent, folder) = missing_folder();
    load(&folder).await;
    let file = only_file(&folder);
    // Only root can change the owner of a file. Other users cannot get a file of another user that is not already
    // refused for its mode.
    if chown(&file, Some(65_534), None).is_ok() {
        assert!(load(&folder).await.was_compiled());
        assert!(!load(&folder).await.was_compiled());
    }
}

#[tokio::test]
async fn a_link_in_the_cache_is_never_followed() {
    check_mended(|file| {
        let elsewhere = file.with_extension("elsewhere");
        fs::rename(file, &elsewhere).expect("own file");
        symlink(&elsewhere, file).expect("a link");
    })
    .await;
}

#[tokio::test]
async fn edited_code_with_a_right_digest_but_without_the_key_is_not_run() {
    check_replaced(|mut file| {
        let last = file.len() - 1;
        file[last] ^= 1;
        let (_, signed) = file.split_at(32);
        let hex = Digest::of(signed).hex();
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
        let digest: Vec<u8> = (0..64).step_by(2).map(byte).collect();
        [&digest, signed].concat()
    })
    .await;
}

#[tokio::test]
async fn code_that_was_signed_for_another_component_is_not_run() {
    let (_parent, folder) = missing_folder();
    load(&folder).await;
    let hello = only_file(&folder);
    let runtime = open(&folder);
    let bytes = component(annex_components::TEST_EXTENSION);
    runtime.load(bytes.clone(), installation()).await.expect("the component loads");
    let other = files(&folder).into_iter().find(|file| *file != hello).expect("another file");
    fs::copy(&hello, &other).expect("own files");
    let loaded = runtime.load(bytes, installation()).await.expect("the component loads");
    assert!(loaded.was_compiled());
    assert_ne!(loaded.uri(), load(&folder).await.uri());
}

#[tokio::test]
async fn a_key_that_others_could_read_is_replaced_and_its_files_are_ignored() {
    let (_parent, folder) = missing_folder();
    load(&folder).await;
    let key = folder.join("key");
    let before = fs::read(&key).expect("the key");
    assert_eq!(before.len(), 32);
    for damage in [|key: &Path| set_mode(key, 0o644), |key: &Path| fs::write(key, "short").expect("own file")] {
        damage(&key);
        assert!(load(&folder).await.was_compiled());
        assert_eq!((mode(&key), fs::read(&key).expect("the key").len()), (0o600, 32));
        assert_ne!(fs::read(&key).expect("the key"), before);
        assert!(!load(&folder).await.was_compiled());
    }
}

#[tokio::test]
async fn a_key_that_is_a_link_is_replaced() {
    let (parent, folder) = missing_folder();
    load(&folder).await;
    let key = folder.join("key");
    let elsewhere = parent.path().join("key");
    fs::rename(&key, &elsewhere).expect("own file");
    symlink(&elsewhere, &key).expect("a link");
    assert!(load(&folder).await.was_compiled());
    assert!(fs::symlink_metadata(&key).expect("the key").is_file());
}

#[tokio::test]
async fn what_was_not_used_for_longest_goes_when_there_is_too_much() {
    let (_parent, folder) = missing_folder();
    load(&folder).await;
    let hello = only_file(&folder);
    let runtime = open(&folder);
    let test = runtime.load(component(annex_components::TEST_EXTENSION), installation()).await;
    let test = test.expect("the component loads").digest().hex();
    let total: u64 = files(&folder).iter().map(|file| fs::metadata(file).expect("a file").len()).sum();
    set_age(&hello, Duration::from_secs(60));

    let config = |bytes| RuntimeConfig {
        instances: 4,
        cache: Some(folder.clone()),
        cache_bytes: bytes,
        ..RuntimeConfig::default()
    };
    Runtime::new(&config(total)).expect("the runtime starts");
    assert_eq!(files(&folder).len(), 2, "both have room");
    let smaller = Runtime::new(&config(total - 1)).expect("the runtime starts");
    let left = only_file(&folder);
    assert!(left.to_string_lossy().contains(&test), "{left:?}");

    // Another component replaces the cached one.
    let loaded = smaller.load(component(annex_components::HELLO_EXTENSION), installation()).await;
    assert!(loaded.expect("the component loads").was_compiled());
    assert_eq!(only_file(&folder), hello);
}

#[tokio::test]
async fn a_component_that_is_larger_than_the_cache_is_not_kept_and_takes_nobodys_place() {
    let (_parent, folder) = missing_folder();
    load(&folder).await;
    let hello = only_file(&folder);
    let cache_bytes = fs::metadata(&hello).expect("the file").len();
    let config = RuntimeConfig { instances: 4, cache: Some(folder.clone()), cache_bytes, ..RuntimeConfig::default() };
    let runtime = Runtime::new(&config).expect("the runtime starts");
    runtime.load(component(annex_components::TEST_EXTENSION), installation()).await.expect("the component loads");
    assert_eq!(only_file(&folder), hello);
}

#[tokio::test]
async fn a_file_is_marked_as_used_once_a_day() {
    let (_parent, folder) = missing_folder();
    load(&folder).await;
    let file = only_file(&folder);
    let hour = Duration::from_secs(60 * 60);
    set_age(&file, 23 * hour);
    load(&folder).await;
    assert!(age(&file) > 22 * hour);
    set_age(&file, 25 * hour);
    load(&folder).await;
    assert!(age(&file) < hour);
}

#[test]
fn leftovers_of_interrupted_writes_are_deleted_and_foreign_files_stay() {
    let (_parent, folder) = missing_folder();
    open(&folder);
    let name = |digit: &str| format!(".{}.new", digit.repeat(32));
    let old = [name("a"), "notes.new".to_owned(), ".new".to_owned(), "some.cwasm".to_owned()];
    for name in old.iter().chain([&name("b")]) {
        fs::write(folder.join(name), "").expect("a file");
    }
    for name in &old {
        set_age(&folder.join(name), Duration::from_secs(2 * 60 * 60));
    }
    open(&folder);
    let is_there = |name: &str| folder.join(name).exists();
    assert!(!is_there(&name("a")) && is_there(&name("b")), "somebody may be writing a new one");
    assert!(old.iter().skip(1).all(|name| is_there(name)));
}

/// A runtime without a cache: code that needs no compilation is shared with another extension.
fn without_cache() -> Runtime {
    Runtime::new(&RuntimeConfig { instances: 4, ..RuntimeConfig::default() }).expect("the runtime starts")
}

async fn load_hello(runtime: &Runtime) -> Extension {
    let loaded = runtime.load(component(annex_components::HELLO_EXTENSION), installation()).await;
    loaded.expect("the component loads")
}

#[tokio::test]
async fn tenants_share_code_as_long_as_one_of_them_uses_it() {
    let runtime = without_cache();
    let first = load_hello(&runtime).await;
    let of_tenant = load_hello(&runtime.of_tenant("acme")).await;
    assert!(first.was_compiled() && !of_tenant.was_compiled());
    drop(first);
    assert!(!load_hello(&runtime).await.was_compiled(), "the tenant still has it");
    drop(of_tenant);
    assert!(load_hello(&runtime).await.was_compiled(), "nobody had it any more");
}

#[tokio::test]
async fn a_component_that_many_load_at_once_is_compiled_once() {
    let runtime = without_cache();
    let [one, other] = ["one", "other"].map(|name| runtime.of_tenant(name));
    let loaded = tokio::join!(load_hello(&runtime), load_hello(&one), load_hello(&other));
    let compiled = [loaded.0, loaded.1, loaded.2].map(|extension| extension.was_compiled());
    assert_eq!(compiled.iter().filter(|compiled| **compiled).count(), 1);
}
