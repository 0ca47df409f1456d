//! Output of the command on a terminal: broken lines and colours.

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use annex_test_support::TestRegistry;
use anyhow::{Context, Result};

use crate::support::{ConfigFile, Server, annex, run, specialist, template_agent};

const COLUMNS: usize = 80;

/// The output of the command on a terminal of 80 columns, without colours. The program `script` of Debian's essential
/// packages provides the terminal.
fn on_a_terminal(arguments: &str) -> Result<String> {
    typed_on_a_terminal(arguments, "")
}

/// Like [`on_a_terminal`], for a command that reads `input`.
fn typed_on_a_terminal(arguments: &str, input: &str) -> Result<String> {
    let command = format!("stty rows 24 cols {COLUMNS}; {} {arguments}", env!("CARGO_BIN_EXE_annex"));
    let mut script = Command::new("script");
    script.args(["-qec", &command, "/dev/null"]).env("TERM", "xterm").env("NO_COLOR", "1");
    script.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    script.env("DOCKER_CONFIG", concat!(env!("CARGO_TARGET_TMPDIR"), "/no-docker")).env_remove("REGISTRY_AUTH_FILE");
    let mut process = script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    // A command that ends early reads no input.
    let _ = process.stdin.take().context("no standard input")?.write_all(input.as_bytes());
    Ok(String::from_utf8(process.wait_with_output()?.stdout)?.replace("\r\n", "\n"))
}

/// Asserts that each line fits the terminal. A line with a name and one word that cannot be broken may be longer.
#[track_caller]
fn check_lines(shown: &str) {
    for line in shown.lines() {
        let fits = line.chars().count() <= COLUMNS || line.split_whitespace().count() <= 2;
        assert!(fits, "{line}\nof {shown}");
    }
}

/// The line that begins with `begin`, joined with the lines below that are indented by `indent` columns.
fn whole(shown: &str, begin: &str, indent: usize) -> Result<String> {
    let mut lines = shown.lines().skip_while(|line| !line.starts_with(begin));
    let mut whole = lines.next().with_context(|| format!("{begin} in {shown}"))?.to_owned();
    let indent = " ".repeat(indent);
    for rest in lines.map_while(|line| line.strip_prefix(&indent)) {
        assert!(!rest.starts_with(' '), "{shown}");
        whole.push(' ');
        whole.push_str(rest);
    }
    Ok(whole)
}

#[test]
fn a_signal_at_the_prompt_for_a_password_leaves_the_echo_of_the_terminal_on() -> Result<()> {
    let annex = env!("CARGO_BIN_EXE_annex");
    for signal in ["-TERM", "-INT", "-HUP", "-QUIT"] {
        // `sh` becomes the command, which then has the printed process id. `script` turns the echo off for a pipe.
        let command = format!("stty echo; sh -c 'echo pid=$$; exec {annex} login 127.0.0.1:1 --user ada'; stty -a");
        let mut script = Command::new("script");
        script.args(["-qec", &command, "/dev/null"]).env("TERM", "xterm").env("NO_COLOR", "1");
        let mut process = script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        // At the end of the input the prompt would end by itself.
        let stdin = process.stdin.take().context("no standard input")?;
        let mut stdout = process.stdout.take().context("no standard output")?;
        let (mut shown, mut byte) = (Vec::new(), [0]);
        while !shown.ends_with(b"Password of ada at 127.0.0.1:1: ") {
            stdout.read_exact(&mut byte).with_context(|| String::from_utf8_lossy(&shown).into_owned())?;
            shown.extend(byte);
        }
        let before = String::from_utf8(shown)?;
        let pid = before.split_once("pid=").and_then(|(_, rest)| rest.lines().next()).context("no process id")?;
        assert!(Command::new("kill").args([signal, pid.trim()]).status()?.success());
        let mut after = String::new();
        stdout.read_to_string(&mut after)?;
        drop(stdin);
        process.wait()?;
        assert!(after.contains("a signal has ended the log-in"), "{signal}: {after}");
        let settings = after.split_ascii_whitespace().collect::<Vec<_>>();
        assert!(settings.contains(&"echo") && !settings.contains(&"-echo"), "{signal}: {after}");
    }
    Ok(())
}

#[test]
fn rows_of_a_doctor_go_on_below_their_text() -> Result<()> {
    let config = ConfigFile::new(&specialist())?;
    let path = config.path.display();
    let plain = run(["doctor".as_ref(), config.path.as_os_str()])?.out;
    let shown = on_a_terminal(&format!("doctor {path}"))?;
    check_lines(&shown);
    for begin in ["warning  tasks ", "ok       engine "] {
        let row = plain.lines().find(|line| line.starts_with(begin)).with_context(|| plain.clone())?;
        assert_eq!(whole(&shown, begin, 22)?, row);
    }
    assert!(shown.lines().count() > plain.lines().count(), "{shown}");
    Ok(())
}

