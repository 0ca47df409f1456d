//! `annex audit`, on the file of a server.

use std::ffi::OsStr;
use std::fs;
use std::io::BufRead;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::support::{Run, Server, annex, run, template_agent};

const TOKEN: &str = "a-token-of-the-tests";

fn verify(file: &Path) -> Result<Run> {
    run([OsStr::new("audit"), OsStr::new("verify"), file.as_os_str()])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_audit_file_of_a_server_is_checked_and_a_broken_line_is_named() -> Result<()> {
    let more = "[admin]\nlisten = \"127.0.0.1:0\"\ntoken_env = \"TEST_ADMIN_TOKEN\"\naudit_file = \"audit.jsonl\"\n";
    let mut server = Server::start_with(&template_agent("hi", more), &[("TEST_ADMIN_TOKEN", TOKEN)])?;
    let mut line = String::new();
    server.stdout.read_line(&mut line)?;
    let admin = line.strip_prefix("Admin API   ").context("no admin API")?.trim().to_owned();
    let mut reload = annex(["extension", "reload", "--admin", admin.as_str()]);
    let output = reload.env("ANNEX_ADMIN_TOKEN", TOKEN).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let file = server.config.path.with_file_name("audit.jsonl");

    let whole = verify(&file)?;
    ensure!(whole.code == Some(0), "{}", whole.err);
    assert!(
        whole.out.contains("3 lines are one chain") && whole.out.contains("number 3 with the digest sha256:"),
        "{}",
        whole.out
    );
    let json = run([OsStr::new("audit"), OsStr::new("verify"), OsStr::new("--json"), file.as_os_str()])?;
    let json: Value = serde_json::from_str(&json.out)?;
    let digest = json["lastDigest"].as_str().context("a digest")?;
    assert!(json["lines"] == 3 && whole.out.contains(digest), "{json}");

    let text = fs::read_to_string(&file)?;
    fs::write(&file, text.replacen("\"begun\"", "\"done\"", 1))?;
    let changed = verify(&file)?;
    assert_eq!(changed.code, Some(3), "{}", changed.err);
    assert!(changed.err.contains("line 3: a line does not have the digest of the line before it"), "{}", changed.err);
    fs::write(&file, "")?;
    let empty = verify(&file)?;
    assert!(empty.code == Some(3) && empty.err.contains("the file is empty"), "{}", empty.err);
    let missing = verify(&file.with_file_name("none"))?;
    assert!(missing.code == Some(1) && missing.err.contains("cannot read"), "{}", missing.err);
    Ok(())
}
