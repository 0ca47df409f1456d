//! The program itself: its version, completions and man pages, colours and exit codes.

use std::fs;
use std::path::Path;
use std::process::Command;

use annex_components::HELLO_EXTENSION;
use anyhow::Result;

use crate::support::{Server, annex, run};

/// A URL on which no server listens.
const NOWHERE: &str = "http://127.0.0.1:1";

#[test]
fn the_version_names_the_engine_and_in_a_clone_the_commit() -> Result<()> {
    let version = run(["--version"])?.out;
    assert!(version.starts_with(&format!("annex {} (", env!("CARGO_PKG_VERSION"))), "{version}");
    assert!(version.contains("wasmtime 48."), "{version}");
    let is_clone = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.git").exists();
    assert_eq!(version.contains("(commit "), is_clone, "{version}");
    Ok(())
}

#[test]
fn completions_know_the_commands_of_commands() -> Result<()> {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let made = run(["completions", shell])?;
        assert_eq!(made.code, Some(0), "{shell}: {}", made.err);
        assert!(made.out.contains("rollback") && made.out.contains("token-file"), "{shell}: {}", made.out);
    }
    let other = run(["completions", "csh"])?;
    assert!(other.code == Some(2) && other.err.contains("fish"), "{}", other.err);
    Ok(())
}

#[test]
fn each_command_has_a_manual_page() -> Result<()> {
    let page = run(["man"])?;
    assert!(page.code == Some(0) && page.out.contains(".TH annex 1"), "{}{}", page.out, page.err);
    let folder = tempfile::tempdir()?;
    let pages = folder.path().join("share/man1");
    let made = run(["man".as_ref(), pages.as_os_str()])?;
    assert_eq!(made.code, Some(0), "{}", made.err);
    for name in ["annex.1", "annex-serve.1", "annex-tenant-add.1"] {
        assert!(fs::read_to_string(pages.join(name))?.contains(".SH SYNOPSIS"), "{name}");
    }
    Ok(())
}

/// The output of `annex card` on a terminal, for a URL on which no server listens. The program `script` of Debian's
/// essential packages provides the terminal.
fn on_a_terminal(arguments: &str, variable: Option<(&str, &str)>) -> Result<String> {
    let command = format!("{} card {NOWHERE} {arguments}", env!("CARGO_BIN_EXE_annex"));
    let mut script = Command::new("script");
    script.args(["-qec", &command, "/dev/null"]).env("TERM", "xterm").env_remove("NO_COLOR").envs(variable);
    Ok(String::from_utf8(script.output()?.stdout)?)
}

#[test]
fn errors_are_red_on_a_terminal_and_plain_elsewhere() -> Result<()> {
    const RED: &str = "\x1b[1;31merror:\x1b[0m cannot connect";
    let plain = run(["card", NOWHERE])?;
    assert!(plain.err.starts_with("error: cannot connect"), "{}", plain.err);
    assert!(run(["card", NOWHERE, "--color", "always"])?.err.starts_with(RED));
    assert!(run(["card", NOWHERE, "--color=never"])?.err.starts_with("error: "));
    let shown = on_a_terminal("", None)?;
    assert!(shown.contains(RED), "{shown}");
    for (arguments, variable) in [("--color never", None), ("", Some(("NO_COLOR", "1"))), ("", Some(("TERM", "dumb")))]
    {
        let shown = on_a_terminal(arguments, variable)?;
        assert!(shown.contains("error: cannot connect") && !shown.contains('\x1b'), "{arguments}: {shown:?}");
    }
    Ok(())
}

#[test]
fn usage_and_help_follow_the_same_choice_of_colours() -> Result<()> {
    assert!(run(["send", "--color", "always"])?.err.contains('\x1b'));
    assert!(!run(["send", "--color", "never"])?.err.contains('\x1b'));
    let wrong = run(["send", "--color", "sometimes"])?;
    assert!(wrong.code == Some(2) && wrong.err.contains("always"), "{}", wrong.err);
    Ok(())
}

#[test]
fn the_exit_code_says_what_kind_of_failure_it_was() -> Result<()> {
    let check = |arguments: &[&str], code: i32| -> Result<()> {
        let ended = run(arguments)?;
        assert_eq!(ended.code, Some(code), "{arguments:?}: {}", ended.err);
        Ok(())
    };
    check(&["card", "no-url"], 2)?;
    check(&["card", NOWHERE], 4)?;
    check(&["send", NOWHERE, "hi"], 4)?;
    check(&["inspect", "nowhere"], 1)?;
    check(&["inspect", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")], 3)?;
    let listing = annex(["extension", "list", "--admin", NOWHERE]).env("ANNEX_ADMIN_TOKEN", "t").output()?;
    assert_eq!(listing.status.code(), Some(4));
    for (url, code) in [(NOWHERE, 4), ("nowhere", 2)] {
        let mut command = annex(["extension", "list"]);
        let listing = command.env("ANNEX_ADMIN_URL", url).env("ANNEX_ADMIN_TOKEN", "t").output()?;
        assert_eq!(listing.status.code(), Some(code), "{url}");
        let told = String::from_utf8(listing.stderr)?;
        assert!(told.contains(if code == 4 { url } else { "ANNEX_ADMIN_URL is not a URL" }), "{told}");
    }
    check(&["send", NOWHERE, "hi", "--state", "{bad"], 2)?;
    check(&["proxy", NOWHERE, "--with", "timestmp"], 2)?;
    check(&["proxy", NOWHERE, "--with", "timestamp=required"], 2)?;
    let help = run(["--help"])?.out;
    for line in ["2  wrong usage", "3  refused", "4  not reachable", "5  different"] {
        assert!(help.contains(line), "{line}: {help}");
    }
    Ok(())
}

#[test]
fn a_server_finds_in_the_cache_what_a_build_has_compiled() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let cache = folder.path().join("cache");
    let manifest = format!(
        "name = \"tried\"\nversion = \"0.1.0\"\n[build]\ncommand = [\"cp\", {HELLO_EXTENSION:?}, \"out.wasm\"]\noutput = \"out.wasm\"\n"
    );
    fs::write(folder.path().join("annex-extension.toml"), manifest)?;
    let built = annex(["build"]).current_dir(folder.path()).env("XDG_CACHE_HOME", &cache).output()?;
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let config = "[server]\nlisten = \"127.0.0.1:0\"\n[card]\nname = \"a\"\ndescription = \"a\"\n[agent]\nkind = \"script\"\nname = \"a\"\n[[agent.rule]]\nsteps = [{ status = { state = \"completed\" } }]\n[[extension]]\ncomponent = \"./tried.wasm\"\n";
    let mut server = Server::start_with(
        &config.replace("./tried.wasm", &folder.path().join("tried.wasm").to_string_lossy()),
        &[("XDG_CACHE_HOME", &cache.to_string_lossy())],
    )?;
    let log = server.kill_for_log()?;
    assert!(!log.contains("compiling"), "{log}");
    Ok(())
}
