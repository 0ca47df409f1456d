//! Help texts and wrong usage.

use anyhow::Result;

use crate::support::run;

#[test]
fn each_help_text_shows_an_example() -> Result<()> {
    let commands = [
        "serve",
        "proxy",
        "init",
        "check",
        "doctor",
        "health",
        "send",
        "chat",
        "card",
        "inspect",
        "extension",
        "tenant",
        "component",
        "replica",
        "receipt",
        "audit",
        "push",
        "pull",
        "sign",
        "verify",
        "login",
        "add",
        "lock",
        "outdated",
        "save",
        "load",
        "new",
        "wit",
        "build",
        "record",
        "replay",
        "completions",
        "man",
    ];
    for command in commands {
        let run = run([command, "--help"])?;
        assert_eq!(run.code, Some(0));
        assert!(run.out.lines().any(|line| line.starts_with(&format!("  annex {command}"))), "{}", run.out);
    }
    Ok(())
}

#[test]
fn an_option_is_listed_only_where_it_is_taken() -> Result<()> {
    let commands: [(&[&str], bool); 6] = [
        (&["extension", "list"], true),
        (&["session", "list"], true),
        (&["record"], true),
        (&["tenant", "list"], false),
        (&["replica", "list"], false),
        (&["component", "list"], false),
    ];
    for (command, takes) in commands {
        let help = run(command.iter().chain(&["--help"]))?.out;
        assert!(help.contains("--token-file"), "{help}");
        assert_eq!(help.contains("--tenant"), takes, "{command:?}: {help}");
        if !takes {
            let refused = run(command.iter().chain(&["--tenant", "acme"]))?;
            assert!(refused.code == Some(2) && refused.err.contains("'--tenant'"), "{}", refused.err);
        }
    }
    Ok(())
}

#[test]
fn wrong_usage_ends_with_exit_code_2() -> Result<()> {
    let spaced = ["send", "http://127.0.0.1:1", "hello", "--extension", "not a uri"];
    for arguments in [&[][..], &["send"], &["inspect"], &["unknown"], &spaced] {
        let run = run(arguments)?;
        assert_eq!(run.code, Some(2), "{arguments:?}: {}", run.err);
    }
    Ok(())
}
