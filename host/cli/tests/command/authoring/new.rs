//! `annex new`

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::{check_refused, files_below, run_in};

/// Each language, with the source file that an author edits first.
const LANGUAGES: [(&str, &str); 6] = [
    ("rust", "src/lib.rs"),
    ("js", "src/extension.js"),
    ("ts", "src/extension.ts"),
    ("python", "src/extension.py"),
    ("c", "src/extension.c"),
    ("go", "extension.go"),
];
/// All hooks but `live-card`, which no project has beside `card`.
const HOOKS: &str =
    "card,activation,message,state,transition,reply,steering,output,response,reads,extended-card,method,client";
const CAPABILITIES: &str = "parameters,keyvalue,clock,random,json-schema,session-state,task,tasks,task-resumption,\
                            agent-steps,caller,task-metadata,logging";

fn manifest(project: &Path) -> Result<toml::Table> {
    Ok(toml::from_str(&fs::read_to_string(project.join("annex-extension.toml"))?)?)
}

#[test]
fn a_project_in_each_language_has_few_files_and_all_that_it_needs_of_annex() -> Result<()> {
    let parent = tempfile::tempdir()?;
    for (language, source) in LANGUAGES {
        let name = format!("in-{language}");
        let made = run_in(parent.path(), &["new", &name, "--lang", language])?;
        assert_eq!(made.code, Some(0), "{language}: {}", made.err);
        assert_eq!(made.out, format!("cd {name} && annex build\nannex test\nannex dev\n"));

        let project = parent.path().join(&name);
        let own = files_below(&project, &["wit", "vendor"])?;
        assert!(own.len() <= 8, "{language}: {own:?}");
        for file in [source, "README.md", "annex-extension.toml", "cases/hello.toml", ".gitignore"] {
            assert!(own.iter().any(|own| own == file), "{language} has no {file}: {own:?}");
        }
        let given = if language == "rust" { "vendor/annex-sdk/Cargo.toml" } else { "wit/deps/annex-extension" };
        assert!(project.join(given).exists(), "{language} has no {given}");
        assert_eq!(project.join("wit/world.wit").exists(), language != "rust");
        let manifest = manifest(&project)?;
        assert_eq!(manifest["name"].as_str(), Some(name.as_str()));
        assert!(manifest["build"]["command"].as_array().is_some_and(|command| !command.is_empty()));
    }
    assert_eq!(fs::read_dir(parent.path())?.count(), LANGUAGES.len(), "something lies beside the projects");
    Ok(())
}

#[test]
fn all_hooks_and_capabilities_can_be_chosen_together() -> Result<()> {
    let parent = tempfile::tempdir()?;
    for (language, _) in LANGUAGES {
        let name = format!("in-{language}");
        let made =
            run_in(parent.path(), &["new", &name, "--lang", language, "--hooks", HOOKS, "--with", CAPABILITIES])?;
        assert_eq!(made.code, Some(0), "{language}: {}", made.err);
        let manifest = manifest(&parent.path().join(&name))?;
        let grants = manifest["settings"]["grants"].as_table().context("no grants")?;
        for grant in [
            "keyvalue",
            "clock",
            "random",
            "session-state",
            "task",
            "tasks",
            "task-resumption",
            "agent-steps",
            "caller",
            "task-metadata",
            "answer",
            "rewrite-answer",
            "reads",
        ] {
            assert!(grants.contains_key(grant), "{language} is not granted {grant}: {grants}");
        }
    }
    Ok(())
}

#[test]
fn a_hook_that_is_named_twice_is_there_once() -> Result<()> {
    let parent = tempfile::tempdir()?;
    let made = run_in(parent.path(), &["new", "twice", "--lang", "c", "--hooks", "response,card,response"])?;
    assert_eq!(made.code, Some(0), "{}", made.err);
    let world = fs::read_to_string(parent.path().join("twice/wit/world.wit"))?;
    let exports: Vec<&str> = world.lines().filter_map(|line| line.trim().strip_prefix("export ")).collect();
    assert_eq!(
        exports,
        ["annex:extension/descriptor@0.1.0;", "annex:extension/card@0.1.0;", "annex:extension/response@0.1.0;"]
    );
    Ok(())
}

