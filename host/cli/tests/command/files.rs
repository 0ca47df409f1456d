//! The permissions of the command's files under a umask of zero.

use std::fs;
use std::io::BufRead;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::support::{Server, annex, specialist};

const TOKEN: &str = "a-token-of-the-tests";

fn mode(path: &Path) -> Result<u32> {
    Ok(fs::metadata(path).with_context(|| path.display().to_string())?.permissions().mode() & 0o7777)
}

/// Starts a server with an admin API, and returns the URL of that API too.
fn start(config: &str) -> Result<(Server, String)> {
    let script = format!("umask 0; export TEST_ADMIN_TOKEN={TOKEN}; exec \"$@\"");
    let mut server = Server::start_in(&script, config)?;
    let mut line = String::new();
    server.stdout.read_line(&mut line)?;
    let admin = line.strip_prefix("Admin API   ").context("no admin API")?.trim().to_owned();
    Ok((server, admin))
}

fn extension(admin: &str, arguments: &[&str]) -> Result<String> {
    let mut command = annex(["extension", "--admin", admin].iter().chain(arguments));
    let output = command.env("ANNEX_ADMIN_TOKEN", TOKEN).output()?;
    ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
fn whatever_the_umask_what_is_run_is_nobody_elses_to_write() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let cache = folder.path().join("cache");
    let extensions = folder.path().join("extensions");
    let config = format!(
        "[runtime]\ncache_dir = {cache:?}\nextensions_dir = {extensions:?}\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         token_env = \"TEST_ADMIN_TOKEN\"\n{}",
        specialist()
    );
    let (server, admin) = start(&config)?;
    extension(&admin, &["add", annex_components::HELLO_EXTENSION, "--name", "hello"])?;
    assert_eq!((mode(&cache)?, mode(&extensions)?), (0o700, 0o755));
    assert_eq!(mode(&extensions.join("hello.wasm"))?, 0o644);
    let files = fs::read_dir(&cache)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    assert!(files.len() > 3, "a key and three components: {files:?}");
    for file in &files {
        assert_eq!(mode(file)?, 0o600, "{}", file.display());
    }
    // What was written under that umask is read at the next start.
    drop(server);
    let (_server, admin) = start(&config)?;
    assert!(extension(&admin, &["list"])?.contains("\"hello\""));
    Ok(())
}
