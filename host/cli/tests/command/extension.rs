//! `annex extension` against a server, and SIGHUP.

use std::fs;
use std::io::BufRead;
use std::path::Path;
use std::time::{Duration, Instant};

use annex_test_support::TestRegistry;
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::registry::{check, new_key, push};
use crate::support::{Run, STATE, STATE_URI, Server, annex, run, specialist};

const TOKEN: &str = "a-token-of-the-tests";
const HELLO: &str = annex_components::HELLO_EXTENSION;

/// A server with an admin API and a managed folder.
struct ManagedServer {
    server: Server,
    admin: String,
}

impl ManagedServer {
    fn start() -> Result<Self> {
        let admin = "[runtime]\nextensions_dir = \"extensions\"\n[admin]\nlisten = \"127.0.0.1:0\"\ntoken_env = \"TEST_ADMIN_TOKEN\"";
        let config = format!("{admin}\n{}", specialist());
        let mut server = Server::start_with(&config, &[("TEST_ADMIN_TOKEN", TOKEN)])?;
        let mut line = String::new();
        server.stdout.read_line(&mut line)?;
        let admin = line.strip_prefix("Admin API   ").context("no admin API")?.trim().to_owned();
        line.clear();
        server.stdout.read_line(&mut line)?;
        ensure!(line == format!("Console     {admin}/\n"), "{line}");
        Ok(Self { server, admin })
    }

    fn extension(&self, arguments: &[&str]) -> Result<Run> {
        let mut command = annex(["extension", "--admin", &self.admin].iter().chain(arguments));
        let output = command.env("ANNEX_ADMIN_TOKEN", TOKEN).output()?;
        let out = String::from_utf8(output.stdout)?;
        let err = String::from_utf8(output.stderr)?;
        Ok(Run { code: output.status.code(), out, err })
    }

    fn session(&self, arguments: &[&str]) -> Result<Run> {
        let mut command = annex(["session", "--admin", &self.admin].iter().chain(arguments));
        let output = command.env("ANNEX_ADMIN_TOKEN", TOKEN).output()?;
        let out = String::from_utf8(output.stdout)?;
        let err = String::from_utf8(output.stderr)?;
        Ok(Run { code: output.status.code(), out, err })
    }

    fn json(&self, arguments: &[&str]) -> Result<Value> {
        let run = self.extension(&[arguments, &["--json"]].concat())?;
        ensure!(run.code == Some(0), "{arguments:?}: {}", run.err);
        Ok(serde_json::from_str(&run.out)?)
    }
}

#[test]
fn a_component_of_a_registry_is_added_if_its_keys_have_signed_it() -> Result<()> {
    let managed = ManagedServer::start()?;
    let registry = TestRegistry::start();
    let reference = push("secure-passport", &registry.reference("acme/passport:1"))?;
    let folder = tempfile::tempdir()?;
    let (acme, other) = (new_key(folder.path(), "acme")?, new_key(folder.path(), "other")?);
    let public = |key: &Path| key.with_extension("pub").to_string_lossy().into_owned();
    check(&run(["sign", &reference, "--key", &acme.to_string_lossy()])?, 0, &[]);
    check(&managed.extension(&["add", &reference])?, 2, &["who must have signed"]);
    check(&managed.extension(&["add", &reference, "--key", &public(&other)])?, 3, &["other.pub"]);
    check(&managed.extension(&["add", HELLO, "--key", &public(&acme)])?, 2, &["--key is for components of registries"]);
    check(
        &managed.extension(&["add", &reference, "--key", &public(&acme)])?,
        0,
        &["is signed by", "installed: version"],
    );
    assert_eq!(managed.json(&["list"])?["extensions"][2]["source"]["name"], "passport");
    Ok(())
}

#[test]
fn a_reference_is_added_without_a_pull_only_if_the_server_has_it_locked() -> Result<()> {
    let managed = ManagedServer::start()?;
    let reference = "oci://registry.invalid/acme/passport:1";
    check(&managed.extension(&["add", reference, "--locked"])?, 3, &["is not in annex.lock; run: annex lock CONFIG"]);
    check(&managed.extension(&["add", reference, "--locked", "--key", "acme.pub"])?, 2, &["leave out --key"]);
    check(&managed.extension(&["add", HELLO, "--locked"])?, 2, &["--locked is for components of registries"]);
    Ok(())
}

