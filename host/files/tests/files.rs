//! Checks of the rule with real files and folders.

use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use annex_files::{Purpose, check_folder, create, create_folders, open, read, read_text, replace};
use tempfile::TempDir;

const ALL: [Purpose; 4] = [Purpose::Managed, Purpose::Named, Purpose::Secret, Purpose::Private];
/// The user id of `nobody` on most systems.
const NOBODY: u32 = 65_534;

fn file(mode: u32) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("file");
    fs::write(&path, "content").expect("a file");
    fs::set_permissions(&path, Permissions::from_mode(mode)).expect("own file");
    (folder, path)
}

fn refusal(path: &Path, purpose: Purpose) -> String {
    let error = open(path, purpose).expect_err("a refusal");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    error.to_string()
}

#[test]
fn a_file_of_ones_own_is_read() {
    let (_folder, path) = file(0o600);
    for purpose in ALL {
        assert_eq!(read_text(&path, purpose, 100).expect("it is read"), "content", "{purpose:?}");
    }
}

#[test]
fn a_file_that_others_can_write_is_refused_with_the_command_that_fixes_it() {
    let (_folder, path) = file(0o666);
    for purpose in ALL {
        let reason = refusal(&path, purpose);
        assert!(reason.contains("mode 0666") && reason.contains(&format!("{}`", path.display())), "{reason}");
    }
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("own file");
    open(&path, Purpose::Managed).expect("mended");
}

#[test]
fn a_file_of_another_user_is_refused() {
    let (_folder, path) = file(0o600);
    if chown(&path, Some(NOBODY), None).is_err() {
        // Only root can change the owner of a file. Other users test with a file of root instead.
        assert!(refusal(Path::new("/etc/passwd"), Purpose::Private).contains("another user"));
        return;
    }
    for purpose in ALL {
        assert!(refusal(&path, purpose).contains("another user (65534)"), "{purpose:?}");
    }
}

#[test]
fn a_link_is_checked_by_its_target() {
    let (folder, path) = file(0o600);
    let link = folder.path().join("link");
    symlink(&path, &link).expect("a link");
    open(&link, Purpose::Secret).expect("as Kubernetes mounts them");
    open(&link, Purpose::Private).expect_err("nobody has reason to put a link there");
    fs::set_permissions(&path, Permissions::from_mode(0o666)).expect("own file");
    refusal(&link, Purpose::Secret);
}

#[test]
fn pipes_and_other_special_files_are_refused_without_blocking() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).expect("a pipe");
    let socket = folder.path().join("socket");
    let _listener = UnixListener::bind(&socket).expect("a socket");
    for path in [pipe.as_path(), &socket, folder.path(), Path::new("/dev/zero")] {
        let error = open(path, Purpose::Named).expect_err("a refusal");
        assert_eq!(error.to_string(), "it is not a file", "{}", path.display());
    }
}

#[test]
fn a_file_is_read_up_to_a_limit() {
    let (_folder, path) = file(0o600);
    assert_eq!(read(&path, Purpose::Named, 7).expect("it fits"), b"content");
    assert_eq!(read(&path, Purpose::Named, 6).expect_err("too large").kind(), ErrorKind::FileTooLarge);
    fs::write(&path, [0xff]).expect("own file");
    assert_eq!(read_text(&path, Purpose::Named, 6).expect_err("no text").kind(), ErrorKind::InvalidData);
}

#[test]
fn the_file_that_was_checked_is_read_even_if_the_path_changes() {
    let (folder, path) = file(0o600);
    let mut judged = open(&path, Purpose::Managed).expect("own file");
    let other = folder.path().join("other");
    fs::write(&other, "another").expect("a file");
    fs::rename(&other, &path).expect("it takes the place");
    let mut text = String::new();
    File::read_to_string(&mut judged, &mut text).expect("it is read");
    assert_eq!(text, "content");
}

#[test]
fn a_folder_that_others_can_write_is_refused_even_if_sticky() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for mode in [0o777, 0o1777, 0o1770, 0o775] {
        fs::set_permissions(folder.path(), Permissions::from_mode(mode)).expect("own folder");
        for purpose in [Purpose::Managed, Purpose::Private] {
            let error = check_folder(folder.path(), purpose).expect_err("a refusal");
            assert!(error.to_string().contains("written by others"), "{mode:o}: {error}");
        }
    }
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("own folder");
    check_folder(folder.path(), Purpose::Managed).expect("others may read");
    check_folder(folder.path(), Purpose::Private).expect("with a remark");
}

#[test]
fn a_link_is_no_folder_of_ones_own() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let target = folder.path().join("target");
    let link = folder.path().join("link");
    fs::create_dir(&target).expect("a folder");
    symlink(&target, &link).expect("a link");
    check_folder(&link, Purpose::Managed).expect("it leads to a folder of one's own");
    check_folder(&link, Purpose::Private).expect_err("a refusal");
}

#[test]
fn a_file_that_is_replaced_is_for_its_user_alone_and_no_link_is_followed() {
    let (folder, path) = file(0o644);
    let other = folder.path().join("other");
    fs::write(&other, "untouched").expect("a file");
    symlink(&other, folder.path().join("file.new")).expect("a link");
    replace(&path, b"new", 0o600).expect("it is replaced");
    assert_eq!(fs::read_to_string(&path).expect("the file"), "new");
    assert_eq!(fs::read_to_string(&other).expect("the file"), "untouched");
    assert_eq!(fs::metadata(&path).expect("the file").permissions().mode() & 0o777, 0o600);
    assert!(!folder.path().join("file.new").exists());
}

#[test]
fn a_new_file_takes_the_place_of_a_file_or_a_link_only_on_demand() {
    let (folder, path) = file(0o644);
    assert_eq!(create(&path, 0o600, false).expect_err("it is there").kind(), ErrorKind::AlreadyExists);
    let link = folder.path().join("link");
    symlink(&path, &link).expect("a link");
    drop(create(&link, 0o600, true).expect("in the place of the link"));
    assert_eq!(fs::read_to_string(&path).expect("it stays"), "content");
    drop(create(&path, 0o600, true).expect("in the place of the file"));
    assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_to_string(&path).expect("a file"), "");
    assert_eq!(create(folder.path(), 0o600, true).expect_err("a folder").kind(), ErrorKind::AlreadyExists);
}

#[test]
fn folders_are_made_through_no_link_and_not_outside_of_their_base() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let base = folder.path().join("base");
    fs::create_dir(&base).expect("a folder");
    fs::create_dir(folder.path().join("outside")).expect("a folder");
    for _ in 0..2 {
        create_folders(&base, Path::new("./a/b")).expect("it is made, or there");
    }
    assert!(base.join("a/b").is_dir());
    symlink("../outside", base.join("link")).expect("a link");
    symlink("../../outside", base.join("a/link")).expect("a link");
    symlink("../nowhere", base.join("dangling")).expect("a link");
    for inner in ["link", "link/x", "a/link/x", "dangling", "dangling/x", "../x", "/x", "a/../../x"] {
        create_folders(&base, Path::new(inner)).expect_err(inner);
    }
    assert_eq!(fs::read_dir(folder.path().join("outside")).expect("a folder").count(), 0);
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2);
}

#[test]
fn a_byte_order_mark_is_removed_from_text() {
    let (_folder, path) = file(0o600);
    fs::write(&path, "\u{feff}a\u{feff}").expect("a file");
    assert_eq!(read_text(&path, Purpose::Named, 100).expect("it is read"), "a\u{feff}");
}