#[test]
fn a_wrong_word_is_answered_with_the_right_ones_and_nothing_is_made() -> Result<()> {
    let parent = tempfile::tempdir()?;
    let check = |code: i32, arguments: &[&str], expected: &[&str]| -> Result<()> {
        let run = run_in(parent.path(), &[&["new"], arguments].concat())?;
        check_refused(&run, code, expected);
        assert_eq!(run.out, "");
        assert_eq!(fs::read_dir(parent.path())?.count(), 0, "{arguments:?} left something behind");
        Ok(())
    };
    check(2, &["Word", "--lang", "rust"], &["\"Word\"", "lower-case letter", "word-count"])?;
    check(2, &["../word", "--lang", "rust"], &["\"../word\"", "word-count"])?;
    check(2, &["word", "--lang", "java"], &["\"java\"", "rust, js, ts, python, c, go"])?;
    let hooks = HOOKS.replace(',', ", ").replacen("card, ", "card, live-card, ", 1);
    check(2, &["word", "--lang", "c", "--hooks", "respond"], &["\"respond\"", &hooks])?;
    check(2, &["word", "--lang", "c", "--with", "files"], &["\"files\"", "parameters, keyvalue", "http, json-schema"])?;
    check(2, &["word", "--lang", "c", "--hooks", "card,live-card"], &["same entry", "choose one of them"])?;
    for script in ["js", "ts"] {
        check(
            2,
            &["word", "--lang", script, "--with", "clock,http"],
            &["wasi:http", "another language", "leave out http"],
        )?;
    }
    check(2, &["word"], &["--lang is missing", "annex new word-count --lang rust"])?;
    check(2, &[], &["NAME is missing", "annex new word-count --lang rust"])
}

#[test]
fn the_uri_is_ones_own_or_told_to_be_an_example() -> Result<()> {
    let parent = tempfile::tempdir()?;
    for (language, source) in LANGUAGES {
        let uri = "https://acme.example/quota/v1";
        let name = format!("in-{language}");
        let own = run_in(parent.path(), &["new", &name, "--lang", language, "--uri", uri])?;
        assert!(own.code == Some(0) && !own.err.contains("example: give"), "{}", own.err);
        let text = fs::read_to_string(parent.path().join(&name).join(source))?;
        assert!(text.contains(uri) && !text.contains("https://example.com"), "{language}: {text}");
        assert!(text.contains("said hello"), "{language} logs no line: {text}");
    }
    let example = run_in(parent.path(), &["new", "word", "--lang", "c"])?;
    assert!(example.err.contains("https://example.com/extensions/word/v1 is an example: give"), "{}", example.err);
    let wrong = run_in(parent.path(), &["new", "other", "--lang", "c", "--uri", "a \"b\""])?;
    check_refused(&wrong, 2, &["not an absolute URI", "https://acme.example"]);
    Ok(())
}

#[test]
fn whoever_says_nothing_on_a_terminal_is_asked_until_the_answers_can_be_used() -> Result<()> {
    let parent = tempfile::tempdir()?;
    let command = format!("{} new", env!("CARGO_BIN_EXE_annex"));
    // The program `script` of Debian's essential packages runs a command on a terminal of its own.
    let mut asked = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .current_dir(parent.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let answers = "Word\nword\njava\nc\n\nkeyvalue clock\n";
    asked.stdin.take().context("a pipe")?.write_all(answers.as_bytes())?;
    let output = asked.wait_with_output()?;
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    for expected in ["Name, such as word-count: ", "\"Word\"", "Language (rust, js", "\"java\"", "[response]: ", "[]: "]
    {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    assert!(output.status.success() && shown.contains("cd word && annex build"), "{shown}");
    let made = manifest(&parent.path().join("word"))?;
    let grants = made["settings"]["grants"].as_table().context("no grants")?;
    assert!(grants.contains_key("keyvalue") && grants.contains_key("clock"), "{grants}");
    Ok(())
}

#[test]
fn a_folder_that_is_there_is_left_as_it_is() -> Result<()> {
    let parent = tempfile::tempdir()?;
    fs::create_dir(parent.path().join("word"))?;
    fs::write(parent.path().join("word/own.txt"), "mine")?;
    let refused = run_in(parent.path(), &["new", "word", "--lang", "python"])?;
    check_refused(&refused, 1, &["word is there already", "choose another name"]);
    assert_eq!(files_below(parent.path(), &[])?, ["word/own.txt"]);
    assert_eq!(fs::read_to_string(parent.path().join("word/own.txt"))?, "mine");
    Ok(())
}
