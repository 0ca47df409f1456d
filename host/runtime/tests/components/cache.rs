//! The compile cache: what is in it saves a compilation, and cannot do harm.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use annex_runtime::{Digest, Extension, Runtime, RuntimeConfig, RuntimeError};
use tempfile::TempDir;

use crate::support::{component, installation};

/// A cache folder that is not there yet, and the folder around it, which goes with the test.
fn missing_folder() -> (TempDir, PathBuf) {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let folder = parent.path().join("cache");
    (parent, folder)
}

fn open(folder: &Path) -> Result<Runtime, RuntimeError> {
    Runtime::new(&RuntimeConfig { instances: 4, cache: Some(folder.to_owned()), ..RuntimeConfig::default() })
}

/// Loads with a runtime of its own, as the next start of a host would.
async fn load(folder: &Path) -> Extension {
    let runtime = open(folder).expect("the folder is safe to use");
    let loaded = runtime.load(component(annex_components::HELLO_EXTENSION), installation()).await;
    loaded.expect("the component loads")
}

fn only_file(folder: &Path) -> PathBuf {
    let files: Vec<_> = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

fn refusal(folder: &Path) -> String {
    let error = open(folder).err().expect("the folder is refused");
    let RuntimeError::Cache { path, reason } = error else { unreachable!("{error:?}") };
    assert_eq!(path, folder);
    reason
}

/// Whatever `damage` makes of the file, the component is compiled again and the file is good again.
async fn check_replaced(damage: impl FnOnce(Vec<u8>) -> Vec<u8>) {
    let (_parent, folder) = missing_folder();
    assert!(load(&folder).await.was_compiled());
    let file = only_file(&folder);
    let intact = fs::read(&file).expect("the file");
    fs::write(&file, damage(intact)).expect("the file can be written");
    assert!(load(&folder).await.was_compiled());
    assert_eq!(only_file(&folder), file);
    assert!(!load(&folder).await.was_compiled());
}

#[tokio::test]
async fn the_second_load_is_not_compiled() {
    let (_parent, folder) = missing_folder();
    assert!(load(&folder).await.was_compiled());
    assert!(!load(&folder).await.was_compiled());
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
    open(&folder).expect("the folder is made");
    let mode = fs::metadata(&folder).expect("the folder").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn a_folder_that_others_can_write_is_refused() {
    let (_parent, folder) = missing_folder();
    fs::create_dir(&folder).expect("a folder");
    for mode in [0o777, 0o770, 0o702] {
        fs::set_permissions(&folder, Permissions::from_mode(mode)).expect("own folder");
        assert!(refusal(&folder).contains("written by others"), "{mode:o}");
    }
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).expect("own folder");
    open(&folder).expect("others may read");
}

#[test]
fn what_is_not_itself_a_folder_is_refused() {
    let (parent, folder) = missing_folder();
    fs::create_dir(&folder).expect("a folder");
    let link = parent.path().join("link");
    symlink(&folder, &link).expect("a link");
    assert!(refusal(&link).contains("not a folder"));
    let file = parent.path().join("file");
    fs::write(&file, "").expect("a file");
    refusal(&file);
}