#[test]
fn an_extension_is_added_replaced_rolled_back_and_removed_by_command() -> Result<()> {
    let managed = ManagedServer::start()?;
    let added = managed.extension(&["add", HELLO])?;
    assert_eq!(added.code, Some(0), "{}", added.err);
    assert!(added.out.contains("installed: version"), "{}", added.out);
    let list = managed.json(&["list"])?;
    let uri = list["extensions"][2]["uri"].as_str().context("a third extension")?;
    assert!(managed.extension(&["list"])?.out.contains(uri));

    let settings = tempfile::NamedTempFile::new()?;
    fs::write(settings.path(), "required = true\n")?;
    let settings = settings.path().to_str().context("a path")?;
    let required = managed.json(&["add", HELLO, "--settings", settings])?;
    assert_eq!((&required["required"], &required["source"]["name"]), (&true.into(), &"hello-extension".into()));
    let shown = managed.extension(&["show", uri])?;
    assert!(shown.out.contains("(required)") && shown.out.contains("Kept        number"), "{}", shown.out);

    let back = managed.extension(&["rollback", uri])?;
    assert!(back.out.contains("back in force") && back.out.contains("until the restart"), "{}", back.out);
    assert_eq!(managed.extension(&["log", uri])?.code, Some(0));
    let removed = managed.extension(&["remove", uri])?;
    assert!(removed.out.contains("removed, edition"), "{}", removed.out);
    let gone = managed.extension(&["show", uri])?;
    assert_eq!((gone.code, gone.out.as_str()), (Some(3), ""));
    assert!(gone.err.contains("is installed; name it by its URI or its digest"), "{}", gone.err);
    let bare = managed.extension(&["add", "timestamp"])?;
    assert!(bare.err.contains("cannot read the component timestamp; name its file"), "{}", bare.err);
    assert!(managed.extension(&["reload"])?.out.contains("nothing has changed"));
    Ok(())
}

#[test]
fn calls_and_the_last_failure_of_an_extension_are_shown() -> Result<()> {
    let managed = ManagedServer::start()?;
    let settings = tempfile::NamedTempFile::new()?;
    fs::write(settings.path(), "[parameters.behaviour]\nvalidate = \"trap\"\n")?;
    let settings = settings.path().to_str().context("a path")?;
    let added = managed.json(&["add", annex_components::TEST_EXTENSION, "--settings", settings])?;
    let uri = added["uri"].as_str().context("a URI")?;
    let sent =
        run(["send", &managed.server.url, "hi", "--state", STATE, "--extension", STATE_URI, "--extension", uri])?;
    assert_ne!(sent.code, Some(0), "{}", sent.out);
    let shown = managed.extension(&["show", uri])?;
    for expected in [
        "hook calls: 3, refused: 0, failed: 1\n",
        "in state (trap): extension ",
        "Calls       activation: 1, refused 0, failed 0, mean ",
        "Calls       response: 0, refused 0, failed 0\n",
        "\n[extension.limits]\nmemory_mib = 16\n",
    ] {
        assert!(shown.out.contains(expected), "{expected}: {}", shown.out);
    }
    assert!(managed.extension(&["list"])?.out.contains("(trap)"));
    Ok(())
}

#[test]
fn a_new_version_follows_turns_beside_the_one_in_force_until_it_is_promoted_or_dropped() -> Result<()> {
    let managed = ManagedServer::start()?;
    let settings = tempfile::NamedTempFile::new()?;
    fs::write(settings.path(), "")?;
    let added = managed.json(&["add", annex_components::TEST_EXTENSION, "--name", "tried"])?;
    let uri = added["uri"].as_str().context("a URI")?;
    fs::write(settings.path(), "[parameters.behaviour]\nrespond = \"none\"\n")?;
    let settings = settings.path().to_str().context("a path")?;
    let beside = ["add", annex_components::TEST_EXTENSION, "--shadow", uri, "--settings", settings, "--share", "50"];
    let began = managed.extension(&beside)?;
    assert!(began.code == Some(0) && began.out.contains("follows 50 of 100 turns"), "{}{}", began.out, began.err);
    for _ in 0..2 {
        let extensions = ["--extension", STATE_URI, "--extension", uri];
        let sent = run(["send", &managed.server.url, "hi", "--state", STATE].into_iter().chain(extensions))?;
        assert_eq!(sent.code, Some(0), "{}", sent.err);
    }
    let started = Instant::now();
    let shown = loop {
        let shown = managed.extension(&["show", uri])?;
        if shown.out.contains("0 of 1 turns agreed") {
            break shown;
        }
        ensure!(started.elapsed() < Duration::from_secs(30), "the turn was not compared: {}", shown.out);
    };
    for expected in ["Shadow      ", "metadata differs in 1\n", "Costs       response: ", "            + {}\n"] {
        assert!(shown.out.contains(expected), "{expected}: {}", shown.out);
    }
    let dropped = managed.extension(&["drop", uri])?;
    assert!(dropped.out.starts_with("Dropped:\nShadow      "), "{}", dropped.out);
    let none = managed.extension(&["promote", uri])?;
    assert!(none.code == Some(3) && none.err.contains("has no shadow"), "{}", none.err);
    assert_eq!(managed.extension(&beside)?.code, Some(0));
    let promoted = managed.extension(&["promote", uri])?;
    assert!(promoted.out.contains("promoted: version"), "{}{}", promoted.out, promoted.err);
    let wrong = managed.extension(&["add", annex_components::TEST_EXTENSION, "--share", "10"])?;
    assert!(wrong.code == Some(2) && wrong.err.contains("--shadow"), "{}", wrong.err);
    Ok(())
}

