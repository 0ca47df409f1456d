//! `annex bench`

use annex_components::{HELLO_EXTENSION, TEST_EXTENSION, TIMESTAMP};
use anyhow::{Context, Result};
use serde_json::Value;

use super::{Project, check_refused};

fn project() -> Result<Project> {
    let project = Project::built(TIMESTAMP, "[settings.grants]\nclock = true\n")?;
    project.write("cases/a.toml", "[given]\nmessage = \"Hi\"\n")?;
    Ok(project)
}

fn measured(project: &Project, more: &[&str]) -> Result<Value> {
    let run = project.run(&[&["bench", "--json", "--turns", "20"], more].concat())?;
    assert_eq!(run.code, Some(0), "{}", run.err);
    Ok(serde_json::from_str(&run.out)?)
}

#[test]
fn times_ascend_and_instructions_are_the_same_in_each_run() -> Result<()> {
    let project = project()?;
    let measured = [measured(&project, &[])?, measured(&project, &["cases/a.toml"])?];
    for measured in &measured {
        assert_eq!(measured["turns"], 20);
        let component = &measured["components"][0];
        for times in [&component["turn"], &component["hooks"]["response"]] {
            let times = ["p50_us", "p95_us", "p99_us", "max_us"].map(|name| times[name].as_f64().unwrap_or_default());
            assert!(times[0] > 0.0 && times.is_sorted(), "{component}");
        }
        for name in ["turns_per_second", "memory_bytes", "host_calls", "instructions"] {
            assert!(component[name].as_f64().is_some_and(|number| number > 0.0), "{name}: {component}");
        }
        assert!(component["digest"].as_str().is_some_and(|digest| digest.starts_with("sha256:")), "{component}");
    }
    let instructions = measured.map(|measured| measured["components"][0]["instructions"].clone());
    assert_eq!(instructions[0], instructions[1]);
    Ok(())
}

#[test]
fn a_component_is_compared_with_another_one() -> Result<()> {
    let project = project()?;
    let measured = measured(&project, &["--against", HELLO_EXTENSION])?;
    let components = measured["components"].as_array().context("no components")?;
    assert_eq!(components.len(), 2);
    assert_ne!(components[0]["digest"], components[1]["digest"]);
    assert_ne!(components[0]["instructions"], components[1]["instructions"]);

    let shown = project.run(&["bench", "--turns", "20", "--against", TIMESTAMP])?;
    assert_eq!(shown.code, Some(0), "{}", shown.err);
    for expected in
        ["a.toml, 20 turns\n", "p50", "p99", "\nturn ", "\nresponse ", "\nmemory ", "1.000 of the instructions"]
    {
        assert!(shown.out.contains(expected), "{expected}: {}", shown.out);
    }
    assert_eq!(shown.out.matches("turns per second").count(), 2, "{}", shown.out);
    Ok(())
}

#[test]
fn a_turn_that_fails_is_no_measure() -> Result<()> {
    let project = Project::built(TEST_EXTENSION, "")?;
    check_refused(&project.run(&["bench"])?, 1, &["cannot read ", "cases"]);
    project.write("cases/a.toml", "[given]\nparameters = { behaviour = { begin = \"trap\" } }\n")?;
    check_refused(&project.run(&["bench", "--turns", "5"])?, 1, &["a.toml: a turn fails", "trapped in transition"]);
    check_refused(&project.run(&["bench", "--turns", "0"])?, 2, &["--turns"]);
    check_refused(&project.run(&["bench", "--against", "nowhere.wasm"])?, 1, &["cannot read nowhere.wasm"]);
    Ok(())
}