#[test]
fn errors_and_their_lists_go_on_below_their_text() -> Result<()> {
    let config = ConfigFile::new(&specialist().replace("[server]\n", "[server]\nmax_streams = 0\nbody_secnds = 1\n"))?;
    let path = config.path.display();
    let plain = run(["check".as_ref(), config.path.as_os_str()])?.err;
    let shown = on_a_terminal(&format!("check {path}"))?;
    check_lines(&shown);
    let begin = format!("  {path}:7:1:");
    let row = plain.lines().find(|line| line.starts_with(&begin)).with_context(|| plain.clone())?;
    assert_eq!(whole(&shown, &begin, 4)?, row);
    assert!(row.len() > COLUMNS, "{row}");
    Ok(())
}

#[test]
fn an_inspection_fits_a_terminal_and_its_block_for_the_config_stays_as_it_is() -> Result<()> {
    let plain = run(["inspect", "strict-parts"])?.out;
    let shown = on_a_terminal("inspect strict-parts 2>/dev/null")?;
    check_lines(&shown);
    let block = |text: &str| text.split_once("For the config:").map(|(_, block)| block.to_owned());
    assert_eq!(block(&shown), block(&plain));
    assert!(plain.lines().any(|line| line.len() > COLUMNS), "{plain}");
    Ok(())
}

#[test]
fn a_card_fits_a_terminal() -> Result<()> {
    let server = Server::start(&specialist())?;
    let plain = run(["card", &server.url])?.out;
    let shown = on_a_terminal(&format!("card {}", server.url))?;
    check_lines(&shown);
    assert!(plain.lines().any(|line| line.len() > COLUMNS), "{plain}");
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&shown), words(&plain));
    Ok(())
}

#[test]
fn lines_of_help_texts_fit_a_terminal_without_being_broken_in_examples() -> Result<()> {
    for command in ["", "check", "doctor", "tenant", "send", "extension", "session", "new", "record"] {
        let shown = on_a_terminal(&format!("{command} --help"))?;
        check_lines(&shown);
        let wide = run([command, "--help"].iter().filter(|word| !word.is_empty()))?.out;
        let (_, examples) = wide.split_once("Example").unwrap_or_default();
        for example in examples.lines().filter(|line| line.starts_with("  ")) {
            assert!(shown.lines().any(|line| line == example), "{command}: {example}\n{shown}");
        }
    }
    Ok(())
}

#[test]
fn rows_of_a_doctor_are_coloured_where_colours_are_wanted() -> Result<()> {
    let config = ConfigFile::new(&specialist())?;
    let doctor = |options: &[&str]| {
        let mut command = annex(["doctor".as_ref(), config.path.as_os_str()]);
        let output = command.args(options).env_remove("NO_COLOR").output()?;
        anyhow::Ok(String::from_utf8(output.stdout)?)
    };
    let coloured = doctor(&["--color", "always"])?;
    for row in ["\x1b[32mok\x1b[0m       engine ", "\x1b[1;33mwarning\x1b[0m  tasks "] {
        assert!(coloured.contains(row), "{coloured}");
    }
    assert!(!doctor(&[])?.contains('\x1b') && !doctor(&["--color=never"])?.contains('\x1b'));
    assert!(!on_a_terminal(&format!("doctor {}", config.path.display()))?.contains('\x1b'), "NO_COLOR is set");
    fs::write(&config.path, "unknown = 1")?;
    assert!(doctor(&["--color=always"])?.contains("\x1b[1;31merror\x1b[0m    config "));
    Ok(())
}

#[test]
fn a_bar_shows_a_transfer_on_a_terminal_alone() -> Result<()> {
    let registry = TestRegistry::start();
    let reference = registry.reference("acme/clock:1.2");
    let shown = on_a_terminal(&format!("push timestamp {reference}"))?;
    assert!(shown.contains("pushing [") && shown.contains("left"), "{shown}");
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("clock.wasm");
    let shown = on_a_terminal(&format!("pull {reference} -o {}", file.display()))?;
    assert!(shown.contains("pulling [") && file.exists(), "{shown}");
    let plain = run(["inspect", &reference])?;
    assert!(plain.code == Some(0) && !plain.err.contains("pulling"), "{}", plain.err);
    Ok(())
}

#[test]
fn a_person_is_asked_before_a_component_is_added() -> Result<()> {
    let registry = TestRegistry::start();
    let reference = registry.reference("acme/clock:1.2");
    assert_eq!(run(["push", "timestamp", &reference])?.code, Some(0));
    let config = ConfigFile::new(&template_agent("Answer.", "[trust]\ndefault = \"allow\"\n"))?;
    let before = fs::read_to_string(&config.path)?;
    let add = format!("add {reference} --config {}", config.path.display());
    let shown = typed_on_a_terminal(&add, "n\n")?;
    assert!(shown.contains("Add it with these grants? [y/N]") && shown.contains("nothing was added"), "{shown}");
    assert_eq!(fs::read_to_string(&config.path)?, before);
    let shown = typed_on_a_terminal(&add, "y\n")?;
    assert!(shown.contains("grants      clock") && shown.contains("Added oci://"), "{shown}");
    assert_ne!(fs::read_to_string(&config.path)?, before);
    Ok(())
}