#[test]
fn what_the_admin_api_refuses_is_said_with_its_reason() -> Result<()> {
    let managed = ManagedServer::start()?;
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let refused = managed.extension(&["add", manifest, "--name", "x"])?;
    assert_eq!(refused.code, Some(3));
    assert!(refused.err.contains("not a WebAssembly component"), "{}", refused.err);
    let stranger =
        annex(["extension", "list", "--admin", &managed.admin]).env("ANNEX_ADMIN_TOKEN", "wrong").output()?;
    assert!(String::from_utf8(stranger.stderr)?.contains("admin token"));
    let without = run(["extension", "list", "--admin", &managed.admin])?;
    assert_eq!(without.code, Some(2));
    assert!(without.err.contains("--token-file") && without.err.contains("ANNEX_ADMIN_TOKEN"), "{}", without.err);
    let nobody =
        annex(["extension", "list", "--admin", "http://127.0.0.1:1"]).env("ANNEX_ADMIN_TOKEN", TOKEN).output()?;
    assert_eq!(nobody.status.code(), Some(4));
    assert!(String::from_utf8(nobody.stderr)?.contains("[admin]"));
    Ok(())
}

#[test]
fn sighup_applies_a_sound_config_and_survives_a_broken_one() -> Result<()> {
    let managed = ManagedServer::start()?;
    let config = &managed.server.config.path;
    let process = Pid::from_child(&managed.server.process);
    let sound = fs::read_to_string(config)?;
    fs::write(config, sound.replace("[[extension]]", "[[extnsion]]"))?;
    kill_process(process, Signal::HUP)?;
    let failed = |list: &Value| list["failures"][0]["source"] == "config";
    let mut list = managed.json(&["list"])?;
    while !failed(&list) {
        list = managed.json(&["list"])?;
    }
    assert_eq!((list["extensions"].as_array().map(Vec::len), &list["edition"]), (Some(2), &1.into()));

    fs::write(config, sound.replace("required = true", "required = false"))?;
    kill_process(process, Signal::HUP)?;
    while list["edition"] == 1 {
        list = managed.json(&["list"])?;
    }
    assert_eq!((&list["extensions"][0]["required"], failed(&list)), (&false.into(), false), "{list}");
    Ok(())
}

#[test]
fn sessions_are_listed_shown_and_deleted_by_command() -> Result<()> {
    let managed = ManagedServer::start()?;
    assert_eq!(managed.session(&["list"])?.out, "no sessions\n");
    let url = &managed.server.url;
    let sent = run(["send", url, "Who am I?", "--context", "c", "--extension", STATE_URI, "--state", STATE])?;
    assert_eq!(sent.code, Some(0), "{}", sent.err);
    let list = managed.session(&["list"])?.out;
    assert!(list.starts_with("c\n  user A2A_USER_c, revision 2,") && list.contains("user_info"), "{list}");
    let shown = managed.session(&["show", "c"])?.out;
    assert!(shown.contains("Context   c\n") && shown.contains("\"name\": \"Ada\""), "{shown}");
    let events = managed.session(&["events", "c", "--last", "1"])?.out;
    assert!(!events.contains("Who am I?") && events.contains("(task "), "{events}");
    let none = managed.session(&["show", "c", "--user", "principal:ada"])?;
    assert!(none.code == Some(3) && none.err.contains("\"principal:ada\" has no session \"c\""), "{}", none.err);
    let none = managed.session(&["show", "nix"])?;
    let hint = "there is no session \"nix\"; `annex session list` shows those";
    assert!(none.code == Some(3) && none.err.contains(hint), "{}", none.err);
    assert_eq!(managed.session(&["delete", "c"])?.out, "c of A2A_USER_c is deleted\n");
    assert_eq!(managed.session(&["list", "--json"])?.out, "{\"sessions\":[]}\n");
    Ok(())
}
