use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use super::record::{Outcome, Record};
use super::{Audit, AuditError, VerifyError, verify_audit};

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    (folder, path)
}

fn record() -> Record {
    Record::new("reload", Outcome::Done)
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("a file");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn broken_line(path: &Path) -> Option<u64> {
    match verify_audit(fs::read(path).expect("a file").as_slice()) {
        Err(VerifyError::Broken { line, .. }) => Some(line),
        _ => None,
    }
}

fn append(path: &Path, text: &str) {
    OpenOptions::new().append(true).open(path).expect("a file").write_all(text.as_bytes()).expect("a write");
}

#[test]
fn the_chain_goes_on_after_a_restart_and_beside_another_process() {
    let (_folder, path) = folder();
    let first = Audit::open(path.clone()).expect("a file");
    let second = Audit::open(path.clone()).expect("a file");
    for audit in [&first, &second, &second, &first] {
        audit.append(&[record()]).expect("a line");
    }
    let verified = verify_audit(fs::read(&path).expect("a file").as_slice()).expect("a chain");
    assert_eq!((verified.lines, verified.last_number, verified.continues), (6, 6, None));
    let lines = lines(&path);
    assert_eq!((&lines[0]["action"], &lines[0]["prev"]), (&"start".into(), &Value::Null));
    assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
}

#[test]
fn each_missing_or_changed_line_of_an_audit_file_shows() {
    let (_folder, path) = folder();
    let audit = Audit::open(path.clone()).expect("a file");
    for _ in 0..4 {
        audit.append(&[record()]).expect("a line");
    }
    let whole = fs::read_to_string(&path).expect("a file");
    let lines: Vec<&str> = whole.lines().collect();
    for wrong in 1..4 {
        let without: Vec<&str> =
            lines.iter().enumerate().filter(|(at, _)| *at != wrong).map(|(_, line)| *line).collect();
        fs::write(&path, without.join("\n") + "\n").expect("a file");
        assert_eq!(broken_line(&path), Some(wrong as u64 + 1), "without line {wrong}");
        let changed = lines
            .iter()
            .enumerate()
            .map(|(at, line)| if at == wrong { line.replace("reload", "upload") } else { (*line).to_owned() });
        fs::write(&path, changed.collect::<Vec<_>>().join("\n") + "\n").expect("a file");
        assert_eq!(broken_line(&path), Some(wrong as u64 + 2), "with another line {wrong}");
    }
    fs::write(&path, whole.trim_end()).expect("a file");
    assert_eq!(broken_line(&path), Some(5), "the last line has no end");
    fs::write(&path, format!("{whole}{}", "x".repeat(1 << 20))).expect("a file");
    assert_eq!(broken_line(&path), Some(6), "a line without end");
}

#[test]
fn a_file_that_was_cut_or_changed_begins_a_new_chain_that_says_so() {
    type Change = fn(&Path);
    let changes: [(&str, Change); 4] = [
        ("cut in a line", |path| {
            let text = fs::read(path).expect("a file");
            fs::write(path, &text[..text.len() - 7]).expect("a file");
        }),
        ("another last line", |path| append(path, "{\"number\":9,\"time\":\"\",\"action\":\"x\",\"prev\":null}\n")),
        ("no JSON", |path| append(path, "hello\n")),
        ("a long line", |path| append(path, &("x".repeat(1 << 20) + "\n"))),
    ];
    for (what, change) in changes {
        for is_restarted in [true, false] {
            let (_folder, path) = folder();
            let before = Audit::open(path.clone()).expect("a file");
            before.append(&[record()]).expect("a line");
            change(&path);
            let audit = if is_restarted { Audit::open(path.clone()).expect("a file") } else { before };
            audit.append(&[record()]).expect("a line");
            let text = fs::read_to_string(&path).expect("a file");
            let parsed = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let new: Vec<Value> = parsed.filter(|line| line["action"] == "new_chain").collect();
            assert_eq!(new.len(), 1, "{what}, {is_restarted}: {text}");
            assert!(new[0]["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{what}: {new:?}");
            assert!(broken_line(&path).is_some(), "{what}: {text}");
        }
    }
}

#[test]
fn lines_that_were_cut_off_while_the_server_runs_show() {
    let (_folder, path) = folder();
    let audit = Audit::open(path.clone()).expect("a file");
    let start = fs::read(&path).expect("a file");
    audit.append(&[record()]).expect("a line");
    fs::write(&path, start).expect("a file");
    audit.append(&[record()]).expect("a line");
    assert_eq!(lines(&path)[1]["action"], "new_chain");
    assert_eq!(broken_line(&path), Some(2));
}

#[test]
fn a_file_that_was_moved_away_is_continued_by_a_new_one() {
    let (folder, path) = folder();
    let audit = Audit::open(path.clone()).expect("a file");
    let old = folder.path().join("old.jsonl");
    fs::rename(&path, &old).expect("a move");
    audit.append(&[record()]).expect("a line");
    let verify = |path| verify_audit(fs::read(path).expect("a file").as_slice()).expect("a chain");
    let (old, new) = (verify(&old), verify(&path));
    assert_eq!((new.lines, new.last_number, new.continues), (1, 2, Some(old.last_digest)));
}

#[test]
fn a_file_that_others_can_read_a_link_and_a_missing_folder_are_refused() {
    let (folder, path) = folder();
    fs::write(&path, "").expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("a mode");
    let link = folder.path().join("link");
    symlink("elsewhere", &link).expect("a link");
    for refused in [path, link, folder.path().join("none/audit.jsonl"), folder.path().to_owned()] {
        let error = Audit::open(refused.clone()).expect_err("a refusal");
        assert!(matches!(error, AuditError::Open { .. }), "{refused:?}: {error:?}");
    }
    assert!(!folder.path().join("elsewhere").exists());
}
